"""The methods that train in rounds, by name."""

from __future__ import annotations

from synthfair.federated import dp_sgd, fedavg, fpfl, privfairfl, refine, two_phase
from synthfair.federated.method import TrainConfig

_ALL = fedavg.FedAvg, fpfl.FedSgd, fpfl.Fpfl, fpfl.Mmdm, dp_sgd.DpSgd, two_phase.FairSgd
_MORE = two_phase.TwoPhase, privfairfl.PrivFairFLPre, privfairfl.PrivFairFLPost, refine.Refine

METHODS: dict[str, type[TrainConfig]] = {
    kind.model_fields["method"].default: kind for kind in (*_ALL, *_MORE)
}
"""The settings of the methods, a class each, by the names of the methods."""

"""The methods that train in rounds, by name."""

from __future__ import annotations

from synthfair.federated.dp_sgd import DpSgd
from synthfair.federated.fair_sgd import FairSgd
from synthfair.federated.fedavg import FedAvg
from synthfair.federated.fpfl import FedSgd, Fpfl, Mmdm
from synthfair.federated.method import TrainConfig
from synthfair.federated.privfairfl import PrivFairFLPost, PrivFairFLPre
from synthfair.federated.refine import Refine
from synthfair.federated.two_phase import TwoPhase

_ALL = [FedAvg, FedSgd, Fpfl, Mmdm, DpSgd, FairSgd, TwoPhase]
_ALL += [PrivFairFLPre, PrivFairFLPost, Refine]

METHODS: dict[str, type[TrainConfig]] = {kind.model_fields["method"].default: kind for kind in _ALL}

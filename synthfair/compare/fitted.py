"""What every method makes of a federation."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from synthfair.client.distillation import Distillation
from synthfair.federated import Cost
from synthfair.privacy.rounds import TrainingGuarantee


class Fitted(NamedTuple):
    """What a method makes of a federation.

    Attributes:
        scores: [N_test] of each client's test rows; the decision is +1 where positive.
        converged: whether every problem solved on the way met its tolerance; None: no test.
        cost: what the clients sent, and how often.
        distillations: one a client, of methods that distil.
        promise: of privacy, of methods in rounds; releases have statements of their own.
    """

    scores: tuple[np.ndarray, ...]
    converged: bool | None
    cost: Cost
    distillations: tuple[Distillation, ...] = ()
    promise: TrainingGuarantee | None = None

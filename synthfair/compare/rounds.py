"""Methods that train in rounds, on the clients and with the notion of the other methods."""

from __future__ import annotations

from typing import NamedTuple, get_args

import numpy as np
from pydantic import ValidationError

from synthfair.compare.federation import Federation, pooled
from synthfair.compare.fitted import Fitted
from synthfair.config import DistillConfig, TrainConfig
from synthfair.config.train import Method
from synthfair.errors import InputError, refusal
from synthfair.federated import Dealing, owners, populate, train_rounds

ROUND_METHODS: tuple[str, ...] = tuple(name for name in get_args(Method) if name != "fedavg")
"""By name. FedAvg is with the methods that have a penalty."""


_FREE = {
    "mmdm": {"multiplier_rate": 0.0, "damping": 0.0},
    "fair_sgd": {"kappa": 0.0, "kappa_rate": 0.0},
    "two_phase": {"kappa": 0.0, "kappa_rate": 0.0},
}
"""How they train without a constraint; FPFL without one is FedSGD."""

_IN_STEPS = TrainConfig(rounds=1000, learning_rate=1.0)


class Rounds(NamedTuple):
    """How such methods train here.

    Attributes:
        config: settings; method, notion, alpha and seed are those of the comparison. If None, some
            that suit the method.
        dealing: how training rows become users; if None, the clients are the users.
    """

    config: TrainConfig | None = None
    dealing: Dealing | None = None

    def settings(self, method: str, config: DistillConfig) -> TrainConfig:
        """Those of one run.

        These methods have no rho but a tolerance alpha, by which a group's rate may differ from
        all rows': here 1 / rho_o, and no constraint for rho_o of at most 1.

        Raises:
            InputError: the method does not know the notion, or other settings of the comparison.
        """
        free = method == "fedsgd" or config.rho_o <= 1
        own = TrainConfig.model_validate({"method": method})
        changed = {
            "method": "fedsgd" if free and method == "fpfl" else method,
            **(_FREE.get(method, {}) if free else {}),
            "notion": config.notion,
            "alpha": 0.5 if free else 1.0 / config.rho_o,
            "seed": config.seed,
        }
        base = self.config or (own if own.averaged else _IN_STEPS)
        if base.also:
            raise InputError("also: comparisons hold one attribute to the constraint; see train")
        try:
            return TrainConfig.model_validate(base.given | changed)
        except ValidationError as error:
            raise refusal(f"method {method}", error) from error


DEFAULT_ROUNDS = Rounds()
"""Clients are the users, and nothing is clipped or noised."""


def in_rounds(method: str, federation: Federation, config: DistillConfig, rounds: Rounds) -> Fitted:
    """Trains by one of :data:`ROUND_METHODS`.

    Raises:
        InputError: the settings do not fit the clients.
    """
    settings = rounds.settings(method, config)
    rows = pooled(federation.train)
    user = np.repeat(np.arange(len(federation.train)), [len(part.y) for part in federation.train])
    if rounds.dealing is not None:
        user = owners(len(rows.y), rounds.dealing, config.seed)
    training = train_rounds(populate(rows, user, federation.schema, settings), settings)
    scores = tuple(training.model.scores(part.x, part.s) for part in federation.test)
    return Fitted(scores, training.model.converged, cost=training.cost, promise=training.guarantee)

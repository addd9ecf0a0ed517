"""Surrogates in a comparison: made once, trained on with each weight of the penalty."""

from __future__ import annotations

import time
from collections.abc import Mapping

from synthfair.client.surrogate_release import surrogate_release
from synthfair.compare.federation import Federation, Fitted
from synthfair.config import DistillConfig, ServerConfig, SurrogateConfig
from synthfair.data.batches import in_memory
from synthfair.federated import Communication
from synthfair.release.format import Release, file_bytes
from synthfair.server.pooling import pool_and_train


class SharedSurrogates:
    """The releases of the last seed, as they hold no weight; of one table and split.

    With epsilon, too: a private release is sent once, and serves every weight.
    """

    def __init__(self) -> None:
        """None is made yet."""
        self._seed: int | None = None
        self._releases: dict[str, Release] = {}
        self._seconds = 0.0

    def take(
        self, federation: Federation, config: DistillConfig
    ) -> tuple[dict[str, Release], float]:
        """Those of the settings' seed, and the seconds that an earlier weight spent on them."""
        if config.seed == self._seed:
            return self._releases, self._seconds
        start = time.perf_counter()
        self._releases = make_surrogates(federation, config)
        self._seed, self._seconds = config.seed, time.perf_counter() - start
        return self._releases, 0.0


def make_surrogates(federation: Federation, config: DistillConfig) -> dict[str, Release]:
    """One of each client; of the settings, they have the seed and those of privacy."""
    settings = SurrogateConfig.model_validate(
        config.model_dump(include={"epsilon", "delta", "relation", "seed"})
    )
    return {
        name: surrogate_release(in_memory(real), federation.schema, settings, source=name).release
        for name, real in zip(federation.names, federation.train, strict=True)
    }


def train_on_surrogates(
    releases: Mapping[str, Release], federation: Federation, config: DistillConfig
) -> Fitted:
    """With the model and penalty of the settings."""
    asked = ServerConfig(
        rho=config.rho_o,
        penalty=config.penalty,
        notion=config.notion,
        temperature=config.temperature,
        lambda_theta=config.lambda_theta,
        intercept=config.intercept,
    )
    model = pool_and_train(releases, federation.schema, asked)
    scores = tuple(model.scores(part.x, part.s) for part in federation.test)
    cost = Communication(len(releases), 1, sum(map(file_bytes, releases.values())))
    return Fitted(scores, model.converged, cost, asked.asked)

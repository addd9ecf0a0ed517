"""Surrogates in a comparison: made once, trained on with each weight of the penalty."""

from __future__ import annotations

import time
from collections.abc import Mapping

from synthfair.client.prepare import sha256_of
from synthfair.client.surrogate_release import surrogate_release
from synthfair.compare.federation import Federation, Fitted
from synthfair.config import DistillConfig, ServerConfig, SurrogateConfig
from synthfair.data.batches import in_memory
from synthfair.federated import Communication
from synthfair.release.format import Release, file_bytes
from synthfair.server.pooling import pool_and_train


class SharedSurrogates:
    """The releases that were made last, as they hold no weight of a penalty.

    With epsilon, too: a private release is sent once, and serves every weight.
    """

    def __init__(self) -> None:
        """None is made yet."""
        self._made_of: tuple[object, ...] | None = None
        self._releases: dict[str, Release] = {}
        self._seconds = 0.0

    def take(
        self, federation: Federation, config: DistillConfig
    ) -> tuple[dict[str, Release], float]:
        """Those of these clients, and the seconds that an earlier weight spent on them.

        Clients are the same if their rows are: each point of a grid encodes them anew.
        """
        settings, schema = surrogate_settings(config), federation.schema
        rows = *map(sha256_of, federation.train), federation.names, schema.hash
        if self._made_of == (settings, rows):
            return self._releases, self._seconds
        start = time.perf_counter()
        self._releases = make_surrogates(federation, settings)
        self._made_of, self._seconds = (settings, rows), time.perf_counter() - start
        return self._releases, 0.0


def surrogate_settings(config: DistillConfig) -> SurrogateConfig:
    """With the seed of a comparison, and its settings of privacy."""
    return SurrogateConfig.model_validate(
        config.model_dump(include={"epsilon", "delta", "relation", "seed"})
    )


def make_surrogates(federation: Federation, settings: SurrogateConfig) -> dict[str, Release]:
    """One of each client."""
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

"""Tables cut into clients, and models of them: centrally, by FedAvg, and with DP-SGD."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np
import pandas as pd

import synthfair as sf
from benchmarks.unlike.clients import weighted
from synthfair.postprocess import RowWeights
from synthfair.surrogate import train_fair

TABLES = {"adult": "sex", "dutch": "sex", "law_school": "race"}
CLIENTS = 100

LAMBDA_THETA = sf.DistillConfig().lambda_theta
IN_ROUNDS = {"method": "dp_sgd", "rounds": 20, "batch": 50}
"""Without an epsilon, local steps on batches and a mean: FedAvg."""

PRIVATE = {"clip": 1.0, "epsilon": 1.0, "delta": 1e-4}
"""Of DP-SGD, for one row of one client."""


def training_settings(training: str, seed: int = 0) -> sf.TrainConfig:
    """Of training in rounds; of others, those of FL, which they do not need."""
    own = IN_ROUNDS | (PRIVATE if training == "FL-DP-SGD" else {})
    return sf.TrainConfig.model_validate(own | {"seed": seed})


class SplitTable(NamedTuple):
    """The rows of all clients.

    Attributes:
        schema: theirs.
        train: rows.
        user: [N] whose each training row is.
        test: rows.
    """

    schema: sf.Schema
    train: sf.Encoded
    user: np.ndarray
    test: sf.Encoded

    @property
    def n_groups(self) -> int:
        """G."""
        return len(self.schema.groups)


class ModelScores(NamedTuple):
    """A model's, of all rows."""

    train: np.ndarray
    test: np.ndarray


@lru_cache(maxsize=3)
def split(name: str, seed: int) -> SplitTable:
    """A table among the clients, a fifth of each for testing."""
    table, schema = sf.load_dataset(name, TABLES[name])
    parts = sf.partition(table, clients=CLIENTS, seed=seed)
    user = np.repeat(np.arange(CLIENTS), [len(part.train) for part in parts])
    train, test = (
        sf.encode(pd.concat(list(some)), schema)
        for some in ([part.train for part in parts], [part.test for part in parts])
    )
    return SplitTable(schema, train, user, test)


@lru_cache(maxsize=12)
def trained(name: str, seed: int, training: str, *, smoke: bool) -> ModelScores:
    """Without anything for fairness."""
    rows = split(name, seed)
    if training == "CL":
        return centrally(rows)
    return in_rounds(rows, seed, private=training == "FL-DP-SGD", smoke=smoke)


def centrally(rows: SplitTable) -> ModelScores:
    """All training rows in one place."""

    def inputs(part: sf.Encoded) -> sf.Rows:
        return weighted(part).rows(n_groups=rows.n_groups)

    model = sf.LinearModel()
    params = train_fair(
        inputs(rows.train), LAMBDA_THETA, 0.0, model=model, penalty=sf.CovariancePenalty()
    ).params
    parts = (rows.train, rows.test)
    return ModelScores(*(np.asarray(model.scores(params, inputs(part).a)) for part in parts))


def in_rounds(
    rows: SplitTable, seed: int, *, private: bool, smoke: bool, weights: RowWeights | None = None
) -> ModelScores:
    """By all clients, in rounds."""
    config = training_settings("FL-DP-SGD" if private else "FL", seed=seed)
    config = config.model_copy(update={"rounds": 1}) if smoke else config
    data = sf.federated.make_user_data(rows.train, rows.user, rows.schema, config, weights=weights)
    model = sf.federated.train_rounds(data, config).model
    return ModelScores(*(model.scores(part.x, part.s) for part in (rows.train, rows.test)))

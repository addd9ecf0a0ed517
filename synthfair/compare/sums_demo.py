"""Ten lenders of the table ``loanapp`` and two aggregators: a secure sum by files, and its use."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from pydantic import ValidationError

from synthfair.config import TrainConfig
from synthfair.data.datasets import load_dataset
from synthfair.data.encode import encode
from synthfair.data.partition import partition, write_clients
from synthfair.data.tables import read_table
from synthfair.errors import InputError, refusal
from synthfair.evaluation import Evaluation, evaluate
from synthfair.federated import make_user_data, train_rounds
from synthfair.files import write_json
from synthfair.postprocess.histogram import ScoreHistogram, write_histogram
from synthfair.postprocess.thresholds import ChosenDecision, choose_decision
from synthfair.release.keys import make_keys, read_keys, read_signing_key
from synthfair.secure import (
    AggregatorKeys,
    GroupCounts,
    PartialSum,
    Task,
    answer,
    count_table,
    make_aggregator_keys,
    make_task,
    make_uploads,
    open_sums,
    read_aggregator_keys,
    read_aggregator_secret,
    read_partial_sum,
    read_task,
    receive,
    score_histogram,
    write_task,
)
from synthfair.secure.in_memory import SIMULATED
from synthfair.trained import TrainedModel, write_model

if TYPE_CHECKING:
    import pandas as pd

    from synthfair.data.schema import Schema

LENDERS, AGGREGATORS, BINS, ROWS_PER_CLIENT = 10, 2, 21, 1000
NOTION, ALPHA = "statistical_parity", 0.02
TRAINED, COUNTED = slice(0, None, 2), slice(1, None, 2)
"""Of a lender's rows, in their file's order: of rows that the model knows, estimates flatter."""


class SumsDemo(NamedTuple):
    """A demonstration.

    Attributes:
        model: whose scores were counted.
        histogram: released.
        exact: [G, 2, B] what only the demonstration knows.
        chosen: thresholds by group, from the histogram alone.
        evaluations: by what decides, on the lenders' test rows.
    """

    model: TrainedModel
    histogram: ScoreHistogram
    exact: np.ndarray
    chosen: ChosenDecision
    evaluations: dict[str, Evaluation]


def demonstrate_sums(folder: Path, *, epsilon: float) -> SumsDemo:
    """Trains a model in rounds, sums its scores over all lenders, and chooses thresholds.

    Args:
        folder: where all files are written; new or empty.
        epsilon: of the histogram.

    Raises:
        InputError: the folder is not empty, or cannot be written to; or the counts do not stand out
            from their noise.
    """
    if folder.is_dir() and any(folder.iterdir()):
        raise InputError(f"{folder}: exists and is not empty; name another")
    table, schema = load_dataset("loanapp")
    lenders = partition(table, clients=LENDERS, seed=0)
    write_clients(lenders, schema, folder)
    model = _trained([lender.train.iloc[TRAINED] for lender in lenders], schema)
    write_model(model, folder / "model.json")
    _make_keys(folder)
    _plan(folder, model, epsilon)
    lenders_counts = [_share(folder, i, model, epsilon) for i in range(LENDERS)]
    exact = np.sum(lenders_counts, axis=0)
    partials = [_add(folder, role, epsilon) for role in range(AGGREGATORS)]
    histogram = _open(folder, partials)
    chosen = choose_decision(histogram, NOTION, ALPHA)
    fair = model.model_copy(update={"decision": chosen.decision})
    write_model(fair, folder / "fair_model.json")
    tests = {f"client_{i}": lender.test for i, lender in enumerate(lenders)}
    evaluations = {
        "one threshold for all": evaluate(model, tests),
        "a threshold for each group": evaluate(fair, tests),
    }
    shape = histogram.array().shape
    return SumsDemo(model, histogram, exact.reshape(shape), chosen, evaluations)


def _trained(tables: Sequence[pd.DataFrame], schema: Schema) -> TrainedModel:
    """By FedAvg over the lenders."""
    import pandas as pd

    config = TrainConfig(method="fedavg")
    user = np.repeat(np.arange(len(tables)), [len(table) for table in tables])
    rows = encode(pd.concat(list(tables)), schema)
    return train_rounds(make_user_data(rows, user, schema, config), config).model


def _make_keys(folder: Path) -> None:
    for lender in range(LENDERS):
        make_keys(folder / f"client_{lender}.key")
    for role in range(AGGREGATORS):
        make_aggregator_keys(folder / f"aggregator_{role}.key")


def _plan(folder: Path, model: TrainedModel, epsilon: float) -> None:
    try:
        what = GroupCounts(
            schema_hash=model.schema_.hash,
            groups=tuple(map(str, model.schema_.groups)),
            model=model.sha256,
            bins=BINS,
            epsilon=epsilon,
            rows_per_client=ROWS_PER_CLIENT,
        )
    except ValidationError as error:
        raise refusal("settings", error) from error
    clients = read_keys([folder / f"client_{lender}.pub" for lender in range(LENDERS)])
    task = make_task(what, _aggregators(folder), list(clients), least_clients=LENDERS)
    write_task(task, folder / "task.json")


def _aggregators(folder: Path) -> list[AggregatorKeys]:
    return [read_aggregator_keys(folder / f"aggregator_{role}.pub") for role in range(AGGREGATORS)]


def _share(folder: Path, lender: int, model: TrainedModel, epsilon: float) -> np.ndarray:
    """Writes a lender's uploads; its counts, which a real lender shows to nobody."""
    task = read_task(folder / "task.json")
    task.require_agreed(_aggregators(folder))
    task.require_within(most_epsilon=epsilon)
    data = folder / f"client_{lender}_train.csv"
    table = read_table(data, model.schema_).iloc[COUNTED]
    counts = count_table(_counted(task), table, model.schema_, model=model, source=str(data))
    uploads = make_uploads(task, counts, read_signing_key(folder / f"client_{lender}.key"))
    for role, upload in enumerate(uploads):
        (folder / f"client_{lender}.to_{role}").write_bytes(upload)
    return counts


def _add(folder: Path, role: int, epsilon: float) -> PartialSum:
    task = read_task(folder / "task.json")
    task.require_within(most_epsilon=epsilon)
    secret = read_aggregator_secret(folder / f"aggregator_{role}.key")
    received = receive(task, secret, sorted(folder.glob(f"*.to_{role}")))
    return answer(task, secret, received, folder / f"aggregator_{role}.answers")


def _open(folder: Path, partials: Sequence[PartialSum]) -> ScoreHistogram:
    """All publish their commitments, then their sums; anybody opens them."""
    task = read_task(folder / "task.json")
    commitments = [partial.commitment for partial in partials]
    for partial in partials:
        write_json(folder / f"sum_{partial.role}.json", partial.model_dump(mode="json"))
    sums = [read_partial_sum(folder / f"sum_{role}.json") for role in range(AGGREGATORS)]
    opened = open_sums(task, sums, commitments=commitments)
    opened = opened._replace(statement=opened.statement | {"simulated": SIMULATED})
    histogram = score_histogram(_counted(task), opened)
    write_histogram(histogram, folder / "histogram.json")
    return histogram


def _counted(task: Task) -> GroupCounts:
    assert isinstance(task.what, GroupCounts)  # noqa: S101 - _plan has made it
    return task.what

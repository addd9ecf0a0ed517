"""``python -m synthfair secure demo``: the whole protocol by files on a real table."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd

    from synthfair.data.schema import Schema
    from synthfair.postprocess.histogram import ScoreHistogram
    from synthfair.trained import TrainedModel

HELP = "run all of it on a real table: ten lenders, two aggregators"

DESCRIPTION = """\
Ten lenders train a model together (table loanapp: 1,989 mortgage applications in Boston;
label: approved; sensitive attribute: white). Then they count applications that it was not
trained on by group, label and score, and two aggregators sum the counts so that nobody sees
a lender's.
Thresholds by group follow from the noisy total. One process makes all keys and plays all
parties, so this is a simulation, and its statement says so.

  python -m synthfair secure demo --output synthfair-secure-demo
"""

LENDERS, AGGREGATORS = 10, 2


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the command's arguments."""
    add = parser.add_argument
    add("--output", type=Path, default=Path("synthfair-secure-demo"),
        help="Folder to write to. Default: synthfair-secure-demo.")  # fmt: skip
    add("--epsilon", type=float, default=1.0, help="Privacy budget of the total. Default: 1.")


def run(args: argparse.Namespace) -> None:
    """Runs the command."""
    from synthfair.cli.show import say
    from synthfair.jax_setup import start_jax

    start_jax()
    from synthfair.data.datasets import load_dataset
    from synthfair.data.partition import partition, write_clients
    from synthfair.errors import InputError
    from synthfair.evaluation import evaluate
    from synthfair.postprocess.thresholds import choose_decision
    from synthfair.report.table import Table
    from synthfair.report.tables import decision_tables
    from synthfair.trained import write_model

    folder = args.output
    if folder.is_dir() and any(folder.iterdir()):
        raise InputError(f"{folder}: exists and is not empty; name another")
    table, schema = load_dataset("loanapp")
    lenders = partition(table, clients=LENDERS, seed=0)
    write_clients(lenders, schema, folder)

    # Every other row of a lender trains the model. The rest are counted: of rows that a model
    # knows, estimates flatter.
    model = _train([lender.train.iloc[0::2] for lender in lenders], schema)
    write_model(model, folder / "model.json")
    histogram, exact = _sum(folder, [lender.train.iloc[1::2] for lender in lenders], model, args)
    chosen = choose_decision(histogram, "statistical_parity", 0.02)
    fair = model.model_copy(update={"decision": chosen.decision})
    write_model(fair, folder / "fair_model.json")

    tests = {f"client_{i}": lender.test for i, lender in enumerate(lenders)}
    one, several = "one threshold for all", "a threshold for each group"
    released = histogram.array()
    noise = released - exact
    rows = [
        (group, label, int(released[i, y].sum()), int(noise[i, y].sum()))
        for i, group in enumerate(histogram.groups)
        for y, label in enumerate(("-1", "+1"))
    ]
    each = f"standard deviation {noise.std():.3g}, stated {histogram.variance**0.5:.3g}"
    caption = f"noise of each of the {noise.size} counts: {each}"
    say(Table(("group", "label", "rows, released", "noise"), rows, caption=caption))
    say(Table.of_facts(histogram.statement or {}))
    say(decision_tables(chosen, histogram))
    first = evaluate(model, tests)
    rows = [
        (name, found.overall["accuracy"].value, found.overall["spd"].value)
        for name, found in {one: first, several: evaluate(fair, tests)}.items()
    ]
    rows.append(("one decision for everybody", first.constant_accuracy, 0.0))
    caption = f"{first.n_test} test rows"
    say(Table(("decisions by", "accuracy", "SPD"), rows, caption=caption))
    say(f"Wrote keys, task, uploads, sums, histogram, model and fair model to {folder}/.")


def _train(tables: list[pd.DataFrame], schema: Schema) -> TrainedModel:
    """By FedAvg over the lenders."""
    import numpy as np
    import pandas as pd

    from synthfair.config import TrainConfig
    from synthfair.data.encode import encode
    from synthfair.federated import make_user_data, train_rounds

    config = TrainConfig(method="fedavg")
    lender = np.repeat(np.arange(LENDERS), [len(table) for table in tables])
    users = make_user_data(encode(pd.concat(tables), schema), lender, schema, config)
    return train_rounds(users, config).model


def _sum(
    folder: Path, tables: list[pd.DataFrame], model: TrainedModel, args: argparse.Namespace
) -> tuple[ScoreHistogram, np.ndarray]:
    """The released histogram, and [G, 2, B] the exact counts, which nobody else learns."""
    import numpy as np
    from pydantic import ValidationError

    from synthfair import secure
    from synthfair.errors import refusal
    from synthfair.files import write_json
    from synthfair.postprocess.histogram import write_histogram
    from synthfair.release.keys import make_keys, read_signing_key
    from synthfair.secure.opening import SIMULATED

    # All make keys, and somebody plans the task.
    clients = [make_keys(folder / f"client_{i}.key")[1] for i in range(LENDERS)]
    keys = [folder / f"aggregator_{role}.key" for role in range(AGGREGATORS)]
    aggregators = [secure.make_aggregator_keys(path)[1] for path in keys]
    schema = model.schema_
    try:
        what = secure.GroupCounts(
            schema_hash=schema.hash, groups=tuple(map(str, schema.groups)), model=model.sha256,
            bins=21, epsilon=args.epsilon, rows_per_client=1000,
        )  # fmt: skip
    except ValidationError as error:
        raise refusal("settings", error) from error
    task = secure.make_task(what, aggregators, clients, least_clients=LENDERS)
    secure.write_task(task, folder / "task.json")

    # Each lender counts its rows, and writes an encrypted share for each aggregator.
    counts = [secure.count_table(what, table, schema, model=model) for table in tables]
    for i, part in enumerate(counts):
        key = read_signing_key(folder / f"client_{i}.key")
        for role, upload in enumerate(secure.make_uploads(task, part, key)):
            (folder / f"client_{i}.to_{role}").write_bytes(upload)

    # Each aggregator adds up and answers; all publish their commitments before their sums.
    sums = []
    for role, path in enumerate(keys):
        secret = secure.read_aggregator_secret(path)
        received = secure.receive(task, secret, sorted(folder.glob(f"*.to_{role}")))
        sums.append(secure.answer(task, secret, received, path.with_suffix(".answers")))
    commitments = [partial.commitment for partial in sums]
    for role, partial in enumerate(sums):
        write_json(folder / f"sum_{role}.json", partial.model_dump(mode="json"))

    # Anybody opens the sums.
    opened = secure.open_sums(task, sums, commitments=commitments)
    opened = opened._replace(statement=opened.statement | {"simulated": SIMULATED})
    histogram = secure.score_histogram(what, opened)
    write_histogram(histogram, folder / "histogram.json")
    return histogram, np.sum(counts, axis=0).reshape(histogram.array().shape)

"""``python -m synthfair secure demo``: the whole protocol by files on a real table."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

import synthfair as sf

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd

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
    from synthfair.data.partition import write_clients
    from synthfair.jax_setup import start_jax
    from synthfair.report.table import Table
    from synthfair.report.tables import decision_tables

    start_jax()
    folder = args.output
    if folder.is_dir() and any(folder.iterdir()):
        raise sf.InputError(f"{folder}: exists and is not empty; name another")
    table, schema = sf.load_dataset("loanapp")
    lenders = sf.partition(table, clients=LENDERS, seed=0)
    write_clients(lenders, schema, folder)

    # Every other row of a lender trains the model. The rest are counted: of rows that a model
    # knows, estimates flatter.
    model = _train([lender.train.iloc[0::2] for lender in lenders], schema)
    sf.write_model(model, folder / "model.json")
    histogram, exact = _sum([lender.train.iloc[1::2] for lender in lenders], model, args)
    chosen = sf.postprocess.choose_decision(histogram, "statistical_parity", 0.02)
    fair = model.model_copy(update={"decision": chosen.decision})
    sf.write_model(fair, folder / "fair_model.json")

    tests = {f"client_{i}": lender.test for i, lender in enumerate(lenders)}
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
    first, second = sf.evaluate(model, tests), sf.evaluate(fair, tests)
    names = "one threshold for all", "a threshold for each group"
    rows = [
        (name, one.overall["accuracy"].value, one.overall["spd"].value)
        for name, one in zip(names, (first, second), strict=True)
    ]
    rows.append(("one decision for everybody", first.constant_accuracy, 0.0))
    say(Table(("decisions by", "accuracy", "SPD"), rows, caption=f"{first.n_test} test rows"))
    say(f"Wrote keys, task, uploads, sums, histogram, model and fair model to {folder}/.")


def _train(tables: list[pd.DataFrame], schema: sf.Schema) -> sf.TrainedModel:
    """By FedAvg over the lenders."""
    import numpy as np
    import pandas as pd

    config, rows = sf.TrainConfig(method="fedavg"), sf.encode(pd.concat(tables), schema)
    lender = np.repeat(np.arange(LENDERS), [len(table) for table in tables])
    users = sf.federated.make_user_data(rows, lender, schema, config)
    return sf.federated.train_rounds(users, config).model


def _sum(
    tables: list[pd.DataFrame], model: sf.TrainedModel, args: argparse.Namespace
) -> tuple[sf.postprocess.ScoreHistogram, np.ndarray]:
    """The released histogram, and [G, 2, B] the exact counts, which nobody else learns."""
    import numpy as np
    from pydantic import ValidationError

    from synthfair.errors import refusal
    from synthfair.secure.opening import SIMULATED, write_total

    # All make keys, and somebody plans the task.
    folder, schema = args.output, model.schema_
    clients = [sf.release.make_keys(folder / f"client_{i}.key")[1] for i in range(LENDERS)]
    keys = [folder / f"aggregator_{role}.key" for role in range(AGGREGATORS)]
    aggregators = [sf.secure.make_aggregator_keys(path)[1] for path in keys]
    try:
        what = sf.secure.GroupCounts(
            schema_hash=schema.hash, groups=tuple(map(str, schema.groups)), model=model.sha256,
            bins=21, epsilon=args.epsilon, rows_per_client=1000,
        )  # fmt: skip
    except ValidationError as error:
        raise refusal("settings", error) from error
    task = sf.secure.make_task(what, aggregators, clients, least_clients=LENDERS)
    sf.secure.write_task(task, folder / "task.json")

    # Each lender counts its rows, and writes an encrypted share for each aggregator.
    counts = [sf.secure.count_table(what, table, schema, model=model) for table in tables]
    for i, part in enumerate(counts):
        key = sf.release.read_signing_key(folder / f"client_{i}.key")
        for role, upload in enumerate(sf.secure.make_uploads(task, part, key)):
            (folder / f"client_{i}.to_{role}").write_bytes(upload)

    # Each aggregator adds up and answers. All would publish their commitments before their sums.
    sums = []
    for role, path in enumerate(keys):
        secret = sf.secure.read_aggregator_secret(path)
        received = sf.secure.receive(task, secret, sorted(folder.glob(f"*.to_{role}")))
        sums.append(sf.secure.answer(task, secret, received, path.with_suffix(".answers")))
        (folder / f"sum_{role}.json").write_text(sums[role].model_dump_json(indent=2) + "\n")

    # Anybody opens the sums.
    opened = sf.secure.open_sums(task, sums, commitments=[one.commitment for one in sums])
    opened = opened._replace(statement=opened.statement | {"simulated": SIMULATED})
    write_total(what, opened, folder / "histogram.json")
    histogram = sf.secure.score_histogram(what, opened)
    return histogram, np.sum(counts, axis=0).reshape(histogram.array().shape)

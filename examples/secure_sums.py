"""A sum whose parts nobody sees, on a real table: four regions, two aggregators.

    pip install '.[secure]'
    python examples/secure_sums.py --output synthfair-secure-demo

Four regions train a model together (table twoyear: 6,763 young people; label: a wage of at least
10 dollars an hour; groups: women and men). Then they count people whom it was not trained on by
group, label and score, and two aggregators sum the counts so that nobody sees a region's.
Thresholds by group follow from the noisy total. One process makes all keys and plays all parties,
so this is a simulation, and its guarantee says so. Between organisations the same steps are typed,
by different people: docs/secure.md.
"""

from __future__ import annotations

import sys
from pathlib import Path

import cyclopts
import numpy as np
import pandas as pd

import synthfair as sf
from synthfair.cli.show import say
from synthfair.data.partition import write_clients
from synthfair.errors import InputError
from synthfair.jax_setup import start_jax
from synthfair.report.privacy_words import guarantee_facts
from synthfair.report.result_tables import decision_tables
from synthfair.report.text_table import Table

AGGREGATORS = 2


def main(*, output: Path = Path("synthfair-secure-demo"), epsilon: float = 1.0) -> None:
    """Sum counts of four regions so that nobody sees one's, and choose thresholds by group.

    Args:
        output: A new folder to write to.
        epsilon: Privacy budget of the total.
    """
    start_jax()
    if output.is_dir() and any(output.iterdir()):
        raise InputError(f"{output}: exists and is not empty; name another")

    # Every other row of a region trains the model. The rest are counted: of rows that a model
    # knows, estimates flatter.
    table, schema = sf.load_dataset("twoyear")
    regions = sf.data.partition_by(table, "region", seed=0)
    write_clients(regions, schema, output)
    names = [name.replace(" ", "_") for name in regions]
    training = [region.train.iloc[0::2] for region in regions.values()]
    counted = [region.train.iloc[1::2] for region in regions.values()]

    # They train a model together, by FedAvg.
    config = sf.TrainConfig(method="fedavg")
    owners = np.repeat(np.arange(len(names)), [len(part) for part in training])
    rows = sf.encode(pd.concat(training), schema)
    users = sf.federated.make_user_data(rows, owners, schema, config)
    model = sf.federated.train_rounds(users, config).model
    sf.write_model(model, output / "model.json")

    # All make keys: regions sign with theirs, and encrypt with those of the aggregators.
    signers = [output / f"client_{name}.key" for name in names]
    clients = [sf.release.make_keys(path)[1] for path in signers]
    keys = [output / f"aggregator_{role}.key" for role in range(AGGREGATORS)]
    aggregators = [sf.secure.make_aggregator_keys(path)[1] for path in keys]

    # Somebody plans the task, which is public: what is summed, how private, by whom, of whom.
    what = sf.secure.GroupCounts(
        schema_hash=schema.hash, groups=tuple(map(str, schema.groups)), model=model.sha256,
        bins=21, epsilon=epsilon, rows_per_client=2000,
    )  # fmt: skip
    task = sf.secure.make_task(what, aggregators, clients, least_clients=len(names))
    task.write(output / "task.json")

    # Each region counts its rows, and writes an encrypted share for each aggregator.
    counts = [sf.secure.count_table(what, part, schema, model=model) for part in counted]
    for path, own in zip(signers, counts, strict=True):
        uploads = sf.secure.make_uploads(task, own, sf.release.read_signing_key(path))
        for role, upload in enumerate(uploads):
            path.with_suffix(f".to_{role}").write_bytes(upload)

    # Each aggregator adds up its shares, adds noise, and answers once. All would publish their
    # commitments before their sums.
    sums = []
    for role, path in enumerate(keys):
        secret = sf.secure.read_aggregator_secret(path)
        received = sf.secure.receive(task, secret, sorted(output.glob(f"*.to_{role}")))
        sums.append(sf.secure.answer(task, secret, received, path.with_suffix(".answers")))
        (output / f"sum_{role}.json").write_text(sums[role].model_dump_json(indent=2) + "\n")

    # Anybody opens the sums. The shares cancel; the total with the noise of both remains.
    opened = sf.secure.open_sums(task, sums, commitments=[one.commitment for one in sums])
    opened = opened._replace(simulated=True)
    histogram = sf.secure.score_histogram(what, opened)
    histogram.write(output / "histogram.json")

    # Here alone the exact total is known, too, so that the noise can be shown.
    released = histogram.array()
    noise = released - np.sum(counts, axis=0).reshape(released.shape)
    totals = [
        (group, label, int(released[i, y].sum()), int(noise[i, y].sum()))
        for i, group in enumerate(histogram.groups)
        for y, label in enumerate(("-1", "+1"))
    ]
    each = f"standard deviation {noise.std():.3g}, stated {histogram.variance**0.5:.3g}"
    caption = f"noise of each of the {noise.size} counts: {each}"
    say(Table(("group", "label", "rows, released", "noise"), totals, caption=caption))
    guarantee = what.guarantee(AGGREGATORS, simulated=True)
    say(Table.of_facts(guarantee_facts(guarantee) | {"clients": len(names)}))

    # A threshold for each group follows from the noisy total.
    chosen = sf.postprocess.choose_decision(histogram, "statistical_parity", 0.02)
    fair = model.model_copy(update={"decision": chosen.decision})
    sf.write_model(fair, output / "fair_model.json")
    say(decision_tables(chosen, histogram))

    # What that does to accuracy and to the gap, on test rows.
    tests = {name: region.test for name, region in regions.items()}
    before, after = sf.evaluate(model, tests), sf.evaluate(fair, tests)
    decisions = [
        (name, one.overall["accuracy"].value, one.overall["spd"].value)
        for name, one in (
            ("one threshold for all", before),
            ("a threshold for each group", after),
        )
    ]
    decisions.append(("one decision for everybody", before.constant_accuracy, 0.0))
    caption = f"{before.n_test} test rows"
    say(Table(("decisions by", "accuracy", "SPD"), decisions, caption=caption))
    say(f"Wrote keys, task, uploads, sums, histogram, model and fair model to {output}/.")


if __name__ == "__main__":
    try:
        cyclopts.run(main)
    except InputError as error:
        sys.exit(f"error: {error}")

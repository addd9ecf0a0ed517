"""What leaves a site is a function of what it declares: other rows, the same bytes.

Each answer is made twice, with the noise held fixed, from tables that differ in what the answer
does not declare; bytes, sizes, names and codes must be the same. Kits and report pages read no
table: tests/deploy/test_check.py makes kits before there are any, and a page has its numbers from files.
"""

import hashlib
import json
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from builders import NAMES, RELEASE, InProcess, World, make_schema, make_table

import synthfair as sf
from synthfair.client import distill_file
from synthfair.data.batches import in_memory
from synthfair.deploy.train_job import TrainJob, run_train
from synthfair.fairness.metrics import Scored
from synthfair.measure.collection import NO_VALUE, make_collection, perturb_rates
from synthfair.privacy.noise import seeded
from synthfair.secure.part import count_table

SCHEMA = make_schema(3).model_copy(update={"ignored": ("note",)})
FAIR = sf.DistillConfig(n_synthetic=24, steps=20)
SURROGATE = sf.SurrogateConfig(k_min=20)
PRIVATE = {"epsilon": 4.0, "delta": 1e-3}


def some_table():
    """Rows of three groups, the last of which has few."""
    rows = make_table(400, n_groups=3)
    few = rows[rows.town == "c"].head(7)
    return pd.concat([rows[rows.town != "c"], few], ignore_index=True).assign(note="")


def shuffled(rows):
    """In another order, and with notes, which the schema ignores."""
    mixed = rows.sample(frac=1.0, random_state=5)
    return mixed.assign(note=[f"person {i}" for i in range(len(rows))])


def another_of_few(rows):
    """One row more in a cell that is left out, with values of its own."""
    return pd.concat([rows, rows[rows.town == "c"].head(1).assign(income=99.0, home="other")])


def others_of_few(rows):
    return rows.assign(income=np.where(rows.town == "c", 3.0, rows.income))


def none_of_few(rows):
    return rows[rows.town != "c"]


FEW = [another_of_few, others_of_few, none_of_few]


def next_larger(rows):
    """The town whose sums are told together with those of the small one."""
    return rows[rows.town != "c"].town.value_counts().idxmin()


def hidden_pair(some=4):
    """Rows of which a town has few that are paid: sums by label and by town are in their place.

    For each of a few rows, another one has the same values but for town and label; ``some`` have
    exchanged their labels.
    """
    rows = make_table(600, n_groups=3)
    paid, town = rows.paid == "yes", rows.town == "c"
    rows = rows[~town | ~paid].reset_index(drop=True).assign(note="")
    one = rows.index[(rows.town == "c")][:8]
    other = rows.index[(rows.town == next_larger(rows)) & (rows.paid == "yes")][:8]
    features = ["income", "age", "home"]
    rows.loc[other, features] = rows.loc[one, features].to_numpy()
    rows.loc[one[:some], "paid"], rows.loc[other[:some], "paid"] = "yes", "no"
    return rows


def test_sums_by_label_and_by_group_hide_how_often_a_pair_occurs(tmp_path):
    sent = [released(hidden_pair(some), SURROGATE, tmp_path / str(some)) for some in (4, 1, 8)]
    assert sent[1] == sent[0] == sent[2]
    one_more = pd.concat([hidden_pair(), hidden_pair().tail(9)])
    assert released(one_more, SURROGATE, tmp_path / "more") != sent[0]


def released(rows, config, folder, **options):
    """The file that the command writes."""
    folder.mkdir()
    rows.to_csv(folder / "rows.csv", index=False)
    (folder / "schema.json").write_text(SCHEMA.to_json())
    paths = folder / "rows.csv", folder / "schema.json", folder / "sent.parquet"
    distill_file(*paths, config, **options)
    return paths[2].read_bytes()


def private(config):
    return config.model_copy(update=PRIVATE)


@pytest.mark.parametrize(
    ("config", "changes", "options"),
    [
        (FAIR, [shuffled], {}),
        (private(FAIR), [shuffled], {"noise_seed": 3}),
        (SURROGATE, [shuffled, *FEW], {}),
        (private(SURROGATE), [shuffled], {"noise_seed": 3}),
    ],
    ids=["fair", "private fair", "surrogate", "private surrogate"],
)
def test_a_release_does_not_depend_on_what_it_does_not_declare(config, changes, options, tmp_path):
    sent = released(some_table(), config, tmp_path / "given", **options)
    for change in changes:
        other = released(change(some_table()), config, tmp_path / change.__name__, **options)
        assert other == sent, change.__name__
    richer = some_table().assign(income=lambda t: np.minimum(t.income + 9, 100))  # declared
    assert released(richer, config, tmp_path / "richer", **options) != sent


def test_a_seed_that_depends_on_cells_that_are_left_out_is_seen(monkeypatch, tmp_path):
    """Planted: a seed by the number of all rows."""
    sent = []
    for change in (shuffled, another_of_few):
        rows = change(some_table())
        by_all_rows = len(rows)
        planted = SimpleNamespace(crc32=lambda *_, seed=by_all_rows: seed)
        monkeypatch.setattr("synthfair.surrogate.records.zlib", planted)
        sent.append(released(rows, SURROGATE, tmp_path / change.__name__))
    assert sent[0] != sent[1]


COLLECTION = make_collection((*"abc", NO_VALUE), sf.measure.best_split("randomized", 4, 1.0))


def scored(rows):
    x, s, y = sf.encode(rows, SCHEMA)
    return Scored(y, x[:, 0] - 0.5, s, 3)


def counts(rows):
    what = sf.secure.GroupCounts(
        schema_hash=SCHEMA.hash, groups=tuple("abc"), epsilon=1.0, rows_per_client=500
    )
    return count_table(what, rows, SCHEMA)


def user_counts(rows):
    """At most two rows of each person, of some hundred that have more."""
    what = sf.secure.GroupCounts(
        schema_hash=SCHEMA.hash, groups=tuple("abc"), epsilon=1.0, rows_per_client=500,
        unit="user", rows_per_user=2,
    )  # fmt: skip
    person = rows.income.round().astype(int)
    return count_table(what, rows.assign(person=person), SCHEMA, user_column="person")


def reports(rows):
    return perturb_rates(COLLECTION, scored(rows), tuple("abc"), "true_positive_rate",
                         source=seeded(3))  # fmt: skip


def sums(rows):
    """A client's parts of the sums of a surrogate of all clients, before noise."""
    config = private(SURROGATE)
    encoded = in_memory(sf.encode(rows, SCHEMA))
    return np.concatenate([
        sf.secure.client_sums(what)(encoded)
        for what in sf.secure.next_sums([], config, SCHEMA, clients=2)
    ])  # fmt: skip


@pytest.mark.parametrize("answer", [counts, user_counts, sums, reports])
def test_counts_and_reports_do_not_depend_on_the_order_of_rows(answer):
    assert list(answer(shuffled(some_table()))) == list(answer(some_table()))


def test_reports_do_not_come_in_the_order_of_their_groups():
    """Each of 15 reports of one group beside 15 of another: in order with chance 2 / C(30, 15)."""
    rows = scored(some_table()[lambda t: t.town != "c"].groupby("town").head(15))
    almost_open = make_collection((*"abc", NO_VALUE), sf.measure.RandomizedValue(4, 28.0, 28.0))
    found = perturb_rates(almost_open, rows._replace(y=np.ones(30)), tuple("abc"),
                          "true_positive_rate", source=seeded(3))  # fmt: skip
    groups = [report.group for report in found]
    assert sorted(groups) == ["a"] * 15 + ["b"] * 15
    assert groups not in (sorted(groups), sorted(groups)[::-1])


TRAIN = {"method": "fedavg", "rounds": 2, "learning_rate": 0.5, "local_steps": 3}
PRIVATE_TRAIN = {"method": "fpfl", "rounds": 2, "learning_rate": 0.5, "alpha": 0.01,
                 "multiplier_rate": 1.0, "clip": 0.5, "epsilon": 2.0, "delta": 1e-3}  # fmt: skip


def carried(folder, change, settings, keys):
    """Digests and codes of all that the two sites of a federation answer."""
    folder.mkdir()
    world, found = World(folder, rows=120), []
    keys = keys or folder
    for name in NAMES:
        world.limit(name, most_rounds=50)
        if "epsilon" in settings:
            world.bound(name)
        for key in (f"{name}/local/{name}.key", f"keys/{name}.pub"):  # signatures are the same
            content = (keys / key).read_bytes()
            (folder / key).write_bytes(content)
        path = folder / name / "rows.csv"
        change(pd.read_csv(path)).to_csv(path, index=False)
    channel = InProcess({name: world.site(name) for name in NAMES})

    def on_way(site, message):
        said = json.loads(message.text)
        digest = hashlib.sha256(message.carried).hexdigest()
        found.append((site, digest, (said["code"], sorted(said))))
        return message

    channel.on_way = on_way
    if settings is RELEASE:
        world.run(channel)
    else:
        job = TrainJob(train=settings, least_rows=120, most_rows=300)
        run_train(world.federation(channel), job, folder / "server", folder / "out")
    return found


@pytest.mark.parametrize(
    "settings", [RELEASE, TRAIN, PRIVATE_TRAIN], ids=["upload", "fedavg", "fpfl"]
)
def test_a_sites_answers_do_not_depend_on_the_order_of_its_rows(settings, tmp_path, monkeypatch):
    monkeypatch.setattr("secrets.randbits", lambda bits: 7)
    monkeypatch.setattr("secrets.token_hex", lambda n: f"{7:0{2 * n}x}")
    given = carried(tmp_path / "given", lambda rows: rows, settings, None)
    other = carried(
        tmp_path / "other",
        lambda rows: shuffled(rows).drop(columns="note"),
        settings,
        tmp_path / "given",
    )
    assert {code for _, _, (code, _) in given} == {"ok"}
    assert other == given

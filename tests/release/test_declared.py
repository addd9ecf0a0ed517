"""What leaves a site is a function of what it declares: other rows, the same bytes.

Each answer is made twice, with the noise held fixed, from tables that differ in what the answer
does not declare; bytes, sizes, names and codes must be the same.
"""

import copy
import hashlib
import json
import shutil

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
PRIVATE = [one.model_copy(update={"epsilon": 4.0, "delta": 1e-3}) for one in (FAIR, SURROGATE)]


def some_table(few=7):
    """Rows of three groups, the last of which has few."""
    rows = make_table(400, n_groups=3)
    small = rows[rows.town == "c"].head(few)
    return pd.concat([rows[rows.town != "c"], small], ignore_index=True).assign(note="")


def shuffled(rows):
    """In another order, and with notes, which the schema ignores."""
    mixed = rows.sample(frac=1.0, random_state=5)
    return mixed.assign(note=[f"person {i}" for i in range(len(rows))])


CHANGES = {
    "order": shuffled(some_table()),
    "another of few": pd.concat([some_table(), some_table(1).tail(1).assign(income=99.0)]),
    "others of few": some_table().assign(age=lambda rows: rows.age.where(rows.town != "c", 33)),
    "none of few": some_table(0),
}
"""Of which a surrogate declares nothing; the other releases declare nothing of the first."""


def released(rows, config, folder):
    """The file that the command writes."""
    folder.mkdir(exist_ok=True)
    rows.to_csv(folder / "rows.csv", index=False)
    (folder / "schema.json").write_text(SCHEMA.to_json())
    paths = folder / "rows.csv", folder / "schema.json", folder / "sent.parquet"
    noise_seed = 3 if config.epsilon else None
    distill_file(*paths, config, noise_seed=noise_seed, force=True, again=True)
    return paths[2].read_bytes()


@pytest.mark.parametrize(("config", "changes"), [
    (SURROGATE, CHANGES), *((config, ["order"]) for config in (FAIR, *PRIVATE)),
])  # fmt: skip
def test_release_does_not_depend_on_what_it_does_not_declare(config, changes, tmp_path):
    sent = released(some_table(), config, tmp_path)
    for change in changes:
        assert released(CHANGES[change], config, tmp_path) == sent, change
    richer = some_table().assign(income=lambda rows: np.minimum(rows.income + 9, 100))  # declared
    assert released(richer, config, tmp_path) != sent


def hidden_pair(exchanged=4):
    """Rows of which a town has few that are paid: sums by label and by town are in their place.

    For each of eight rows of that town, another one of the town whose sums are told together with
    it has the same values but for town and label; some have exchanged their labels.
    """
    rows = make_table(600, n_groups=3).assign(note="")
    rows = rows[(rows.town != "c") | (rows.paid == "no")].reset_index(drop=True)
    partner = rows[rows.town != "c"].town.value_counts().idxmin()
    one = rows.index[rows.town == "c"][:8]
    other = rows.index[(rows.town == partner) & (rows.paid == "yes")][:8]
    for name in ("income", "age", "home"):
        rows.loc[other, name] = rows.loc[one, name].to_numpy()
    rows.loc[one[:exchanged], "paid"], rows.loc[other[:exchanged], "paid"] = "yes", "no"
    return rows


def test_release_of_sums_by_label_and_by_group_hides_how_often_a_pair_occurs(tmp_path):
    sent = [released(hidden_pair(number), SURROGATE, tmp_path) for number in (4, 1, 8)]
    assert sent[1] == sent[0] == sent[2]
    more = pd.concat([hidden_pair(), hidden_pair().tail(9)])
    assert released(more, SURROGATE, tmp_path) != sent[0]


COLLECTION = make_collection((*"abc", NO_VALUE), sf.measure.best_split("randomized", 4, 1.0))

COUNTS = sf.secure.GroupCounts(
    schema_hash=SCHEMA.hash, groups=("a", "b", "c"), epsilon=1.0, rows_per_client=500
)


def scored(rows):
    x, s, y = sf.encode(rows, SCHEMA)
    return Scored(y, x[:, 0] - 0.5, s, 3)


def counts(rows, what=COUNTS, user_column=None):
    return count_table(what, rows, SCHEMA, user_column=user_column)


def user_counts(rows):
    """At most two rows of each person, of some hundred that have more."""
    what = COUNTS.model_copy(update={"unit": "user", "rows_per_user": 2})
    return counts(rows.assign(person=rows.income.round().astype(int)), what, "person")


def reports(rows, collection=COLLECTION):
    named = tuple("abc"), "true_positive_rate"
    return perturb_rates(collection, scored(rows), *named, source=seeded(3))


def sums(rows):
    """A client's parts of the sums of a surrogate of all clients, before noise."""
    asked = sf.secure.next_sums([], PRIVATE[1], SCHEMA, clients=2)
    encoded = in_memory(sf.encode(rows, SCHEMA))
    return np.concatenate([sf.secure.client_sums(what)(encoded) for what in asked])


@pytest.mark.parametrize("answer", [counts, user_counts, sums, reports])
def test_answer_does_not_depend_on_the_order_of_rows(answer):
    assert list(answer(shuffled(some_table()))) == list(answer(some_table()))


def test_reports_do_not_come_in_the_order_of_their_groups():
    """Some 30 reports of one group beside 30 of another: in order with chance below 1e-15."""
    rows = some_table(0).query("paid == 'yes'").groupby("town").head(30)
    almost_open = make_collection((*"abc", NO_VALUE), sf.measure.RandomizedValue(4, 28.0, 28.0))
    groups = [report.group for report in reports(rows, almost_open)]
    assert sorted(groups) == ["a"] * 30 + ["b"] * 30
    assert groups not in (sorted(groups), sorted(groups)[::-1])


TRAIN = {"method": "fedavg", "rounds": 2, "learning_rate": 0.5, "local_steps": 3}
PRIVATE_TRAIN = {"method": "fpfl", "rounds": 2, "learning_rate": 0.5, "alpha": 0.01,
                 "multiplier_rate": 1.0, "clip": 0.5, "epsilon": 2.0, "delta": 1e-3}  # fmt: skip


def carried(world, settings):
    """Digests and codes of all that the two sites of a federation answer."""
    channel, found = InProcess({name: world.site(name) for name in NAMES}), []

    def on_way(site, message):
        said = json.loads(message.text)
        found.append((site, hashlib.sha256(message.carried).digest(), said["code"], sorted(said)))
        return message

    channel.on_way = on_way
    if settings is RELEASE:
        world.run(channel)
    else:
        job = TrainJob(train=settings, least_rows=120, most_rows=300)
        run_train(world.federation(channel), job, world.folder / "server", world.folder / "out")
    return found


@pytest.mark.parametrize("settings", [RELEASE, TRAIN, PRIVATE_TRAIN])
def test_answers_of_a_site_do_not_depend_on_the_order_of_its_rows(settings, tmp_path, monkeypatch):
    monkeypatch.setattr("secrets.randbits", lambda bits: 7)
    monkeypatch.setattr("secrets.token_hex", lambda n: f"{7:0{2 * n}x}")
    (tmp_path / "given").mkdir()
    given = World(tmp_path / "given", rows=120)
    for name in NAMES:
        given.limit(name, most_rounds=50)
        if "epsilon" in settings:
            given.bound(name)
    other = copy.copy(given)
    other.folder = shutil.copytree(given.folder, tmp_path / "other")
    for path in other.folder.glob("*/rows.csv"):
        pd.read_csv(path).sample(frac=1.0, random_state=5).to_csv(path, index=False)
    answers = carried(given, settings)
    assert {code for _, _, code, _ in answers} == {"ok"}
    assert carried(other, settings) == answers

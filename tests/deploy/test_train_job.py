"""The job ``train``: rounds at sites have the numbers of the engine in one process."""

import json

import jax
import numpy as np
import pandas as pd
import pytest
from builders import NAMES, World, make_schema, make_table, resigned
from site_training import FPFL, MANY, PRIVATE, REFINE, ROWS, TRAIN, channel_of, in_process, train

import synthfair as sf
from synthfair.data.encode import in_content_order
from synthfair.deploy.train_job import Agreement, SiteTraining, TrainJob, pack, unpack
from synthfair.federated import TrainConfig
from synthfair.federated.training import rounds_csv
from synthfair.task.job_sites import TooFewError
from synthfair.task.limits import Claim

SAMPLED = {"method": "dp_sgd", "rounds": 3, "batch": 20, "local_epochs": 0.2, "clip": 1.0}
DP_SGD = SAMPLED | {"batch": ROWS, "local_epochs": 1.0}
FAIR_SGD = {"method": "fair_sgd", "rounds": 2, "batch": 20, "local_epochs": 0.5, "kappa": 2.0}
TWO_PHASE = DP_SGD | {"method": "two_phase", "teacher_epochs": 2.0, "kappa": 2.0}
END_TO_END = TWO_PHASE | {"end_to_end": True}


def world_of(folder, rows):
    world = World(folder, rows=rows)
    for name in NAMES:
        world.limit(name, most_rounds=50)
    return world


@pytest.fixture
def world(tmp_path):
    return world_of(tmp_path, ROWS)


@pytest.fixture
def large(tmp_path):
    """Sites with so many rows of each value that the server may see their sums."""
    return world_of(tmp_path, MANY)


@pytest.mark.parametrize(
    ("n", "settings"),
    [
        *((ROWS, settings) for settings in (TRAIN | {"clip": 0.05}, SAMPLED, FAIR_SGD, TWO_PHASE)),
        # From another start a row comes to outweigh others in a sum, and sites refuse to answer.
        *((MANY, settings) for settings in (FPFL | {"hidden": [3], "seed": 1}, REFINE)),
    ],
)
def test_rounds_give_the_numbers_of_one_process(tmp_path, n, settings):
    world = world_of(tmp_path, n)
    federation, theta = train(world, channel_of(world), settings, most_rows=2 * n)
    expected = in_process(settings, n)
    np.testing.assert_allclose(theta, expected.model.theta, rtol=1e-9, atol=1e-11)
    assert federation.booked["north"].rounds == settings["rounds"]
    column, *_ = expected.history._fields[-1:]
    found = pd.read_csv(world.folder / "job-1" / "rounds.csv")[column]
    np.testing.assert_allclose(found, getattr(expected.history, column), rtol=1e-8, atol=1e-11)
    assert "accuracy" in json.loads((world.folder / "job-1" / "metrics.json").read_text())


@pytest.mark.parametrize("settings", [FPFL, SAMPLED, END_TO_END])
def test_noise_and_guarantee_are_those_of_one_process(world, monkeypatch, settings):
    monkeypatch.setattr("secrets.randbits", lambda bits: 7)  # noise that anybody can repeat
    monkeypatch.setattr("secrets.token_bytes", (7).to_bytes)
    settings = settings | PRIVATE
    _, theta = train(world, channel_of(world), settings)
    expected = in_process(settings, noise_seed=7)
    np.testing.assert_allclose(theta, expected.model.theta, rtol=1e-9, atol=1e-11)
    # So much noise may leave fpfl without a model that it would use; its rounds tell.
    rounds = np.genfromtxt(world.folder / "job-1" / "rounds.csv", delimiter=",", skip_header=1)
    same = np.genfromtxt(rounds_csv(expected.history).splitlines(), delimiter=",", skip_header=1)
    np.testing.assert_allclose(rounds, same, rtol=1e-8, atol=1e-11)
    stated = json.loads((world.folder / "job-1" / "metrics.json").read_text())["guarantee"]
    assert stated == world.left("north")[0].guarantee.model_dump(mode="json")
    assert stated["epsilon"] == PRIVATE["epsilon"]
    assert "simulated" not in stated  # it was none


LOCAL = Claim("training", 2.0, 1e-3, least_rows=ROWS, rounds=3, number=1)  # noise of the site's own
EXACT = Claim("training", None, None, rounds=3, number=1, seen=True)


@pytest.mark.parametrize(
    ("settings", "claim", "labels"),
    [
        (TRAIN | {"rounds": 3, "hidden": [3, 8]}, EXACT._replace(width=8), 0),
        (FAIR_SGD | {"rounds": 3}, EXACT, 0),
        (FPFL | PRIVATE, LOCAL._replace(seen=True), 0),
        (FPFL | PRIVATE | {"secure": True}, LOCAL, 0),
        (DP_SGD | PRIVATE, LOCAL, 0),
        # What a teacher leaves open is no epsilon.
        (TWO_PHASE | PRIVATE, LOCAL._replace(epsilon=None, seen=True), 126),
        (END_TO_END | PRIVATE, LOCAL, 126),
    ],
)  # fmt: skip
def test_claim_is_that_of_the_method(world, settings, claim, labels):
    agreed = Agreement(train=settings, sites=NAMES, least_rows=ROWS, most_rows=1000)
    question = world.federation(channel_of(world)).question(
        task="train", round=1, settings={}, timeout=1
    )
    task = SiteTraining(agreed, world.site("north")).task(question, None)
    assert task.claim._replace(delta=claim.delta) == claim
    assert task.claim.delta == settings.get("delta")
    assert task.max_bytes == 16 + labels  # room for a bit of each row that it may have


@pytest.mark.parametrize(
    ("limits", "changes", "code"),
    [
        ({"kinds": ["surrogate"]}, {}, "kind"),
        ({"most_rounds_of_job": 5}, {}, "rounds"),
        ({}, {"train": TRAIN | {"method": "mmdm"}}, "settings"),
        ({}, {"train": TRAIN | {"cohort": 1}}, "settings"),
        ({}, {"train": TRAIN | {"rounds": 0}}, "settings"),
        ({}, {"sites": ["south"]}, "settings"),
        ({}, {"sites": []}, "settings"),
        ({}, {}, "message"),  # no state came
    ],
)
def test_site_refuses_before_it_reads_a_row(world, limits, changes, code):
    world.limit("north", **({"most_rounds": 50} | limits))
    settings = {"train": TRAIN, "sites": NAMES, "most_rows": 300} | changes
    assert world.code(world.ask(settings, task="train")) == code


@pytest.mark.parametrize(
    ("settings", "code"), [(DP_SGD | PRIVATE, "failed"), (FAIR_SGD, "table"), (REFINE, "table")]
)
def test_site_with_few_rows_takes_no_part(world, settings, code):
    """With an epsilon it says no more than that; of exact sums, k_min is of a group."""
    world.limit("north", most_rounds=50, k_min=60)
    make_table(ROWS - 1).to_csv(world.folder / "north" / "rows.csv", index=False)
    with pytest.raises(TooFewError, match=f"north: {code}"):
        train(world, channel_of(world), settings)
    assert ("60" if settings is REFINE else "120") in "".join(world.said)


def test_site_without_rows_of_some_group_takes_part(large):
    rows = make_table(MANY, seed=0).assign(town="a")
    rows.to_csv(large.folder / "north" / "rows.csv", index=False)
    federation, _ = train(large, channel_of(large), FPFL | {"rounds": 2})
    assert federation.booked["north"].rounds == 2


@pytest.mark.parametrize("settings", [TRAIN, TRAIN | {"clip": 0.05}])
def test_site_that_is_missing_does_not_make_steps_shorter(world, settings):
    channel = channel_of(world)
    del channel.sites["north"]
    _, theta = train(world, channel, settings, least_answers=1)
    rows = in_content_order(sf.encode(make_table(ROWS, seed=1), make_schema()))
    config = TrainConfig(**settings)
    data = sf.federated.make_user_data(rows, np.zeros(ROWS, int), make_schema(), config)
    expected = sf.federated.train_rounds(data, config)
    np.testing.assert_allclose(theta, expected.model.theta, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize(
    ("n", "settings", "entry", "value"),
    [
        (ROWS, TRAIN, slice(0), None), (ROWS, TRAIN, slice(1), None), (ROWS, TRAIN, 0, np.nan),
        (ROWS, TRAIN | {"clip": 0.05}, slice(None), 1.0), (ROWS, TRAIN, -1, -1e-9),
        (ROWS, TRAIN, -1, ROWS + 1), (ROWS, DP_SGD, -1, ROWS - 1), (MANY, FPFL, -1, -1.0),
        (MANY, REFINE, 0, MANY + 1), (MANY, REFINE, 1, 2e3), (MANY, REFINE, 1, -1.0),
    ],
)  # fmt: skip
def test_report_that_no_site_can_have_is_refused(tmp_path, n, settings, entry, value):
    """The last entry, or the first of refine, is the number of rows."""
    world = world_of(tmp_path, n)
    channel = channel_of(world)

    def altered(name, message):
        numbers = np.frombuffer(message.carried, "<f8").copy()
        if value is None:
            numbers = numbers[entry]
        else:
            numbers[entry] = value
        return resigned(world, name, message, numbers.tobytes()) if name == "north" else message

    channel.on_way = altered
    settings = settings | {"rounds": 1}
    federation, _ = train(world, channel, settings, least_answers=1, most_rows=n)
    assert [booked.code for booked in federation.booked.values()] == ["refused", "ok"]


@pytest.mark.parametrize("settings", [TRAIN, DP_SGD, FAIR_SGD, TWO_PHASE, REFINE])
def test_job_names_the_rows_that_it_rests_on(settings):
    with pytest.raises(ValueError, match="most_rows"):
        TrainJob(train=settings, least_rows=ROWS)
    with pytest.raises(ValueError, match="most_rows"):
        TrainJob(train=settings, least_rows=ROWS, most_rows=ROWS - 1)
    if settings in (DP_SGD, FAIR_SGD, TWO_PHASE):
        with pytest.raises(ValueError, match="least_rows"):
            TrainJob(train=settings, most_rows=ROWS)
    assert TrainJob(train=FPFL).most_rows is None


def test_state_comes_as_it_was_sent_and_no_room_is_made_for_another():
    tree = {"a": np.arange(3.0), "b": (np.float64(0.1), np.zeros((2, 2)))}
    found = unpack(pack(tree), tree)
    assert np.array_equal(found["a"], tree["a"])
    assert found["b"][0] == 0.1
    like = {"weight": jax.ShapeDtypeStruct((100_000, 100_000), "float64")}  # 80 GB
    with pytest.raises(ValueError, match="80000000000"):
        unpack(bytes(8), like)

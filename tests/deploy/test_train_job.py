"""The job ``train``: the numbers of one process, and each question bought once."""

import json

import jax
import numpy as np
import pandas as pd
import pytest
import site_training as st
from builders import NAMES, SCHEMA, World, make_table
from site_training import DP_SGD, FPFL, MANY, PRIVATE, REFINE, ROWS, TRAIN, channel_of, train

from synthfair.deploy.train_job import (
    AgreedTraining,
    Agreement,
    ServerTraining,
    SiteTraining,
    TrainJob,
    unpack,
)
from synthfair.federated.training import rounds_csv
from synthfair.federated.two_phase import TwoPhase
from synthfair.task.job_sites import TooFewError
from synthfair.task.limits import Claim
from synthfair.task.messages import Message


def world_of(folder, rows):
    world = World(folder, rows=rows)
    for name in NAMES:
        world.limit(name, most_rounds=50)
    return world


@pytest.fixture
def world(tmp_path):
    return world_of(tmp_path, ROWS)


def answer(world, asked, job, state=None, **changes):
    """The answer to a question in another job, of a site that has started anew."""
    text = json.dumps(json.loads(asked.text) | {"job": job} | changes).encode()
    return world.answer(Message(text, asked.carried if state is None else state), job=job)


@pytest.mark.parametrize(("n", "settings"), [
    (ROWS, TRAIN | {"clip": 0.05}), (ROWS, st.SAMPLED), (ROWS, st.FAIR_SGD),
    (ROWS, st.TWO_PHASE), (MANY, REFINE),
    # From another start a row comes to outweigh others in a sum, and sites refuse to answer.
    (MANY, FPFL | {"hidden": [3], "seed": 1}),
])  # fmt: skip
def test_rounds_give_the_numbers_of_one_process(tmp_path, n, settings):
    world = world_of(tmp_path, n)
    federation, theta = train(world, channel_of(world), settings, most_rows=2 * n)
    expected = st.in_process(settings, n)
    np.testing.assert_allclose(theta, expected.model.theta, rtol=1e-9, atol=1e-11)
    assert federation.booked["north"].rounds == settings["rounds"]
    column, *_ = expected.history._fields[-1:]
    found = pd.read_csv(world.folder / "job-1" / "rounds.csv")[column]
    np.testing.assert_allclose(found, getattr(expected.history, column), rtol=1e-8, atol=1e-11)
    assert "accuracy" in json.loads((world.folder / "job-1" / "metrics.json").read_text())


@pytest.mark.parametrize("settings", [FPFL, st.SAMPLED, st.END_TO_END])
def test_noise_and_guarantee_are_those_of_one_process(world, monkeypatch, settings):
    monkeypatch.setattr("secrets.randbits", {128: 7}.get)  # noise that anybody can repeat
    monkeypatch.setattr("secrets.token_bytes", (7).to_bytes)
    settings = settings | PRIVATE
    _, theta = train(world, channel_of(world), settings)
    expected = st.in_process(settings, noise_seed=7)
    np.testing.assert_allclose(theta, expected.model.theta, rtol=1e-9, atol=1e-11)
    # So much noise may leave fpfl without a model that it would use; its rounds tell.
    rounds = np.genfromtxt(world.folder / "job-1" / "rounds.csv", delimiter=",", skip_header=1)
    same = np.genfromtxt(rounds_csv(expected.history).splitlines(), delimiter=",", skip_header=1)
    np.testing.assert_allclose(rounds, same, rtol=1e-8, atol=1e-11)
    stated = json.loads((world.folder / "job-1" / "metrics.json").read_text())["guarantee"]
    assert stated == world.left("north")[0].guarantee.model_dump(mode="json")
    assert (stated["epsilon"], "simulated" in stated) == (PRIVATE["epsilon"], False)


LOCAL = Claim("training", 2.0, 1e-3, least_rows=ROWS, rounds=3, number=1)  # noise of the site's own
EXACT = Claim("training", None, rounds=3, number=1, seen=True)


@pytest.mark.parametrize(("settings", "claim", "labels"), [
    (TRAIN | {"rounds": 3, "hidden": [3, 8]}, EXACT._replace(width=8), 0),
    (st.FAIR_SGD | {"rounds": 3}, EXACT, 0), (FPFL | PRIVATE, LOCAL._replace(seen=True), 0),
    (FPFL | PRIVATE | {"secure": True}, LOCAL, 0), (DP_SGD | PRIVATE, LOCAL, 0),
    # What a teacher leaves open is no epsilon.
    (st.TWO_PHASE | PRIVATE, LOCAL._replace(epsilon=None, seen=True), 126),
    (st.END_TO_END | PRIVATE, LOCAL, 126),
])  # fmt: skip
def test_claim_is_that_of_the_method(world, settings, claim, labels):
    agreed = Agreement(train=settings, sites=NAMES, least_rows=ROWS, most_rows=1000)
    sites = world.federation(channel_of(world))
    question = sites.question(task="train", round=1, settings={}, timeout=1)
    task = SiteTraining(agreed, world.site("north")).task(question, None)
    assert task.claim._replace(delta=None) == claim._replace(delta=None)
    assert task.claim.delta == claim.delta or claim.epsilon is None
    assert task.max_bytes == 16 + labels  # room for a bit of each row that it may have


@pytest.mark.parametrize(("limits", "changes", "code"), [
    ({"kinds": ["surrogate"]}, {}, "kind"), ({"most_rounds_of_job": 5}, {}, "rounds"),
    ({}, {"train": TRAIN | {"cohort": 1}}, "settings"), ({}, {"sites": ["south"]}, "settings"),
    ({}, {}, "message"),  # no state came
])  # fmt: skip
def test_site_refuses_before_it_reads_a_row(world, limits, changes, code):
    world.limit("north", **{"most_rounds": 50} | limits)
    settings = {"train": TRAIN, "sites": NAMES, "most_rows": 300} | changes
    assert world.code(world.ask(settings, task="train")) == code


@pytest.mark.parametrize(("settings", "rows", "code", "said"), [
    (DP_SGD | PRIVATE, ROWS + 1, "failed", "limits say at least 130"),
    (st.FAIR_SGD, ROWS - 1, "table", "120"), (REFINE, ROWS - 1, "table", "60"),
])  # fmt: skip
def test_site_with_few_rows_takes_no_part(world, settings, rows, code, said):
    """With an epsilon, its own limit counts, and it says no more than that; of exact sums, k_min."""
    world.limit("north", most_rounds=50, k_min=60, least_rows=130)
    make_table(rows).to_csv(world.folder / "north" / "rows.csv", index=False)
    with pytest.raises(TooFewError, match=f"north: {code}"):
        train(world, channel_of(world), settings)
    assert said in "".join(world.said)


def test_site_without_rows_of_some_group_takes_part(tmp_path):
    world = world_of(tmp_path, MANY)
    rows = make_table(MANY, seed=0).assign(town="a")
    rows.to_csv(tmp_path / "north" / "rows.csv", index=False)
    federation, _ = train(world, channel_of(world), FPFL | {"rounds": 2})
    assert federation.booked["north"].rounds == 2


@pytest.mark.parametrize("settings", [TRAIN, TRAIN | {"clip": 0.05}])
def test_site_that_is_missing_does_not_make_steps_shorter(world, settings):
    channel = channel_of(world)
    del channel.sites["north"]
    _, theta = train(world, channel, settings, least_answers=1)
    expected = st.in_process(settings, seeds=[1]).model.theta
    np.testing.assert_allclose(theta, expected, rtol=1e-9, atol=1e-11)


def test_guarantee_divides_by_all_sites_and_a_training_is_all_that_is_agreed(world, monkeypatch):
    """Else the same noise would stand in answers to two questions."""
    agreed = {"train": FPFL | PRIVATE, "sites": NAMES, "least_rows": ROWS}
    others = (
        {"sites": NAMES[:1]},
        {"least_rows": ROWS - 1},
        {"train": DP_SGD | PRIVATE | {"seed": 1}},
    )
    others = [Agreement(**agreed | {"most_rows": 300} | change) for change in ({}, *others)]
    runs = {AgreedTraining(agreement, SCHEMA).run for agreement in others}
    monkeypatch.setattr("synthfair.__version__", "other")
    assert len(runs | {AgreedTraining(others[0], SCHEMA).run}) == 5
    total, found, channel = ServerTraining.total, [], channel_of(world)
    monkeypatch.setattr(ServerTraining, "total", lambda self, *asked: (
        found.append(total(self, *asked)) or found[-1]))  # fmt: skip
    del channel.sites["north"]
    train(world, channel, FPFL | PRIVATE, least_answers=1)
    assert [count for _, count in found] == [2.0] * FPFL["rounds"]


@pytest.mark.parametrize(("n", "settings", "entry", "value"), [
    (ROWS, TRAIN, slice(0), None), (ROWS, TRAIN, slice(1), None), (ROWS, TRAIN, 0, np.nan),
    (ROWS, TRAIN | {"clip": 0.05}, 0, 0.0501), (ROWS, TRAIN, -1, -1e-9),
    (ROWS, TRAIN, -1, ROWS + 1), (ROWS, DP_SGD, -1, ROWS - 1), (MANY, FPFL, -1, -1.0),
    (MANY, REFINE, 0, MANY + 1), (MANY, REFINE, 1, 2e3), (MANY, REFINE, 1, -1.0),
])  # fmt: skip
def test_report_that_no_site_can_have_is_refused(tmp_path, n, settings, entry, value):
    """The last entry, or the first of refine, is the number of rows."""
    world = world_of(tmp_path, n)
    channel = channel_of(world)

    def changed(carried):
        numbers = np.frombuffer(carried, "<f8").copy()
        if value is None:
            return numbers[entry].tobytes()
        numbers[entry] = value
        return numbers.tobytes()

    channel.on_way = world.altering("north", changed)
    one_round = settings | {"rounds": 1}
    federation, _ = train(world, channel, one_round, least_answers=1, most_rows=n)
    assert [booked.code for booked in federation.booked.values()] == ["refused", "ok"]


@pytest.mark.parametrize("settings", [TRAIN, DP_SGD, st.FAIR_SGD, st.TWO_PHASE, REFINE])
def test_job_names_the_rows_that_it_rests_on(settings):
    for most in (None, ROWS - 1):
        with pytest.raises(ValueError, match="most_rows"):
            TrainJob(train=settings, least_rows=ROWS, most_rows=most)
    if settings not in (TRAIN, REFINE):
        with pytest.raises(ValueError, match="least_rows"):
            TrainJob(train=settings, most_rows=ROWS)


def test_state_of_another_size_gets_no_room():
    like = {"weight": jax.ShapeDtypeStruct((100_000, 100_000), "float64")}
    with pytest.raises(ValueError, match="80000000000"):
        unpack(bytes(8), like)


# What a training costs


@pytest.mark.parametrize(
    ("settings", "after"), [(TRAIN, 2), (FPFL | PRIVATE, 0), (st.END_TO_END | PRIVATE, 2)]
)
def test_training_that_stopped_goes_on_in_the_next_job(world, settings, after):
    stopped, again = channel_of(world), channel_of(world, job="job-2")
    stopped.on_way = lambda _, m: None if len(stopped.asked) > after else m
    with pytest.raises(TooFewError, match="lost"):
        train(world, stopped, settings)
    _, theta = train(world, again, settings)
    assert len(again.asked) == settings["rounds"] - after
    assert again.asked[0].carried == stopped.asked[-1].carried
    assert not list((world.folder / "server").glob("*.checkpoint"))
    if settings is TRAIN:
        np.testing.assert_allclose(theta, st.in_process().model.theta, rtol=1e-10, atol=1e-12)
    else:
        assert world.ledger().spent().releases == 1


@pytest.mark.parametrize("settings", [FPFL | PRIVATE, DP_SGD | PRIVATE])  # noise of either side
def test_noise_cannot_be_repeated(world, settings):
    for job in ("job-1", "job-2"):
        train(world, channel_of(world, job), settings)
        for path in world.folder.glob("*/*.bought"):
            assert path.stat().st_mode & 0o077 == 0
            path.unlink()
    first, second = (world.folder / f"job-{i}" / "rounds.csv" for i in (1, 2))
    assert first.read_text() != second.read_text()


@pytest.mark.parametrize("settings", [FPFL | PRIVATE, DP_SGD | PRIVATE])
def test_question_again_has_the_same_answer_and_another_is_booked(world, settings):
    train(world, channel := channel_of(world), settings)
    before, asked, after = channel.asked[:3]
    first = answer(world, asked, "job-2")
    assert first == answer(world, asked, "job-3") == ("ok", first[1])
    assert world.ledger().spent().releases == 1
    assert answer(world, asked, "job-4", before.carried)[0] == "ok"
    world.ledger().set_limit(2.1, 1e-3)
    assert answer(world, asked, "job-5", after.carried)[0] == "budget"
    assert answer(world, asked, "job-6", before.carried)[0] == "ok"  # not forgotten for it
    assert world.ledger().spent().releases == 2
    assert answer(world, asked, "job-7", round=settings["rounds"])[0] == "rounds"


def test_teacher_is_bought_once_with_its_noise(world, monkeypatch):
    train(world, channel := channel_of(world), st.END_TO_END | PRIVATE)
    (path,), asked = (world.folder / "north").glob("*.bought"), channel.asked[1]
    bought, first = path.read_bytes(), answer(world, asked, "job-2")
    seed = slice(-16 - ROWS // 8, -ROWS // 8)  # the labels stand behind it
    with monkeypatch.context() as patch:
        patch.setattr(TwoPhase, "teach", lambda *_: pytest.fail("trained anew"))
        assert answer(world, asked, "job-3") == first  # from the stored labels alone
        path.write_bytes(bought[:-1] + bytes([bought[-1] ^ 1]))
        assert answer(world, asked, "job-4")[1] != first[1]
    assert world.ledger().spent().releases == 1
    assert answer(world, asked, "job-5", channel.asked[0].carried)[0] == "ok"
    (path,) = (world.folder / "north").glob("*.bought")
    assert path.read_bytes()[seed] != bought[seed]  # another teacher
    assert world.ledger().spent().releases == 2

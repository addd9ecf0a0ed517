"""Rounds without an engine: the numbers of the in-process engine, checkpoints, and limits."""

import json
from types import SimpleNamespace

import jax
import numpy as np
import pandas as pd
import pytest
from builders import NAMES, World, make_schema, make_table, resigned
from site_training import (
    FPFL,
    MANY,
    PRIVATE,
    REFINE,
    ROWS,
    TRAIN,
    channel_of,
    in_process,
    train,
)

import synthfair as sf
from synthfair.data.encode import in_content_order
from synthfair.deploy.train_job import Agreement, SiteTraining, TrainJob, pack, unpack
from synthfair.federated import TrainConfig
from synthfair.federated.training import rounds_csv
from synthfair.federated.two_phase import TwoPhase
from synthfair.privacy.ledger import Ledger
from synthfair.task.job_sites import TooFewError
from synthfair.task.messages import Message


@pytest.fixture
def world(tmp_path):
    found = World(tmp_path, rows=ROWS)
    for name in NAMES:
        found.limit(name, most_rounds=50)
    return found


SAMPLED = {"method": "dp_sgd", "rounds": 3, "batch": 20, "local_epochs": 0.2, "clip": 1.0}

DP_SGD = SAMPLED | {"batch": ROWS, "local_epochs": 1.0}
"""All rows in each batch: the noise for samples takes seconds to find, for each number of rounds."""

FAIR_SGD = {"method": "fair_sgd", "rounds": 2, "batch": 20, "local_epochs": 0.5, "kappa": 2.0}
TWO_PHASE = DP_SGD | {"method": "two_phase", "teacher_epochs": 2.0, "kappa": 2.0}
END_TO_END = TWO_PHASE | {"end_to_end": True}


@pytest.fixture
def large(tmp_path):
    """Sites with so many rows of each value that the server may see their sums."""
    found = World(tmp_path, rows=MANY)
    for name in NAMES:
        found.limit(name, most_rounds=50)
    return found


@pytest.fixture
def one_seed(monkeypatch):
    """Noise that anybody can repeat, at the server and the sites."""
    monkeypatch.setattr("secrets.randbits", lambda bits: 7)
    monkeypatch.setattr("secrets.token_bytes", (7).to_bytes)


HEAD = 8 + 1 + 64 + 1 + 64 + 1
"""Bytes of a bought file before its content."""


def bought_in(world, size):
    """What a site has bought, or learned, in so many bytes."""
    paths = (world.folder / "north").glob("*.bought")
    return [path for path in paths if path.stat().st_size == HEAD + size]


def taught_in(world):
    """What a site has bought with the labels of its teacher: a seed, and bits."""
    return bought_in(world, 16 + -(-ROWS // 8))


def ledger_of(world, name="north"):
    return Ledger.for_table(world.folder / name / "rows.csv")


def stop_after(channel, questions):
    channel.on_way = lambda _, m: None if len(channel.asked) > questions else m


@pytest.mark.parametrize(
    ("where", "settings"),
    [
        *(("world", s) for s in (TRAIN | {"clip": 0.05}, SAMPLED, FAIR_SGD, TWO_PHASE)),
        # From another start a row comes to outweigh others in a sum, and sites refuse to answer.
        *(("large", s) for s in (FPFL | {"hidden": [3], "seed": 1}, REFINE)),
    ],
)
def test_rounds_give_the_numbers_of_the_engine_in_one_process(request, where, settings):
    world, n = request.getfixturevalue(where), ROWS if where == "world" else MANY
    federation, theta = train(world, channel_of(world), settings, most_rows=2 * n)
    expected = in_process(settings, n)
    np.testing.assert_allclose(theta, expected.model.theta, rtol=1e-9, atol=1e-11)
    assert federation.booked["north"].rounds == settings["rounds"]
    column, *_ = expected.history._fields[-1:]
    found = pd.read_csv(world.folder / "job-1" / "rounds.csv")[column]
    np.testing.assert_allclose(found, getattr(expected.history, column), rtol=1e-8, atol=1e-11)
    assert "accuracy" in json.loads((world.folder / "job-1" / "metrics.json").read_text())


class TestExactSums:
    """The method refine, whose reports the server sees."""

    def test_a_site_with_a_small_group_does_not_take_part(self, world):
        world.limit("north", most_rounds=50, k_min=60)
        with pytest.raises(TooFewError, match="north: table"):
            train(world, channel_of(world), REFINE)
        assert any("must be none or 60" in said for said in world.said)

    @pytest.mark.parametrize(("entry", "value"), [(0, 1301.0), (1, 2e3), (1, -1.0), (9, np.inf)])
    def test_sums_that_no_site_can_have_are_refused(self, large, entry, value):
        channel = channel_of(large)

        def falsified(site, message):
            numbers = np.frombuffer(message.carried, "<f8").copy()
            numbers[entry] = value
            return resigned(large, site, message, numbers.tobytes())

        channel.on_way = falsified
        with pytest.raises(TooFewError, match="refused"):
            train(large, channel, REFINE, most_rows=1300)

    def test_the_rows_of_the_largest_site_must_be_public(self, world):
        with pytest.raises(ValueError, match="most_rows: refine needs the rows"):
            train(world, channel_of(world), REFINE, most_rows=None)


@pytest.mark.usefixtures("one_seed")
@pytest.mark.parametrize("settings", [FPFL, SAMPLED, END_TO_END])
def test_noise_is_that_of_the_engine_in_one_process(world, settings):
    settings = settings | PRIVATE
    _, theta = train(world, channel_of(world), settings)
    expected = in_process(settings, noise_seed=7)
    np.testing.assert_allclose(theta, expected.model.theta, rtol=1e-9, atol=1e-11)
    # So much noise may leave fpfl without a model that it would use; its rounds tell.
    rounds = np.genfromtxt(world.folder / "job-1" / "rounds.csv", delimiter=",", skip_header=1)
    same = np.genfromtxt(rounds_csv(expected.history).splitlines(), delimiter=",", skip_header=1)
    np.testing.assert_allclose(rounds, same, rtol=1e-8, atol=1e-11)
    stated = json.loads((world.folder / "job-1" / "metrics.json").read_text())["guarantee"]
    _, booked, *_ = ledger_of(world).records()
    assert stated == booked.what.guarantee.model_dump(mode="json")
    assert stated["epsilon"] == PRIVATE["epsilon"]
    assert "simulated" not in stated  # it was none


@pytest.mark.parametrize("settings", [FPFL | PRIVATE, DP_SGD | PRIVATE])  # noise of either side
def test_nobody_can_repeat_the_noise(world, settings):
    for job in ("job-1", "job-2"):
        train(world, channel_of(world, job), settings)
        for name in NAMES:
            for path in (world.folder / name).glob("*.bought"):
                assert path.stat().st_mode & 0o077 == 0
                path.unlink()
    first, second = (world.folder / f"job-{i}" / "rounds.csv" for i in (1, 2))
    assert first.read_text() != second.read_text()


@pytest.mark.parametrize("settings", [FPFL | PRIVATE, END_TO_END | PRIVATE])
def test_a_training_with_epsilon_is_booked_once_over_its_jobs(world, settings):
    stopped = channel_of(world)
    stop_after(stopped, 2)
    with pytest.raises(TooFewError, match="lost"):
        train(world, stopped, settings)
    again = channel_of(world, job="job-2")  # the sites' processes are new ones, too
    train(world, again, settings)
    assert len(again.asked) == settings["rounds"] - 2
    assert again.asked[0].carried == stopped.asked[-1].carried
    assert ledger_of(world).spent().releases == 1
    assert not list((world.folder / "server").glob("*.checkpoint"))


@pytest.mark.parametrize("settings", [FPFL | PRIVATE, DP_SGD | PRIVATE])
def test_the_same_question_gets_the_same_answer_and_another_is_booked(world, settings):
    channel = channel_of(world)
    train(world, channel, settings)
    asked = [json.loads(message.text) for message in channel.asked]
    states = [message.carried for message in channel.asked]

    def answer(job, number, state):
        text = json.dumps(asked[number] | {"job": job}).encode()
        found = world.site("north").answer(Message(text, state), job=job, submitter="x")
        return json.loads(found.text)["code"], found.carried

    first, second = answer("job-2", 1, states[1]), answer("job-3", 1, states[1])
    assert first == second
    assert first[0] == "ok"
    assert ledger_of(world).spent().releases == 1
    assert answer("job-4", 1, states[0])[0] == "ok"
    assert ledger_of(world).spent().releases == 2
    ledger_of(world).set_limit(2.1, 1e-3)
    assert answer("job-5", 1, states[2])[0] == "budget"
    assert answer("job-7", 1, states[0])[0] == "ok"  # what was booked is not forgotten for it
    assert ledger_of(world).spent().releases == 2
    text = json.dumps(asked[0] | {"job": "job-6", "round": settings["rounds"]}).encode()
    assert world.code(Message(text, states[0]), job="job-6") == "rounds"


@pytest.mark.parametrize(
    ("where", "booked"),
    [("privacy.ledger.whole_file", 0), ("deploy.train_job.SiteTraining._report", 1)],
)
def test_a_site_whose_disk_is_full_books_a_training_once(world, monkeypatch, where, booked):
    """Before the line in the ledger, and after it."""

    def full(*_, **__):
        raise OSError("no space left")

    settings = DP_SGD | PRIVATE
    with monkeypatch.context() as patch:
        patch.setattr(f"synthfair.{where}", full)
        for job in ("job-1", "job-2"):
            with pytest.raises(TooFewError, match="failed"):
                train(world, channel_of(world, job), settings)
            assert ledger_of(world).spent().releases == booked
    train(world, channel_of(world, "job-3"), settings)
    assert ledger_of(world).spent().releases == 1


def test_a_site_that_starts_again_has_the_same_teacher(world, monkeypatch):
    train(world, channel := channel_of(world), END_TO_END | PRIVATE)
    (path,) = taught_in(world)

    def answer(job):
        asked = channel.asked[1]
        text = asked.text.replace(b"job-1", job.encode())
        return world.site("north").answer(Message(text, asked.carried), job=job, submitter="x")

    first = answer("job-2")
    monkeypatch.setattr(TwoPhase, "teach", lambda *_: pytest.fail("trained anew"))
    assert answer("job-3").carried == first.carried  # from the stored labels alone
    flipped = bytearray(path.read_bytes())
    flipped[HEAD + 16 + 10] ^= 1
    path.write_bytes(flipped)
    assert answer("job-4").carried != first.carried
    assert ledger_of(world).spent().releases == 1


def test_another_training_has_another_teacher(world):
    """Of one process: the seed of the first is used up, and the labels learned with it."""
    for name in NAMES:
        world.limit(name, most_epsilon=20.0)
    site, settings = (
        world.site("north"),
        END_TO_END | PRIVATE | {"epsilon": 20.0, "group_input": True},
    )
    train(world, channel := channel_of(world), settings)
    asked, seeds, labels = channel.asked[0], set(), set()

    def answer(job, state):
        text = asked.text.replace(b"job-1", job.encode())
        return site.answer(Message(text, state), job=job, submitter="x").carried

    # What noise leaves of a teacher is often one label for everybody, and of a blind one nearly
    # always. The limit of the ledger has room for twelve.
    for k in range(12):
        state = np.frombuffer(asked.carried) + (-1) ** k * k
        assert answer(f"job-{k + 2}", state.tobytes())
        (bought,) = taught_in(world)
        content = bought.read_bytes()[HEAD:]
        seeds.add(content[:16])
        labels.add(content[16:])
        if len(labels) > 1:
            break
    assert len(labels) > 1
    assert ledger_of(world).spent().releases == len(seeds) == k + 1


def test_what_a_teacher_leaves_open_is_no_epsilon(world):
    settings = TWO_PHASE | PRIVATE
    train(world, channel_of(world), settings)
    assert ledger_of(world).spent().composition is None
    assert [left.seen for left in world.left("north")] == [True] * 3
    assert world.left("north")[0].guarantee.condition == "teacher"
    ledger_of(world).set_limit(50.0, 1e-2)
    with pytest.raises(TooFewError, match="north: budget"):
        train(world, channel_of(world, job="job-2"), settings | {"seed": 1})


def test_a_site_makes_room_for_labels_only_where_it_learns_them(world):
    question = SimpleNamespace(round=0, carried=b"")
    for settings, room in ((DP_SGD, 16), (TWO_PHASE, 16 + 1000 // 8 + 1)):
        train = settings | PRIVATE
        agreement = Agreement(train=train, sites=tuple(NAMES), least_rows=ROWS, most_rows=1000)
        training = SiteTraining(agreement, world.site("north"))
        assert training.task(question, None).max_bytes == room


def test_another_table_is_another_training(world):
    settings = DP_SGD | PRIVATE
    channel = channel_of(world)
    train(world, channel, settings)
    path = world.folder / "north" / "rows.csv"
    make_table(ROWS, seed=5).to_csv(path, index=False)
    again = Message(channel.asked[0].text.replace(b"job-1", b"job-2"), channel.asked[0].carried)
    assert world.code(again, job="job-2") == "ok"
    assert ledger_of(world).spent().releases == 2


def test_a_site_without_rows_of_some_group_takes_part(large):
    rows = make_table(MANY, seed=0).assign(town="a")
    rows.to_csv(large.folder / "north" / "rows.csv", index=False)
    federation, _ = train(large, channel_of(large), FPFL | {"rounds": 2})
    assert federation.booked["north"].rounds == 2


def test_fewer_rows_than_the_noise_was_computed_for_are_refused(world):
    make_table(ROWS - 1).to_csv(world.folder / "north" / "rows.csv", index=False)
    with pytest.raises(TooFewError, match="north: failed"):  # no more is said with an epsilon
        train(world, channel_of(world), DP_SGD | PRIVATE)
    assert "limits say at least 120" in "".join(world.said)
    with pytest.raises(TooFewError, match="north: table"):
        train(world, channel_of(world, "job-2"), FAIR_SGD)
    assert "the job says at least 120" in "".join(world.said)
    with pytest.raises(ValueError, match="least_rows"):
        TrainJob(train=DP_SGD)
    with pytest.raises(ValueError, match="least_rows"):
        TrainJob(train=TWO_PHASE)


@pytest.mark.parametrize(("least", "code"), [(120, "rows"), (119, "message"), (None, "rows")])
def test_questions_do_not_find_out_the_number_of_rows(world, least, code):
    """With an epsilon it is the site's public number that decides, not the table of 120 rows."""
    world.limit("north", most_rounds=50, least_rows=least)
    world.bound("north")
    asked = 1 if not least else 121 if code == "rows" else 119
    training = DP_SGD | PRIVATE | {"batch": asked}
    message = world.ask(
        {"train": training, "sites": NAMES, "least_rows": asked, "most_rows": 300}, task="train"
    )
    assert world.code(Message(message.text, b"no state")) == code
    assert ledger_of(world).spent().releases == 0


def test_a_new_job_goes_on_to_the_same_numbers(world):
    stopped = channel_of(world)
    stop_after(stopped, 5)
    with pytest.raises(TooFewError, match="lost"):
        train(world, stopped)
    again = channel_of(world, job="job-2")
    _, theta = train(world, again)
    assert len(again.asked) == 1
    np.testing.assert_allclose(theta, in_process().model.theta, rtol=1e-10, atol=1e-12)
    assert not list((world.folder / "server").glob("*.checkpoint"))


def test_another_training_does_not_go_on_from_it(world):
    stopped = channel_of(world)
    stop_after(stopped, 3)
    with pytest.raises(TooFewError):
        train(world, stopped)
    with pytest.raises(TooFewError, match="north: budget"):  # sums of two trainings tell more
        train(world, channel_of(world, job="job-3"), TRAIN | {"momentum": 0.0})
    for name in NAMES:
        world.limit(name, most_rounds=50, again=len(world.left(name)))
    other = channel_of(world, job="job-2")
    train(world, other, TRAIN | {"momentum": 0.0})
    assert len(other.asked) == TRAIN["rounds"]


@pytest.mark.parametrize(
    ("limits", "settings", "code"),
    [
        ({"most_rounds": 0}, TRAIN, "rounds"),
        ({"kinds": ["surrogate", "fair", "gap", "counts"]}, TRAIN, "kind"),
        ({"most_delta": 1e-9}, DP_SGD | PRIVATE, "epsilon"),
        ({"most_rounds": 0}, FPFL | PRIVATE, "rounds"),
        ({"most_rounds": 0}, DP_SGD | PRIVATE, "message"),
        ({"without_epsilon": False}, TRAIN, "epsilon"),
        ({"without_epsilon": False}, FPFL | PRIVATE, "message"),
        ({"most_epsilon": 1.9}, FPFL | PRIVATE, "epsilon"),
        ({"most_delta": 0.9}, FPFL | PRIVATE | {"delta": 0.6}, "settings"),
        ({}, TRAIN | {"method": "mmdm"}, "settings"),
        ({"without_epsilon": False}, FAIR_SGD, "epsilon"),
        ({"most_rounds": 0}, FAIR_SGD, "rounds"),
        ({"without_epsilon": False}, TWO_PHASE | PRIVATE, "epsilon"),
        ({"most_rounds": 0}, TWO_PHASE | PRIVATE, "rounds"),
        ({"most_epsilon": 1.9}, TWO_PHASE | PRIVATE, "message"),
        ({"most_rounds_of_job": TRAIN["rounds"] - 1}, TRAIN, "rounds"),
        ({"most_rounds_of_job": TRAIN["rounds"]}, TRAIN, "message"),
        ({"most_rounds_of_job": 10}, DP_SGD | PRIVATE | {"rounds": 11}, "rounds"),
        ({"most_width": 7}, TRAIN | {"hidden": [3, 8]}, "settings"),
        ({"most_width": 8}, TRAIN | {"hidden": [3, 8]}, "message"),
        ({"without_epsilon": False, "most_rounds": 0}, END_TO_END | PRIVATE, "message"),
        ({}, TRAIN | {"cohort": 1}, "settings"),
        ({}, TRAIN | {"rounds": 0}, "settings"),
        ({}, TRAIN, "message"),
    ],
)
def test_sites_limit_trainings(world, limits, settings, code):
    world.limit("north", **({"most_rounds": 50} | limits))
    if "epsilon" in settings:
        world.bound("north")
    settings = {"train": settings, "sites": NAMES, "least_rows": ROWS, "most_rows": 300}
    assert world.code(Message(world.ask(settings, task="train").text, b"no state")) == code


@pytest.mark.parametrize("sites", [[], ["south"]])
def test_sites_know_who_takes_part(world, sites):
    settings = {"train": TRAIN, "sites": sites, "most_rows": 300}
    assert world.code(world.ask(settings, task="train")) == "settings"


def test_what_must_be_left_is_left_by_a_training(world):
    ledger_of(world).set_limit(3.0, 1e-2)
    world.limit("north", most_rounds=50, least_epsilon_left=2.0)
    with pytest.raises(TooFewError, match="north: budget"):
        train(world, channel_of(world), FPFL | PRIVATE)
    assert ledger_of(world).spent().releases == 0


def test_rounds_are_limited_over_all_jobs(world):
    for name in NAMES:
        world.limit(name, most_rounds=8, again=TRAIN["rounds"])
    train(world, channel_of(world))
    with pytest.raises(TooFewError, match="north: rounds"):
        train(world, channel_of(world, job="job-2"), TRAIN | {"seed": 1})
    assert len(world.left("north")) == 8


def test_a_round_that_is_asked_with_many_questions_counts_each(world):
    world.limit("north", most_rounds=3)
    channel = channel_of(world)
    with pytest.raises(TooFewError):
        train(world, channel, TRAIN)
    first, codes = channel.asked[0], []
    for shift in range(4):
        state = np.frombuffer(first.carried) + shift
        codes.append(world.code(Message(first.text, state.tobytes())))
    assert codes[0] == "ok"  # asked once more
    assert codes[1:] == ["rounds"] * 3
    assert len(world.left("north")) == 3


@pytest.mark.parametrize("what", [b"", b"\0" * 8, "nan", "large"])
def test_a_report_that_is_none_is_refused(world, what):
    channel = channel_of(world)

    def carried(message):
        n = len(message.carried) // 8
        if isinstance(what, bytes):
            return what
        return np.full(n, np.nan if what == "nan" else 1.0, "<f8").tobytes()

    channel.on_way = lambda name, m: resigned(world, name, m, carried(m)) if name == "north" else m
    federation, _ = train(world, channel, TRAIN | {"clip": 0.05}, least_answers=1)
    assert federation.booked["north"].code == "refused"
    assert federation.booked["south"].rounds == TRAIN["rounds"]


@pytest.mark.parametrize(
    ("where", "settings", "weight"),
    [
        ("world", TRAIN, -ROWS), ("world", TRAIN, -1e-9), ("world", TRAIN, np.nan),
        ("world", TRAIN, ROWS + 1), ("world", DP_SGD, ROWS - 1), ("large", FPFL, -1.0),
    ],
)  # fmt: skip
def test_a_site_does_not_count_as_more_rows_than_it_may_have(request, where, settings, weight):
    world = request.getfixturevalue(where)
    channel = channel_of(world)

    def claimed(message):
        numbers = np.frombuffer(message.carried, "<f8").copy()
        numbers[-1] = weight  # of FPFL it is the number of rows
        return numbers.tobytes()

    channel.on_way = lambda name, m: resigned(world, name, m, claimed(m)) if name == "north" else m
    settings = settings | {"rounds": 1}
    federation, _ = train(world, channel, settings, least_answers=1, most_rows=ROWS)
    assert [booked.code for booked in federation.booked.values()] == ["refused", "ok"]


@pytest.mark.parametrize("settings", [TRAIN, DP_SGD, FAIR_SGD, TWO_PHASE])
def test_where_sites_count_by_rows_a_job_names_the_most(settings):
    with pytest.raises(ValueError, match=f"most_rows: {settings['method']} needs"):
        TrainJob(train=settings, least_rows=ROWS)
    with pytest.raises(ValueError, match="most_rows: must be at least least_rows"):
        TrainJob(train=settings, least_rows=ROWS, most_rows=ROWS - 1)
    for alike in (FPFL, TRAIN | {"clip": 0.05}):
        assert TrainJob(train=alike).most_rows is None


@pytest.mark.parametrize("settings", [TRAIN, TRAIN | {"clip": 0.05}])
def test_a_missing_site_does_not_make_steps_shorter(world, settings):
    channel = channel_of(world)
    del channel.sites["north"]
    _, theta = train(world, channel, settings, least_answers=1)
    rows = in_content_order(sf.encode(make_table(ROWS, seed=1), make_schema()))
    config = TrainConfig(**settings)
    data = sf.federated.make_user_data(rows, np.zeros(ROWS, int), make_schema(), config)
    expected = sf.federated.train_rounds(data, config)
    np.testing.assert_allclose(theta, expected.model.theta, rtol=1e-9, atol=1e-11)


def test_no_room_is_made_for_a_state_that_did_not_come():
    """Of a network of 80 GB, which a question can name in a few bytes."""
    like = {"weight": jax.ShapeDtypeStruct((100_000, 100_000), "float64")}
    with pytest.raises(ValueError, match="has 8 bytes; must have 80000000000"):
        unpack(bytes(8), like)


def test_trees_survive_the_way():
    tree = {"a": np.arange(3.0), "b": (np.float64(0.1), np.zeros((2, 2)))}
    found = unpack(pack(tree), tree)
    assert np.array_equal(found["a"], tree["a"])
    assert found["b"][0] == 0.1

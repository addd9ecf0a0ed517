"""What a training costs: booked once over its jobs, and anew for every other question."""

import json

import numpy as np
import pytest
from builders import NAMES, World
from site_training import FPFL, PRIVATE, ROWS, TRAIN, channel_of, in_process, train

from synthfair.federated.two_phase import TwoPhase
from synthfair.privacy.ledger import Ledger
from synthfair.task.job_sites import TooFewError
from synthfair.task.messages import Message

DP_SGD = {"method": "dp_sgd", "rounds": 3, "batch": ROWS, "local_epochs": 1.0, "clip": 1.0}
DP_SGD |= PRIVATE
TWO_PHASE = DP_SGD | {"method": "two_phase", "teacher_epochs": 2.0, "kappa": 2.0}
END_TO_END = TWO_PHASE | {"end_to_end": True}
HEAD = 8 + 1 + 64 + 1 + 64 + 1
"""Bytes of a bought file before its content: a seed, and the labels of a teacher."""


@pytest.fixture
def world(tmp_path):
    world = World(tmp_path, rows=ROWS)
    for name in NAMES:
        world.limit(name, most_rounds=50)
    return world


def ledger_of(world):
    return Ledger.for_table(world.folder / "north" / "rows.csv")


def answer(world, asked, job, state=None, **changes):
    """The site's answer to a question, in another job of a site that has started anew."""
    text = json.dumps(json.loads(asked.text) | {"job": job} | changes).encode()
    message = Message(text, asked.carried if state is None else state)
    found = world.site("north").answer(message, job=job, submitter="x")
    return json.loads(found.text)["code"], found.carried


@pytest.mark.parametrize("settings", [TRAIN, FPFL | PRIVATE, END_TO_END])
def test_training_that_stopped_goes_on_in_the_next_job(world, settings):
    stopped, again = channel_of(world), channel_of(world, job="job-2")
    stopped.on_way = lambda _, m: None if len(stopped.asked) > 2 else m
    with pytest.raises(TooFewError, match="lost"):
        train(world, stopped, settings)
    _, theta = train(world, again, settings)
    assert len(again.asked) == settings["rounds"] - 2
    assert again.asked[0].carried == stopped.asked[-1].carried
    assert not list((world.folder / "server").glob("*.checkpoint"))
    if settings is TRAIN:
        np.testing.assert_allclose(theta, in_process().model.theta, rtol=1e-10, atol=1e-12)
    else:
        assert ledger_of(world).spent().releases == 1


def test_training_with_other_settings_does_not_go_on_from_it(world):
    stopped = channel_of(world)
    stopped.on_way = lambda _, m: None if len(stopped.asked) > 3 else m
    with pytest.raises(TooFewError):
        train(world, stopped)
    other = TRAIN | {"momentum": 0.0}
    with pytest.raises(TooFewError, match="north: budget"):  # sums of two trainings tell more
        train(world, channel_of(world, job="job-3"), other)
    for name in NAMES:
        world.limit(name, most_rounds=50, again=len(world.left(name)))
    channel = channel_of(world, job="job-2")
    train(world, channel, other)
    assert len(channel.asked) == TRAIN["rounds"]


@pytest.mark.parametrize("settings", [FPFL | PRIVATE, DP_SGD])  # noise of either side
def test_noise_cannot_be_repeated(world, settings):
    for job in ("job-1", "job-2"):
        train(world, channel_of(world, job), settings)
        for name in NAMES:
            for path in (world.folder / name).glob("*.bought"):
                assert path.stat().st_mode & 0o077 == 0
                path.unlink()
    first, second = (world.folder / f"job-{i}" / "rounds.csv" for i in (1, 2))
    assert first.read_text() != second.read_text()


@pytest.mark.parametrize("settings", [FPFL | PRIVATE, DP_SGD])
def test_question_again_has_the_same_answer_and_another_is_booked(world, settings):
    channel = channel_of(world)
    train(world, channel, settings)
    before, asked, after = channel.asked[:3]
    first = answer(world, asked, "job-2")
    assert first == answer(world, asked, "job-3") == ("ok", first[1])
    assert ledger_of(world).spent().releases == 1
    assert answer(world, asked, "job-4", before.carried)[0] == "ok"
    assert ledger_of(world).spent().releases == 2
    ledger_of(world).set_limit(2.1, 1e-3)
    assert answer(world, asked, "job-5", after.carried)[0] == "budget"
    assert answer(world, asked, "job-6", before.carried)[0] == "ok"  # not forgotten for it
    assert ledger_of(world).spent().releases == 2
    assert answer(world, asked, "job-7", round=settings["rounds"])[0] == "rounds"


def test_teacher_is_bought_once_with_its_noise(world, monkeypatch):
    train(world, channel := channel_of(world), END_TO_END)
    (path,) = (world.folder / "north").glob("*.bought")
    bought = path.read_bytes()
    assert len(bought) == HEAD + 16 + ROWS // 8
    first = answer(world, channel.asked[1], "job-2")
    with monkeypatch.context() as patch:
        patch.setattr(TwoPhase, "teach", lambda *_: pytest.fail("trained anew"))
        assert answer(world, channel.asked[1], "job-3") == first  # from the stored labels alone
        path.write_bytes(bought[:-1] + bytes([bought[-1] ^ 1]))
        assert answer(world, channel.asked[1], "job-4")[1] != first[1]
    assert ledger_of(world).spent().releases == 1
    assert answer(world, channel.asked[1], "job-5", channel.asked[0].carried)[0] == "ok"
    (path,) = (world.folder / "north").glob("*.bought")
    assert path.read_bytes()[HEAD : HEAD + 16] != bought[HEAD : HEAD + 16]  # another teacher
    assert ledger_of(world).spent().releases == 2


def test_teacher_without_an_epsilon_end_to_end_is_booked_as_exact(world):
    train(world, channel_of(world), TWO_PHASE)
    assert ledger_of(world).spent().composition is None
    assert [left.seen for left in world.left("north")] == [True] * 3
    assert world.left("north")[0].guarantee.condition == "teacher"


def test_round_asked_with_many_questions_counts_each(world):
    world.limit("north", most_rounds=3)
    channel = channel_of(world)
    with pytest.raises(TooFewError, match="north: rounds"):
        train(world, channel, TRAIN)
    first = channel.asked[0]
    states = [(np.frombuffer(first.carried) + shift).tobytes() for shift in range(4)]
    codes = [answer(world, first, "job-1", state)[0] for state in states]
    assert codes == ["ok", "rounds", "rounds", "rounds"]  # the first was asked before
    assert len(world.left("north")) == 3

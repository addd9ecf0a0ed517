"""Rounds whose reports are shared among aggregators: the numbers of ``train --secure``."""

import json

import numpy as np
import pandas as pd
import pytest
from site_training import FPFL, MANY, PRIVATE, REFINE, ROWS, TRAIN, in_process
from sum_world import ADDERS, NAMES, SumWorld

import synthfair as sf
from synthfair.deploy.train_job import TrainJob, run_train
from synthfair.errors import InputError
from synthfair.secure import SumTask
from synthfair.secure.summands import ClippedVectors
from synthfair.secure.task import AggregatorKeys
from synthfair.task.job_sites import TooFewError
from synthfair.task.messages import MAX_QUESTION_BYTES, Message

SECURE = {"secure": True, "clip": 0.5}


def sum_world(folder, rows):
    found = SumWorld(folder, rows=rows)
    for name in NAMES:
        found.limit(name, most_rounds=50, again=1)
    for name in ADDERS:
        found.allow(name, without_noise=True)
    return found


@pytest.fixture
def world(tmp_path):
    return sum_world(tmp_path, ROWS)


def train(world, channel, settings, **changes):
    for name in NAMES if "epsilon" in settings else ():
        world.bound(name)
    federation = world.federation(channel)
    job, output = (
        TrainJob(train=settings, **({"most_rows": 300} | changes)),
        world.folder / channel.job,
    )
    run_train(federation, job, world.folder / "server" / channel.job, output)
    return federation, sf.read_model(output / "model.json").theta


SECURE_SUMS = REFINE | {"secure": True, "clip": 1e4}


@pytest.mark.parametrize("settings", [TRAIN | SECURE, FPFL | SECURE | {"rounds": 3}, SECURE_SUMS])
def test_rounds_give_the_numbers_of_the_engine_in_one_process(tmp_path, settings):
    world = sum_world(tmp_path, MANY)  # enough that no exact sum tells few rows
    federation, theta = train(world, world.channel(), settings, most_rows=MANY)
    expected = in_process(settings, n=MANY)
    np.testing.assert_allclose(theta, expected.model.theta, atol=1e-6)
    assert federation.booked["sums-a"].rounds == settings["rounds"]
    metrics = json.loads((world.folder / "job-1" / "metrics.json").read_text())
    assert metrics["secure_sums"]["aggregators"] == 2


def report_seen(world, name="north"):
    """What a site would answer if it were asked for its report itself."""
    channel = world.channel("job-9")
    plain = {k: v for k, v in (TRAIN | SECURE).items() if k != "secure"} | {"rounds": 1}
    seen = {}
    channel.on_way = lambda site, m: seen.update({site: m.carried}) or m
    train(world, channel, plain)
    return np.frombuffer(seen[name], "<f8")


def test_the_server_sees_no_report(world):
    report, channel, seen = report_seen(world), world.channel(), {}
    channel.on_way = lambda site, m: seen.setdefault(site, m.carried) and m
    train(world, channel, TRAIN | SECURE | {"rounds": 1})
    steps = np.rint(report / (0.5 / 2**30)).astype(np.int64)
    assert np.abs(report).max() > 0.01
    for content in seen.values():
        for kind, entries in (("<f8", report), ("<i8", steps), ("<u8", steps.astype(np.uint64))):
            for entry in np.asarray(entries, kind)[np.abs(report) > 1e-3]:
                assert entry.tobytes() not in content


def test_the_epsilon_is_that_of_the_engine_in_one_process(world):
    settings = FPFL | PRIVATE | {"secure": True, "rounds": 2}
    train(world, world.channel(), settings)
    stated = json.loads((world.folder / "job-1" / "metrics.json").read_text())["guarantee"]
    _, booked, _ = world.ledger().records()
    assert stated == booked.what.guarantee.model_dump(mode="json")
    assert stated["adversary"] == "all_but_one"
    assert "simulated" not in stated
    (mechanism,) = stated["mechanisms"]
    expected = in_process(settings).guarantee.mechanisms[0]
    assert mechanism["noise"] == expected.noise
    assert booked.what.composition.epsilon(PRIVATE["delta"]) == pytest.approx(2.0, rel=0.01)
    assert not booked.what.seen


def test_noise_is_the_aggregators_own(world, monkeypatch):
    """Each adds its own: with known noise, the numbers move by the sum of both."""
    settings = TRAIN | SECURE | PRIVATE | {"rounds": 1}
    for name, steps in (("silent", 0), ("loud", 2**20)):
        monkeypatch.setattr(
            sf.secure.ClippedVectors, "noise", lambda what, *_, s=steps: np.full(what.length, s)
        )
        train(world, world.channel(name), settings)
    drift = [pd.read_csv(world.folder / n / "rounds.csv").iloc[0, -1] for n in ("silent", "loud")]
    assert drift[0] != drift[1]


def test_a_training_with_epsilon_is_booked_once_over_its_jobs(world):
    """The server stops when one of two aggregators has answered; the next job goes on."""
    settings = FPFL | PRIVATE | {"secure": True, "rounds": 3}
    stopped, before = world.channel(), []
    stopped.on_way = lambda site, m: (
        None if site == "sums-b" and len(stopped.asked) > 4 else before.append((site, m)) or m
    )
    with pytest.raises(TooFewError, match="sums-b: lost"):
        train(world, stopped, settings)
    again, after = world.channel("job-2"), []
    again.on_way = lambda site, m: after.append((site, m)) or m
    train(world, again, settings)
    assert [site for site, _ in after[:2]] == list(ADDERS)  # with the uploads of the first job
    last = [m.carried for site, m in before if site == "sums-a"][-1]
    assert after[0][1].carried == last
    assert world.ledger().spent().releases == 1
    assert world.records("sums-a").is_dir()
    assert len(list(world.records("sums-a").glob("*.answer"))) == 3
    assert not list((world.folder / "server").rglob("*.uploads"))


def test_a_training_with_epsilon_goes_on_with_no_other_sums(world):
    """In other sums the sites would book it once more; so the server says what to do."""
    settings = FPFL | PRIVATE | {"secure": True, "rounds": 3}
    for name in ADDERS:
        world.allow(name, least_clients=1)
    stopped = world.channel()
    stopped.on_way = lambda site, m: None if site == "sums-b" else m
    with pytest.raises(TooFewError, match="sums-b: lost"):
        train(world, stopped, settings)
    with pytest.raises(InputError, match="books once more"):
        train(world, world.channel("job-2"), settings, least_answers=1)
    assert world.ledger().spent().releases == 1
    (checkpoint,) = (world.folder / "server").glob("train.*.checkpoint")
    checkpoint.unlink()
    train(world, world.channel("job-3"), settings, least_answers=1)
    assert world.ledger().spent().releases == 2


def test_another_job_without_epsilon_has_sums_of_its_own(world):
    for job in ("job-1", "job-2"):
        train(world, world.channel(job), TRAIN | SECURE | {"rounds": 2})
    assert len(list(world.records("sums-a").glob("*.answer"))) == 4


def test_another_sum_of_the_same_round_is_booked_as_a_new_training(world):
    settings, channel = FPFL | PRIVATE | {"secure": True, "rounds": 1}, world.channel()
    train(world, channel, settings)
    asked = next(m for m in channel.asked if b'"train"' in m.text)
    task = json.loads(asked.text)
    task["job"], task["settings"]["task"]["nonce"] = "job-2", "7" * 64
    message = Message(json.dumps(task).encode(), asked.carried)
    assert world.code(message, job="job-2") == "ok"
    assert world.ledger().spent().releases == 2
    same = Message(asked.text.replace(b"job-1", b"job-3"), asked.carried)
    world.code(same, job="job-3")
    assert world.ledger().spent().releases == 3  # as the one before is forgotten


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"what": {"step": 1e-7}}, "settings"),
        ({"what": {"clip": 5.0}}, "settings"),
        ({"what": {"rho": 90.0}}, "settings"),
        ({"aggregators": "swapped"}, "aggregators"),
        ({"clients": ["0" * 64], "least_clients": 1}, "settings"),
    ],
)
def test_a_site_shares_for_no_other_sum_than_it_plans_itself(world, change, code):
    settings, channel = FPFL | PRIVATE | {"secure": True, "rounds": 1}, world.channel()
    train(world, channel, settings)
    asked = next(m for m in channel.asked if b'"train"' in m.text)
    found = json.loads(asked.text.replace(b"job-1", b"job-2"))
    task = found["settings"]["task"]
    if "what" in change:
        task["what"] |= change["what"]
    elif "aggregators" in change:
        task["aggregators"] = task["aggregators"][::-1]
    else:
        task |= change
    message = Message(json.dumps(found).encode(), asked.carried)
    assert world.code(message, job="job-2") == code
    del found["settings"]["task"]
    assert world.code(Message(json.dumps(found).encode(), asked.carried), job="job-2") == "settings"


@pytest.mark.parametrize(
    ("limits", "settings", "code"),
    [
        ({"without_noise": False}, TRAIN | SECURE, "epsilon"),
        ({"most_tasks": 2, "without_noise": True}, TRAIN | SECURE, "tasks"),
        ({"most_rho": 1e-3}, FPFL | PRIVATE | {"secure": True}, "epsilon"),
    ],
)
def test_an_aggregator_limits_rounds(world, limits, settings, code):
    world.allow("sums-b", **limits)
    with pytest.raises(TooFewError, match=f"sums-b: {code}"):
        train(world, world.channel(), settings)


def test_a_question_to_a_thousand_sites_is_not_too_long():
    names = sorted(f"{i:04d}{'a' * 59}" for i in range(1000))
    keys = AggregatorKeys(signature="1" * 64, encryption="3" * 64)
    other = AggregatorKeys(signature="2" * 64, encryption="4" * 64)
    what = ClippedVectors(length=10, clip=1.0, step=1e-9, rho=None)
    task = SumTask(nonce="0" * 64, what=what, aggregators=(keys, other),
                clients=tuple(f"{i:064x}" for i in range(1000)), least_clients=1000)  # fmt: skip
    agreed = {"train": TRAIN | SECURE, "sites": names, "most_rows": 300}
    settings = agreed | {"task": task.model_dump(mode="json")}
    text = json.dumps({"settings": settings}).encode()
    assert 130_000 < len(text) < MAX_QUESTION_BYTES - 1000

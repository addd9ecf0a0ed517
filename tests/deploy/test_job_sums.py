"""Sums by shares, the server's side: a job goes on with what it has, and nobody pays twice."""

import json

import numpy as np
import pytest
from builders import NAMES, make_table, resigned
from site_training import DP_SGD, FPFL, MANY, PRIVATE, REFINE, ROWS, TRAIN, in_process
from sum_world import ADDERS, SumWorld

import synthfair as sf
from synthfair.deploy.job_sums import read_aggregators
from synthfair.deploy.privfairfl_job import PrivFairFLJob
from synthfair.deploy.train_job import TrainJob, run_train
from synthfair.errors import InputError
from synthfair.evaluation import pooled_scores
from synthfair.fairness.metrics import group_rates
from synthfair.release.keys import read_signing_key
from synthfair.secure import GroupCounts
from synthfair.task.job_sites import TooFewError

AT_SITES = {"train": DP_SGD | PRIVATE, "least_rows": ROWS, "most_rows": 300}
TRAINED = {"model": None, "train": AT_SITES}
SECURE = {"secure": True, "clip": 0.5}


def world_of(folder, rows=300):
    world = SumWorld(folder, rows=rows)
    for name in NAMES:
        world.limit(name, most_rounds=50, again=1)
    for name in ADDERS:
        world.allow(name, without_noise=True, least_clients=1)
    return world


@pytest.fixture
def world(tmp_path):
    return world_of(tmp_path)


def result(world, job, name):
    return json.loads((world.folder / job / name).read_text())


def kinds(channel):
    return [json.loads(message.text)["task"] for message in channel.asked]


# Counts of a model's scores


def test_counts_have_the_noise_of_both_aggregators_and_are_booked_once(world, monkeypatch):
    """Known noise of 1 and then 3 in each count moves each by twice that."""
    found = []
    for job, steps in (("job-1", 1), ("job-2", 3)):
        monkeypatch.setattr(GroupCounts, "noise", lambda what, *_, s=steps: np.full(what.length, s))
        world.post(world.channel(job))
        found.append(result(world, job, "histogram.json"))
    assert np.unique(np.subtract(found[1]["counts"], found[0]["counts"])).tolist() == [4]
    (stated,) = found[0]["origin"]["guarantees"]
    assert stated == world.left("north")[0].guarantee.model_dump(mode="json")
    assert (stated["epsilon"], stated["adversary"]) == (2.0, "all_but_one")
    assert world.ledger().spent().epsilon(1e-9) == 4.0


def test_aggregator_whose_key_is_revoked_does_not_count(world):
    key = read_aggregators(world.folder / "aggregators", ADDERS)["sums-b"].signature
    world.change(world.folder / "server.json", {"revoked": [key]})
    with pytest.raises(TooFewError, match="sums-b: revoked"):
        world.post(world.channel())
    with pytest.raises(InputError, match="sums-c"):
        read_aggregators(world.folder / "aggregators", (*ADDERS, "sums-c"))


def test_job_that_ended_early_goes_on_with_its_training_and_its_count(world):
    channel = world.channel()
    del channel.sites["sums-b"]
    with pytest.raises(TooFewError, match="sums-b: late"):
        world.post(channel, **TRAINED)
    assert not (world.folder / "job-1" / "histogram.json").exists()
    booked, later = world.ledger().path.read_bytes(), world.channel("job-2")
    _, output = world.post(later, timeout=99, notion="equalized_odds", **TRAINED)
    assert kinds(later) == ["add", "add", "deliver"]
    assert world.ledger().path.read_bytes() == booked
    trained, fair = (sf.read_model(output / f"{name}.json") for name in ("model", "fair_model"))
    assert (trained.theta, fair.decision.notion) == (fair.theta, "equalized_odds")
    metrics = result(world, "job-2", "metrics.json")
    assert metrics["counts"]["guarantees"][0]["epsilon"] == 2.0
    tests = {name: make_table(200, seed=9 + i) for i, name in enumerate(NAMES)}
    rates = [one.selection_rate for one in group_rates(pooled_scores(fair, tables=tests))]
    found = [group["selection_rate"] for group in metrics["by_group"].values()]
    np.testing.assert_allclose(found, rates, atol=1e-9)
    for name in NAMES:
        sent = world.folder / name / "synthfair" / "models" / "job-2.json"
        assert sent.read_bytes() == (output / "fair_model.json").read_bytes()
    world.post(world.channel("job-3"), **TRAINED)  # the same training, and a new count
    assert result(world, "job-3", "metrics.json")["guarantee"]["epsilon"] == 2.0
    assert world.ledger().spent().releases == 3
    assert not list((world.folder / "server").glob("*.checkpoint"))  # with the noise's seed


@pytest.mark.parametrize("given", [{"model": None}, {"train": {"train": {}}}, {"model": "@"}])
def test_job_has_one_model(world, given):
    with pytest.raises(ValueError, match="model"):
        PrivFairFLJob(**{"model": world.model(), "notion": "statistical_parity", "epsilon": 1.0,
                         "rows_per_client": 9} | given)  # fmt: skip


def unreadable(world, role):
    """What the south would send that encrypts to another key than an aggregator's."""
    key = read_signing_key(world.folder / "south" / "local" / "south.key")

    def changed(content):
        if not content:
            return None
        parts = [content[: len(content) // 2], content[len(content) // 2 :]]
        body = parts[role][:-65] + bytes([parts[role][-65] ^ 1])
        parts[role] = body + key.sign(body)
        return b"".join(parts)

    return world.altering("south", changed)


@pytest.mark.parametrize("role", [0, 1])
def test_uploads_that_an_aggregator_refuses_are_asked_for_again(world, role):
    """Where the first has answered, of their senders alone: another would pay, and be in no sum."""
    channel, later = world.channel(), world.channel("job-2")
    channel.on_way = unreadable(world, role)
    for name in NAMES[:role]:
        del channel.sites[name], later.sites[name]
    with pytest.raises(TooFewError, match=f"{ADDERS[role]}: uploads"):
        world.post(channel, least_answers=1)
    said = "".join(world.said)
    assert (world.key("south") in said, world.key("north") in said) == (True, False)
    world.post(later, least_answers=1)  # of whom alone the model needs to reach
    assert [world.ledger(name).spent().releases for name in NAMES] == [1 - role, 1]


def test_uploads_asked_for_again_are_those_of_all_their_senders(world):
    """A sum of fewer would not open with what the first aggregator has answered."""
    channel, again = world.channel(), world.channel("job-2")
    channel.on_way = unreadable(world, 1)
    with pytest.raises(TooFewError, match="sums-b: uploads"):
        world.post(channel, least_answers=1)
    del again.sites["north"]
    with pytest.raises(TooFewError, match="north"):
        world.post(again, least_answers=1)


@pytest.mark.parametrize("what", ["junk", "short", "swapped", "the other site's"])
def test_part_that_is_none_is_refused(world, what):
    channel, sent = world.channel(), {}

    def altered(name, message):
        content = sent.setdefault(name, message.carried)
        half = len(content) // 2
        found = {"junk": bytes(2 * half), "short": content[:-1], "the other site's": sent["north"],
                 "swapped": content[half:] + content[:half]}  # fmt: skip
        return resigned(world, name, message, found[what]) if name == "south" else message

    channel.on_way = altered
    with pytest.raises(TooFewError, match="south: refused"):
        world.post(channel)


# Reports of rounds


def train(world, channel, settings, **changes):
    for name in NAMES if "epsilon" in settings else ():
        world.bound(name)
    job = TrainJob(train=settings, **{"most_rows": MANY} | changes)
    federation, output = world.federation(channel), world.folder / channel.job
    run_train(federation, job, world.folder / "server" / channel.job, output)
    return federation, sf.read_model(output / "model.json").theta


@pytest.mark.parametrize(("n", "settings"), [
    (ROWS, TRAIN | SECURE), (MANY, FPFL | SECURE), (MANY, REFINE | SECURE | {"clip": 1e4}),
])  # fmt: skip
def test_rounds_in_shares_give_the_numbers_of_one_process(tmp_path, n, settings):
    world = world_of(tmp_path, n)
    federation, theta = train(world, world.channel(), settings)
    np.testing.assert_allclose(theta, in_process(settings, n=n).model.theta, atol=1e-6)
    assert federation.booked["sums-a"].rounds == settings["rounds"]
    assert result(world, "job-1", "metrics.json")["secure_sums"]["aggregators"] == 2


def test_training_in_shares_goes_on_with_its_sums_and_with_no_others(world):
    """The server stops when one of two aggregators has answered; the sites book nothing more."""
    settings, stopped = FPFL | PRIVATE | {"secure": True}, world.channel()
    stopped.on_way = lambda site, m: None if site == "sums-b" and len(stopped.asked) > 4 else m
    with pytest.raises(TooFewError, match="sums-b: lost"):
        train(world, stopped, settings)
    with pytest.raises(InputError, match="checkpoint"):
        train(world, world.channel("job-2"), settings, least_answers=1)
    again = world.channel("job-3")
    train(world, again, settings)
    assert kinds(again) == ["add", "add", "train", "add", "add"]
    assert again.asked[0].carried == stopped.asked[-2].carried
    assert world.ledger().spent().releases == 1
    assert len(list(world.records("sums-a").glob("*.answer"))) == 3
    assert not list((world.folder / "server").rglob("*.uploads"))
    # Its epsilon is that of one process.
    stated, booked = result(world, "job-3", "metrics.json")["guarantee"], world.left("north")[0]
    assert stated == booked.guarantee.model_dump(mode="json")
    assert (stated["adversary"], booked.seen) == ("all_but_one", False)
    assert stated["mechanisms"][0]["noise"] == in_process(settings).guarantee.mechanisms[0].noise
    assert booked.composition.epsilon(PRIVATE["delta"]) == pytest.approx(2.0, rel=0.01)

"""Sums by shares, the parties' side: what a site shares, and what an aggregator adds up."""

import json

import numpy as np
import pandas as pd
import pytest
from builders import NAMES, SCHEMA, make_table
from secure_task import PLAIN
from site_training import FPFL, PRIVATE
from sum_world import ADDERS, SumWorld

import synthfair as sf
from synthfair.deploy.job_sums import read_aggregators
from synthfair.deploy.train_job import TrainJob, run_train
from synthfair.secure import GroupCounts, SumTask, make_aggregator_keys, make_task
from synthfair.secure.summands import ClippedVectors
from synthfair.secure.surrogate import next_tasks
from synthfair.secure.task import OWNER, read_aggregator_secret
from synthfair.task.messages import Message


@pytest.fixture
def world(tmp_path):
    return SumWorld(tmp_path)


def asked_in(channel, kind):
    return next(m for m in channel.asked if json.loads(m.text)["task"] == kind)


def code(world, message, job, name="north", carried=None, **changes):
    """The code of a question asked again in another job, with another task or other uploads."""
    document = json.loads(message.text) | {"job": job}
    document["settings"]["task"] |= changes
    carried = message.carried if carried is None else carried
    return world.code(Message(json.dumps(document).encode(), carried), name, job=job)


def test_site_shares_its_part_and_no_aggregator_alone_can_read_it(world):
    channel, seen = world.channel(), []
    channel.on_way = lambda name, m: seen.append((name, m.carried)) or m
    world.post(channel)
    task = SumTask.model_validate(json.loads(channel.asked[0].text)["settings"]["task"])
    content, shares = dict(reversed(seen))["north"], []
    halves = content[: len(content) // 2], content[len(content) // 2 :]
    for role, name in enumerate(ADDERS):
        secret = read_aggregator_secret(world.site(name).settings.key)
        shares.append(sf.secure.read_upload(halves[role], task, secret)[2])
        with pytest.raises(sf.InputError):
            sf.secure.read_upload(halves[1 - role], task, secret)
    rows = pd.read_csv(world.folder / "north" / "rows.csv")
    model = sf.read_model(world.folder / "given.json")
    part = sf.secure.count_table(task.what, rows, SCHEMA, model=model)
    assert (shares[0] + shares[1]).view(np.int64).tolist() == part.tolist()
    assert not np.intersect1d(shares[0].view(np.int64), part).size
    make_table(3).to_csv(world.folder / "north" / "rows.csv", index=False)
    assert len(world.answer(channel.asked[0])[1]) == len(content)  # which tells nothing of the rows


@pytest.mark.parametrize("pinned", [None, "others"])
def test_site_shares_with_the_aggregators_alone_that_it_trusts(world, pinned):
    world.post(channel := world.channel())
    for name in ADDERS:
        make_aggregator_keys(world.folder / "north" / "local" / "others" / f"{name}.key")
    world.pinned = {"aggregators": pinned}
    world.limit("north")
    assert code(world, channel.asked[0], "job-2") == "aggregators"


@pytest.mark.parametrize(("limits", "changes", "said"), [
    ({"kinds": ["training"]}, {"nonce": "7" * 64}, "kind"), ({}, {"carried": b"x"}, "message"),
    ({"most_epsilon": 1.9}, {"nonce": "7" * 64}, "epsilon"),
    ({}, {"clients": ["0" * 64], "least_clients": 1}, "settings"),
])  # fmt: skip
def test_site_shares_counts_within_its_limits_for_sums_that_know_it(world, limits, changes, said):
    world.post(channel := world.channel())
    world.limit("north", **limits)
    assert code(world, channel.asked[0], "job-2", **changes) == said


@pytest.mark.parametrize(("store", "codes"), [(True, ("message", "ok")), (False, ("kind",) * 2)])
def test_model_sent_back_is_stored_where_the_site_says_so(world, store, codes):
    world.limit("north", store_models=store)
    world.model()
    ask, given = world.ask({}, task="deliver"), (world.folder / "given.json").read_bytes()
    assert tuple(world.code(Message(ask.text, model)) for model in (b"{}", given)) == codes
    stored = (world.folder / "north" / "synthfair").glob("models/*")
    assert [path.read_bytes() for path in stored] == [given] * store


def test_site_shares_reports_for_no_other_sum_than_it_plans(world):
    job = TrainJob(train=FPFL | PRIVATE | {"secure": True, "rounds": 1})
    for name in NAMES:
        world.bound(name)
    federation = world.federation(channel := world.channel())
    run_train(federation, job, world.folder / "server" / "job", world.folder / "out")
    asked = asked_in(channel, "train")
    task = json.loads(asked.text)["settings"]["task"]
    assert code(world, asked, "job-2", aggregators=task["aggregators"][::-1]) == "aggregators"
    for change in ({"step": 1e-7}, {"clip": 5.0}, {"rho": 90.0}):
        assert code(world, asked, "job-2", what=task["what"] | change) == "settings"
    assert code(world, asked, "job-2", clients=["0" * 64], least_clients=1) == "settings"
    assert world.ledger().spent().releases == 1
    # Another sum of the same round gets other noise: it is a training of its own.
    assert code(world, asked, "job-3", nonce="7" * 64) == "ok"
    assert world.ledger().spent().releases == 2


SUMMANDS = {
    "counts": GroupCounts(**PLAIN | {"epsilon": 2.0}),
    "exact": ClippedVectors(length=10, clip=1.0, step=1e-9, rho=None),
    "noisy": ClippedVectors(length=10, clip=1.0, step=1e-9, rho=1.0),
}


@pytest.mark.parametrize(("what", "limits", "code"), [
    ("counts", {}, "uploads"), ("counts", {"most_epsilon": 1.99}, "epsilon"),
    ("counts", {"most_epsilon": None}, "epsilon"), ("counts", {"most_tasks": 0}, "tasks"),
    ("counts", {"least_clients": 3}, "settings"), ("rows", {"most_delta": 1e-5}, "uploads"),
    ("rows", {"most_delta": 9e-6}, "epsilon"), ("rows", {"most_epsilon": 1.99}, "epsilon"),
    ("exact", {}, "epsilon"), ("exact", {"without_noise": True}, "uploads"),
    ("noisy", {"most_rho": 1.0}, "uploads"), ("noisy", {"most_rho": 0.99}, "epsilon"),
    ("noisy", {"most_rho": None}, "epsilon"),
])  # fmt: skip
def test_aggregator_limits_sums_at_the_border(world, what, limits, code):
    """Within its limits it looks at the uploads, of which there are none."""
    world.allow("sums-a", **limits)
    keys = [*read_aggregators(world.folder / "aggregators", ADDERS).values()]
    clients = {world.key(name): name for name in NAMES}
    if what == "rows":
        config = sf.SurrogateConfig(k_min=5, epsilon=2.0, delta=1e-5)
        task, *_ = next_tasks((), config, SCHEMA, keys, clients, least=2, label="").values()
    else:
        task = make_task(SUMMANDS[what], keys, [*clients], least_clients=2)
    ask = world.ask({"task": task.model_dump(mode="json")}, task="add")
    assert world.code(ask, "sums-a") == code
    # Whoever could add clients of its own would learn what is left of the sum.
    (world.folder / "keys" / "south.pub").unlink()
    assert world.code(ask, "sums-a") == ("settings" if code == "uploads" else code)


def test_aggregator_answers_once_for_a_task_and_reads_its_own_uploads_alone(world):
    channel = world.channel()
    world.post(channel)
    asked, (record,) = asked_in(channel, "add"), world.records("sums-a").glob("*.answer")
    world.allow("sums-a", most_tasks=1)
    answered = record.read_bytes()
    assert code(world, asked, "job-2", "sums-a", carried=b"") == "ok"  # whatever comes with it
    assert code(world, asked, "job-2", "sums-a", nonce="7" * 64) == "tasks"
    assert record.read_bytes() == answered
    record.write_bytes(b"")
    assert code(world, asked, "job-3", "sums-a") == "failed"
    record.unlink()  # as if it were not answered
    half = len(asked.carried) // 2
    for uploads in (b"", asked.carried[:-1], asked.carried[half:], asked.carried[half:] * 2):
        assert code(world, asked, "job-4", "sums-a", carried=uploads) == "uploads"
    (record.parent / OWNER).unlink()  # a folder that was lost, and may be found again
    assert code(world, asked, "job-5", "sums-a") == "failed"

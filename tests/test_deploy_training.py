"""Rounds without an engine: the numbers of the in-process engine, checkpoints, and limits."""

import json

import numpy as np
import pandas as pd
import pytest
from conftest import make_schema, make_table
from test_deploy_jobs import NAMES, InProcess, World, resigned

import synthfair as sf
from synthfair.config import TrainConfig
from synthfair.deploy.federation import TooFewError
from synthfair.deploy.messages import Message
from synthfair.deploy.training import TrainJob, packed, run_train, unpacked
from synthfair.privacy.ledger import Ledger

TRAIN = {"method": "fedavg", "rounds": 6, "learning_rate": 0.5, "local_steps": 3, "momentum": 0.5}


@pytest.fixture
def world(tmp_path):
    found = World(tmp_path)
    for name in NAMES:
        found.limit(name, most_rounds=50)
    return found


def channel_of(world, job="job-1"):
    return InProcess({name: world.site(name) for name in NAMES}, job=job)


def train(world, channel, settings=TRAIN, **changes):
    federation = world.federation(channel)
    job = TrainJob(train=settings, **changes)
    run_train(federation, job, world.folder / "server" / channel.job, world.folder / channel.job)
    return federation, sf.read_model(world.folder / channel.job / "model.json").theta


def in_process(settings=TRAIN):
    tables = [make_table(300, seed=i) for i in range(2)]
    rows = sf.encode(pd.concat(tables, ignore_index=True), make_schema())
    config = TrainConfig(**settings)
    data = sf.federated.make_user_data(rows, np.repeat([0, 1], 300), make_schema(), config)
    return sf.federated.train_rounds(data, config)


@pytest.mark.parametrize("more", [{}, {"clip": 0.05}])
def test_rounds_give_the_numbers_of_the_engine_in_one_process(world, more):
    federation, theta = train(world, channel_of(world), TRAIN | more)
    expected = in_process(TRAIN | more)
    np.testing.assert_allclose(theta, expected.model.theta, rtol=1e-10, atol=1e-12)
    assert federation.booked["north"].rounds == TRAIN["rounds"]
    drift = pd.read_csv(world.folder / "job-1" / "rounds.csv")["drift"]
    np.testing.assert_allclose(drift, expected.history.drift, rtol=1e-9)
    assert "accuracy" in json.loads((world.folder / "job-1" / "metrics.json").read_text())


def test_a_new_job_goes_on_to_the_same_numbers(world):
    stopped = channel_of(world)
    stopped.on_way = lambda _, m: None if len(stopped.asked) > 5 else m
    with pytest.raises(TooFewError, match="lost"):
        train(world, stopped, save_each=2)
    again = channel_of(world, job="job-2")
    _, theta = train(world, again, save_each=2)
    assert len(again.asked) == 2  # of six, four were saved
    np.testing.assert_allclose(theta, in_process().model.theta, rtol=1e-10, atol=1e-12)
    assert not list((world.folder / "server").glob("*.checkpoint"))


def test_another_training_does_not_go_on_from_it(world):
    stopped = channel_of(world)
    stopped.on_way = lambda _, m: None if len(stopped.asked) > 3 else m
    with pytest.raises(TooFewError):
        train(world, stopped, save_each=1)
    other = channel_of(world, job="job-2")
    train(world, other, TRAIN | {"momentum": 0.0})
    assert len(other.asked) == TRAIN["rounds"]


@pytest.mark.parametrize(
    ("limits", "settings", "code"),
    [
        ({"most_rounds": 0}, TRAIN, "rounds"),
        ({"without_epsilon": False}, TRAIN, "epsilon"),
        ({}, TRAIN | {"method": "fpfl"}, "settings"),
        ({}, TRAIN | {"cohort": 1}, "settings"),
        ({}, TRAIN | {"rounds": 0}, "settings"),
        ({}, TRAIN, "message"),
    ],
)
def test_sites_limit_trainings(world, limits, settings, code):
    world.limit("north", **({"most_rounds": 50} | limits))
    ask = Message(world.ask(settings, task="train").text, b"no state")
    assert world.code(ask) == code


def test_rounds_are_limited_over_all_jobs(world):
    world.limit("north", most_rounds=8)
    train(world, channel_of(world))
    with pytest.raises(TooFewError, match="north: rounds"):
        train(world, channel_of(world, job="job-2"))
    events = world.site("north").trace.events()
    assert [event.code for event in events] == ["ok"] * 8 + ["rounds"]
    assert Ledger.for_table(world.folder / "north" / "rows.csv").spent().releases == 2


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


def test_trees_survive_the_way():
    tree = {"a": np.arange(3.0), "b": (np.float64(0.1), np.zeros((2, 2)))}
    found = unpacked(packed(tree), tree)
    assert np.array_equal(found["a"], tree["a"])
    assert found["b"][0] == 0.1

"""A task has one answer, is booked alike and refused alike: by files, and by messages."""

import pytest
from two_sites import PRIVATE, RELEASE, World

from synthfair.client import distill_file
from synthfair.deploy.single_shot import release_config
from synthfair.privacy.ledger import BudgetError, Ledger
from synthfair.release.keys import read_signing_key

FAIR = {"release": "fair", "n_synthetic": 24, "steps": 20}
TASKS = {
    "fair": FAIR,
    "surrogate": RELEASE,
    "private fair": FAIR | {"epsilon": 1.0, "delta": 1e-6, "k_min": 5},
    "private surrogate": PRIVATE,
}


@pytest.fixture
def world(tmp_path):
    return World(tmp_path)


def by_file(world, settings, ledger, **options):
    folder, key = world.folder / "north", world.folder / "north" / "local" / "north.key"
    paths = folder / "rows.csv", world.folder / "schema.json", world.folder / "by_file.parquet"
    options |= {"key": read_signing_key(key), "ledger": ledger}
    distill_file(*paths, release_config(settings), **options)
    return paths[-1].read_bytes()


def by_message(world, settings, job="job-1"):
    return world.site("north").answer(world.ask(settings, job=job), job=job, submitter="x").carried


def booked(ledger):
    fields = {"kind", "run", "guarantee", "round", "question", "seen"}
    purchases = [record.what for record in Ledger(ledger).records()]
    return [what.model_dump(include=fields) for what in purchases if what.kind != "limit"]


@pytest.mark.parametrize("task", TASKS)
def test_a_release_is_the_same_by_files_and_by_messages(world, task):
    settings, place = TASKS[task], Ledger.for_table(world.folder / "north" / "rows.csv").path
    if "epsilon" in settings:
        world.bound("north")
        assert by_message(world, settings) == by_file(world, settings, place) != b""
        assert len(booked(place)) == 1  # what one has bought is the other's, too
        return
    assert by_message(world, settings) == by_file(world, settings, world.folder / "other") != b""
    assert booked(place) == booked(world.folder / "other")


@pytest.mark.parametrize("first", [by_file, by_message])
def test_what_left_by_one_way_stops_what_would_leave_by_the_other(world, first):
    place = Ledger.for_table(world.folder / "north" / "rows.csv").path
    (by_message(world, RELEASE) if first is by_message else by_file(world, RELEASE, place))
    other = RELEASE | {"seed": 1}
    assert world.code(world.ask(other, job="job-2"), job="job-2") == "budget"
    with pytest.raises(BudgetError, match="again = true is consent"):
        by_file(world, other, place, force=True)
    world.limit("north", again=1)
    assert world.code(world.ask(other, job="job-2"), job="job-2") == "ok"
    by_file(world, other, place, force=True)  # the very same answer tells nothing new
    assert len(booked(place)) == 2

"""A task has one answer, is booked alike and refused alike: by files, and by messages."""

import numpy as np
import pytest
from builders import NAMES, PRIVATE, RELEASE, World
from sum_world import SUMS, ByCommands, by_job

import synthfair as sf
from synthfair.cli import main
from synthfair.client import distill_file
from synthfair.deploy.single_shot import release_config
from synthfair.privacy.ledger import BudgetError, Ledger
from synthfair.release.keys import read_signing_key
from synthfair.secure import GroupCounts, RowSums

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
def test_release_by_files_and_by_messages_is_the_same(world, task):
    settings, place = TASKS[task], Ledger.for_table(world.folder / "north" / "rows.csv").path
    if "epsilon" in settings:
        world.bound("north")
        assert by_message(world, settings) == by_file(world, settings, place) != b""
        assert len(booked(place)) == 1  # what one has bought is the other's, too
        return
    assert by_message(world, settings) == by_file(world, settings, world.folder / "other") != b""
    assert booked(place) == booked(world.folder / "other")


@pytest.mark.parametrize("first", [by_file, by_message])
def test_ledger_of_one_carrier_stops_the_other(world, first):
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


# Sums by shares: counts, and one surrogate of all sites' rows


@pytest.fixture
def no_noise(monkeypatch):
    """So that totals are those of any run."""
    for kind in (GroupCounts, RowSums):
        monkeypatch.setattr(kind, "noise", lambda what, *_: np.zeros(what.length, np.int64))


def kept(ledger):
    """What is booked, but for the questions, which name their task."""
    return [{k: v for k, v in one.items() if k != "question"} for one in booked(ledger)]


@pytest.mark.usefixtures("no_noise")
def test_shared_noise_by_files_and_by_messages_is_the_same(sums):
    by_job(sums)
    files = ByCommands(sums)
    for names in (SUMS[:2], SUMS[2:3], SUMS[3:4], SUMS[4:]):
        assert files.plan_surrogate() == 0
        for name in names:
            files.exchange(name)
    assert files.plan_surrogate() == 0
    release = files.folder / "tasks" / "surrogate.parquet"
    theirs = sums.folder / "server" / "job-1" / "surrogate.parquet"
    assert release.read_bytes() == theirs.read_bytes()
    guarantee = sf.release.inspect_release(release).release.header.guarantee
    assert (guarantee.epsilon, guarantee.adversary, guarantee.aggregators) == (
        2.0,
        "all_but_one",
        2,
    )
    # It is pooled like any other.
    server = ["server", str(release), "--schema", f"{sums.folder}/schema.json"]
    server += ["--test", *(f"{sums.folder}/{name}_test.csv" for name in NAMES)]
    assert main([*server, "--output", f"{files.folder}/out"]) == 0
    model = (files.folder / "out" / "model.json").read_bytes()
    assert model == (sums.folder / "job-1" / "model.json").read_bytes()
    # It is booked alike: once, the whole of it, in five rounds.
    for name in NAMES:
        ledger = Ledger.for_table(sums.folder / name / "rows.csv")
        assert kept(ledger.path) == kept(files.ledger(name))
        assert (ledger.spent().releases, ledger.spent().answers) == (1, 5)
        assert ledger.spent().epsilon(1e-5) == pytest.approx(2.0, abs=1e-3)


@pytest.mark.usefixtures("no_noise")
def test_counts_by_files_and_by_messages_are_the_same(sums):
    sums.post(sums.channel(), send_back=False)
    files, model = ByCommands(sums), ["--model", f"{sums.folder}/given.json"]
    counts = [*model, "--bins", "11", "--epsilon", "2", "--rows-per-client", "500"]
    assert files.plan(*counts, output="counts.json") == 0
    for name in NAMES:
        assert files.answer(name, files.folder / "counts.json", *model) == 0
    files.add_and_open(files.folder / "counts.json", files.folder / "histogram.json")
    theirs = sums.folder / "job-1" / "histogram.json"
    assert (files.folder / "histogram.json").read_bytes() == theirs.read_bytes()
    own, others = kept(sums.ledger().path)[0], kept(files.ledger("north"))[0]
    assert own | {"run": None} == others | {"run": None}  # which names the task

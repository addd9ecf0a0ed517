"""The job ``gap``: counts with noise, gaps that hold, and one answer to a question."""

import base64
import json

import numpy as np
import pytest
from builders import NAMES, InProcess, World, make_table, some_model

import synthfair as sf
from synthfair.deploy.gap_job import GapJob, run_gap
from synthfair.evaluation import pooled_scores
from synthfair.fairness.metrics import group_rates
from synthfair.measure import gaps_file
from synthfair.privacy.noise import seeded, system_entropy
from synthfair.task.job_sites import TooFewError
from synthfair.task.messages import Message
from synthfair.trained import write_model

TABLES = {name: make_table(1500, seed=i) for i, name in enumerate(NAMES)}


@pytest.fixture
def world(tmp_path):
    found = World(tmp_path, rows=1500)
    for name in NAMES:
        found.limit(name, kinds=["gap"], most_epsilon=5.0)
        found.bound(name)
    write_model(some_model(), tmp_path / "model.json")
    return found


def measure(world, job="job-1", on_way=lambda _, message: message, **changes):
    content = base64.b64encode((world.folder / "model.json").read_bytes()).decode()
    channel = InProcess({name: world.site(name) for name in NAMES}, job=job)
    channel.on_way, federation = on_way, world.federation(channel)
    document = {"epsilon": 1.0, "model": content} | changes
    settings = GapJob.model_validate_json(json.dumps(document))
    run_gap(federation, settings, world.folder / "private", world.folder / job)
    return federation, json.loads((world.folder / job / "gaps.json").read_text())


def answer(world, job="job-1", model=None, **changes):
    text = world.ask({"epsilon": 1.0} | changes, task="gap", job=job).text
    model = (world.folder / "model.json").read_bytes() if model is None else model
    return world.answer(Message(text, model), job=job)


def spent(world):
    return world.ledger().spent()


def test_counts_are_those_of_the_site_with_noise_of_its_epsilon(world, monkeypatch):
    asked = []

    def laplace(scale, size, source):
        asked.append((scale, source))
        return np.arange(size)

    monkeypatch.setattr("synthfair.measure.gaps_file.discrete_laplace", laplace)
    code, carried = answer(world, epsilon=0.1)
    assert (code, asked) == ("ok", [(10, system_entropy)])
    rows, counts = pooled_scores(some_model(), {"north": TABLES["north"]}), np.zeros((2, 2, 2), int)
    np.add.at(counts, (rows.s, (rows.y > 0).astype(int), (rows.score > 0).astype(int)), 1)
    assert np.frombuffer(carried, "<i8").tolist() == (counts.ravel() + np.arange(8)).tolist()


def test_intervals_hold_the_gaps_of_all_sites_rows(world, monkeypatch):
    monkeypatch.setattr("synthfair.deploy.gap_job.GAP_CONFIDENCE", 1 - 1e-6)
    monkeypatch.setattr("os.urandom", seeded(0))
    first, second = group_rates(pooled_scores(some_model(), TABLES))
    real, opened = gaps_file.gaps_of_counts, []
    monkeypatch.setattr(gaps_file, "gaps_of_counts", lambda counts, *more, **asked: (
        opened.append((counts, asked)) or real(counts, *more, **asked)))  # fmt: skip
    _, found = measure(world)
    assert abs(opened[0][0].sum() - 3000) < 200
    assert opened[0][1] == {"epsilon": 1.0, "sites": 2, "confidence": 1 - 1e-6}
    for gap in found["gaps"]:
        true = getattr(second, gap["rate"]) - getattr(first, gap["rate"])
        assert gap["low"] < true < gap["high"]
        assert abs(gap["value"] - true) < 0.05
    assert (found["model"], found["sites"]) == (some_model().sha256, [*NAMES])
    stated = world.left("north")[0].guarantee.model_dump(mode="json")
    assert found["guarantee"] == stated
    assert (stated["epsilon"], stated["delta"], stated["unit"]) == (1.0, 0.0, "row")


def test_question_has_one_answer_whatever_the_order_of_the_rows(world):
    first, folder = answer(world), world.folder / "north"
    TABLES["north"].sample(frac=1, random_state=1).to_csv(folder / "rows.csv", index=False)
    assert answer(world, "job-2") == first == ("ok", first[1])
    assert spent(world).releases == 1
    (stored,) = folder.glob("*.bought")
    assert stored.stat().st_mode & 0o077 == 0
    stored.write_bytes(b"damaged")
    assert answer(world, "job-3") == ("failed", b"")
    stored.unlink()  # nobody can repeat the noise
    assert answer(world, "job-4", epsilon=0.01)[1] != answer(world, "job-5", epsilon=0.02)[1]
    assert spent(world).releases == 3


@pytest.mark.parametrize("what", ["epsilon", "model", "rows"])
def test_question_that_differs_is_booked_anew(world, what):
    _, first = answer(world)
    if what == "model":  # which decides all rows alike
        theta = tuple(value * (1 + 1e-12) for value in some_model().theta)
        other = some_model().model_copy(update={"theta": theta})
        write_model(other, world.folder / "model.json")
    elif what == "rows":
        TABLES["south"].to_csv(world.folder / "north" / "rows.csv", index=False)
    code, second = answer(world, "job-2", epsilon=1.5 if what == "epsilon" else 1.0)
    assert (code, first == second, spent(world).releases) == ("ok", False, 2)


@pytest.mark.parametrize(("limits", "changes", "code"), [
    ({"kinds": ["surrogate", "fair"]}, {"model": b"none"}, "kind"),  # limits come first
    ({"most_epsilon": 0.9}, {}, "epsilon"), ({"least_epsilon_left": 99.5}, {}, "budget"),
    *(({}, {"epsilon": epsilon}, "settings") for epsilon in (0, "1", 101)),
    *(({}, {"model": model}, "settings") for model in (b"", b"{}", b"\xff", b"[" * 10**5)),
    ({}, {"seed": 1}, "settings"),
])  # fmt: skip
def test_site_refuses_before_it_books(world, limits, changes, code):
    world.limit("north", **({"kinds": ["gap"], "most_epsilon": 1.0} | limits))
    assert answer(world, **changes) == (code, b"")
    assert spent(world).releases == 0


def test_model_of_another_schema_is_refused_by_both_sides(world):
    write_model(some_model(3), world.folder / "model.json")
    assert answer(world) == ("settings", b"")
    with pytest.raises(sf.InputError, match="schema"):
        measure(world)


HUGE, NEGATIVE = (bytes(7) + end + bytes(56) for end in (b"\x01", b"\x80"))


@pytest.mark.parametrize("carried", [b"", bytes(63), bytes(65), HUGE, NEGATIVE])
def test_counts_that_no_site_would_send_are_refused(world, carried):
    altered = world.altering("north", lambda _: carried)
    federation, found = measure(world, on_way=altered, least_answers=1)
    assert federation.booked["north"].code == "refused"
    assert found["sites"] == ["south"]
    with pytest.raises(TooFewError, match="north: refused"):
        measure(world, "job-2", altered)

"""A party's signed answer: one of each question, booked, and nothing of the rows in a refusal."""

import json

import pytest
from builders import PRIVATE, RELEASE, World, make_table
from sum_world import SumWorld

from synthfair.privacy.ledger import Ledger
from synthfair.task.messages import Message

SECRET = "secret-of-a-person"
FAIR = {"release": "fair", "n_synthetic": 24, "steps": 20, "epsilon": 1.0, "delta": 1e-6}


@pytest.fixture
def world(tmp_path):
    return World(tmp_path)


def answer(world, settings=RELEASE, job="job-1", site=None, **options):
    site = site or world.site("north")
    message = site.answer(world.ask(settings, job=job), job=job, submitter="lead", **options)
    return json.loads(message.text), message.carried


def test_answer_is_booked_and_asked_again_the_same(world):
    rows = make_table().assign(income=lambda table: 2 * table["income"])
    rows.to_csv(world.folder / "north" / "rows.csv", index=False)
    world.limit("north", most_releases=1)
    first, carried = answer(world)
    assert (first["code"], carried[:4]) == ("ok", b"PAR1")
    assert "income" in "".join(world.said)  # clipped
    assert answer(world)[1] == carried
    (left,) = world.left("north")
    assert (left.output, left.submitter, left.guarantee) == ("job-1", "lead", None)


@pytest.mark.parametrize(("limits", "settings", "code"), [
    ({"kinds": ["fair"]}, RELEASE, "kind"), ({"kinds": ["surrogate"]}, FAIR, "kind"),
    ({"k_min": 6}, RELEASE, "k_min"), ({"without_epsilon": False}, RELEASE, "epsilon"),
    ({"most_epsilon": 0.5}, PRIVATE, "epsilon"), ({"most_delta": 1e-7}, PRIVATE, "epsilon"),
    ({}, {"release": "other"}, "settings"), ({}, RELEASE | {"noise_seed": 1}, "settings"),
])  # fmt: skip
def test_limits_refuse_before_a_row_is_read(world, limits, settings, code):
    world.limit("north", **limits)
    (world.folder / "north" / "rows.csv").unlink()
    found, carried = answer(world, settings)
    assert (found["code"], carried) == (code, b"")
    assert not world.ledger().path.exists()


@pytest.mark.parametrize("settings", [PRIVATE, FAIR])
def test_records_bought_answer_again_at_no_cost(world, settings):
    world.bound("north", epsilon=1.2, delta=1e-6)
    rows = world.folder / "north" / "rows.csv"
    (first, carried), site = answer(world, settings), world.site("north")
    assert (first["code"], first["seconds"]) == ("ok", None)  # time depends on the rows
    assert answer(world, settings, "job-2", site)[1] == carried
    if settings is FAIR:
        assert answer(world, FAIR | {"steps": 21}, "job-3", site)[0]["code"] == "ok"
    assert world.ledger().spent().releases == 1
    assert answer(world, settings | {"k_min": 60}, "job-4", site)[0]["code"] == "budget"
    make_table(1200).sample(frac=1, random_state=1).to_csv(rows, index=False)  # the same rows
    assert answer(world, settings, "job-5", site)[1] == carried
    make_table(1201).to_csv(rows, index=False)
    assert answer(world, settings, "job-6", site) == (answer(world, settings, "job-6")[0], b"")


@pytest.mark.parametrize("broken", ["town", "income", "short", "missing"])
def test_refusal_has_no_text_of_the_table(world, broken):
    """With an epsilon, one code stands for all that rows decide."""
    path, rows = world.folder / "north" / "rows.csv", make_table(300).astype(object)
    if broken in rows:
        rows.loc[7, broken] = SECRET
    (rows.iloc[:3] if broken == "short" else rows).to_csv(path, index=False)
    if broken == "missing":
        path.unlink()
    exact = answer(world)
    world.bound("north")
    private, carried = answer(world, PRIVATE)
    assert (exact[0]["code"], exact[1], carried) == ("table", b"", b"")
    assert (private["code"], private["seconds"]) == ("failed", None)
    said = SECRET if broken in rows else {"short": "has 1"}.get(broken, "")
    assert said in "".join(world.said)  # the site's own log
    assert not said or said not in json.dumps([exact[0], private])


def test_question_of_another_schema_or_a_stopped_job_has_no_answer(world):
    assert world.code(world.ask(schema_hash="0" * 64)) == "schema"
    assert world.code(Message(b"{")) == "message"
    found, carried = answer(world, stopped=lambda: True)
    assert (found["code"], carried, world.left("north")) == ("stopped", b"", [])
    world.bound("north")
    assert answer(world, PRIVATE, stopped=lambda: True)[0]["code"] == "failed"


def test_site_books_in_the_ledger_that_it_names(tmp_path):
    (world := SumWorld(tmp_path)).pinned = {"ledger": "../own.jsonl"}
    world.limit("north")
    assert answer(world)[0]["code"] == "ok"
    assert Ledger(tmp_path / "north" / "own.jsonl").spent().releases == 1


def test_answer_that_cannot_be_booked_does_not_leave(world, monkeypatch):
    def full(*_):
        raise OSError(SECRET)

    monkeypatch.setattr(Ledger, "book", full)
    found, carried = answer(world)
    assert (found["code"], SECRET in str(found), carried) == ("failed", False, b"")


def test_lock_is_held_from_the_limits_to_the_booking(world, monkeypatch):
    """No two jobs can both have what is left."""
    others = []

    def beside(real):
        def both(*arguments):
            others.append(answer(world, job="job-2")[0]["code"])
            return real(*arguments)

        return both

    for name in ("answers_seen", "book"):
        monkeypatch.setattr(Ledger, name, beside(getattr(Ledger, name)))
    assert answer(world)[0]["code"] == "ok"
    assert others == ["busy"] * 2


def test_roles_do_not_mix(tmp_path):
    """A site adds nothing up, and an aggregator has no table."""
    world, task = SumWorld(tmp_path), {"task": {}}
    assert world.code(world.ask(task, task="add")) == "message"
    for name in ("single_shot", "train", "gap", "privfairfl", "deliver"):
        assert world.code(world.ask(task, task=name), "sums-a") == "message"

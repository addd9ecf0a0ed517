"""What a site lets out at most, over all jobs, and what it writes down of them."""

import json

import pytest
from builders import NAMES, PRIVATE, RELEASE, InProcess, World, make_table

from synthfair.privacy.ledger import Ledger
from synthfair.task.limits import Limits, SiteSettings


@pytest.fixture
def world(tmp_path):
    return World(tmp_path)


@pytest.fixture
def channel(world):
    return InProcess({name: world.site(name) for name in NAMES})


@pytest.mark.parametrize(
    ("limits", "settings", "code"),
    [
        ({"kinds": ["fair"]}, RELEASE, "kind"),
        ({"kinds": ["surrogate"]}, {"release": "fair"}, "kind"),
        ({"k_min": 6}, RELEASE, "k_min"),
        ({"without_epsilon": False}, RELEASE, "epsilon"),
        ({"most_epsilon": 0.5}, PRIVATE, "epsilon"),
        ({"most_delta": 1e-7}, PRIVATE, "epsilon"),
        ({}, PRIVATE | {"delta": 0.9}, "epsilon"),
        ({"most_epsilon": None}, PRIVATE, "epsilon"),
        ({"least_epsilon_left": 0.5}, PRIVATE, "budget"),
        ({}, {"release": "surrogate", "k_min": 0}, "settings"),
        ({}, {"release": "other"}, "settings"),
        ({}, RELEASE | {"noise_seed": 1}, "settings"),
        ({"k_min": 60}, {"release": "fair", "epsilon": 1.0, "delta": 1e-6}, "k_min"),
        ({}, RELEASE | {"data": "/etc/passwd"}, "settings"),
    ],
)
def test_no_job_exceeds_a_sites_limits(world, limits, settings, code):
    world.limit("north", **limits)
    assert world.code(world.ask(settings)) == code
    assert not Ledger.for_table(world.folder / "north" / "rows.csv").path.exists()


def test_epsilon_is_left_for_other_uses(world):
    ledger = Ledger.for_table(world.folder / "north" / "rows.csv")
    ledger.set_limit(3.0, 1e-6)
    world.limit("north", least_epsilon_left=1.9)
    assert world.code(world.ask(PRIVATE)) == "ok"
    assert world.code(world.ask(PRIVATE | {"k_min": 60}, job="job-2"), job="job-2") == "budget"
    assert ledger.spent().releases == 1
    world.limit("north")
    assert world.code(world.ask(PRIVATE | {"k_min": 60}, job="job-2"), job="job-2") == "ok"


FAIR = {"release": "fair", "n_synthetic": 24, "steps": 20, "epsilon": 1.0, "delta": 1e-6}


@pytest.mark.parametrize(
    ("settings", "change", "code"),
    [
        (PRIVATE, {"k_min": 60}, "budget"),
        (FAIR, {"steps": 21}, "ok"),
        (FAIR, {"k_min": 60}, "budget"),
    ],
)
def test_what_was_bought_answers_again_and_costs_nothing(world, settings, change, code):
    """The same question, and another fair release of the same private records."""
    world.bound("north", epsilon=1.2, delta=1e-6)
    site, rows = world.site("north"), world.folder / "north" / "rows.csv"

    def answer(job, **change):
        found = site.answer(world.ask(settings | change, job=job), job=job, submitter="x")
        return json.loads(found.text)["code"], found.carried

    first = answer("job-1")
    assert first[0] == "ok"
    assert answer("job-2") == first
    assert Ledger.for_table(rows).spent().releases == 1
    assert answer("job-3", **change)[0] == code
    make_table(1200).sample(frac=1, random_state=1).to_csv(rows, index=False)  # the same rows
    assert answer("job-4") == first
    make_table(1201).to_csv(rows, index=False)
    assert answer("job-5") == ("budget", b"")


def test_no_epsilon_without_a_limit_of_all_of_them(world):
    """A site that never ran ``deploy check`` is bounded as well."""
    assert world.code(world.ask(PRIVATE)) == "budget"
    world.bound("north")
    assert world.code(world.ask(PRIVATE, job="job-2"), job="job-2") == "ok"


def test_a_ledgers_limit_holds_for_jobs(world):
    Ledger.for_table(world.folder / "north" / "rows.csv").set_limit(0.5, 1e-6)
    assert world.code(world.ask(PRIVATE)) == "budget"
    assert world.code(world.ask()) == "budget"


def test_releases_without_epsilon_are_limited_over_all_jobs(world):
    world.limit("north", most_releases=1)
    codes = [world.code(world.ask(job=f"job-{i}"), job=f"job-{i}") for i in (0, 0, 1)]
    assert codes == ["ok", "ok", "releases"]  # an answer that got lost is asked for again
    world.limit("north", most_releases=2)
    assert world.code(world.ask(job="job-3"), job="job-3") == "ok"
    assert (
        SiteSettings.model_validate_json('{"data": "a", "schema": "b", "key": "c"}').limits
        == Limits()
    )
    assert Limits().most_releases == 1


def test_all_of_an_answer_is_under_one_lock(world, monkeypatch):
    """While limits are looked at, and rows read, another job is refused: no two have what is left."""
    site, other, others = world.site("north"), world.site("north"), []

    def another_job():
        found = other.answer(world.ask(job="job-2"), job="job-2", submitter="x")
        others.append(json.loads(found.text)["code"])

    def answers_seen(*place, look=Ledger.answers_seen):
        another_job()
        return look(*place)

    def book(*purchase, written=Ledger.book):
        another_job()
        written(*purchase)

    monkeypatch.setattr(Ledger, "answers_seen", answers_seen)
    monkeypatch.setattr(Ledger, "book", book)
    found = site.answer(world.ask(), job="job-1", submitter="x")
    assert json.loads(found.text)["code"] == "ok"
    assert others == ["busy"] * 2


@pytest.mark.parametrize("broken", ["income", "short"])
def test_with_an_epsilon_one_code_stands_for_all_that_rows_decide(world, broken):
    rows = make_table(300).astype(object)
    if broken == "short":
        rows = rows.iloc[:3]
    else:
        rows.loc[7, broken] = "secret"
    for name in NAMES:
        rows.to_csv(world.folder / name / "rows.csv", index=False)
    world.bound("north")
    site = world.site("north")
    answer = json.loads(site.answer(world.ask(PRIVATE), job="job-1", submitter="x").text)
    assert (answer["code"], answer["seconds"]) == ("failed", None)
    assert world.said  # its own log has more
    answer = world.site("south").answer(world.ask(), job="job-1", submitter="x")
    assert json.loads(answer.text)["code"] == "table"


def test_with_an_epsilon_no_seconds_are_said(world):
    world.bound("north")
    for name, settings, said in (("north", PRIVATE, False), ("south", RELEASE, True)):
        answer = world.site(name).answer(world.ask(settings), job="job-1", submitter="x")
        found = json.loads(answer.text)
        assert (found["code"], found["seconds"] is not None) == ("ok", said)


def test_what_cannot_be_written_down_does_not_leave(world, monkeypatch):
    def full(*_):
        raise OSError("the disk is full")

    monkeypatch.setattr(Ledger, "book", full)
    answer = world.site("north").answer(world.ask(), job="job-1", submitter="x")
    assert (json.loads(answer.text)["code"], answer.carried) == ("failed", b"")

"""What a site lets out at most, over all jobs, and what it writes down of them."""

import json

import pytest
from conftest import make_table
from two_sites import NAMES, PRIVATE, RELEASE, InProcess, World

from synthfair.errors import InputError
from synthfair.privacy.chain import Chain
from synthfair.privacy.ledger import Ledger
from synthfair.task.limits import Claim, Limits, SiteSettings
from synthfair.task.messages import Ask
from synthfair.task.site import Work
from synthfair.task.trace import Event, Trace


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
    (event,) = world.site("north").trace.events()
    assert (event.code, event.sha256, event.carried_bytes) == (code, None, 0)
    assert not Ledger.for_table(world.folder / "north" / "rows.csv").path.exists()


def test_epsilon_is_left_for_other_uses(world):
    ledger = Ledger.for_table(world.folder / "north" / "rows.csv")
    ledger.set_limit(3.0, 1e-6)
    world.limit("north", least_epsilon_left=1.9)
    assert world.code(world.ask(PRIVATE)) == "ok"
    assert world.code(world.ask(PRIVATE | {"k_min": 60}, job="job-2"), job="job-2") == "budget"
    assert ledger.spent().releases == 1
    assert world.site("north").trace.events()[0].epsilon == 1.0
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


def test_what_cannot_be_traced_does_not_leave(world):
    assert world.code(world.ask({"release": "other"})) == "settings"
    trace = world.folder / "north" / "synthfair" / "trace.jsonl"
    trace.write_text(trace.read_text().replace('"settings"', '"kind"') + trace.read_text())
    answer = world.site("north").answer(world.ask(), job="job-1", submitter="x")
    assert (json.loads(answer.text)["code"], answer.carried) == ("failed", b"")


def test_a_trace_shows_lines_that_are_lost_or_altered(world):
    for i in range(3):
        world.code(world.ask(round=i, schema_hash="0" * 64))
    path = world.folder / "north" / "synthfair" / "trace.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    assert path.stat().st_mode & 0o077 == 0
    path.write_bytes(b"".join(lines[1:]))
    with pytest.raises(InputError, match="line 1: a line before it is lost"):
        Trace(path).events()
    path.write_bytes(b"".join([lines[0].replace(b"lead", b"head"), *lines[1:]]))
    with pytest.raises(InputError, match="line 2: a line before it is lost"):
        Trace(path).events()


def test_releases_without_epsilon_are_limited_over_all_jobs(world):
    world.limit("north", most_releases=1)
    codes = [world.code(world.ask(job=f"job-{i}"), job=f"job-{i}") for i in range(2)]
    assert codes == ["ok", "releases"]
    world.limit("north", most_releases=2)
    assert world.code(world.ask(job="job-3"), job="job-3") == "ok"
    assert (
        SiteSettings.model_validate_json('{"data": "a", "schema": "b", "key": "c"}').limits
        == Limits()
    )
    assert Limits().most_releases == 1


def test_checks_work_and_trace_are_under_one_lock(world):
    """In each of the three, another job is refused; so no two can both have what is left."""
    site, other = world.site("north"), world.site("north")
    others = []

    def another_job():
        found = other.answer(world.ask(job="job-2"), job="job-2", submitter="x")
        others.append(json.loads(found.text)["code"])

    def unprotected(task, look=site.trace.unprotected):
        another_job()
        return look(task)

    def write(event, written=site.trace.write):
        another_job()
        written(event)

    def routine(_):
        another_job()
        return Work(Claim("surrogate", None), None, lambda: b"x")

    site.trace.unprotected, site.trace.write = unprotected, write
    site._routines = {"single_shot": routine}
    found = site.answer(world.ask(), job="job-1", submitter="x")
    assert json.loads(found.text)["code"] == "ok"
    assert others == ["busy"] * 3
    assert site.trace.has_answered("job-1", 0)


def junk(code, job="job-1"):
    return Event(job=job, submitter="x", task="unknown", round=0, code=code)


def test_junk_is_counted_and_does_not_fill_the_trace(tmp_path):
    trace = Trace(tmp_path / "trace.jsonl")
    for _ in range(100):
        trace.write(junk("message"))
    trace.write(junk("busy"))
    trace.write(junk("message", job="job-2"))
    found = [(event.job, event.code, event.refused) for event in trace.events()]
    powers = [("job-1", "message", 2**k) for k in range(7)]
    assert found == [*powers, ("job-1", "busy", 1), ("job-2", "message", 1)]
    later = Trace(tmp_path / "trace.jsonl")  # it knows of 64 of them
    for _ in range(64):
        later.write(junk("message"))
    assert later.events()[-1].refused == 128


def left(number, job="job-1", epsilon=None):
    return Event(job=job, submitter="x", task="train", round=number, code="ok", epsilon=epsilon)


def test_a_trace_is_verified_once_and_then_from_where_it_was(tmp_path, monkeypatch):
    path = tmp_path / "trace.jsonl"
    verified = []
    take = Chain._take
    monkeypatch.setattr(
        Chain, "_take", lambda self, line: verified.append(line) or take(self, line)
    )
    one, other = Trace(path), Trace(path)
    for i in range(20):
        one.write(left(i))
        assert one.unprotected("train") == i + 1
    assert len(verified) == 20
    other.write(left(20, epsilon=1.0))
    assert len(verified) == 20 + 21
    assert one.has_answered("job-1", 20)
    assert one.unprotected("train") == 20
    assert len(verified) == 20 + 21 + 1
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:-1]))
    with pytest.raises(InputError, match="lines that it had are lost"):
        one.write(left(21))


def test_a_line_that_a_crash_cut_off_was_never_written(tmp_path):
    path = tmp_path / "trace.jsonl"
    one = Trace(path)
    one.write(left(0))
    with path.open("ab") as file:
        file.write(b'{"time": "20')
    assert not one.has_answered("job-1", 1)
    one.write(left(1))
    path.write_bytes(path.read_bytes().rstrip(b"\n"))  # an editor took the end away
    two = Trace(path)
    assert two.has_answered("job-1", 1)
    two.write(left(2))
    assert [event.round for event in Trace(path).events()] == [0, 1, 2]


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
    assert [event.code for event in site.trace.events()] == ["table"]  # its own log has more
    assert world.said
    answer = world.site("south").answer(world.ask(), job="job-1", submitter="x")
    assert json.loads(answer.text)["code"] == "table"


def test_with_an_epsilon_no_seconds_are_said(world):
    world.bound("north")
    for name, settings, said in (("north", PRIVATE, False), ("south", RELEASE, True)):
        answer = world.site(name).answer(world.ask(settings), job="job-1", submitter="x")
        found = json.loads(answer.text)
        assert (found["code"], found["seconds"] is not None) == ("ok", said)


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"epsilon": 1.0}, True),
        ({"train": {"epsilon": 1.0}}, True),
        ({"parts": [{"counts_epsilon": 0.5}]}, True),
        ({"epsilon": None, "train": {"clip": 1.0}}, False),
    ],
)
def test_an_epsilon_is_found_wherever_it_stands(world, settings, expected):
    assert Ask.model_validate_json(world.ask(settings).text).has_epsilon is expected


def test_what_cannot_be_written_down_does_not_leave(world, monkeypatch):
    def full(event):
        raise InputError("trace.jsonl: cannot write: the disk is full")

    site = world.site("north")
    monkeypatch.setattr(site.trace, "write", full)
    answer = site.answer(world.ask(), job="job-1", submitter="x")
    assert (json.loads(answer.text)["code"], answer.carried) == ("failed", b"")

import json
import os
import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from synthfair.cli import main
from synthfair.errors import InputError
from synthfair.privacy.accounting import accountant, delta_of
from synthfair.privacy.guarantee import Guarantee
from synthfair.privacy.ledger import BudgetError, Ledger, Purchase, compute_once
from synthfair.privacy.mechanism import GaussianMechanism, grid_for
from synthfair.release.settings import DistillConfig


def guarantee(epsilon=1.0, relation="add_or_remove", noise=5.0):
    mechanism = GaussianMechanism(name="pairs", sensitivity=1.0, noise=noise, grid=grid_for(noise))
    return Guarantee(
        epsilon=epsilon,
        delta=0.01,
        relation=relation,
        mechanisms=(mechanism,),
        accountant=accountant(),
    )


def booking(found, name="r.parquet", run="a" * 64):
    return Purchase(output=name, run=run, guarantee=found)


@pytest.fixture
def ledger(tmp_path):
    return Ledger.for_table(tmp_path / "rows.csv")


@given(noises=st.lists(st.integers(3, 50), min_size=1, max_size=5))
@settings(max_examples=20)
def test_releases_add_up_as_independent_gaussians(tmp_path_factory, noises):
    ledger = Ledger(tmp_path_factory.mktemp("l") / "x.jsonl")
    for noise in noises:
        ledger.book(booking(guarantee(noise=noise)))
    assert ledger.spent().releases == len(noises)
    assert ledger.spent().composition.mu == pytest.approx(sum(noise**-2 for noise in noises) ** 0.5)


def test_a_limit_refuses_what_would_pass_it_and_books_nothing(ledger):
    ledger.set_limit(1.0, 1e-3)
    for _ in range(2):
        ledger.book(booking(guarantee()))
    while delta_of((ledger.spent().composition.mu ** 2 + 0.04) ** 0.5, 1.0) <= 1e-3:
        ledger.book(booking(guarantee()))
    before = ledger.path.read_bytes()
    with pytest.raises(InputError, match="rows.csv.ledger.jsonl: .*epsilon would be .*limit is 1"):
        ledger.book(booking(guarantee()))
    assert ledger.path.read_bytes() == before
    ledger.set_limit(5.0, 1e-3)
    ledger.book(booking(guarantee()))


def test_a_limit_allows_no_release_without_an_epsilon(ledger):
    ledger.book(booking(None))
    assert ledger.spent().composition is None
    ledger.set_limit(1.0, 1e-3)
    with pytest.raises(InputError, match="allows none without one"):
        ledger.book(booking(None))
    # What left before is no part of the sum of those with an epsilon, which the limit bounds.
    ledger.book(booking(guarantee()))
    ledger.set_limit(0.1, 1e-3)
    with pytest.raises(InputError, match="epsilon would be .*limit is 0.1"):
        ledger.book(booking(guarantee()))
    assert ledger.spent().releases == 2


HELD = {
    "nothing": (),
    "release": (("release", None),),
    "sums": (("training", None),),
    "epsilon": (("release", guarantee()),),
}
NEXT = {
    ("release", False): {"nothing"},
    ("training", False): {"nothing", "release"},
    ("secure_sum", False): {"nothing", "release"},
    ("release", True): {*HELD},
    ("training", True): {*HELD},
}


@pytest.mark.parametrize("held", HELD)
@pytest.mark.parametrize(("kind", "private"), NEXT)
def test_what_may_leave_next(ledger, held, kind, private):
    """The table at the head of the module, entry by entry."""
    for old, found in HELD[held]:
        ledger.book(Purchase(kind=old, output="old", run="b" * 64, guarantee=found))
    found = guarantee() if private else None
    answer = Purchase(kind=kind, output="new", run="a" * 64, guarantee=found)
    before = len(ledger.records())
    if held in NEXT[kind, private]:
        ledger.book(answer)
    else:
        with pytest.raises(BudgetError, match="'old' left before 'new'.*again = true") as refused:
            ledger.book(answer)
        assert refused.value.arguments == ("again",)
        assert len(ledger.records()) == before
        Ledger(ledger.path, again=True).book(answer)
        ledger.book(answer)  # that was consent to this one
        with pytest.raises(BudgetError):
            ledger.book(answer.model_copy(update={"run": "c" * 64}))
    assert len(ledger.records()) == before + 1


def conditional():
    return guarantee().model_copy(update={"condition": "teacher"})


def test_a_guarantee_on_a_condition_is_none_for_what_leaves_next(ledger):
    ledger.book(booking(guarantee()))
    with pytest.raises(BudgetError, match="undoes what the epsilon protects"):
        ledger.book(Purchase(kind="training", output="t", run="b" * 64, guarantee=conditional()))


def test_a_conditional_guarantee_goes_on_as_what_is_exact(ledger):
    first = Purchase(
        kind="training", output="t", run="b" * 64, guarantee=conditional(), name="c" * 64
    )
    ledger.book(first)
    ledger.book(first.model_copy(update={"round": 1}))
    ledger.book(booking(guarantee()))
    with pytest.raises(BudgetError, match="undoes what the epsilon protects"):
        ledger.book(first.model_copy(update={"round": 2}))
    ledger.set_limit(100.0, 1e-2)
    with pytest.raises(BudgetError, match="allows none without one"):
        ledger.book(first.model_copy(update={"round": 2}))


def test_a_job_goes_on_unless_an_epsilon_was_booked_meanwhile(ledger):
    def sums(name, run="b" * 64):
        number = int(name)
        return Purchase(kind="training", output=name, run=run, round=number, guarantee=None)

    ledger.book(sums("1"))
    ledger.book(sums("2"))
    ledger.book(booking(guarantee()))
    with pytest.raises(BudgetError, match="undoes what the epsilon protects"):
        ledger.book(sums("3"))
    Ledger(ledger.path, again=True).book(sums("3"))
    ledger.book(sums("4"))


@pytest.mark.parametrize(
    ("before", "kind", "told"),
    [("epsilon", "release", "undoes what the epsilon protects"),
     ("epsilon", "training", "undoes what the epsilon protects"),
     ("sums", "release", "its exact level"), ("release", "release", "its exact level"),
     ("sums", "training", "tell whole rows")],
)  # fmt: skip
def test_a_refusal_says_what_two_answers_together_tell(ledger, before, kind, told):
    ((old, found),) = HELD[before]
    ledger.book(Purchase(kind=old, output="old", run="b" * 64, guarantee=found))
    with pytest.raises(BudgetError, match=told):
        ledger.book(Purchase(kind=kind, output="new", run="a" * 64, guarantee=None))


def test_a_limit_forbids_what_is_exact_also_with_consent(ledger):
    ledger.set_limit(1.0, 1e-3)
    with pytest.raises(BudgetError, match="allows none without one"):
        Ledger(ledger.path, again=True).book(booking(None))


def test_the_same_release_without_an_epsilon_is_booked_once_and_others_each_time(ledger):
    for found in (None, None, guarantee(), guarantee()):
        ledger.book(booking(found))
    assert ledger.spent().releases == 3


def test_relations_do_not_mix(ledger):
    ledger.book(booking(guarantee(relation="replace")))
    with pytest.raises(InputError, match="one row .replace.; one row .add_or_remove. needs"):
        ledger.book(booking(guarantee()))


BOOK_UNTIL_REFUSED = """
import sys
from pathlib import Path
from synthfair.errors import InputError
from synthfair.privacy.guarantee import Guarantee
from synthfair.privacy.ledger import Purchase, Ledger
booking = Purchase.model_validate_json(sys.argv[2])
try:
    while True:
        Ledger(Path(sys.argv[1])).book(booking)
except InputError:
    pass
"""


def test_processes_together_never_pass_the_limit(ledger):
    ledger.set_limit(1.0, 1e-3)
    one = booking(guarantee(noise=10.0)).model_dump_json()
    argv = [sys.executable, "-c", BOOK_UNTIL_REFUSED, str(ledger.path), one]
    workers = [subprocess.Popen(argv) for _ in range(2)]
    assert [worker.wait() for worker in workers] == [0, 0]
    mu = ledger.spent().composition.mu
    assert delta_of(mu, 1.0) <= 1e-3 < delta_of((mu**2 + 10**-2) ** 0.5, 1.0)
    assert ledger.spent().releases > 5


def test_a_line_cut_off_by_a_crash_was_not_booked(ledger):
    ledger.book(booking(guarantee()))
    whole = ledger.path.read_bytes()
    ledger.path.write_bytes(whole + whole[:50])
    assert ledger.spent().releases == 1
    ledger.book(booking(guarantee()))
    assert len(ledger.records()) == 2


def test_a_last_line_without_its_end_counts_if_it_is_whole(ledger):
    for _ in range(2):
        ledger.book(booking(guarantee()))
    ledger.path.write_bytes(ledger.path.read_bytes().removesuffix(b"\n"))
    ledger = Ledger(ledger.path)
    assert ledger.spent().releases == 2
    ledger.book(booking(guarantee()))
    assert ledger.spent().releases == 3


def test_a_table_named_by_a_link_has_the_same_ledger(tmp_path, ledger):
    (tmp_path / "rows.csv").write_text("a\n")
    (tmp_path / "link.csv").symlink_to(tmp_path / "rows.csv")
    assert Ledger.for_table(tmp_path / "link.csv").path == ledger.path
    ledger.book(booking(guarantee()))
    (tmp_path / "other.jsonl").symlink_to(ledger.path)
    Ledger(tmp_path / "other.jsonl").book(booking(guarantee()))
    assert ledger.spent().releases == 2


def test_bookings_are_on_disk_before_they_count(ledger, monkeypatch):
    synced = []
    monkeypatch.setattr(os, "fsync", lambda handle: synced.append(ledger.path.read_bytes()))
    ledger.book(booking(guarantee()))
    assert synced == [ledger.path.read_bytes()] * 2  # the file, and the folder that names it


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (lambda lines: lines[1:], "line 1: a line before it is lost or altered"),
        (
            lambda lines: [lines[0].replace(b"r.parquet", b"q.parquet"), *lines[1:]],
            "line 2: a line",
        ),
        (lambda lines: [b"{}", *lines[1:]], "line 1: time: missing"),
        (lambda lines: [b"\xff", *lines[1:]], "line 1"),
        (
            lambda lines: [lines[0].replace(b"{", b'{"time":"0",', 1), *lines[1:]],
            "line 1: not JSON: key 'time' appears more than once",
        ),
        (lambda lines: [lines[0].replace(b'"noise":5.0', b'"noise":0.01'), *lines[1:]], "line 1"),
    ],
)
def test_an_altered_ledger_is_refused(ledger, change, complaint):
    for _ in range(3):
        ledger.book(booking(guarantee()))
    lines = ledger.path.read_bytes().splitlines()
    ledger.path.write_bytes(b"".join(line + b"\n" for line in change(lines)))
    ledger = Ledger(ledger.path)
    for use in (ledger.spent, lambda: ledger.book(booking(guarantee()))):
        with pytest.raises(InputError, match=f"ledger.jsonl: {complaint}"):
            use()


def test_the_command_shows_and_limits(ledger, capsys):
    path = str(ledger.path)
    assert main(["ledger", path]) == 2
    assert "no such file" in capsys.readouterr().err
    assert main(["ledger", path, "--limit-epsilon", "2", "--limit-delta", "1e-5"]) == 0
    ledger.book(booking(guarantee()))
    assert main(["ledger", path]) == 0
    shown = capsys.readouterr().out
    assert "r.parquet" in shown
    assert "of at most 2" in shown
    assert main(["ledger", path, "--limit-epsilon", "-1", "--limit-delta", "1e-5"]) == 2
    assert main(["ledger", path, "--limit-epsilon", "1"]) == 2
    assert len(ledger.path.read_text().splitlines()) == 2
    assert json.loads(ledger.path.read_text().splitlines()[0])["what"]["kind"] == "limit"


def test_epsilon_and_delta_go_together():
    with pytest.raises(ValueError, match="go together"):
        DistillConfig(epsilon=1.0)


def part(run, epsilon=0.5, name=None):
    pure = Guarantee(epsilon=epsilon, relation="add_or_remove")
    return Purchase(kind="secure_sum", output="task.json", run=run, name=name, guarantee=pure)


def test_what_has_a_name_costs_once_however_often_it_is_used(ledger):
    ledger.set_limit(1.2, 1e-6)
    for name in ("a" * 64, "a" * 64, "b" * 64, "a" * 64):
        ledger.book(part("c" * 64, name=name))
    assert ledger.spent().epsilon(1e-6) == 1.0
    assert len(ledger.records()) == 3
    for number, question in ((1, "d" * 64), (1, "d" * 64), (2, None)):  # rounds of the first
        change = {"round": number, "question": question}
        ledger.book(part("c" * 64, name="a" * 64).model_copy(update=change))
    assert ledger.spent().epsilon(1e-6) == 1.0
    assert len(ledger.records()) == 5
    with pytest.raises(InputError, match=r"epsilon would be 1\.5 in all"):
        ledger.book(part("c" * 64, name="e" * 64))


def test_what_must_be_left_is_left(ledger):
    ledger.set_limit(1.2, 1e-6)
    Ledger(ledger.path, reserve=0.6).book(part("a" * 64))
    with pytest.raises(InputError, match=r"the limit is 1\.2, of which 0\.6 must be left"):
        Ledger(ledger.path, reserve=0.6).book(part("b" * 64))
    Ledger(ledger.path, reserve=0.1).book(part("b" * 64))


def test_what_has_no_name_costs_each_time(ledger):
    for _ in range(3):
        ledger.book(part("a" * 64))
    assert ledger.spent().epsilon(1e-6) == 1.5


def test_answers_that_a_server_sees_are_counted_but_for_this_very_one(ledger):
    for number in range(3):
        for seen in (True, False):
            what = part("a" * 64, name=f"{seen:064d}")
            change = {"kind": "training", "round": number, "seen": seen, "output": "job-1"}
            ledger.book(what.model_copy(update=change))
    assert ledger.answers_seen("training", "job-2", 0, None) == 3
    assert ledger.answers_seen("training", "job-1", 2, None) == 2
    assert ledger.answers_seen("training", "job-1", 2, "a" * 64) == 3
    assert ledger.answers_seen("release", "job-1", 0, None) == 0
    Ledger(ledger.path, again=True).book(booking(None))
    assert ledger.answers_seen("release", "job-1", 0, None) == 1


def test_a_ledger_is_verified_once_and_then_from_where_it_was(tmp_path, monkeypatch):
    path, verified, take = tmp_path / "x.jsonl", [], Ledger._take
    monkeypatch.setattr(
        Ledger, "_take", lambda self, *line: verified.append(line) or take(self, *line)
    )
    one, other = Ledger(path), Ledger(path)
    for _ in range(20):
        one.book(booking(guarantee()))
    assert len(verified) == 20
    other.book(booking(guarantee()))
    assert len(verified) == 20 + 21
    assert one.spent().releases == 21
    assert len(verified) == 20 + 21 + 1
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:-1]))
    with pytest.raises(InputError, match="lines that it had are lost"):
        one.book(booking(guarantee()))


def test_private_files_are_their_owners_alone(tmp_path):
    """Whatever the umask: the ledger and its lock, and noisy answers."""
    before = os.umask(0)
    try:
        Ledger.for_table(tmp_path / "rows.csv").book(booking(None))
        compute_once(tmp_path / "a.bought", "a" * 64, lambda: b"x", max_bytes=1)
    finally:
        os.umask(before)
    made = {path.name: path.stat().st_mode & 0o777 for path in tmp_path.iterdir()}
    assert len(made) == 3
    assert set(made.values()) == {0o600}, made


def test_a_table_that_is_a_loop_of_links(tmp_path):
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    assert Ledger.for_table(tmp_path / "loop").path.name == "loop.ledger.jsonl"

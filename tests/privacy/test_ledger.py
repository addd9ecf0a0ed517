"""One book for a table: what is spent, and what may leave next."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from synthfair.cli import main
from synthfair.privacy.accounting import SampledSums, accountant, delta_of, epsilon_of
from synthfair.privacy.guarantee import Guarantee, training_guarantee
from synthfair.privacy.ledger import BudgetError, Ledger, Purchase
from synthfair.privacy.mechanism import GaussianMechanism, grid_for


def noisy(noise=5.0, relation="add_or_remove"):
    """A guarantee of noise that is so many times the sensitivity."""
    mechanism = GaussianMechanism(name="pairs", sensitivity=1.0, noise=noise, grid=grid_for(noise))
    claim = {"epsilon": 1.0, "delta": 0.01, "accountant": accountant()}
    return Guarantee(relation=relation, mechanisms=(mechanism,), **claim)


def pure(epsilon):
    return Guarantee(epsilon=epsilon, relation="add_or_remove")


def purchase(guarantee, run="a", **more):
    return Purchase(**{"output": "new", "run": run * 64, "guarantee": guarantee} | more)


@pytest.fixture
def ledger(tmp_path):
    return Ledger.for_table(tmp_path / "rows.csv")


@given(noises=st.lists(st.integers(3, 50), min_size=1, max_size=5))
@settings(max_examples=20)
def test_releases_add_up_as_independent_gaussians(tmp_path_factory, noises):
    ledger = Ledger(tmp_path_factory.mktemp("l") / "x.jsonl")
    for noise in noises:
        ledger.book(purchase(noisy(noise)))
    spent = ledger.spent()
    assert spent.releases == len(noises)
    assert spent.composition.mu == pytest.approx(sum(noise**-2 for noise in noises) ** 0.5)
    assert spent.epsilon(1e-5) == epsilon_of(spent.composition.mu, 1e-5)


def test_limit_refuses_what_would_pass_it_and_books_nothing(ledger):
    ledger.set_limit(1.0, 1e-3)
    books = ledger, Ledger(ledger.path)  # each sees what the other has booked
    for book in books:
        book.book(purchase(noisy()))
    while delta_of((ledger.spent().composition.mu ** 2 + 0.04) ** 0.5, 1.0) <= 1e-3:
        books[1].book(purchase(noisy()))
    before = ledger.path.read_bytes()
    for book in books:
        with pytest.raises(BudgetError, match=r"rows.csv.ledger.jsonl: .*limit is 1$"):
            book.book(purchase(noisy()))
    assert ledger.path.read_bytes() == before
    ledger.set_limit(5.0, 1e-3)  # the last one holds
    books[1].book(purchase(noisy()))


def test_limit_allows_none_without_an_epsilon_also_with_consent(ledger):
    for _ in range(2):  # once more it costs nothing
        ledger.book(purchase(None))
    assert (ledger.spent().epsilon(1e-6), ledger.spent().releases) == (None, 1)
    ledger.set_limit(1.0, 1e-3)
    for again in (False, True):
        with pytest.raises(BudgetError, match="none without one"):
            Ledger(ledger.path, again=again).book(purchase(None))
    # What left before is no part of the sum of those with an epsilon, which the limit bounds.
    ledger.book(purchase(noisy()))
    assert ledger.spent().releases == 2


def test_reserve_is_left(ledger):
    careful = Ledger(ledger.path, reserve=0.6)
    with pytest.raises(BudgetError, match="no limit"):
        careful.book(purchase(pure(0.5)))
    ledger.set_limit(1.2, 1e-6)
    careful.book(purchase(pure(0.5)))
    with pytest.raises(BudgetError, match=r"limit is 1\.2, of which 0\.6"):
        careful.book(purchase(pure(0.5)))
    Ledger(ledger.path, reserve=0.1).book(purchase(pure(0.5)))


# What may leave next

CONDITIONAL = noisy().model_copy(update={"condition": "teacher"})
HELD = {"nothing": (), "release": (("release", None),), "sums": (("training", None),),
        "epsilon": (("release", noisy()),)}  # fmt: skip
TOLD = {"epsilon": "undoes what the epsilon", "release": "its exact level", "sums": "whole rows"}
NEXT = {"release": (None, {"nothing"}), "training": (None, {"nothing", "release"}),
        "secure_sum": (None, {"nothing", "release"}),
        "conditional": (CONDITIONAL, {"nothing", "release"}), "private": (noisy(), {*HELD})}  # fmt: skip


@pytest.mark.parametrize("held", HELD)
@pytest.mark.parametrize("leaves", NEXT)
def test_answer_may_leave_next_by_the_table_at_the_head_of_the_module(ledger, held, leaves):
    guarantee, allowed = NEXT[leaves]
    kind = {"private": "release", "conditional": "training"}.get(leaves, leaves)
    for old, found in HELD[held]:
        ledger.book(purchase(found, "b", kind=old, output="old"))
    answer, before = purchase(guarantee, kind=kind, name="c" * 64), len(ledger.records())
    if held not in allowed:
        pair = "release" if held == "sums" and kind == "release" else held
        with pytest.raises(BudgetError, match=f"'old' left before 'new', .*{TOLD[pair]}") as error:
            ledger.book(answer)
        assert error.value.arguments == ("again",)
        assert len(ledger.records()) == before
        Ledger(ledger.path, again=True).book(answer)
        with pytest.raises(BudgetError):  # that was consent to this one
            ledger.book(answer.model_copy(update={"run": "d" * 64, "name": "d" * 64}))
    ledger.book(answer)
    assert len(ledger.records()) == before + 1


@pytest.mark.parametrize("guarantee", [None, CONDITIONAL])
def test_job_goes_on_unless_an_epsilon_was_booked_meanwhile(ledger, guarantee):
    def job(number):
        return purchase(guarantee, "b", kind="training", round=number, name="c" * 64)

    for answer in (purchase(None), job(0), job(1), purchase(noisy()), purchase(None)):
        ledger.book(answer)  # the same release again tells nothing new
    with pytest.raises(BudgetError, match="undoes what the epsilon"):
        ledger.book(job(2))
    Ledger(ledger.path, again=True).book(job(2))
    ledger.book(job(3))
    ledger.set_limit(100.0, 1e-2)
    with pytest.raises(BudgetError, match="none without one"):
        ledger.book(job(4))


def test_name_costs_once_and_each_of_its_questions_is_a_line(ledger):
    ledger.set_limit(1.2, 1e-6)
    for name in "abab":
        ledger.book(purchase(pure(0.5), name=name * 64))
    assert (ledger.spent().epsilon(1e-6), len(ledger.records())) == (1.0, 3)
    for number, question in ((1, "d" * 64), (1, "d" * 64), (2, None), (1, "e" * 64)):
        ledger.book(purchase(pure(0.5), name="a" * 64, round=number, question=question))
    assert (ledger.spent().epsilon(1e-6), ledger.spent().answers) == (1.0, 5)
    with pytest.raises(BudgetError, match=r"1\.5 in all"):
        ledger.book(purchase(pure(0.5), name="e" * 64))


def test_answers_that_a_server_sees_are_counted_but_for_this_very_one(ledger):
    for number in range(3):
        for seen in (True, False):
            more = {"kind": "training", "round": number, "seen": seen, "output": "job-1"}
            ledger.book(purchase(pure(0.5), name=f"{seen:064d}", **more))
    Ledger(ledger.path, again=True).book(purchase(None))
    seen = {("training", "job-2", 0, None): 3, ("training", "job-1", 2, None): 2,
            ("training", "job-1", 2, "a" * 64): 3, ("release", "job-1", 0, None): 1}  # fmt: skip
    assert {question: ledger.answers_seen(*question) for question in seen} == seen


# Units, and samples


def training(sums, epsilon=1.0, **changes):
    guarantee = training_guarantee({"reports": (sums, 2.0)}, epsilon=epsilon, delta=1e-5)
    return purchase(guarantee.model_copy(update=changes), kind="training")


EVERYONE = SampledSums(50, 50, 20)


@pytest.mark.parametrize("other", [noisy(relation="replace"), training(EVERYONE).guarantee])
def test_units_and_relations_do_not_mix(ledger, other):
    for run, held in zip("abc", (None, noisy(), None), strict=True):
        Ledger(ledger.path, again=True).book(purchase(held, run))
    wanted = rf"one row \(add_or_remove\); one {other.unit} \({other.relation}\)"
    with pytest.raises(BudgetError, match=wanted):
        ledger.book(purchase(other))


def test_all_mechanisms_are_composed(ledger):
    rounds = training(EVERYONE, unit="row")
    sampled = rounds.guarantee.mechanisms[0].model_copy(update={"sample": 10})
    samples = training(EVERYONE, unit="row", mechanisms=(sampled,))
    for answer in (purchase(noisy()), rounds, samples):
        ledger.book(answer)
    composed = ledger.spent().composition
    assert composed.mu == pytest.approx((0.2**2 + rounds.guarantee.mu**2) ** 0.5)
    assert composed.sampled == ((sampled.sums, sampled.multiplier),)


@pytest.mark.parametrize("sampling", ["poisson", "fixed"])
def test_limit_allows_the_training_that_uses_it_up_and_no_more(ledger, sampling):
    """The noise is exact where everyone takes part, and so must be what the ledger adds up."""
    ledger.set_limit(1.0, 1e-5)
    ledger.book(training(SampledSums(50, 50, 20, sampling)))
    with pytest.raises(BudgetError, match="limit is 1"):
        ledger.book(training(SampledSums(50, 50, 20, sampling), epsilon=0.1))
    assert ledger.spent().releases == 1


def test_command_limits_and_shows(ledger, capsys):
    limit = ["ledger", str(ledger.path), "--limit-epsilon", "2"]
    assert [main(limit[:2]), main(limit), main([*limit, "--limit-delta", "-1"])] == [2, 2, 2]
    assert main([*limit, "--limit-delta", "1e-5"]) == 0
    ledger.book(purchase(noisy(), output="r.parquet"))
    assert main(limit[:2]) == 0
    assert "r.parquet" in capsys.readouterr().out
    assert (ledger.spent().limit.epsilon, len(ledger.records())) == (2.0, 2)

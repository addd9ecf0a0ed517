"""The most that a site allows, decided by its claim before a row is read."""

import pytest

from synthfair.errors import InputError
from synthfair.privacy.guarantee import Guarantee
from synthfair.privacy.ledger import BudgetError, Ledger, Purchase
from synthfair.task import limits
from synthfair.task.limits import AggregatorLimits, Claim, Limits, RefusedError, SiteSettings

ALLOWED = {
    "kinds": ("fair", "surrogate", "training"), "most_epsilon": 0.5, "without_epsilon": True,
    "k_min": 5, "most_rounds": 1, "most_rounds_of_job": 10, "most_width": 8, "least_rows": 120,
}  # fmt: skip
EXACT = Claim("fair", None)
PRIVATE = Claim("surrogate", 0.5, 1e-5, k_min=5)
EXACT_ROUND = Claim("training", None, rounds=10, seen=True, width=8)
PRIVATE_ROUND = Claim("training", 0.5, 1e-5, rounds=10, least_rows=120)
# Of a method whose noise the server adds: it has an epsilon, and the server sees the report.
SEEN_ROUND = PRIVATE_ROUND._replace(seen=True)
BOOKED = {"output": "job-1", "run": "0" * 64, "guarantee": None}


@pytest.fixture
def ledger(tmp_path):
    ledger = Ledger(tmp_path / "ledger")
    ledger.set_limit(10.0, 1e-3)
    return ledger


def code_of(claim, allowed, ledger, output="job-1", question=None):
    try:
        Limits(**allowed).require(claim, ledger, output=output, question=question)
    except RefusedError as error:
        return error.code
    return "ok"


@pytest.mark.parametrize(("claim", "beyond", "code"), [
    (EXACT, {"kind": "gap"}, "kind"), (PRIVATE, {"epsilon": 0.5000001}, "epsilon"),
    (PRIVATE, {"delta": 1.0000001e-5}, "epsilon"), (PRIVATE, {"k_min": 4}, "k_min"),
    (PRIVATE_ROUND, {"epsilon": 0.5000001}, "epsilon"),
    (PRIVATE_ROUND, {"least_rows": 121}, "rows"), (PRIVATE_ROUND, {"rounds": 11}, "rounds"),
    (EXACT_ROUND, {"rounds": 11}, "rounds"), (EXACT_ROUND, {"width": 9}, "settings"),
])  # fmt: skip
def test_limits_hold_at_the_border(ledger, claim, beyond, code):
    assert code_of(claim, ALLOWED, ledger) == "ok"
    assert code_of(claim._replace(**beyond), ALLOWED, ledger) == code


@pytest.mark.parametrize(("closed", "codes"), [
    ({"without_epsilon": False}, ("epsilon", "ok", "epsilon", "ok", "ok")),
    ({"most_epsilon": None}, ("ok", "epsilon", "ok", "epsilon", "epsilon")),
    ({"most_delta": 0.0}, ("ok", "epsilon", "ok", "epsilon", "epsilon")),
    ({"least_rows": None}, ("ok", "ok", "ok", "rows", "rows")),
    ({"most_rounds": 0}, ("ok", "ok", "rounds", "ok", "rounds")),
    ({"most_releases": 0}, ("releases", "ok", "ok", "ok", "ok")), ({"kinds": ()}, ("kind",) * 5),
])  # fmt: skip
def test_limits_closed_refuse_what_they_are_for_alone(ledger, closed, codes):
    claims = EXACT, PRIVATE, EXACT_ROUND, PRIVATE_ROUND, SEEN_ROUND
    assert tuple(code_of(claim, ALLOWED | closed, ledger) for claim in claims) == codes


def test_limits_by_default_allow_nothing_and_of_exact_answers_one(ledger):
    for claim in (EXACT, PRIVATE, EXACT_ROUND, PRIVATE_ROUND):
        assert code_of(claim, {}, ledger) == "kind"
        assert code_of(claim, {"kinds": ALLOWED["kinds"]}, ledger) == "epsilon"
    stated = {"most_delta": 1e-5, "most_releases": 1, "k_min": 50, "most_rounds": 0}
    assert Limits() == Limits(**stated, value_rows=10, least_epsilon_left=0.0, store_models=False)
    aggregator = {"most_tasks": 0, "most_delta": 1e-5, "without_noise": False, "least_clients": 2}
    assert AggregatorLimits() == AggregatorLimits(**aggregator)


@pytest.mark.parametrize(("answers", "allowed"), [(1, False), (2, True), (3, False)])
def test_consent_is_for_the_answers_that_had_left(tmp_path, answers, allowed):
    ledger = Ledger(tmp_path / "ledger")
    for number in range(2):  # of one job
        ledger.book(Purchase(kind="training", round=number, **BOOKED))
    code_of(EXACT, ALLOWED | {"again": answers}, ledger)
    assert ledger.again is allowed


def test_epsilon_needs_a_ledger_with_a_limit(tmp_path):
    ledger = Ledger(tmp_path / "other")
    assert code_of(PRIVATE, ALLOWED, ledger) == "budget"
    assert code_of(EXACT, ALLOWED, ledger) == "ok"


@pytest.mark.parametrize(("claim", "most", "code"), [
    (EXACT, "most_releases", "releases"), (EXACT_ROUND, "most_rounds", "rounds"),
])  # fmt: skip
def test_limits_count_what_left_over_all_jobs(tmp_path, claim, most, code):
    """An answer that got lost is asked for again: the same question counts once."""
    ledger, asked, other = Ledger(tmp_path / "ledger"), "a" * 64, "b" * 64
    ledger.book(Purchase(kind=claim.purchase_kind, question=asked, **BOOKED))
    allowed = ALLOWED | {most: 1}
    assert code_of(claim, allowed, ledger, question=asked) == "ok"
    assert code_of(claim, allowed, ledger, question=other) == code
    assert code_of(claim, allowed, ledger, output="job-2", question=asked) == code
    assert code_of(claim._replace(number=1), allowed, ledger, question=asked) == code
    assert code_of(claim, ALLOWED | {most: 2}, ledger, question=other) == "ok"


def test_epsilon_that_must_be_left_is_left(ledger):
    stated = Guarantee(epsilon=1.0, delta=0.0, unit="row", relation="add_or_remove")
    purchase = Purchase(**BOOKED | {"guarantee": stated})
    assert code_of(PRIVATE, ALLOWED | {"least_epsilon_left": 9.0}, ledger) == "ok"
    ledger.require(purchase)
    assert code_of(PRIVATE, ALLOWED | {"least_epsilon_left": 9.001}, ledger) == "ok"
    with pytest.raises(BudgetError):
        ledger.require(purchase)


@pytest.mark.parametrize(
    "text",
    ["{", '{"data": "x", "shell": 1}', "{}", " " * 2_000_000,
     '{"data": "a", "key": "b", "schema": "c", "limits": {"most_delta": 1}}',
     '{"data": "a", "key": "b", "schema": "c", "limits": {"value_rows": 9}}'],
)  # fmt: skip
def test_settings_hostile_are_refused(tmp_path, text):
    (tmp_path / "synthfair.json").write_text(text)
    with pytest.raises(InputError, match=r"synthfair\.json"):
        limits.read_settings(tmp_path / "synthfair.json", SiteSettings)


def test_settings_paths_start_at_their_file(tmp_path):
    path = tmp_path / "synthfair.json"
    path.write_text('{"data": "../a.csv", "key": "b", "schema": "/c"}')
    settings = limits.read_site_settings(path)
    assert (settings.data, settings.key) == (tmp_path.parent / "a.csv", tmp_path / "b")
    assert str(settings.schema_path) == "/c"
    assert settings.ledger_file == Ledger.for_table(settings.data).path
    assert settings.model_copy(update={"ledger": path}).ledger_file == path
    assert settings.limits == Limits()

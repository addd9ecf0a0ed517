"""Guarantees of trainings, alone and in a ledger."""

import pytest

from synthfair.errors import InputError
from synthfair.privacy.accounting import SampledSums, epsilon_of
from synthfair.privacy.guarantee import Guarantee, training_guarantee
from synthfair.privacy.ledger import Ledger, Purchase
from synthfair.privacy.mechanism import GaussianMechanism
from synthfair.report.privacy_words import guarantee_facts, limits

EVERYONE = SampledSums(50, 50, 20)
SAMPLED = SampledSums(1000, 20, 20)
RUN = "0" * 64


def training(sums=EVERYONE, epsilon=1.0, **changes):
    guarantee = training_guarantee({"reports": (sums, 2.0)}, epsilon=epsilon, delta=1e-5)
    guarantee = guarantee.model_copy(update=changes)
    return Purchase(kind="training", output="run", run=RUN, guarantee=guarantee)


def release():
    mechanism = GaussianMechanism(name="pairs", sensitivity=1.0, noise=5.0, grid=2.0**-34)
    guarantee = Guarantee(
        epsilon=1.0,
        delta=1e-3,
        relation="add_or_remove",
        mechanisms=(mechanism,),
        accountant="dp-accounting 0.6.0",
    )
    return Purchase(output="r.parquet", run=RUN, guarantee=guarantee)


@pytest.fixture
def ledger(tmp_path):
    return Ledger(tmp_path / "users.ledger.jsonl")


@pytest.mark.parametrize(("sampling", "factor"), [("poisson", 1), ("fixed", 2)])
def test_a_guarantee_holds_and_its_noise_is_that_of_the_relation(sampling, factor):
    found = training(SampledSums(50, 50, 20, sampling)).guarantee
    assert found.composition.epsilon(1e-5) == pytest.approx(1.0, rel=1e-5)
    mechanism = found.mechanisms[0]
    assert mechanism.multiplier == EVERYONE.noise(1.0, 1e-5)
    assert mechanism.noise == pytest.approx(mechanism.multiplier * factor * 2.0)


def test_kinds_of_sums_share_the_noise_in_units_of_their_clips():
    kinds = {"teacher_gradients": (EVERYONE, 3.0), "student_gradients": (EVERYONE, 2.0)}
    found = training_guarantee(kinds, epsilon=1.0, delta=1e-5)
    teacher, student = found.mechanisms
    assert teacher.noise == pytest.approx(1.5 * student.noise)
    assert found.composition.epsilon(1e-5) == pytest.approx(1.0, rel=1e-5)
    assert student.multiplier > EVERYONE.noise(1.0, 1e-5)


def test_users_need_a_secure_sum_and_rows_of_clients_do_not():
    """What a client sends is protected by its own noise; of users, only the sum is."""
    users = training().guarantee
    rows = training_guarantee({"gradients": (EVERYONE, 2.0)}, epsilon=1.0, delta=1e-5)
    assert (users.unit, users.adversary) == ("user", "sees_sums")
    assert (rows.unit, rows.adversary) == ("row", "sees_uploads")
    assert any("securely" in line for line in limits(users))
    assert not any("securely" in line or "sums up" in line for line in limits(rows))
    assert any("How many rows a client has" in line for line in limits(rows))
    for found in (users, rows):
        assert found.simulated
        assert any("one process" in line and "simulation" in line for line in limits(found))
        deployed = limits(found.model_copy(update={"simulated": False}))
        assert not any("simulation" in line for line in deployed)
        assert any("read the server's" in line for line in deployed)


def test_counts_are_summed_by_aggregators_and_say_so():
    found = training_guarantee({"gradients": (EVERYONE, 2.0)}, epsilon=1.0, delta=1e-5)
    both = found.model_copy(update={"epsilon": 1.5, "counts_epsilon": 0.5})
    assert both.composition.pure == 0.5
    against = guarantee_facts(both)["holds_against"]
    assert against.startswith(guarantee_facts(found)["holds_against"])
    assert "of the counts, all aggregators but one" in against
    assert any("collude" in line for line in limits(both)[len(limits(found)) :])


def test_mechanisms_of_another_relation_are_refused():
    found = training().guarantee
    with pytest.raises(ValueError, match="must all be of the relation 'replace'"):
        type(found).model_validate(found.model_dump() | {"relation": "replace"})


def test_a_ledger_adds_sampled_trainings_up(ledger):
    ledger.book(training(SAMPLED, epsilon=0.6))
    assert ledger.spent().epsilon(1e-5) == pytest.approx(0.6, rel=1e-2)
    ledger.book(training())
    assert 1.0 < ledger.spent().epsilon(1e-5) < 1.5


@pytest.mark.parametrize("sampling", ["poisson", "fixed"])
def test_a_limit_allows_what_is_guaranteed_and_no_more(ledger, sampling):
    """The noise is exact where everyone takes part, and so must be what the ledger adds up."""
    ledger.set_limit(1.0, 1e-5)
    ledger.book(training(SampledSums(50, 50, 20, sampling)))
    with pytest.raises(InputError, match="the limit is 1"):
        ledger.book(training(SampledSums(50, 50, 20, sampling), epsilon=0.1))
    assert ledger.spent().releases == 1


def test_users_and_rows_have_ledgers_of_their_own(ledger):
    ledger.book(release())
    with pytest.raises(InputError, match="protects one row .*; one user"):
        ledger.book(training())


def test_rows_in_rounds_add_to_a_release_of_the_same_rows(ledger):
    ledger.book(release())
    ledger.book(training(unit="row"))
    assert ledger.spent().epsilon(1e-5) > max(epsilon_of(0.2, 1e-5), 1.0)


def test_what_is_guaranteed_on_a_condition_counts_as_no_guarantee(ledger):
    ledger.book(training(condition="teacher"))
    assert ledger.spent().epsilon(1e-5) is None
    assert ledger.records()[0].what.guarantee.condition

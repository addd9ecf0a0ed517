"""Mechanisms together, of several kinds, and in a ledger."""

import pytest

from synthfair.errors import InputError
from synthfair.privacy.accounting import epsilon_of
from synthfair.privacy.composition import Composition
from synthfair.privacy.ledger import Booking, Ledger
from synthfair.privacy.mechanism import GaussianMechanism
from synthfair.privacy.rounds import promise_rounds
from synthfair.privacy.sampled import SampledSums
from synthfair.privacy.statement import Guarantee

POISSON = SampledSums(1000, 50, 20)
RUN = "0" * 64


def training(sampling="poisson", epsilon=1.0, **changes):
    sums = SampledSums(1000, 50, 20, sampling)
    guarantee = promise_rounds(sums, epsilon=epsilon, delta=1e-5, clip=2.0)
    guarantee = guarantee.model_copy(update=changes)
    return Booking(kind="training", output="run", run=RUN, guarantee=guarantee)


def release():
    mechanism = GaussianMechanism(name="moments", sensitivity=1.0, noise=5.0, times=1)
    guarantee = Guarantee(
        epsilon=1.0,
        delta=1e-3,
        relation="add_or_remove",
        mechanisms=(mechanism,),
        accountant="exact Gaussian composition, dp-accounting 0.6.0",
    )
    return Booking(output="r.parquet", run=RUN, guarantee=guarantee)


def test_gaussian_mechanisms_alone_are_exact():
    assert Composition(0.5).epsilon(1e-5) == epsilon_of(0.5, 1e-5)


def test_samples_of_all_cost_what_gaussian_mechanisms_cost():
    """Two ways to account for the same, the one on a grid."""
    everyone = SampledSums(10, 10, 4)
    together = Composition(0.3, ((everyone, 10.0),))
    assert together.epsilon(1e-5) == pytest.approx(
        epsilon_of((0.3**2 + 0.2**2) ** 0.5, 1e-5), rel=1e-2
    )


def test_together_is_more_than_each_and_less_than_the_sum():
    sampled = POISSON.epsilon(1.0, 1e-5)
    gaussian = epsilon_of(0.3, 1e-5)
    together = Composition(0.3, ((POISSON, 1.0),)).epsilon(1e-5)
    assert max(sampled, gaussian) < together < sampled + gaussian


@pytest.mark.parametrize("sampling", ["poisson", "fixed"])
def test_delta_and_epsilon_are_inverse(sampling):
    together = Composition(0.0, ((SampledSums(1000, 50, 20, sampling), 1.5),))
    assert together.delta(together.epsilon(1e-5)) == pytest.approx(1e-5, rel=1e-2)


def test_a_promise_holds_and_its_noise_is_that_of_the_relation():
    for sampling, factor in (("poisson", 1), ("fixed", 2)):
        promised = training(sampling).guarantee
        assert promised.composition.epsilon(1e-5) <= 1.0
        mechanism = promised.mechanisms[0]
        assert mechanism.noise == pytest.approx(mechanism.multiplier * factor * 2.0)


def test_a_ledger_adds_trainings_up_and_keeps_its_limit(tmp_path):
    ledger = Ledger(tmp_path / "users.ledger.jsonl")
    ledger.set_limit(1.3, 1e-5)
    ledger.book(training())
    assert ledger.spent().epsilon(1e-5) == pytest.approx(1.0, rel=1e-2)
    ledger.book(training(epsilon=0.5))
    with pytest.raises(InputError, match="the limit is 1.3"):
        ledger.book(training())
    assert ledger.spent().releases == 2


@pytest.mark.parametrize("sampling", ["poisson", "fixed"])
def test_a_limit_allows_what_was_promised_where_everyone_takes_part(tmp_path, sampling):
    """The noise is exact there, and so must be what the ledger adds up."""
    everyone = SampledSums(50, 50, 20, sampling)
    guarantee = promise_rounds(everyone, epsilon=1.0, delta=1e-5, clip=2.0)
    assert guarantee.composition.epsilon(1e-5) == pytest.approx(1.0, rel=1e-5)
    ledger = Ledger(tmp_path / "users.ledger.jsonl")
    ledger.set_limit(1.0, 1e-5)
    ledger.book(Booking(kind="training", output="run", run=RUN, guarantee=guarantee))
    with pytest.raises(InputError, match="the limit is 1"):
        ledger.book(training(sampling, epsilon=0.1))


def test_users_and_rows_have_ledgers_of_their_own(tmp_path):
    ledger = Ledger(tmp_path / "ledger.jsonl")
    ledger.book(release())
    with pytest.raises(InputError, match="protects one row; one user"):
        ledger.book(training())


def test_rows_in_rounds_add_to_a_release_of_the_same_rows(tmp_path):
    ledger = Ledger(tmp_path / "ledger.jsonl")
    ledger.book(release())
    ledger.book(training(unit="one row of one client"))
    alone = epsilon_of(0.2, 1e-5)
    assert ledger.spent().epsilon(1e-5) > max(alone, 1.0)


def test_what_is_promised_on_a_condition_counts_as_no_promise(tmp_path):
    ledger = Ledger(tmp_path / "ledger.jsonl")
    ledger.book(training(condition="The teacher tells nothing."))
    assert ledger.spent().epsilon(1e-5) is None
    assert ledger.entries()[0].what.guarantee.condition

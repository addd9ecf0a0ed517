import math

import numpy as np
import pytest
from dp_accounting import GaussianDpEvent
from dp_accounting.pld import PLDAccountant
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import norm

from synthfair.fairness.penalties import named_penalty
from synthfair.model import LinearModel
from synthfair.privacy.accounting import accountant, delta_of, epsilon_of, mu_for
from synthfair.privacy.guarantee import Guarantee, make_guarantee, require_true
from synthfair.privacy.mechanism import GaussianMechanism
from synthfair.release.format import Header, make_header
from synthfair.release.settings import DistillConfig

budgets = {"epsilon": st.floats(0.05, 20), "delta": st.floats(1e-9, 0.1)}


@given(mu=st.floats(0.01, 5), epsilon=st.floats(0.01, 50))
def test_delta_is_the_closed_form_by_scipy(mu, epsilon):
    far, near = norm.logcdf([-epsilon / mu - mu / 2, -epsilon / mu + mu / 2])
    assert delta_of(mu, epsilon) == pytest.approx(np.exp(near) - np.exp(epsilon + far), abs=1e-12)


@pytest.mark.parametrize("mu", [0.1, 0.5, 1.0, 3.0])
def test_delta_is_the_largest_advantage_over_all_outcomes(mu):
    """By numerical integration over the outcomes of the mechanism itself."""
    z, width = np.linspace(-20, 20, 400_001, retstep=True)
    gain = norm.pdf(z, mu) - np.exp(0.7) * norm.pdf(z)
    assert delta_of(mu, 0.7) == pytest.approx(np.sum(np.maximum(gain, 0)) * width, abs=1e-6)


@given(**budgets)
def test_a_budget_is_used_up_and_never_exceeded(epsilon, delta):
    mu = mu_for(epsilon, delta)
    assert delta_of(mu, epsilon) <= delta
    assert delta_of(1.001 * mu, epsilon) > delta
    assert epsilon_of(mu, delta) == pytest.approx(epsilon, rel=1e-3)


def test_composition_agrees_with_the_privacy_loss_distribution():
    noises = [3.0, 5.0, 8.0]
    accountant = PLDAccountant()
    for noise in noises:
        accountant.compose(GaussianDpEvent(noise), count=4)
    mu = math.hypot(*(2 / noise for noise in noises))
    assert epsilon_of(mu, 1e-5) == pytest.approx(accountant.get_epsilon(1e-5), rel=1e-3)


def test_a_statement_that_claims_too_much_is_refused():
    mechanism = GaussianMechanism(name="pairs", sensitivity=1.0, noise=1.0, grid=2.0**-34)
    assert mechanism.mu == pytest.approx(1.0)
    right = {"relation": "replace", "mechanisms": (mechanism,), "accountant": accountant()}  # fmt: skip
    assert Guarantee(epsilon=1.0, delta=0.13, **right).mu == pytest.approx(1.0)
    assert math.isclose(delta_of(1.0, 1.0), 0.12693, abs_tol=1e-5)
    with pytest.raises(ValueError, match="more than the 0.12 claimed"):
        Guarantee(epsilon=1.0, delta=0.12, **right)


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (lambda said: {"mechanisms": said.mechanisms[:2]}, "must be .'histograms', 'tree'"),
        (lambda said: {"mechanisms": (*said.mechanisms, said.mechanisms[0])}, "claimed"),
        (
            lambda said: {"mechanisms": smaller(said, sensitivity=0.5)},
            "pairs: sensitivity 0.5; must",
        ),
        (lambda said: {"relation": "replace"}, "of the settings, for one row"),
        (lambda said: {"epsilon": 2.0}, "of the settings, for one row"),
        (lambda said: {"epsilon": 0.5}, "more than the 1e-05 claimed"),
        (lambda said: {"adversary": "sees_sums"}, "of the settings, for one row"),
        (lambda said: {"condition": "teacher"}, "of the settings, for one row"),
        (lambda said: {"unit": "user"}, "of the settings, for one row"),
        (lambda said: {"accountant": "certified by nobody"}, "accountant"),
        (lambda said: {"unit": "one person"}, "unit"),
    ],
)
def test_a_reader_refuses_guarantees_that_settings_and_schema_do_not_imply(
    schema, change, complaint
):
    config = DistillConfig(epsilon=1.0, delta=1e-5)
    kinds = {"model": LinearModel(), "penalty": named_penalty(config, n_groups=2)}

    def read(fields):
        claimed = make_header(config, schema, **kinds, guarantee=Guarantee(**fields))
        require_true(claimed.guarantee, config, schema)

    said = make_guarantee(config, schema)
    read(said.model_dump())
    with pytest.raises(ValueError, match=complaint):
        read(said.model_dump() | dump(change(said)))


def smaller(said, **change):
    """The mechanisms with another third one, the pairs."""
    first, tree, third, *rest = said.mechanisms
    return (first, tree, third.model_copy(update=change), *rest)


def dump(fields):
    return {
        k: tuple(m.model_dump() for m in v) if k == "mechanisms" else v for k, v in fields.items()
    }


def test_a_statement_says_nothing_of_its_own(schema):
    config = DistillConfig(epsilon=1.0, delta=1e-5)
    guarantee = make_guarantee(config, schema)
    kinds = {"model": LinearModel(), "penalty": named_penalty(config, n_groups=2)}
    header = make_header(config, schema, **kinds, guarantee=guarantee)
    said = header.model_dump()
    for more in ({"discloses": "Certified anonymous."}, {"hides_pairs": True}):
        with pytest.raises(ValueError, match=next(iter(more))):
            Header.model_validate(said | more)

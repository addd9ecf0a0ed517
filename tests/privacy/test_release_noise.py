"""Discrete noise of releases: rounding in the sensitivity, exact sums, its privacy.

Each statistical test fails by chance once in 10^6; each also rejects a wrong sampler.
"""

import json
import math

import numpy as np
import pytest
from builders import make_schema
from dp_accounting.pld.privacy_loss_distribution import from_discrete_gaussian_mechanism
from scipy import stats

from synthfair.errors import InputError
from synthfair.files import parse_as
from synthfair.privacy.accounting import (
    DISCRETE_EXCESS,
    SampledSums,
    delta_of,
    discrete_delta_of,
    discrete_mu_for,
)
from synthfair.privacy.guarantee import Guarantee, make_guarantee, require_true, training_guarantee
from synthfair.privacy.mechanism import (
    GaussianMechanism,
)
from synthfair.release.settings import DistillConfig

ALARM = 1e-6
COARSE = 2.0**-4


def mechanism(**changes):
    fields = {"name": "pairs", "sensitivity": 1.0, "noise": 4.0, "grid": 2.0**-34}
    return GaussianMechanism(**fields | changes)


def ratios(s, k):
    """P(k) / R(k) of the proof: discrete over rounded normal noise."""
    p = np.exp(-(k**2) / (2 * s**2)) / (s * math.sqrt(2 * math.pi))
    return p / (stats.norm.sf((np.abs(k) - 0.5) / s) - stats.norm.sf((np.abs(k) + 0.5) / s))


@pytest.mark.parametrize("s", [4.0, 20.0])
def test_the_bounds_of_the_proof(s):
    k = np.arange(-int(12 * s), int(12 * s) + 1)
    found = ratios(s, k)
    assert (found <= 1 / (1 - 1 / (24 * s**2)) + 1e-12).all()
    assert (found >= np.exp(-(k**2) / (8 * s**4)) - 1e-12).all()
    assert found.max() > 1 + 1 / (25 * s**2)  # so the first bound is tight


@pytest.mark.parametrize("epsilon", [0.2, 1.0, 2.0])
def test_the_privacy_of_discrete_noise_is_that_of_normal_noise(epsilon):
    """By dp-accounting's own account of one number, on a grid of 64 steps a deviation."""
    found = from_discrete_gaussian_mechanism(
        64.0, sensitivity=32, value_discretization_interval=1e-3
    ).get_delta_for_epsilon(epsilon)
    assert found == pytest.approx(delta_of(0.5, epsilon), rel=0.03, abs=1e-9)


def test_what_discreteness_costs():
    assert discrete_delta_of(0.3, 1.0) > delta_of(0.3, 1.0)
    assert discrete_delta_of(0.3, 1.0) == pytest.approx(delta_of(0.3, 1.0), rel=1e-8)
    assert discrete_delta_of(discrete_mu_for(1.0, 1e-5), 1.0) <= 1e-5
    n, s = 2.0**32, 2.0**34
    assert n / (23 * s**2) + (math.sqrt(n) + 65) ** 2 / (7 * s**2) < DISCRETE_EXCESS


CONFIG = DistillConfig(epsilon=1.0, delta=1e-5)


def test_a_sensitivity_without_the_rounding_is_refused():
    right = make_guarantee(CONFIG, make_schema())
    first, *others = right.mechanisms
    unrounded = first.model_copy(update={"sensitivity": 3**0.5})
    claimed = right.model_copy(update={"mechanisms": (unrounded, *others)})
    with pytest.raises(ValueError, match="histograms: sensitivity 1.73"):
        require_true(claimed, CONFIG, make_schema())


@pytest.mark.parametrize("mechanisms", [[1], ["x"], [None], [[]], [{"name": []}]])
def test_what_is_no_mechanism_is_refused_in_words(mechanisms):
    said = make_guarantee(CONFIG, make_schema()).model_dump(mode="json")
    with pytest.raises(InputError, match=r"guarantee: mechanisms\.0"):
        parse_as(json.dumps(said | {"mechanisms": mechanisms}).encode(), Guarantee, "guarantee")


def test_a_guarantee_is_of_one_kind():
    """Of a release or of a training; and without mechanisms its delta is 0."""
    sums = {"reports": (SampledSums(100, 10, times=5), 1.0)}
    training = training_guarantee(sums, epsilon=2.0, delta=1e-5).model_dump()
    release = make_guarantee(CONFIG, make_schema()).model_dump()
    both = {"mechanisms": (*training["mechanisms"], *release["mechanisms"])}
    with pytest.raises(ValueError, match="not both"):
        Guarantee.model_validate(training | both)
    with pytest.raises(ValueError, match="else 0"):
        Guarantee(epsilon=1.0, delta=1e-310, relation="replace")

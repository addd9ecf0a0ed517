"""A membership-inference audit: what an attacker who knows all rows but one tells of that one."""

import numpy as np
from scipy.stats import beta

from synthfair.privacy.noise import system_entropy

EPSILON, DELTA, RUNS, CONFIDENCE = 1.0, 1e-5, 80, 0.9995


def upper(errors, total, confidence):
    """Clopper and Pearson's bound on a rate."""
    return beta.ppf(confidence, errors + 1, total - errors) if errors < total else 1.0


def audited_epsilon(
    outcomes, without_row, with_row, noise=system_entropy, *, runs=RUNS, confidence=CONFIDENCE
):
    """A lower bound on epsilon that is wrong with chance 2 (1 - confidence) at most.

    outcomes(rows, noise, runs) are [runs, k] what is released of rows. (epsilon, delta)-DP implies P(in | in) <= exp(epsilon) P(in | out) + delta for every test. The
    test, a threshold on a projection, is chosen on one half of the runs and counted on the other.
    """
    without, with_it = (outcomes(rows, noise, runs) for rows in (without_row, with_row))
    half = runs // 2
    difference = with_it[:half].mean(axis=0) - without[:half].mean(axis=0)
    spread = without[:half].std(axis=0) + with_it[:half].std(axis=0)
    direction = difference / np.maximum(spread**2, 1e-12 * np.abs(difference).max() ** 2 + 1e-300)
    a, b = without @ direction, with_it @ direction
    cuts = np.quantile(np.concatenate([a[:half], b[:half]]), np.linspace(0.02, 0.98, 49))
    cut = max(
        cuts,
        key=lambda c: np.log(np.mean(b[:half] > c) + 0.01) - np.log(np.mean(a[:half] > c) + 0.01),
    )
    errors = np.sum(a[half:] > cut), np.sum(b[half:] <= cut)
    false, missed = (upper(number, half, confidence) for number in errors)
    return max(
        np.log(max(1 - DELTA - missed, 1e-9) / false), np.log(max(1 - DELTA - false, 1e-9) / missed)
    )

"""All ways to one private fair model: which are run, DP-SGD's penalty, AIM's levels, the page."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from benchmarks import private_methods
from benchmarks.private_methods import EVERY, LOOKS, EverySetting, FairDpSgd
from benchmarks.runs import AccuracySpd, Run, Runs
from benchmarks.unlike.training import MAIN
from synthfair.federated import LogisticRegression
from synthfair.federated.user_rows import UserRows
from synthfair.model import logistic
from synthfair.privacy.accounting import compose, epsilon_of


def test_every_method_is_run_on_every_table_but_aim_on_adult():
    wanted = {(one.table, one.method) for one in EVERY.settings}
    assert len(EVERY.settings) == len(set(EVERY.settings))
    missing = {(table, name) for table in private_methods.TABLES for name in LOOKS} - wanted
    assert missing == {("adult", "aim"), ("adult", "safes")}


def test_slow_methods_have_fewer_seeds():
    seeds = {name: set() for name in LOOKS}
    for setting, seed in EVERY.missing([], EVERY.settings, None):
        seeds[setting.method].add(seed)
    count = {"aim": 2, "safes": 2, "fair": 3}
    assert all(seeds[name] == set(range(count.get(name, 5))) for name in LOOKS)


def test_without_noise_dp_sgd_ends_at_the_optimum_of_loss_and_penalty():
    rng = np.random.default_rng(0)
    a, s = jnp.asarray(rng.random((80, 3))), jnp.asarray(rng.integers(2, size=80))
    y = jnp.asarray(np.where(rng.random(80) < 0.3 + 0.4 * s, 1.0, -1.0))
    moment = jnp.asarray(rng.normal(size=3))
    rows = UserRows(a, s[:, None], y, jnp.ones(80))
    method = FairDpSgd(
        LogisticRegression(3), noise=0.0, clip=np.inf, batch=80, local_steps=3000, moment=moment,
        learning_rate=2.0,
    )  # fmt: skip
    theta = method.train(jnp.zeros(3), rows, jax.random.key(0))
    slope = jax.grad(lambda p: logistic(y * (a @ p)).mean() + MAIN.rho / 2 * (moment @ p) ** 2)(
        theta
    )
    assert np.abs(slope).max() < 1e-6
    assert np.abs(theta).max() > 0.1


@pytest.mark.parametrize("epsilon", private_methods.EPSILONS)
def test_the_moment_and_the_steps_of_dp_sgd_spend_epsilon_together(epsilon):
    moment, gradient = private_methods.noise_of_parts(epsilon)
    mu = compose([1 / moment, *[1 / gradient] * private_methods.SGD_STEPS])
    assert epsilon_of(mu, private_methods.DELTA) == pytest.approx(epsilon, rel=1e-6)


def test_few_values_are_levels_and_many_are_cut_into_bins():
    few, many = np.arange(100) % 5 / 4, np.arange(100) / 99
    first, second = private_methods.levels(np.column_stack([few, many]))
    np.testing.assert_array_equal(first, np.arange(5) / 4)
    np.testing.assert_allclose(second, np.arange(1, 16, 2) / 16)


def test_the_page_has_means_and_spreads_and_marks_what_the_constant_beats():
    values = {"constant": (0.8, 0.0), "each": (0.85, 0.01), "dp_sgd": (0.79, 0.02)}
    runs = Runs(
        Run(
            EverySetting("dutch", method, np.inf if method == "constant" else 1.0),
            seed,
            AccuracySpd(accuracy + seed / 100, spd),
        )
        for method, (accuracy, spd) in values.items()
        for seed in range(2)
    )
    files = private_methods.show_every(runs)
    assert (
        f"| {LOOKS['each'][0]} | 1 | 2 | 0.8550 ± 0.0071 | +0.0100 ± 0.0000 |" in files["every.md"]
    )
    assert f"| {LOOKS['dp_sgd'][0]} | 1 | 2 | 0.7950 ± 0.0071 ‡ |" in files["every.md"]
    assert list(files) == ["every.md", "every_dutch.svg"]

"""What epsilon costs: what is run, DP-SGD's penalty, the page."""

import itertools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from benchmarks import privacy
from benchmarks.privacy import LOOKS, FairDpSgd, PrivateSetting
from benchmarks.runs import AccuracySpd, Run, Runs
from benchmarks.unlike.training import MAIN
from synthfair.federated import LogisticRegression
from synthfair.federated.single_rows import UserRows
from synthfair.model import logistic
from synthfair.privacy.accounting import epsilon_of


def test_both_kinds_are_run_on_alike_and_unlike_clients_with_and_without_an_epsilon():
    (runs,) = privacy.EXPERIMENTS
    assert len(runs.settings) == len(set(runs.settings))
    for table, clients, kind in itertools.product(
        privacy.TABLES, privacy.SPLITS, ("surrogate", "fair")
    ):
        own = {one.epsilon for one in runs.settings if one[:3] == (table, clients, kind)}
        assert own == {0.5, 1.0, 2.0, 5.0, np.inf}
    assert {one.method for one in runs.settings} == {*LOOKS}


def test_without_noise_dp_sgd_ends_at_the_optimum_of_loss_and_penalty():
    rng = np.random.default_rng(0)
    a, s = jnp.asarray(rng.random((80, 3))), jnp.asarray(rng.integers(2, size=80))
    y = jnp.asarray(np.where(rng.random(80) < 0.3 + 0.4 * s, 1.0, -1.0))
    moment = jnp.asarray(rng.normal(size=3))
    rows = UserRows(a, s[:, None], y, jnp.ones(80))
    method = FairDpSgd(
        model=LogisticRegression(3), batch=80, local_steps=3000, moment=moment,
        learning_rate=2.0,
    )  # fmt: skip
    theta = method.train(jnp.zeros(3), rows, jax.random.key(0))
    slope = jax.grad(lambda p: logistic(y * (a @ p)).mean() + MAIN.rho / 2 * (moment @ p) ** 2)(
        theta
    )
    assert np.abs(slope).max() < 1e-6
    assert np.abs(theta).max() > 0.1


@pytest.mark.parametrize("epsilon", privacy.EPSILONS)
def test_the_moment_and_the_steps_of_dp_sgd_spend_epsilon_together(epsilon):
    moment, gradient = privacy.noise_of_parts(epsilon)
    mu = math.hypot(1 / moment, *[1 / gradient] * privacy.SGD_STEPS)
    assert epsilon_of(mu, privacy.DELTA) == pytest.approx(epsilon, rel=1e-6)


def test_the_page_has_means_and_marks_and_whether_the_goal_is_met():
    values = {
        ("constant", np.inf): (0.8, 0.0),
        ("surrogate", 1.0): (0.85, 0.01),
        ("dp_sgd", 1.0): (0.79, 0.02),
        ("fair", np.inf): (0.84, 0.02),
        ("fair", 1.0): (0.83, 0.04),
    }
    runs = Runs(
        Run(
            PrivateSetting("dutch", "alike", method, epsilon),
            seed,
            AccuracySpd(accuracy + seed / 100, spd),
        )
        for (method, epsilon), (accuracy, spd) in values.items()
        for seed in range(2)
    )
    files = privacy.show(runs)
    text = files["privacy.md"]
    assert f"| {LOOKS['surrogate'][0]} | 1 | 2 | 0.8550 ± 0.0071 | +0.0100 ± 0.0000 |" in text
    assert f"| {LOOKS['dp_sgd'][0]} | 1 | 2 | 0.7950 ± 0.0071 ‡ |" in text
    assert "| dutch | 0.0100 ± 0.0000 | +0.0200 ± 0.0000 | met |" in text
    assert list(files) == ["privacy.md", "dutch.svg"]
    worse = Runs(
        run._replace(values=AccuracySpd(0.7, 0.04)) if run.setting.epsilon == 1 else run
        for run in runs
    )
    assert "MISSED" in privacy.show(worse)["privacy.md"]

"""The peers of the speed benchmark solve our problem, and are timed without us."""

from types import SimpleNamespace

import numpy as np
import pytest

import synthfair as sf
from benchmarks.distilling import prepare, run_steps
from benchmarks.peers import with_jaxopt
from benchmarks.peers.problem import TURNS, Reached, parts, peer_problem
from benchmarks.speed import measure
from benchmarks.speed.measure import take_turns
from synthfair.data.encode import Encoded

CONFIG = sf.DistillConfig(
    n_synthetic=24, steps=5, intercept=False, rho_o=10.0, start="normal", group_input=True
)


def some_rows(n=60, d=3, seed=0):
    rng = np.random.default_rng(seed)
    x, s = rng.normal(size=(n, d)), rng.integers(2, size=n)
    return Encoded(x, s, np.where(x[:, 0] + s + rng.normal(size=n) > 0.5, 1.0, -1.0))


@pytest.fixture(scope="module")
def real():
    return some_rows()


@pytest.fixture(scope="module")
def plain(real):
    return peer_problem(real, prepare(real, CONFIG), CONFIG)


@pytest.fixture(scope="module")
def ours(real):
    return run_steps(prepare(real, CONFIG), CONFIG)


def test_jaxopt_reaches_our_x_in_turns_with_ours(plain, ours):
    seconds = iter(range(1, 7))
    run = take_turns(with_jaxopt.distil(plain, CONFIG.steps), 5, lambda: float(next(seconds)))
    np.testing.assert_allclose(run.reached.x, ours.x, atol=1e-5)
    np.testing.assert_allclose(run.reached.theta, ours.theta, atol=1e-5)
    np.testing.assert_allclose(run.objectives, ours.records.objective[:-1], rtol=1e-6)
    assert run.ours == tuple(i + 0.5 for i in range(1, 6))
    assert len(run.seconds) == 5


def test_torch_reaches_our_x(plain, ours):
    pytest.importorskip("torch")
    from benchmarks.peers import with_torch

    run = take_turns(with_torch.distil(plain, CONFIG.steps), 5, float)
    np.testing.assert_allclose(run.reached.x, ours.x, atol=1e-5)
    np.testing.assert_allclose(run.reached.theta, ours.theta, atol=2e-4)  # where losses stand


def test_all_find_one_objective(plain, ours):
    """Newton's method in NumPy, by which all are measured, against ours."""
    theta = plain.solve(plain.x)
    assert np.abs(plain.inner(theta, plain.inputs(plain.x))[1]).max() < 1e-12
    assert plain.outer(theta, plain.x) == pytest.approx(ours.records.objective[0], rel=1e-8)
    assert plain.outer(plain.solve(ours.x), ours.x) == pytest.approx(
        ours.records.objective[-1], rel=1e-8
    )


def test_x_has_moved_as_far_as_the_tolerances_can_tell(plain, ours):
    assert np.abs(ours.x - plain.x).max() > 0.03


def test_turns_are_as_even_as_can_be():
    assert [*parts(23)] == [3, 3, 3, *[2] * 7]


def test_a_turn_is_timed_without_ours(monkeypatch):
    """Ten turns of two steps in 20 ms: 0.2 s in all at that pace; with ours, it would be 1.2."""
    passed = [0.0]
    monkeypatch.setattr(measure, "time", SimpleNamespace(perf_counter=lambda: sum(passed)))

    def peer():
        yield np.empty(0)
        for _ in range(TURNS):
            passed.append(0.02)
            yield np.zeros(2)
        yield Reached(np.zeros((1, 1)), np.zeros(1))

    run = take_turns(peer(), 20, lambda: passed.append(0.1) or 1.0)
    assert run.seconds == pytest.approx([0.2] * TURNS)
    assert run.ours == (1.0,) * TURNS

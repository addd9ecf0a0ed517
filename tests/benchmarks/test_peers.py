"""The peers of the speed benchmark solve our problem, and are timed without us."""

from importlib import import_module
from types import SimpleNamespace

import numpy as np
import pytest
from builders import QUICK

from benchmarks.distilling import prepare, run_steps
from benchmarks.peers.problem import TURNS, Reached, peer_problem
from benchmarks.speed import measure
from benchmarks.speed.measure import take_turns
from synthfair.data.encode import Encoded

CONFIG = QUICK.replace(steps=5, intercept=False, start="normal", group_input=True)


@pytest.fixture(scope="module")
def solved():
    """The problem as a peer has it, and what we find."""
    rng = np.random.default_rng(0)
    x, s = rng.normal(size=(60, 3)), rng.integers(2, size=60)
    real = Encoded(x, s, np.where(x[:, 0] + s + rng.normal(size=60) > 0.5, 1.0, -1.0))
    problem = prepare(real, CONFIG)
    return peer_problem(real, problem, CONFIG), run_steps(problem, CONFIG)


@pytest.mark.parametrize("peer", ["jaxopt", "torch"])
def test_peers_reach_our_x(solved, peer):
    plain, ours = solved
    pytest.importorskip(peer)
    module = import_module(f"benchmarks.peers.with_{peer}")
    run = take_turns(module.distil(plain, CONFIG.steps), 5, float)
    np.testing.assert_allclose(run.reached.x, ours.x, atol=1e-5)
    np.testing.assert_allclose(run.reached.theta, ours.theta, atol=2e-4)


def test_all_find_one_objective(solved):
    """Newton's method in NumPy, by which all are measured, against ours."""
    plain, ours = solved
    for x, place in ((plain.x, 0), (ours.x, -1)):
        theta = plain.solve(x)
        assert np.abs(plain.inner(theta, plain.inputs(x))[1]).max() < 1e-12
        assert plain.outer(theta, x) == pytest.approx(ours.records.objective[place], rel=1e-8)


def test_turn_is_timed_without_ours(monkeypatch):
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

"""Many clients in one process: the numbers are those of one after the other."""

import dataclasses
import itertools
import os
import signal
import threading

import jax
import numpy as np
import pytest
from conftest import make_schema, make_table
from synthfair.client.routine import distill_rows

import synthfair as sf
from synthfair.client import simulate
from synthfair.data.encode import encode
from synthfair.distill import outer
from synthfair.distill.problem import make_problem
from synthfair.errors import InputError

SCHEMA = make_schema()

SMALL = 8 * 6 * (100 + 10 * 24 + 6)
"""Bytes that one of the clients here takes."""


def clients(*sizes):
    return [encode(make_table(n=n, seed=seed), SCHEMA) for seed, n in enumerate(sizes)]


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"inner_solver": "newton"},
        {"linear_solver": "conjugate_gradient"},
        {"labels": "proportional", "start": "normal", "rho_s": 1.0},
        {"optimizer": "gauss_newton", "penalty": "selection_rate"},
    ],
)
def test_a_batch_gives_what_one_by_one_gives(settings):
    some = clients(100, 100, 100)
    config = sf.DistillConfig(n_synthetic=24, steps=60, **settings)
    together = sf.distill_clients(some, SCHEMA, config)
    for real, found in zip(some, together, strict=True):
        alone = distill_rows(real, SCHEMA, config)
        np.testing.assert_allclose(found.release.x, alone.release.x, atol=1e-4)
        np.testing.assert_allclose(found.history.objective, alone.history.objective, rtol=1e-6)
        np.testing.assert_array_equal(found.release.s, alone.release.s)
        assert found.release.header == alone.release.header
        assert found.inner_converged


@pytest.mark.parametrize(
    "settings", [{}, {"optimizer": "gauss_newton", "penalty": "selection_rate"}]
)
def test_each_of_a_batch_stops_by_itself(settings):
    some = clients(100, 100, 100, 100)
    tolerance = 1e-4 if settings else 0.01
    config = sf.DistillConfig(n_synthetic=24, steps=2000, stop_tolerance=tolerance, **settings)
    together = sf.distill_clients(some, SCHEMA, config)
    alone = [distill_rows(real, SCHEMA, config) for real in some]
    lengths = [len(found.history.objective) for found in together]
    assert lengths == [len(found.history.objective) for found in alone]
    assert settings or len(set(lengths)) > 1
    for found, other in zip(together, alone, strict=True):
        np.testing.assert_allclose(found.release.x, other.release.x, atol=1e-5)
        assert found.history.objective[-1] == pytest.approx(other.history.objective[-1])


def test_each_of_a_batch_ends_at_the_lowest_of_its_last_chunk():
    some = clients(100, 100, 100, 100)
    config = sf.DistillConfig(n_synthetic=24, steps=40, learning_rate=0.05)
    together = sf.distill_clients(some, SCHEMA, config)
    alone = [distill_rows(real, SCHEMA, config) for real in some]
    lengths = [len(found.history.objective) for found in together]
    assert lengths == [len(found.history.objective) for found in alone]
    assert len(set(lengths)) > 1
    for found, other in zip(together, alone, strict=True):
        assert np.argmin(found.history.objective) == len(found.history.objective) - 1
        np.testing.assert_allclose(found.release.x, other.release.x, atol=1e-6)


def test_clients_of_other_sizes_and_small_batches_come_back_in_order(monkeypatch):
    some = clients(100, 60, 100, 80, 100, 60)
    config = sf.DistillConfig(n_synthetic=24, steps=5)
    monkeypatch.setattr(simulate, "BATCH_BYTES", {jax.default_backend(): 2 * SMALL})
    seen = []
    together = sf.distill_clients(some, SCHEMA, config, progress=lambda *at: seen.append(at))
    assert [done for done, _ in seen] == sorted(done for done, _ in seen)
    assert seen[-1] == (6, 6)
    for real, found in zip(some, together, strict=True):
        expected = distill_rows(real, SCHEMA, config).history.objective
        np.testing.assert_allclose(found.history.objective, expected, rtol=1e-10)


def test_a_search_differs_between_clients():
    config = sf.DistillConfig(n_synthetic=24, steps=100, max_gap=0.2)
    found = sf.distill_clients(clients(100, 100), SCHEMA, config)
    assert all(one.tried for one in found)


def test_the_client_that_cannot_be_distilled_is_named():
    some = clients(100, 100)
    broken = some[1]._replace(y=np.ones(100))
    with pytest.raises(InputError, match="client 1: column 'paid' holds only 'yes'"):
        sf.distill_clients([some[0], broken], SCHEMA, sf.DistillConfig(n_synthetic=24))


def test_the_client_that_diverges_is_named():
    some = clients(100, 100)
    with pytest.raises(InputError, match="client 0: distillation diverged"):
        sf.distill_clients(
            some, SCHEMA, sf.DistillConfig(n_synthetic=24, learning_rate=1e9, steps=9)
        )


def test_batches_of_one_shape_share_one_compilation(monkeypatch):
    some = clients(90, 90, 90, 90)
    monkeypatch.setattr(simulate, "BATCH_BYTES", {jax.default_backend(): 2 * SMALL})
    before = outer.compilations()
    sf.distill_clients(some, SCHEMA, sf.DistillConfig(n_synthetic=20, steps=3))
    sf.distill_clients(some, SCHEMA, sf.DistillConfig(n_synthetic=20, steps=3, rho_o=3.0))
    assert outer.compilations() == before + 1


def test_problems_that_differ_in_a_number_make_no_batch():
    real, config = clients(50)[0], sf.DistillConfig(n_synthetic=8)
    problem, _ = make_problem(real, config, n_groups=2)
    other = dataclasses.replace(problem, lambda_x=0.5)
    with pytest.raises(ValueError, match="the same number"):
        outer.stack([problem, other])


def test_tables_are_encoded_and_errors_name_the_client():
    tables = [make_table(n=60), make_table(n=60).assign(income="much")]
    with pytest.raises(InputError, match="client 1: column 'income', row 1"):
        sf.distill_clients(tables, SCHEMA, sf.DistillConfig(n_synthetic=8))
    with pytest.raises(InputError, match="client 0: n_synthetic = 9"):
        sf.distill_clients(tables[:1] * 2, SCHEMA, sf.DistillConfig(n_synthetic=9))
    (one,) = sf.distill_clients(tables[:1], SCHEMA, sf.DistillConfig(n_synthetic=8, steps=2))
    assert len(one.release.y) == 8


@pytest.mark.parametrize("double", [True, False])
@pytest.mark.parametrize("sizes", [(50,), (50, 50, 50)])
def test_threads_compute_in_the_precision_of_the_caller(double, sizes):
    with jax.enable_x64(double):
        found = sf.distill_clients(
            clients(*sizes), SCHEMA, sf.DistillConfig(n_synthetic=8, steps=2)
        )
    assert {one.history.objective.dtype.itemsize for one in found} == {8 if double else 4}


@pytest.fixture
def _ctrl_c_counts():
    """Also where the tests run in the background of a shell, which then ignores it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("_ctrl_c_counts")
def test_an_interruption_ends_all_batches(monkeypatch):
    steps = 200_000  # half a minute and more
    numbers, taken, advance = itertools.count(), [], outer.advance

    def counted(problem, state, config):
        if next(numbers) == 3:
            os.kill(os.getpid(), signal.SIGINT)
        return advance(problem, state, config)

    monkeypatch.setattr(outer, "advance", counted)
    with pytest.raises(KeyboardInterrupt):
        sf.distill_clients(
            clients(100, 100, 80),
            SCHEMA,
            sf.DistillConfig(n_synthetic=24, steps=steps),
            progress=lambda *_: taken.append(1),
        )
    assert not taken
    assert next(numbers) < steps / outer.CHUNK
    assert threading.active_count() == 1

"""Many clients in one process: the numbers are those of one after the other."""

import itertools
import signal
import threading

import jax
import numpy as np
import pytest
from conftest import make_schema, make_table

import synthfair as sf
from synthfair.client import many_clients as simulate
from synthfair.client.from_table import distill_rows
from synthfair.data.encode import encode
from synthfair.distill import problem as outer
from synthfair.errors import InputError

SCHEMA = make_schema()

QUICK = sf.DistillConfig(n_synthetic=24, steps=60)

SMALL = 8 * 6 * (100 + 10 * 24 + 6)
"""Bytes that one of the clients here takes."""


def clients(*sizes):
    return [encode(make_table(n=n, seed=seed), SCHEMA) for seed, n in enumerate(sizes)]


def changed(**settings):
    return sf.DistillConfig(**QUICK.model_dump(exclude_unset=True) | settings)


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"labels": "proportional", "rho_s": 1.0, "linear_solver": "conjugate_gradient"},
        # These steps magnify what the inner tolerance leaves open.
        {"optimizer": "gauss_newton", "penalty": "selection_rate", "inner_tolerance": 1e-11},
    ],
)
def test_a_batch_gives_what_one_by_one_gives(settings):
    some, config = clients(100, 100, 100), changed(**settings)
    together = sf.distill_clients(some, SCHEMA, config)
    for real, found in zip(some, together, strict=True):
        alone = distill_rows(real, SCHEMA, config)
        np.testing.assert_allclose(found.release.x, alone.release.x, atol=1e-4)
        np.testing.assert_allclose(found.history.objective, alone.history.objective, rtol=1e-6)
        np.testing.assert_array_equal(found.release.s, alone.release.s)
        assert found.release.header == alone.release.header
        assert found.inner_converged
        assert found.outer_excess == pytest.approx(alone.outer_excess, rel=1e-3, abs=1e-9)


def test_each_of_a_batch_stops_by_itself_and_releases_its_best():
    some = clients(100, 100, 100)
    config = changed(steps=2000, stop_tolerance=0.01)
    together = sf.distill_clients(some, SCHEMA, config)
    alone = [distill_rows(real, SCHEMA, config) for real in some]
    lengths = [len(found.history.objective) for found in together]
    assert lengths == [len(found.history.objective) for found in alone]
    assert len(set(lengths)) > 1
    for found, other in zip(together, alone, strict=True):
        assert float(found.reached.objective) == pytest.approx(found.history.objective.min())
        np.testing.assert_allclose(found.release.x, other.release.x, atol=1e-5)


def test_clients_of_other_sizes_and_small_batches_come_back_in_order(monkeypatch):
    some = clients(100, 60, 100, 100, 60)
    monkeypatch.setattr(simulate, "BATCH_BYTES", {jax.default_backend(): 2 * SMALL})
    seen = []
    together = sf.distill_clients(some, SCHEMA, QUICK, progress=lambda *at: seen.append(at))
    assert [done for done, _ in seen] == sorted(done for done, _ in seen)
    assert seen[-1] == (5, 5)
    for real, found in zip(some, together, strict=True):
        expected = distill_rows(real, SCHEMA, QUICK).history.objective
        np.testing.assert_allclose(found.history.objective, expected, rtol=1e-6)


def test_a_search_differs_between_clients():
    config = changed(steps=50, max_gap=0.2, optimizer="adam", penalty="covariance")
    found = sf.distill_clients(clients(100, 100), SCHEMA, config)
    assert all(one.tried for one in found)


def test_the_client_that_cannot_be_distilled_is_named():
    good, other = clients(100, 100)
    with pytest.raises(InputError, match="client 1: column 'paid' holds only 'yes'"):
        sf.distill_clients([good, other._replace(y=np.ones(100))], SCHEMA, QUICK)
    with pytest.raises(InputError, match="client 0: n_synthetic = 9"):
        sf.distill_clients([good, other], SCHEMA, changed(n_synthetic=9))
    tables = [make_table(n=60), make_table(n=60).assign(income="much")]
    with pytest.raises(InputError, match="client 1: column 'income', row 1"):
        sf.distill_clients(tables, SCHEMA, QUICK)


def test_the_client_that_diverges_is_named():
    *good, other = clients(100, 100, 100)
    with pytest.raises(InputError, match="client 2: distillation diverged"):
        sf.distill_clients([*good, other._replace(x=1e200 * other.x)], SCHEMA, QUICK)


def test_batches_of_one_shape_share_one_compilation(monkeypatch, compilations):
    monkeypatch.setattr(simulate, "BATCH_BYTES", {jax.default_backend(): 2 * SMALL})
    sf.distill_clients(clients(100, 100, 100, 100), SCHEMA, QUICK)
    before = compilations()
    sf.distill_clients(clients(100, 100, 100, 100), SCHEMA, changed(rho_o=3.0, steps=3))
    assert compilations() == before
    jax.jit(lambda x: x + 1.0)(1.0)
    assert compilations() > before  # it would have been heard


def test_threads_compute_in_the_precision_of_the_caller():
    with jax.enable_x64(False):
        (found,) = sf.distill_clients(clients(100), SCHEMA, changed(steps=2))
    assert found.history.objective.dtype == np.float32


@pytest.fixture
def _ctrl_c_counts():
    """Also where the tests run in the background of a shell, which then ignores it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("_ctrl_c_counts")
def test_an_interruption_ends_all_batches(monkeypatch):
    steps = 200_000  # half a minute and more
    before = set(threading.enumerate())  # a cluster of another test may leave some
    numbers, taken, chunk = itertools.count(), [], outer._chunk

    def counted(*args):
        if next(numbers) == 3:  # to the main thread: another one would not wake it
            signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)
        return chunk(*args)

    monkeypatch.setattr(outer, "_chunk", counted)
    with pytest.raises(KeyboardInterrupt):
        sf.distill_clients(
            clients(100, 100, 60),
            SCHEMA,
            changed(steps=steps),
            progress=lambda *_: taken.append(1),
        )
    assert not taken
    assert next(numbers) < steps / outer.CHUNK
    assert set(threading.enumerate()) <= before


@pytest.mark.parametrize(
    ("penalty", "settings", "sizes"),
    [
        (None, {}, [2, 1]),
        (sf.CovariancePenalty(), {}, [1, 1, 1]),
        (None, {"labels": "copy", "n_synthetic": None}, [1, 1, 1]),
    ],
    ids=["ours", "an own penalty", "copied labels"],
)
def test_clients_of_nearly_equal_size_share_a_batch_where_rows_may_be_padded(
    penalty, settings, sizes
):
    """97 and 100 rows are padded to 112, and 120 to 128."""
    named = dict(zip("abc", clients(97, 100, 120), strict=True))
    batches = simulate._batches(named, changed(**settings), penalty)
    assert [len(batch.clients) for batch in batches] == sizes

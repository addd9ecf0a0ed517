"""The rounds engine: samples cohorts, computes rounds in jitted chunks, and can be interrupted."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from synthfair.federated.algorithm import Algorithm, Record, Report, State
from synthfair.federated.cohorts import Cohorts, Drawn
from synthfair.federated.private_sum import (
    UNPROTECTED,
    Protection,
    add_noise,
    clip_report,
    require_bounded,
)
from synthfair.federated.users import Users

ENTRIES_AT_ONCE = 2**19
"""Numbers in the reports that are held together while a cohort is summed up."""

CHUNK = 50
"""Rounds between two looks at the progress, if not said otherwise."""


class Progress(NamedTuple):
    """How far a run has come.

    Attributes:
        rounds: number of rounds done.
        state: the server's, after them.
        history: records of all rounds so far, each array [rounds, ...].
    """

    rounds: int
    state: State
    history: Record


OnChunk = Callable[[Progress], None]


def start(algorithm: Algorithm, users: Users, seed: int) -> Progress:
    """Before the first round."""
    keys = _keys(seed)
    state = algorithm.init(keys.init)
    return Progress(0, state, _no_records(algorithm, state, users))


def run(
    algorithm: Algorithm,
    users: Users,
    cohorts: Cohorts,
    *,
    rounds: int,
    seed: int,
    protection: Protection = UNPROTECTED,
    progress: Progress | None = None,
    chunk: int = CHUNK,
    on_chunk: OnChunk | None = None,
) -> Progress:
    """Runs an algorithm for some rounds.

    Args:
        algorithm: what the server and the users do.
        users: the population.
        cohorts: how cohorts are drawn; of as many users.
        rounds: number of rounds in all.
        seed: of first params, cohorts and noise; 0 to 2^128 - 1. Where noise protects users it
            must come from the operating system's entropy, and stay secret.
        protection: of the users' reports.
        progress: an earlier run's; what follows is then as if it had not been interrupted.
        chunk: rounds that are computed together.
        on_chunk: called after each chunk.

    Raises:
        InputError: what the algorithm refuses; or noise without a clip.
    """
    require_bounded(protection)
    progress = start(algorithm, users, seed) if progress is None else progress
    fixed = _Fixed(algorithm, users, protection, float(cohorts.size), _keys(seed))
    while progress.rounds < rounds:
        n = min(chunk, rounds - progress.rounds)
        drawn = Drawn(*map(jnp.asarray, cohorts.draw(seed, progress.rounds, n)))
        state, records = _rounds(fixed, progress.state, drawn, progress.rounds)
        history = jax.tree.map(_appended, progress.history, jax.device_get(records))
        progress = Progress(progress.rounds + n, state, history)
        if on_chunk is not None:
            on_chunk(progress)
    return progress


def report_bytes(algorithm: Algorithm, state: State, users: Users) -> int:
    """Size of what one user sends in a round, as plain numbers."""
    rows = users.take(jnp.zeros(1, int), jnp.ones(1, bool)).merged()
    report = jax.eval_shape(algorithm.report, state, rows, jax.random.key(0))
    return sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(report))


class _Keys(NamedTuple):
    init: jax.Array
    users: jax.Array
    noise: jax.Array


def _keys(seed: int) -> _Keys:
    """Independent keys. Those of the cohorts are a fourth kind, see :meth:`Cohorts.draw`."""
    words = (np.random.SeedSequence(seed, spawn_key=(i,)).generate_state(2) for i in range(3))
    return _Keys(*(jax.random.wrap_key_data(jnp.asarray(word)) for word in words))


class _Fixed(NamedTuple):
    """What is the same in all rounds."""

    algorithm: Algorithm
    users: Users
    protection: Protection
    expected: float
    keys: _Keys


def _no_records(algorithm: Algorithm, state: State, users: Users) -> Record:
    fixed = _Fixed(algorithm, users, Protection(), 1.0, _keys(0))
    drawn = Drawn(jnp.zeros((1, 1), jnp.int32), jnp.ones((1, 1), bool))
    records = jax.eval_shape(_rounds, fixed, state, drawn, 0)[1]
    return jax.tree.map(lambda leaf: np.zeros((0, *leaf.shape[1:]), leaf.dtype), records)


def _appended(before: np.ndarray, after: np.ndarray) -> np.ndarray:
    return np.concatenate([before, after])


@jax.jit
def _rounds(fixed: _Fixed, state: State, drawn: Drawn, first: int) -> tuple[State, Record]:
    """As many rounds as cohorts are drawn."""

    def step(state: State, this: tuple[Drawn, jax.Array]) -> tuple[State, Record]:
        return _one_round(fixed, state, *this)

    rounds = first + jnp.arange(len(drawn.users))
    return jax.lax.scan(step, state, (drawn, rounds))


def _one_round(fixed: _Fixed, state: State, cohort: Drawn, t: jax.Array) -> tuple[State, Record]:
    """Users report, the sum is made private, the server moves on."""
    algorithm, key = fixed.algorithm, jax.random.fold_in(fixed.keys.users, t)
    if algorithm.additive and fixed.protection.clip is None:
        total = algorithm.report(state, fixed.users.take(*map(jnp.asarray, cohort)).merged(), key)
    else:
        total = _sum_of_reports(fixed, state, cohort, key)
        noise_key = jax.random.fold_in(fixed.keys.noise, t)
        total = add_noise(total, fixed.protection.noise, noise_key)
    return algorithm.update(state, total, fixed.expected)


def _sum_of_reports(fixed: _Fixed, state: State, cohort: Drawn, key: jax.Array) -> Report:
    """Of clipped reports, some users at a time; places that are only filled up cost nothing."""

    def block_sum(which: jax.Array, present: jax.Array) -> Report:
        user_keys = jax.vmap(partial(jax.random.fold_in, key))(which)
        rows = fixed.users.take(which, present)
        sent = jax.vmap(fixed.algorithm.report, in_axes=(None, 0, 0))(state, rows, user_keys)
        clipped = jax.vmap(clip_report, in_axes=(0, None))(sent, fixed.protection.clip)
        return jax.tree.map(partial(_sum_present, present), clipped)

    one = jax.eval_shape(block_sum, cohort.users[:1], cohort.present[:1])
    at_once = _at_once(one, len(cohort.users))
    which, present = (_in_blocks(jnp.asarray(part), at_once) for part in cohort)

    def add(block: int, total: Report) -> Report:
        return jax.tree.map(jnp.add, total, block_sum(which[block], present[block]))

    zero = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), one)
    blocks = -(-jnp.sum(cohort.present) // at_once)
    return jax.lax.fori_loop(0, blocks, add, zero)


def _at_once(report: Report, cohort: int) -> int:
    """Number of users whose reports are held together."""
    entries = sum(leaf.size for leaf in jax.tree.leaves(report))
    return max(1, min(cohort, ENTRIES_AT_ONCE // max(entries, 1)))


def _in_blocks(part: jax.Array, size: int) -> jax.Array:
    blocks = -(-len(part) // size)
    return jnp.pad(part, (0, blocks * size - len(part))).reshape(blocks, size)


def _sum_present(present: jax.Array, leaf: jax.Array) -> jax.Array:
    """Of reports [b, ...]; those of users who are not there may be not-a-number."""
    there = present.reshape(-1, *(1,) * (leaf.ndim - 1))
    return jnp.sum(jnp.where(there, leaf, 0.0), axis=0)

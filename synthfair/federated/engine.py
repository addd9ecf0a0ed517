"""The rounds engine: draws cohorts, sums up clipped reports, adds noise, and can be interrupted.

The protected sum of a cohort's reports is the only thing that the server sees of the users' rows.
Each report is clipped as one vector, and noise is added to the sum: as by a trusted third party, in
:func:`clip_report` and :func:`add_noise`; or through shares, by
:class:`~synthfair.federated.secure_sums.SecureSums`.
Rodríguez-Gálvez et al. (2021), algorithm 1; McMahan et al. (2018).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

from synthfair.errors import InputError
from synthfair.federated.algorithm import (
    Algorithm,
    RoundRecord,
    ServerState,
    UserReport,
    require_at_least_0,
    require_positive,
)
from synthfair.federated.cohorts import Cohorts, Drawn
from synthfair.federated.secure_sums import SecureSums
from synthfair.federated.users import Users

ENTRIES_AT_ONCE = 2**19
"""Numbers in the reports that are held together while a cohort is summed up."""

CHUNK = 50
"""Rounds between two looks at the progress, if not said otherwise."""


class Protection(NamedTuple):
    """How reports are protected.

    Guarantee: a sum of clipped reports to which noise of this standard deviation is added is one
    Gaussian mechanism. Unit: one user, with all its rows. Sensitivity: ``clip`` where neighbouring
    populations differ by one user more or less, twice that where one user is replaced.

    Attributes:
        clip: Euclidean norm that no report exceeds, or None: then none is changed.
        noise: standard deviation of what is added to each entry of the sum; 0 for none.

    Example:
        Noise for epsilon = 2 and delta = 1e-5, where all 100 users take part in 20 rounds.

        >>> import synthfair as sf
        >>> noise = sf.privacy.SampledSums(100, 100, times=20).noise(2.0, 1e-5)
        >>> protection = sf.federated.Protection(clip=0.5, noise=0.5 * noise)
        >>> round(protection.noise, 2)
        4.46
    """

    clip: jax.Array | float | None = None
    noise: jax.Array | float = 0.0


UNPROTECTED = Protection()
"""Nothing is clipped and no noise is added."""


def require_bounded(protection: Protection | SecureSums) -> None:
    """Refuses noise on a sum that no clip bounds, and numbers out of range. Raises InputError."""
    clip, noise = protection.clip, float(protection.noise)
    require_at_least_0(noise=noise)
    if clip is not None:
        require_positive(clip=float(clip))
    elif noise > 0:
        raise InputError(f"noise = {noise}: needs a clip; without one it protects nobody")


def clip_report(report: UserReport, clip: jax.Array | float | None) -> UserReport:
    """A report v as v min(1, clip / |v|); one without a finite norm becomes 0."""
    if clip is None:
        return report
    flat, unravel = ravel_pytree(report)
    norm = jnp.linalg.norm(flat)
    factor = clip / jnp.maximum(norm, clip)
    return unravel(jnp.where(jnp.isfinite(norm), flat * factor, 0.0))


def add_noise(total: UserReport, noise: jax.Array | float, key: jax.Array) -> UserReport:
    """The sum with Gaussian noise in every entry."""
    flat, unravel = ravel_pytree(total)
    return unravel(flat + noise * jax.random.normal(key, flat.shape, flat.dtype))


class RunProgress(NamedTuple):
    """How far a run has come.

    Attributes:
        rounds: number of rounds done.
        state: the server's, after them.
        history: records of all rounds so far, each array [rounds, ...].
    """

    rounds: int
    state: ServerState
    history: RoundRecord


def start(algorithm: Algorithm, users: Users, seed: int) -> RunProgress:
    """Before the first round."""
    state = algorithm.init(key_from(seed, 0))
    record = jax.eval_shape(algorithm.update, state, _one_report(algorithm, state, users), 1.0)[1]
    none = jax.tree.map(lambda leaf: np.zeros((0, *leaf.shape), leaf.dtype), record)
    return RunProgress(0, state, none)


def run(
    algorithm: Algorithm,
    users: Users,
    cohorts: Cohorts,
    *,
    rounds: int,
    seed: int,
    protection: Protection | SecureSums = UNPROTECTED,
    progress: RunProgress | None = None,
    chunk: int = CHUNK,
    on_chunk: Callable[[RunProgress], None] | None = None,
) -> RunProgress:
    """Runs an algorithm for some rounds.

    Args:
        algorithm: what the server and the users do.
        users: the population.
        cohorts: how cohorts are drawn; of as many users.
        rounds: number of rounds in all.
        seed: of first params, cohorts and noise; 0 to 2^128 - 1. Where noise protects users it
            must come from the operating system's entropy, and stay secret.
        protection: of the users' reports; by shares, a sum takes some ten milliseconds.
        progress: an earlier run's; what follows is then as if it had not been interrupted.
        chunk: rounds that are computed together.
        on_chunk: called after each chunk.

    Returns:
        The server's last state, and the records of all rounds.

    Raises:
        InputError: what the algorithm refuses; or noise without a clip.

    Example:
        Federated averaging of two users of one row each, who are both in every round.

        >>> import numpy as np
        >>> import synthfair as sf
        >>> a, s, y = np.array([[1.0], [2.0]]), np.array([0, 1]), np.array([1.0, 1.0])
        >>> users = sf.federated.make_users(a, s, y, user=np.arange(2))
        >>> algorithm = sf.federated.FedAvg(sf.federated.LogisticRegression(1), learning_rate=1.0)
        >>> done = sf.federated.engine.run(
        ...     algorithm, users, sf.federated.Cohorts(2, 2), rounds=3, seed=0
        ... )
        >>> done.rounds, bool(algorithm.params(done.state)[0] > 1)
        (3, True)
    """
    require_bounded(protection)
    progress = start(algorithm, users, seed) if progress is None else progress
    keys = _Keys(users=key_from(seed, 1), noise=key_from(seed, 2))
    secure = protection if isinstance(protection, SecureSums) else None
    of_reports = protection if isinstance(protection, Protection) else UNPROTECTED
    fixed = _Fixed(algorithm, users, of_reports, float(cohorts.size), keys)
    while progress.rounds < rounds:
        n = min(chunk, rounds - progress.rounds)
        drawn = cohorts.draw(seed, progress.rounds, n)
        if secure is None:
            there = Drawn(*map(jnp.asarray, drawn))
            state, records = _rounds(fixed, progress.state, there, progress.rounds)
        else:
            state, records = _secure_rounds(fixed, secure, progress.state, drawn, progress.rounds)
        history = jax.tree.map(
            lambda old, new: np.concatenate([old, new]), progress.history, jax.device_get(records)
        )
        progress = RunProgress(progress.rounds + n, state, history)
        if on_chunk is not None:
            on_chunk(progress)
    return progress


def report_bytes(algorithm: Algorithm, state: ServerState, users: Users) -> int:
    """Size of what one user sends in a round, as plain numbers."""
    leaves = jax.tree.leaves(_one_report(algorithm, state, users))
    return sum(leaf.size * leaf.dtype.itemsize for leaf in leaves)


def report_length(algorithm: Algorithm, users: Users) -> int:
    """How many numbers one user sends in a round."""
    state = jax.eval_shape(algorithm.init, jax.random.key(0))
    return sum(leaf.size for leaf in jax.tree.leaves(_one_report(algorithm, state, users)))


def _one_report(algorithm: Algorithm, state: ServerState, users: Users) -> UserReport:
    """Shapes and types of what a user sends."""
    rows = jax.eval_shape(users.rows_of, 0)
    return jax.eval_shape(algorithm.report, state, rows, jax.random.key(0))


class _Keys(NamedTuple):
    users: jax.Array
    noise: jax.Array


def key_from(seed: int, purpose: int) -> jax.Array:
    """One of the independent keys of a seed of up to 128 bits.

    Used are 0 for first params, 1 for users, 2 for noise, 3 for cohorts (see ``Cohorts``), 4 for
    what users do before the rounds and 5 for secure sums in tests (see ``SecureSums``).
    """
    words = np.random.SeedSequence(seed, spawn_key=(purpose,)).generate_state(2)
    return jax.random.wrap_key_data(jnp.asarray(words))


class _Fixed(NamedTuple):
    """What is the same in all rounds."""

    algorithm: Algorithm
    users: Users
    protection: Protection
    expected: float
    keys: _Keys


@jax.jit
def _rounds(
    fixed: _Fixed, state: ServerState, drawn: Drawn, first: int
) -> tuple[ServerState, RoundRecord]:
    """As many rounds as cohorts are drawn."""

    def one_round(
        state: ServerState, this: tuple[Drawn, jax.Array]
    ) -> tuple[ServerState, RoundRecord]:
        """Users report, the sum is made private, the server moves on."""
        (cohort, t), algorithm = this, fixed.algorithm
        key = jax.random.fold_in(fixed.keys.users, t)
        if algorithm.additive and fixed.protection.clip is None:
            total = algorithm.report(
                state, fixed.users.take(*map(jnp.asarray, cohort)).merged(), key
            )
        else:
            total = _sum_of_reports(fixed, state, cohort, key)
            noise_key = jax.random.fold_in(fixed.keys.noise, t)
            total = add_noise(total, fixed.protection.noise, noise_key)
        return algorithm.update(state, total, fixed.expected)

    rounds = first + jnp.arange(len(drawn.users))
    return jax.lax.scan(one_round, state, (drawn, rounds))


def _sum_of_reports(fixed: _Fixed, state: ServerState, cohort: Drawn, key: jax.Array) -> UserReport:
    """Of clipped reports, some users at a time; blocks of padding alone cost nothing."""
    report = jax.jit(fixed.algorithm.report)  # so that JAX traces it once for both uses below

    def block_sum(which: jax.Array, present: jax.Array) -> UserReport:
        sent = _sent(report, fixed.users, state, Drawn(which, present), key)
        clipped = jax.vmap(clip_report, in_axes=(0, None))(sent, fixed.protection.clip)
        return jax.tree.map(partial(_sum_present, present), clipped)

    one = jax.eval_shape(block_sum, cohort.users[:1], cohort.present[:1])
    at_once = _at_once(sum(leaf.size for leaf in jax.tree.leaves(one)), len(cohort.users))
    blocks = -(-len(cohort.users) // at_once)
    which, present = (
        jnp.pad(part, (0, blocks * at_once - len(part))).reshape(blocks, at_once)
        for part in map(jnp.asarray, cohort)
    )

    def add(block: int, total: UserReport) -> UserReport:
        return jax.tree.map(jnp.add, total, block_sum(which[block], present[block]))

    zero = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), one)
    return jax.lax.fori_loop(0, -(-jnp.sum(cohort.present) // at_once), add, zero)


def _sent(
    report: Callable[..., UserReport], users: Users, state: ServerState, who: Drawn, key: jax.Array
) -> UserReport:
    """Reports of some users, leaves [b, ...]."""
    user_keys = jax.vmap(partial(jax.random.fold_in, key))(who.users)
    return jax.vmap(report, in_axes=(None, 0, 0))(
        state, users.take(*map(jnp.asarray, who)), user_keys
    )


def _at_once(entries: int, users: int) -> int:
    """Reports of so many numbers that are held together."""
    return max(1, min(users, ENTRIES_AT_ONCE // max(entries, 1)))


def _sum_present(present: jax.Array, leaf: jax.Array) -> jax.Array:
    """Of reports [b, ...]; those of users who are not there may be not-a-number."""
    there = present.reshape(-1, *(1,) * (leaf.ndim - 1))
    return jnp.sum(jnp.where(there, leaf, 0.0), axis=0)


# Sums by shares: reports leave JAX one by one


def _secure_rounds(
    fixed: _Fixed, secure: SecureSums, state: ServerState, drawn: Drawn, first: int
) -> tuple[ServerState, RoundRecord]:
    """As many rounds as cohorts are drawn; the server gets what the aggregators open."""
    shapes = _one_report(fixed.algorithm, state, fixed.users)
    flat, unravel = ravel_pytree(
        jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes)
    )
    records = []
    for t, cohort in enumerate(map(Drawn._make, zip(*drawn, strict=True)), first):
        total = secure.total(_reports_one_by_one(fixed, state, cohort, t), round_=t)
        state, record = _update(fixed, state, unravel(jnp.asarray(total, flat.dtype)))
        records.append(record)
    return state, jax.tree.map(lambda *leaves: jnp.stack(leaves), *records)


def _reports_one_by_one(
    fixed: _Fixed, state: ServerState, cohort: Drawn, t: int
) -> Iterator[np.ndarray]:
    """[k] each, of the users who are there; no report is clipped yet."""
    shapes = _one_report(fixed.algorithm, state, fixed.users)
    entries = sum(leaf.size for leaf in jax.tree.leaves(shapes))
    at_once = _at_once(entries, len(cohort.users))
    for begin in range(0, int(cohort.present.sum()), at_once):  # padding stands at the end
        room = np.zeros((2, at_once), np.int32)
        part = slice(begin, begin + at_once)
        room[:, : len(cohort.users[part])] = cohort.users[part], cohort.present[part]
        which, present = room[0], room[1].astype(bool)
        block = _flat_reports(fixed, state, Drawn(jnp.asarray(which), jnp.asarray(present)), t)
        yield from np.asarray(block, np.float64)[present]


@jax.jit
def _flat_reports(fixed: _Fixed, state: ServerState, who: Drawn, t: jax.Array | int) -> jax.Array:
    """[b, k] reports of some users."""
    key = jax.random.fold_in(fixed.keys.users, t)
    sent = _sent(fixed.algorithm.report, fixed.users, state, who, key)
    return jax.vmap(lambda report: ravel_pytree(report)[0])(sent)


@jax.jit
def _update(
    fixed: _Fixed, state: ServerState, total: UserReport
) -> tuple[ServerState, RoundRecord]:
    return fixed.algorithm.update(state, total, fixed.expected)

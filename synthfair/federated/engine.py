"""The rounds: cohorts are drawn, their reports summed under protection, and the server moves on.

The protected sum of a cohort's reports is the only thing that the server sees of the users' rows.
Each report is clipped as one vector, and noise is added to the sum: as by a trusted third party, in
:func:`clip_report` and :func:`add_noise`; or through shares, by
:class:`~synthfair.federated.secure_sums.SecureSums`.
Rodríguez-Gálvez et al. (2021), algorithm 1; McMahan et al. (2018).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import chain
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

from synthfair.errors import InputError
from synthfair.federated.algorithm import Algorithm, RoundRecord, ServerState, UserReport
from synthfair.federated.secure_sums import SecureSums
from synthfair.federated.users import Block, Cohorts, Users

ENTRIES_AT_ONCE = 2**19
"""Numbers in the reports that are held together while a cohort is summed up."""

Totals = Callable[[ServerState, int], tuple[np.ndarray, float]]
"""[k] the sum of the reports of round t, and the number of users that the server divides by."""


class Protection(NamedTuple):
    """The protection of reports: clipping and noise.

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
"""No protection: nothing is clipped and no noise is added."""


class RunProgress(NamedTuple):
    """The progress of a run: its round, state and history so far."""

    rounds: int  # number of rounds done
    state: ServerState  # after them
    history: RoundRecord  # of all rounds so far, each array [rounds, ...]
    seed: int  # of first params, cohorts and noise


def start(algorithm: Algorithm, users: Users, seed: int) -> RunProgress:
    """Return the progress of a run before its first round."""
    state = algorithm.init(key_from(seed, 0))
    report = report_shapes(algorithm, users, state)
    record = jax.eval_shape(algorithm.update, state, report, 1.0)[1]
    none = jax.tree.map(lambda leaf: np.zeros((0, *leaf.shape), leaf.dtype), record)
    return RunProgress(0, state, none, seed)


def run(
    algorithm: Algorithm,
    users: Users,
    cohorts: Cohorts,
    *,
    rounds: int,
    seed: int,
    protection: Protection | SecureSums = UNPROTECTED,
    totals: Totals | None = None,
    progress: RunProgress | None = None,
    on_round: Callable[[RunProgress], None] | None = None,
) -> RunProgress:
    """Run an algorithm for some rounds.

    Args:
        algorithm: what the server and the users do.
        users: the population.
        cohorts: how cohorts are drawn; of as many users.
        rounds: number of rounds in all.
        seed: of first params, cohorts and noise; 0 to 2^128 - 1. Where noise protects users it
            must come from the operating system's entropy, and stay secret.
        protection: of the users' reports; by shares, a sum takes some ten milliseconds.
        totals: computes the sums where users are somewhere else, and clip what they report; if not
            given, they are computed here.
        progress: an earlier run's; what follows is then as if it had not been interrupted.
        on_round: called after each round.

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
        >>> model = sf.federated.LogisticRegression(1)
        >>> algorithm = sf.federated.FedAvg(model=model, learning_rate=1.0)
        >>> done = sf.federated.engine.run(
        ...     algorithm, users, sf.federated.Cohorts(2, 2), rounds=3, seed=0
        ... )
        >>> done.rounds, bool(algorithm.params(done.state)[0] > 1)
        (3, True)
    """
    require_bounded(protection)
    progress = start(algorithm, users, seed) if progress is None else progress
    local = UNPROTECTED if isinstance(protection, SecureSums) else protection
    this = _Run(algorithm, users, local, key_from(seed, 1), key_from(seed, 2))
    at_once = cohorts.room
    if protection.clip is not None or not algorithm.additive:
        numbers = report_size(algorithm, users)[0]
        at_once = max(1, min(at_once, ENTRIES_AT_ONCE // max(numbers, 1)))
    for t in range(progress.rounds, rounds):
        state, size = progress.state, float(cohorts.size)
        if totals is not None:
            total, size = totals(state, t)
        else:
            blocks = cohorts.blocks(seed, t, at_once)
            if isinstance(protection, SecureSums):
                reports = (
                    np.asarray(_reports(this, state, block, t), np.float64)[block.present]
                    for block in blocks
                )
                total = protection.total(chain.from_iterable(reports), round_=t)
            else:
                total = sum(_sum_of_reports(this, state, block, t) for block in blocks)
        state, record = _update(this, state, total, size, t)
        history = jax.tree.map(
            lambda old, new: np.append(old, new[None], axis=0),
            progress.history,
            jax.device_get(record),
        )
        progress = RunProgress(t + 1, state, history, seed)
        if on_round is not None:
            on_round(progress)
    return progress


class _Run(NamedTuple):
    """The constants of a run, the same in all rounds."""

    algorithm: Algorithm
    users: Users
    protection: Protection
    user_key: jax.Array
    noise_key: jax.Array


@jax.jit
def _reports(run: _Run, state: ServerState, block: Block, t: int) -> jax.Array:
    """[b, k] reports of some users in round t; each draws by a key of its own."""
    key = jax.random.fold_in(run.user_key, t)
    keys = jax.vmap(partial(jax.random.fold_in, key))(block.users)
    rows = run.users.take(*map(jnp.asarray, block))
    reports = jax.vmap(run.algorithm.report, in_axes=(None, 0, 0))(state, rows, keys)
    return jax.vmap(lambda report: ravel_pytree(report)[0])(reports)


@jax.jit
def _sum_of_reports(run: _Run, state: ServerState, block: Block, t: int) -> jax.Array:
    """[k] the sum of clipped reports; where nothing is clipped, maybe as if all were one user."""
    if run.algorithm.additive and run.protection.clip is None:
        rows = run.users.take(*map(jnp.asarray, block))
        rows = type(rows)(*(part.reshape(-1, *part.shape[2:]) for part in rows))
        report = run.algorithm.report(state, rows, jax.random.fold_in(run.user_key, t))
        return ravel_pytree(report)[0]
    reports = _reports(run, state, block, t)
    clipped = jax.vmap(clip_report, in_axes=(0, None))(reports, run.protection.clip)
    # The numbers of users who are not there may be none.
    return jnp.sum(jnp.where(block.present[:, None], clipped, 0.0), axis=0)


@jax.jit
def _update(
    run: _Run, state: ServerState, total: jax.Array | np.ndarray | int, size: float, t: int
) -> tuple[ServerState, RoundRecord]:
    """Update the state, with the noise that the server adds, if any."""
    shapes = report_shapes(run.algorithm, run.users, state)
    zeros = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes)
    zero, unravel = ravel_pytree(zeros)
    key = jax.random.fold_in(run.noise_key, t)
    noisy = add_noise((zero + total).astype(zero.dtype), run.protection.noise, key)
    return run.algorithm.update(state, unravel(noisy), size)


# What protects a sum, and what is drawn


def require_bounded(protection: Protection | SecureSums) -> None:
    """Refuses noise on a sum that no clip bounds, and numbers out of range. Raises InputError."""
    clip, noise = protection.clip, float(protection.noise)
    if not 0 <= noise < np.inf:
        raise InputError(f"noise = {noise}: must be at least 0 and finite")
    if clip is not None and not 0 < float(clip) < np.inf:
        raise InputError(f"clip = {float(clip)}: must be positive and finite")
    if clip is None and noise > 0:
        raise InputError(f"noise = {noise}: needs a clip; without one it protects nobody")


def clip_report(report: UserReport, clip: jax.Array | float | None) -> UserReport:
    """Return a report v as v min(1, clip / |v|); one without a finite norm becomes 0."""
    if clip is None:
        return report
    flat, unravel = ravel_pytree(report)
    norm = jnp.linalg.norm(flat)
    factor = clip / jnp.maximum(norm, clip)
    return unravel(jnp.where(jnp.isfinite(norm), flat * factor, 0.0))


@jax.jit
def report_of(
    algorithm: Algorithm, clip: float | None, state: ServerState, users: Users, key: jax.Array
) -> UserReport:
    """Return the clipped report of the first user, as one who is somewhere else sends it."""
    return clip_report(algorithm.report(state, users.rows_of(0), key), clip)


def add_noise(total: UserReport, noise: jax.Array | float, key: jax.Array) -> UserReport:
    """Return the sum with Gaussian noise in every entry."""
    flat, unravel = ravel_pytree(total)
    return unravel(flat + noise * jax.random.normal(key, flat.shape, flat.dtype))


def key_from(seed: int, purpose: int) -> jax.Array:
    """Derive one of the independent keys of a seed of up to 128 bits.

    Key 0 is for first params, 1 for users, 2 for noise, 3 for cohorts (see ``Cohorts``), 4 for what
    users do before the rounds and 5 for secure sums in tests (see ``SecureSums``).
    """
    words = np.random.SeedSequence(seed, spawn_key=(purpose,)).generate_state(2)
    return jax.random.wrap_key_data(jnp.asarray(words))


def report_shapes(algorithm: Algorithm, users: Users, state: ServerState | None = None) -> Any:
    """Shapes and types of what one user sends in a round."""
    key = jax.random.key(0)
    state = jax.eval_shape(algorithm.init, key) if state is None else state
    return report_of.eval_shape(algorithm, None, state, users, key)


def report_size(algorithm: Algorithm, users: Users) -> tuple[int, int]:
    """Count the numbers that one user sends in a round, and their bytes."""
    leaves = jax.tree.leaves(report_shapes(algorithm, users))
    return sum(leaf.size for leaf in leaves), sum(
        leaf.size * leaf.dtype.itemsize for leaf in leaves
    )

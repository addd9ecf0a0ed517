"""The engine that runs a method's rounds.

In a round a cohort's reports are summed under protection, and the server moves on.

The protected sum of a cohort's reports is the only thing that the server sees of the users' rows.
Each report is clipped as one vector, and noise is added to the sum: as by a trusted third party, in
:func:`clip_report` and :func:`add_noise`; or through shares, see :func:`shared`.
Rodríguez-Gálvez et al. (2021), algorithm 1; McMahan et al. (2018).
"""

from __future__ import annotations

import zipfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

from synthfair.errors import InputError
from synthfair.federated.single_rows import SummandWeights, UserRows
from synthfair.federated.users import Block, Cohorts, Users
from synthfair.files import OWNER_ONLY, open_file, whole_file
from synthfair.model import Params
from synthfair.privacy.guarantee import SumOfShares
from synthfair.privacy.mechanism import grid_for, sensitivity
from synthfair.privacy.noise import system_entropy
from synthfair.secure.aggregator import noisy_sum
from synthfair.secure.summands import ClippedVectors
from synthfair.settings import Relation

ENTRIES_AT_ONCE = 2**19
"""Numbers in the reports that are held together while a cohort is summed up."""

STEPS_IN_CLIP = 2**30
"""Steps of the grid in the norm to which a report is clipped, where there is no noise to go by."""

AGGREGATORS = 2
"""Parties that add up shares."""

ServerState = Any
"""A pytree of arrays that the server keeps from round to round."""

UserReport = Any
"""A pytree of arrays that a user sends: only the sum over the cohort is seen by the server."""

RoundRecord = Any
"""A NamedTuple of arrays that is kept of every round; made of what the server saw."""

Totals = Callable[[ServerState, int], tuple[np.ndarray | jax.Array | int, float]]
"""[k] the sum of the reports of round t, and the number of users that the server divides by."""


class Algorithm:
    """A method in rounds: any pytree with these functions.

    Register a class of your own by ``register_static`` or ``register_pytree_node`` of
    ``jax.tree_util``. JAX 0.10.1 takes two classes that ``register_dataclass`` has registered, with
    equal static fields, for one: it may run the compiled rounds of the other.

    Attributes:
        additive: whether the sum of the reports of two users is the report of their rows together.
            Where nothing is clipped, a cohort is then computed as one user, which is faster. Such
            an algorithm has ``weights``, too: a site reports sums without protection only where no
            row stands out.

    Example:
        This one counts the rows of a cohort; :func:`run` runs it.

        >>> import jax
        >>> import jax.numpy as jnp
        >>> @jax.tree_util.register_static
        ... class CountRows:
        ...     additive = True
        ...     def init(self, key):
        ...         return jnp.zeros(())
        ...     def report(self, state, rows, key):
        ...         return rows.weight.sum()
        ...     def update(self, state, total, cohort):
        ...         return state + total, (total,)
        ...     def params(self, state):
        ...         return state
    """

    additive: ClassVar[bool]

    def init(self, key: jax.Array) -> ServerState:
        """Return the server's first state."""
        raise NotImplementedError

    def report(self, state: ServerState, rows: UserRows, key: jax.Array) -> UserReport:
        """Compute a user's report on the device. Rows of weight 0 must not enter it."""
        raise NotImplementedError

    def weights(self, state: ServerState, rows: UserRows) -> SummandWeights:
        """Return how much each row weighs in an additive report."""
        raise NotImplementedError

    def update(
        self, state: ServerState, total: UserReport, cohort: float
    ) -> tuple[ServerState, RoundRecord]:
        """Compute the next state from the sum of the reports, which may be noisy, on the server.

        Args:
            state: the last one.
            total: the sum.
            cohort: number of users expected in a round.
        """
        raise NotImplementedError

    def params(self, state: ServerState) -> Params:
        """Return the model to use if this state is the last one."""
        raise NotImplementedError


# What protects a sum


class Protection(NamedTuple):
    """The protection of reports: clipping and noise.

    Guarantee: a sum of clipped reports to which noise of this standard deviation is added is one
    Gaussian mechanism. Unit: one user, with all its rows. Sensitivity: ``clip`` where neighbouring
    populations differ by one user more or less, twice that where one user is replaced. By shares,
    a sum has the guarantee of :class:`~synthfair.secure.ClippedVectors`, against any single
    aggregator together with everyone who sees it.

    Attributes:
        clip: Euclidean norm that no report exceeds, or None: then none is changed.
        noise: standard deviation of what is added to each entry of the sum; 0 for none.
        vectors: of sums by shares, see :func:`shared`, what is summed; None where whoever sums
            sees the reports.
        seed: of sums by shares, for tests: noise that anybody can repeat.

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
    vectors: ClippedVectors | None = None
    seed: int | None = None

    @property
    def shares(self) -> SumOfShares | None:
        """The parameters of sums by shares, for a guarantee."""
        if self.vectors is None:
            return None
        length, step = self.vectors.length, self.vectors.step
        norm = step * self.vectors.largest_square**0.5
        return SumOfShares(aggregators=AGGREGATORS, length=length, step=step, norm=norm)


UNPROTECTED = Protection()
"""No protection: nothing is clipped and no noise is added."""


def shared(length: int, *, clip: float, relation: Relation, multiplier: float | None) -> Protection:
    """Return the protection by shares, on a grid that is fine next to noise, or clip without any.

    Each report is clipped in L2, rounded to the grid and cut into shares; two aggregators add up
    their shares, each with discrete Gaussian noise that is enough by itself; what opens is the
    noisy total. Here both are simulated in one process, without encryption and signatures.

    Args:
        length: of a report.
        clip: Euclidean norm to which it is shortened.
        relation: which populations are neighbours.
        multiplier: noise of each aggregator in units of the sensitivity, rounding included; None
            for no noise, where nothing is guaranteed of the total.

    Raises:
        InputError: reports are too long, or the clip is out of range.
    """
    rho, step = None, clip / STEPS_IN_CLIP
    if multiplier is not None:
        rho, step = 1 / (2 * multiplier**2), grid_for(sensitivity(clip, relation) * multiplier)
    vectors = ClippedVectors(length=length, clip=clip, step=step, rho=rho, relation=relation)
    return Protection(clip, step * (AGGREGATORS * vectors.variance) ** 0.5, vectors)


def shared_total(
    vectors: ClippedVectors, reports: Iterable[np.ndarray], *, seed: int | None = None, t: int = 0
) -> np.ndarray:
    """Return the noisy sum [k] by shares of the reports [k] of round t, as real numbers.

    Users who were not drawn send zeros, of which one stands for all; so a cohort may be empty, and
    its total has noise like any other. With a seed, noise is of the seed and the round alone.

    Raises:
        InputError: a total that cannot be.

    Example:
        >>> import numpy as np
        >>> from synthfair.federated.engine import shared, shared_total
        >>> vectors = shared(2, clip=1.0, relation="add_or_remove", multiplier=None).vectors
        >>> shared_total(vectors, [np.array([0.25, 0.5]), np.array([3.0, -4.0])]).round(6).tolist()
        [0.85, -0.3]
    """
    source = system_entropy
    if seed is not None:
        source = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(5, t))).bytes
    parts = chain([np.zeros(vectors.length, np.int64)], map(vectors.integers, reports))
    return noisy_sum(parts, vectors, aggregators=AGGREGATORS, source=source).total * vectors.step


def require_bounded(protection: Protection) -> None:
    """Refuse noise on a sum that no clip bounds, and numbers out of range. Raises InputError."""
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


def add_noise(total: UserReport, noise: jax.Array | float, key: jax.Array) -> UserReport:
    """Return the sum with Gaussian noise in every entry."""
    flat, unravel = ravel_pytree(total)
    return unravel(flat + noise * jax.random.normal(key, flat.shape, flat.dtype))


def key_from(seed: int, purpose: int) -> jax.Array:
    """Derive one of the independent keys of a seed of up to 128 bits.

    Key 0 is for first params, 1 for users, 2 for noise, 3 for cohorts (see ``Cohorts``), 4 for what
    users do before the rounds and 5 for sums by shares in tests.
    """
    words = np.random.SeedSequence(seed, spawn_key=(purpose,)).generate_state(2)
    return jax.random.wrap_key_data(jnp.asarray(words))


# A run, and how it is saved


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


@dataclass(frozen=True)
class CheckpointFile:
    """The file of an interrupted run, which then goes on as if never stopped. Stays where it ran.

    Attributes:
        path: of the file.
        fingerprint: of everything that the run depends on; a file with another is of another run.
    """

    path: Path
    fingerprint: str

    @classmethod
    def next_to(cls, output: Path, fingerprint: str) -> CheckpointFile:
        """Return the file named after an output and the run, so that it is never another."""
        return cls(output.with_name(f"{output.name}.{fingerprint[:16]}.checkpoint"), fingerprint)

    def save(self, progress: RunProgress) -> None:
        """Write a run, whole or not at all; only its owner may read it."""
        leaves = jax.tree.leaves((progress.state, progress.history))
        arrays = {f"leaf_{i}": np.asarray(leaf) for i, leaf in enumerate(leaves)}
        run = np.asarray([self.fingerprint, str(progress.rounds), str(progress.seed)])
        with whole_file(self.path, mode=OWNER_ONLY) as temporary, temporary.open("wb") as file:
            np.savez(file, run=run, **arrays)  # type: ignore[arg-type]

    def load(self, like: RunProgress) -> RunProgress | None:
        """Return the run that was saved, or None where there is none of this very run.

        Args:
            like: of the same structure.
        """
        leaves, tree = jax.tree.flatten((like.state, like.history))
        n_state = len(jax.tree.leaves(like.state))
        try:
            with open_file(self.path) as raw, np.load(raw, allow_pickle=False) as file:
                fingerprint, *numbers = map(str, file["run"])
                saved = [file[f"leaf_{i}"] for i in range(len(leaves))]
            rounds, seed = map(int, numbers)
        except (OSError, EOFError, ValueError, KeyError, zipfile.BadZipFile):
            return None
        # Another version, or precision, has other arrays; of the history the first axis is rounds.
        shapes = [leaf.shape[i >= n_state :] for i, leaf in enumerate(leaves)]
        fits = shapes == [leaf.shape[i >= n_state :] for i, leaf in enumerate(saved)]
        fits &= [leaf.dtype for leaf in leaves] == [leaf.dtype for leaf in saved]
        if fingerprint != self.fingerprint or not fits:
            return None
        state, history = jax.tree.unflatten(tree, saved)
        return RunProgress(rounds, jax.tree.map(jnp.asarray, state), history, seed)


# The rounds


def run(
    algorithm: Algorithm,
    users: Users,
    cohorts: Cohorts,
    *,
    rounds: int,
    seed: int,
    protection: Protection = UNPROTECTED,
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
    # By shares, reports are clipped and noise is added where the shares are made.
    local = UNPROTECTED if protection.vectors else protection
    fixed = _Run(algorithm, users, local, key_from(seed, 1), key_from(seed, 2))
    at_once = cohorts.room
    if protection.clip is not None or not algorithm.additive:
        numbers = report_size(algorithm, users)[0]
        at_once = max(1, min(at_once, ENTRIES_AT_ONCE // max(numbers, 1)))

    def total_of(state: ServerState, t: int) -> tuple[np.ndarray | jax.Array | int, float]:
        """Return the sum of the reports of the users drawn, some users at a time."""
        blocks, size = cohorts.blocks(seed, t, at_once), float(cohorts.size)
        if protection.vectors is None:
            return sum(_sum_of_reports(fixed, state, block, t) for block in blocks), size
        reports = chain.from_iterable(
            np.asarray(_reports(fixed, state, block, t), np.float64)[block[1]] for block in blocks
        )
        return shared_total(protection.vectors, reports, seed=protection.seed, t=t), size

    for t in range(progress.rounds, rounds):
        total, size = (totals or total_of)(progress.state, t)
        state, record = _update(fixed, progress.state, total, size, t)
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
    """Return the reports [b, k] of some users in round t; each draws by a key of its own."""
    key = jax.random.fold_in(run.user_key, t)
    keys = jax.vmap(partial(jax.random.fold_in, key))(block[0])
    rows = run.users.take(*map(jnp.asarray, block))
    reports = jax.vmap(run.algorithm.report, in_axes=(None, 0, 0))(state, rows, keys)
    return jax.vmap(lambda report: ravel_pytree(report)[0])(reports)


@jax.jit
def _sum_of_reports(run: _Run, state: ServerState, block: Block, t: int) -> jax.Array:
    """Return the sum [k] of clipped reports; unclipped ones may be computed as one user's."""
    if run.algorithm.additive and run.protection.clip is None:
        rows = run.users.take(*map(jnp.asarray, block))
        rows = type(rows)(*(leaf.reshape(-1, *leaf.shape[2:]) for leaf in rows))
        report = run.algorithm.report(state, rows, jax.random.fold_in(run.user_key, t))
        return ravel_pytree(report)[0]
    reports = _reports(run, state, block, t)
    clipped = jax.vmap(clip_report, in_axes=(0, None))(reports, run.protection.clip)
    # The numbers of users who are not there may be none.
    return jnp.sum(jnp.where(block[1][:, None], clipped, 0.0), axis=0)


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


@jax.jit
def report_of(
    algorithm: Algorithm, clip: float | None, state: ServerState, users: Users, key: jax.Array
) -> UserReport:
    """Return the clipped report of the first user, as one who is somewhere else sends it."""
    return clip_report(algorithm.report(state, users.rows_of(0), key), clip)


def report_shapes(algorithm: Algorithm, users: Users, state: ServerState | None = None) -> Any:
    """Return the shapes and types of what one user sends in a round."""
    key = jax.random.key(0)
    state = jax.eval_shape(algorithm.init, key) if state is None else state
    return report_of.eval_shape(algorithm, None, state, users, key)


def report_size(algorithm: Algorithm, users: Users) -> tuple[int, int]:
    """Count the numbers that one user sends in a round, and their bytes."""
    leaves = jax.tree.leaves(report_shapes(algorithm, users))
    nbytes = sum(leaf.size * leaf.dtype.itemsize for leaf in leaves)
    return sum(leaf.size for leaf in leaves), nbytes

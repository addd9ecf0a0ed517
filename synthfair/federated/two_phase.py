"""Two phases: a fair teacher on each user's rows, and a private student of its decisions.

Padala, Damle and Gujar (2021), figure 2. Phase 1 stays on the user's side and happens once; in
phase 2 the students are averaged in rounds. The teacher is either as published,
:class:`synthfair.federated.fair_sgd.FairSgd`, which no guarantee covers, or
:class:`synthfair.federated.private_fair_sgd.PrivateFairSgd`, with which one holds end to end::

    method = make_two_phase(model, parity, users)
    labelled = method.teach(users, seed)
    done = run(method.student, labelled, Cohorts.everyone(len(users)), rounds=4, seed=seed)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import jax
import jax.numpy as jnp
import numpy as np

from synthfair.federated.dp_sgd import DpSgd
from synthfair.federated.engine import key_from
from synthfair.federated.fair_sgd import FairSgd
from synthfair.federated.networks import Trainable
from synthfair.federated.parity import Parity
from synthfair.federated.private_fair_sgd import PrivateFairSgd
from synthfair.federated.users import Users
from synthfair.privacy.sampled import SampledSums, common_noise

TEACHER_NOT_COVERED = (
    "Conditional on the phase-1 teacher, which was trained on the same rows without noise: not an"
    " end-to-end guarantee. One row can change every label that phase 2 learns, and no noise hides"
    " that."
)
"""What the published method's guarantee leaves open."""


@dataclass(frozen=True)
class TwoPhase:
    """The student, an algorithm in rounds, of users whose labels :meth:`teach` has replaced.

    Guarantee: :meth:`sums` with the student's noise, for what each user sends in all rounds
    together; without a private teacher conditional on it, :data:`TEACHER_NOT_COVERED`. Unit: one
    row of one user. Neighbouring relation: add or remove one row. The seed must come from the
    operating system's entropy, and stay secret, where this is claimed.

    Args:
        teacher: phase 1, trained by each user for itself.
        student: phase 2.
    """

    teacher: FairSgd | PrivateFairSgd
    student: DpSgd

    @property
    def end_to_end(self) -> bool:
        """Whether the teacher is private, too."""
        return isinstance(self.teacher, PrivateFairSgd)

    def sums(self, users: Users, rounds: int) -> tuple[SampledSums, ...]:
        """What is released of the rows, phase by phase; of the smallest user.

        Their common epsilon is that of :meth:`synthfair.privacy.sampled.Composition.of`.
        """
        student = self.student.sums(users, rounds)
        if isinstance(self.teacher, PrivateFairSgd):
            return (self.teacher.sums(users), student)
        return (student,)

    def with_noise(self, noise: float) -> TwoPhase:
        """With another noise, of all that is private."""
        student = replace(self.student, noise=noise)
        if isinstance(self.teacher, PrivateFairSgd):
            return TwoPhase(replace(self.teacher, noise=noise), student)
        return TwoPhase(self.teacher, student)

    def for_budget(self, users: Users, rounds: int, *, epsilon: float, delta: float) -> TwoPhase:
        """With the least noise for which (epsilon, delta) holds.

        Raises:
            InputError: no reasonable noise does.
        """
        return self.with_noise(common_noise(self.sums(users, rounds), epsilon, delta))

    def teach(self, users: Users, seed: int, numbers: Sequence[int] | None = None) -> Users:
        """Phase 1: the users, with their teachers' decisions for labels.

        Args:
            users: with their own labels.
            seed: of first params, batches and noise, as for :func:`synthfair.federated.engine.run`.
            numbers: [K] of the users among all, by which their draws differ; 0 to K - 1 if not
                given. A site that is user 3 by itself draws as user 3 among the others does.
        """
        which = jnp.asarray(range(len(users)) if numbers is None else numbers)
        decided = np.asarray(_decisions(self.teacher, users, which, key_from(seed, 4)))
        owner = np.repeat(np.arange(len(users)), users.size)
        place = np.arange(len(owner)) - np.asarray(users.first)[owner]
        return replace(users, y=jnp.asarray(decided[owner, place], users.y.dtype))


@jax.jit
def _decisions(
    teacher: FairSgd | PrivateFairSgd, users: Users, numbers: jax.Array, key: jax.Array
) -> jax.Array:
    """[K, R] -1 or +1, one user after the other."""

    def of_user(which: tuple[jax.Array, jax.Array]) -> jax.Array:
        user, number = which
        rows = users.rows_of(user)
        first, training = jax.random.split(jax.random.fold_in(key, number))
        trained = teacher.train(teacher.init(first), rows, training)
        return jnp.where(teacher.model.scores(trained.params, rows.a) > 0, 1.0, -1.0)

    return jax.lax.map(of_user, (jnp.arange(len(users)), numbers))


def make_two_phase(
    model: Trainable,
    parity: Parity,
    users: Users,
    *,
    end_to_end: bool = False,
    noise: float = 1.3,
    clip: float = 1.5,
    learning_rate: float = 0.25,
    batch: int = 500,
    local_epochs: float = 5,
    teacher_epochs: float = 10,
    teacher_rate: float | None = None,
    slack: float = 0.01,
    kappa: float = 1.0,
    kappa_rate: float = 0.1,
) -> TwoPhase:
    """The method with the authors' settings, and passes over the rows turned into steps.

    Args:
        model: of one score; teachers and students have it in common.
        parity: the notion, of one attribute: statistical parity or equalized odds.
        users: of whose sizes the numbers of steps follow.
        end_to_end: whether the teachers are private, too.
        noise: standard deviation, in units of the sensitivity, in phase 2 and, end to end, 1.
        clip: Euclidean norm that no row's gradient exceeds.
        learning_rate: of phase 2.
        batch: rows in a batch.
        local_epochs: passes over the smallest user's rows in a round.
        teacher_epochs: passes over them in phase 1; the paper's number is lost.
        teacher_rate: of phase 1; if not given 0.01, of Adam, or end to end 2, of plain steps.
        slack: gap that costs nothing.
        kappa: the multiplier's first value; the paper's is lost.
        kappa_rate: its step; the paper's is lost.

    Raises:
        InputError: a value out of range.

    Example:
        >>> import numpy as np
        >>> import synthfair as sf
        >>> a, s, y = np.ones((40, 2)), np.arange(40) % 2, np.ones(40)
        >>> users = sf.federated.make_users(a, s, y, user=np.arange(40) // 20)
        >>> model = sf.federated.LogisticRegression(2)
        >>> parity = sf.federated.Parity("statistical_parity")
        >>> method = sf.federated.make_two_phase(model, parity, users, batch=5, end_to_end=True)
        >>> [sums.times for sums in method.sums(users, rounds=4)]  # the teacher's, the student's
        [40, 80]
    """
    lagrange = {
        "slack": slack,
        "learning_rate": teacher_rate or (2.0 if end_to_end else 0.01),
        "kappa": kappa,
        "kappa_rate": kappa_rate,
        "batch": batch,
        "local_steps": users.steps(batch=batch, epochs=teacher_epochs),
    }
    teacher = (
        PrivateFairSgd(model, parity, clip=clip, noise=noise, **lagrange)
        if end_to_end
        else FairSgd(model, parity, **lagrange)
    )
    steps = users.steps(batch=batch, epochs=local_epochs)
    return TwoPhase(teacher, DpSgd(model, learning_rate, clip, noise, batch, steps))

"""The methods that train in rounds, one table for ``train`` and ``compare``."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from synthfair.config import TrainConfig
from synthfair.errors import InputError
from synthfair.federated.algorithm import Algorithm, RoundRecord
from synthfair.federated.cohorts import Cohorts
from synthfair.federated.dp_sgd import DpSgd
from synthfair.federated.engine import CHUNK, UNPROTECTED, Protection, report_length
from synthfair.federated.fair_sgd import FairSgd
from synthfair.federated.fedavg import FedAvg
from synthfair.federated.fpfl import Fpfl
from synthfair.federated.networks import LogisticRegression, Network, Perceptron, Trainable
from synthfair.federated.parity import Parity
from synthfair.federated.private_fair_sgd import SENSITIVITY
from synthfair.federated.secure_sums import SecureSums, make_secure_sums
from synthfair.federated.two_phase import TEACHER_NOT_COVERED, make_two_phase
from synthfair.federated.user_data import UserData
from synthfair.federated.users import Users
from synthfair.postprocess.histogram import SURE
from synthfair.privacy.rounds import (
    Summed,
    TrainingGuarantee,
    guarantee_for_rows,
    guarantee_for_shares,
    guarantee_for_users,
    noise_for_shares,
)
from synthfair.privacy.sampled import SampledSums

BATCH = 500
"""Rows of a batch, where the settings name no number."""


class TrainingPlan(NamedTuple):
    """How a training is done.

    Attributes:
        algorithm: what the server and the users do.
        cohorts: which users take part.
        protection: of what users send; sums by shares, if so.
        guarantee: of privacy, if the settings ask for one.
        chunk: rounds between two looks at the progress; few where a round takes long.
        prepare: what happens once, on the users' side, before the rounds: of users, the seed and
            their numbers among all users, the same users with the labels that they learn.
    """

    algorithm: Algorithm
    cohorts: Cohorts
    protection: Protection | SecureSums = UNPROTECTED
    guarantee: TrainingGuarantee | None = None
    chunk: int = CHUNK
    prepare: Callable[[Users, int, Sequence[int]], Users] | None = None

    @property
    def secure(self) -> SecureSums | None:
        """How reports are summed by shares; None where whoever sums sees them."""
        return self.protection if isinstance(self.protection, SecureSums) else None


class RoundMethod(NamedTuple):
    """A line of the table.

    Attributes:
        plan: how it trains on some users with some settings.
        progress: how the last round went, in a few words.
        converged: whether a whole history ended well; None where there is no test.
        unconstrained: settings with which it trains without a constraint.
    """

    plan: Callable[[UserData, TrainConfig], TrainingPlan]
    progress: Callable[[RoundRecord], str]
    converged: Callable[[TrainingPlan, RoundRecord], bool | None]
    unconstrained: Mapping[str, str | float]


def make_plan(data: UserData, config: TrainConfig) -> TrainingPlan:
    """How the method of the settings trains on these users.

    Raises:
        InputError: the cohort is larger than the population, or no noise is enough.
    """
    return METHODS[config.method].plan(data, config)


# Users in cohorts, who are protected with all their rows


def _plan_fedavg(data: UserData, config: TrainConfig) -> TrainingPlan:
    algorithm = FedAvg(
        trainable(data, config),
        learning_rate=config.learning_rate,
        local_steps=config.local_steps,
        momentum=config.momentum,
        by_rows=config.clip is None,
        row_weights=data.row_weights,
    )
    return _in_cohorts(algorithm, data, config)


def _plan_fpfl(data: UserData, config: TrainConfig) -> TrainingPlan:
    algorithm = Fpfl(
        trainable(data, config),
        Parity(config.notion, data.groups) if config.constrained else None,
        alpha=config.alpha,
        learning_rate=config.learning_rate,
        multiplier_rate=config.multiplier_rate,
        damping=config.damping,
        memory=config.memory,
        count_scale=config.count_scale,
        rate_scale=config.rate_scale,
    )
    plan = _in_cohorts(algorithm, data, config)
    # Standard deviation, in rows, of a group's noisy count in the recent cohorts:
    noise = float(plan.protection.noise) / config.rate_scale * (1 / (1 - config.memory**2)) ** 0.5
    return plan._replace(algorithm=replace(algorithm, least_count=max(1.0, SURE * noise)))


def _in_cohorts(algorithm: Algorithm, data: UserData, config: TrainConfig) -> TrainingPlan:
    """With clipping and noise as the settings ask for."""
    n = len(data.users)
    cohorts = Cohorts(n, n if config.cohort is None else config.cohort, config.sampling)
    if config.clip is None:
        return TrainingPlan(algorithm, cohorts)
    if config.secure:
        return _by_shares(algorithm, data, config, cohorts)
    if config.epsilon is None or config.delta is None:
        return TrainingPlan(algorithm, cohorts, Protection(config.clip))
    _require_small(config.delta, n, "users")
    guarantee = guarantee_for_users(
        SampledSums(n, cohorts.size, config.rounds, config.sampling),
        epsilon=config.epsilon,
        delta=config.delta,
        clip=config.clip,
    )
    protection = Protection(config.clip, guarantee.mechanisms[0].noise)
    return TrainingPlan(algorithm, cohorts, protection, guarantee)


def _by_shares(
    algorithm: Algorithm, data: UserData, config: TrainConfig, cohorts: Cohorts
) -> TrainingPlan:
    """The same with sums that nobody sees the parts of."""
    n, clip = cohorts.population, config.clip or float("inf")
    length = report_length(algorithm, data.users)
    sums = SampledSums(n, cohorts.size, config.rounds, config.sampling)
    if config.epsilon is None or config.delta is None:
        secure = make_secure_sums(length, clip=clip, relation=sums.relation, multiplier=None)
        return TrainingPlan(algorithm, cohorts, secure)
    _require_small(config.delta, n, "users")
    secure = make_secure_sums(
        length,
        clip=clip,
        relation=sums.relation,
        multiplier=noise_for_shares(sums, config.epsilon, config.delta),
    )
    guarantee = guarantee_for_shares(
        sums,
        secure.shares,
        epsilon=config.epsilon,
        delta=config.delta,
        clip=clip,
        noise=secure.noise_of_one,
    )
    return TrainingPlan(algorithm, cohorts, secure, guarantee)


# Clients who all take part in every round, and protect their rows on their side


def _plan_dp_sgd(data: UserData, config: TrainConfig) -> TrainingPlan:
    users, clip, guarantee = data.users, config.clip or float("inf"), None
    batch = _batch(config, users)
    algorithm = DpSgd(
        trainable(data, config),
        learning_rate=config.learning_rate,
        clip=clip,
        noise=0.0,
        batch=batch,
        local_steps=users.steps(batch=batch, epochs=config.local_epochs),
        row_weights=data.row_weights,
    )
    if config.epsilon is not None and config.delta is not None:
        _require_small(config.delta, users.smallest, "the smallest client's rows")
        guarantee = guarantee_for_rows(
            {"gradients": (algorithm.sums(users, config.rounds), clip)},
            epsilon=config.epsilon,
            delta=config.delta,
            condition=None,
        )
        algorithm = replace(algorithm, noise=guarantee.mechanisms[0].noise / clip)
        if config.counts_epsilon is not None and config.reads("counts_epsilon"):
            guarantee = guarantee.with_counts(config.counts_epsilon)
    return TrainingPlan(algorithm, Cohorts.everyone(len(users)), guarantee=guarantee, chunk=1)


def _plan_fair_sgd(data: UserData, config: TrainConfig) -> TrainingPlan:
    batch = config.batch or BATCH  # drawn with replacement, so that no client has too few
    algorithm = FairSgd(
        trainable(data, config),
        Parity(config.notion, data.groups),
        slack=config.alpha,
        learning_rate=config.learning_rate,
        kappa=config.kappa,
        kappa_rate=config.kappa_rate,
        batch=batch,
        local_steps=data.users.steps(batch=batch, epochs=config.local_epochs),
    )
    return TrainingPlan(algorithm, Cohorts.everyone(len(data.users)), chunk=1)


def _plan_two_phase(data: UserData, config: TrainConfig) -> TrainingPlan:
    users, clip, guarantee = data.users, config.clip or float("inf"), None
    batch = _batch(config, users)
    method = make_two_phase(
        trainable(data, config),
        Parity(config.notion, data.groups),
        users,
        end_to_end=config.end_to_end,
        noise=0.0,
        clip=clip,
        learning_rate=config.learning_rate,
        batch=batch,
        local_epochs=config.local_epochs,
        teacher_epochs=config.teacher_epochs,
        slack=config.alpha,
        kappa=config.kappa,
        kappa_rate=config.kappa_rate,
    )
    if config.epsilon is not None and config.delta is not None:
        _require_small(config.delta, users.smallest, "the smallest client's rows")
        *teacher, student = method.sums(users, config.rounds)
        kinds: dict[Summed, tuple[SampledSums, float]] = {}
        if teacher:
            kinds["teacher's gradients"] = (teacher[0], clip * SENSITIVITY)
        kinds["student's gradients"] = (student, clip)
        guarantee = guarantee_for_rows(
            kinds,
            epsilon=config.epsilon,
            delta=config.delta,
            condition=None if method.end_to_end else TEACHER_NOT_COVERED,
        )
        method = method.with_noise(guarantee.mechanisms[-1].noise / clip)
    return TrainingPlan(
        method.student,
        Cohorts.everyone(len(users)),
        guarantee=guarantee,
        chunk=1,
        prepare=method.teach,
    )


def trainable(data: UserData, config: TrainConfig) -> Trainable:
    """A linear model, or a network."""
    n_inputs = data.users.a.shape[1]
    if config.hidden:
        return Network(Perceptron(n_inputs, config.hidden))
    return LogisticRegression(n_inputs)


def _batch(config: TrainConfig, users: Users) -> int:
    """Rows of a batch; a sum over fewer, divided by the batch, would be too short."""
    if config.batch is None:
        return min(BATCH, users.smallest)
    if config.batch > users.smallest:
        raise InputError(
            f"batch = {config.batch}: must be 1 to {users.smallest}, the smallest client's rows"
            " (--batch)"
        )
    return config.batch


def _require_small(delta: float, number: int, of_what: str) -> None:
    """With a larger one, publishing somebody drawn at random would be private."""
    if delta * number >= 1:
        raise InputError(
            f"delta = {delta:g}: must be below 1 / {number}, the number of {of_what}; better far"
            " below"
        )


# The table


def _quality(history: RoundRecord) -> str:
    quality = float(history.quality[-1])
    if quality <= -1:
        return "too few rows of a group"
    return f"accuracy {quality:.3f}" if quality >= 0 else f"violation {-quality:.3f}"


def _drift(history: RoundRecord) -> str:
    return f"drift {history.drift[-1]:.1e}"


def _moved(history: RoundRecord) -> str:
    return f"moved by {history.moved[-1]:.2f}"


def _untested(plan: TrainingPlan, history: RoundRecord) -> None:  # noqa: ARG001
    return None


def _settled(plan: TrainingPlan, history: RoundRecord) -> bool | None:
    """Of FedAvg, which settles with all users and without noise."""
    everyone = plan.cohorts.size == plan.cohorts.population
    return history.settled if everyone and plan.protection.noise == 0 else None


def _met(plan: TrainingPlan, history: RoundRecord) -> bool:  # noqa: ARG001
    """Whether some params met the constraint on what the server saw of their cohorts."""
    return bool(history.quality.max() >= 0)


_NO_FORCE = {"multiplier_rate": 0.0, "damping": 0.0}
_NO_WEIGHT = {"kappa": 0.0, "kappa_rate": 0.0}

METHODS: dict[str, RoundMethod] = {
    "fedavg": RoundMethod(_plan_fedavg, _drift, _settled, {}),
    "fedsgd": RoundMethod(_plan_fpfl, _quality, _untested, {}),
    "fpfl": RoundMethod(_plan_fpfl, _quality, _met, {"method": "fedsgd"}),
    "mmdm": RoundMethod(_plan_fpfl, _quality, _met, _NO_FORCE),
    "dp_sgd": RoundMethod(_plan_dp_sgd, _moved, _untested, {}),
    "fair_sgd": RoundMethod(_plan_fair_sgd, _moved, _untested, _NO_WEIGHT),
    "two_phase": RoundMethod(_plan_two_phase, _moved, _untested, _NO_WEIGHT),
    "privfairfl_pre": RoundMethod(_plan_dp_sgd, _moved, _untested, {}),
    "privfairfl_post": RoundMethod(_plan_dp_sgd, _moved, _untested, {"method": "dp_sgd"}),
}
"""By the names of :data:`synthfair.config.train.TrainMethod`."""

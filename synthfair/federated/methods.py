"""What settings mean for a population: the method, its cohorts, and what it promises."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from synthfair.config import TrainConfig
from synthfair.errors import InputError
from synthfair.federated.algorithm import Algorithm
from synthfair.federated.averaging import steps_of
from synthfair.federated.cohorts import Cohorts
from synthfair.federated.engine import CHUNK
from synthfair.federated.fair_sgd import FairSgd
from synthfair.federated.fedavg import FedAvg
from synthfair.federated.fpfl import Fpfl
from synthfair.federated.networks import Linear, Network, Perceptron, Trainable
from synthfair.federated.parity import Parity
from synthfair.federated.population import Population
from synthfair.federated.private_fair_sgd import SENSITIVITY
from synthfair.federated.private_sum import UNPROTECTED, Protection
from synthfair.federated.two_phase import TEACHER_NOT_COVERED, TwoPhase, two_phase
from synthfair.privacy.rounds import Summed, TrainingGuarantee, promise_rounds, promise_rows
from synthfair.privacy.sampled import SampledSums

SURE = 3.0
"""Standard deviations of noise that a count must have, so that a rate is made of it."""


class Plan(NamedTuple):
    """How a training is done.

    Attributes:
        algorithm: what the server and the users do.
        cohorts: which users take part.
        protection: of what users send.
        guarantee: of privacy, if the settings ask for one.
        chunk: rounds between two looks at the progress; few where a round takes long.
    """

    algorithm: Algorithm
    cohorts: Cohorts
    protection: Protection = UNPROTECTED
    guarantee: TrainingGuarantee | None = None
    chunk: int = CHUNK


def make_plan(population: Population, config: TrainConfig) -> Plan:
    """Of the settings.

    Raises:
        InputError: the cohort is larger than the population, or no noise is enough.
    """
    if config.averaged:
        plan = _two_phase_plan if config.method == "two_phase" else _fair_sgd_plan
        return plan(population, config)
    users = len(population.users)
    cohorts = Cohorts(users, users if config.cohort is None else config.cohort, config.sampling)
    algorithm = _algorithm(config, population)
    if config.clip is None:
        return Plan(algorithm, cohorts)
    if config.epsilon is None or config.delta is None:
        return Plan(algorithm, cohorts, Protection(config.clip))
    _require_small(config.delta, users, "users")
    sums = SampledSums(users, cohorts.size, config.rounds, config.sampling)
    promise = promise_rounds(sums, epsilon=config.epsilon, delta=config.delta, clip=config.clip)
    noise = promise.mechanisms[0].noise
    if isinstance(algorithm, Fpfl):
        algorithm = replace(
            algorithm, least_count=max(1.0, SURE * _noise_of_counts(algorithm, noise))
        )
    return Plan(algorithm, cohorts, Protection(config.clip, noise), promise)


def _noise_of_counts(algorithm: Fpfl, noise: float) -> float:
    """Standard deviation, in rows, of what noise adds to a group's count in the recent cohorts."""
    rounds = 1 / (1 - algorithm.memory**2)
    return noise / algorithm.rate_scale * rounds**0.5


def _require_small(delta: float, number: int, of_what: str) -> None:
    """With a larger one, publishing somebody drawn at random would be private."""
    if delta * number >= 1:
        raise InputError(
            f"delta = {delta:g}: must be below 1 / {number}, the number of {of_what}; better far"
            " below"
        )


def make_model(config: TrainConfig, n_inputs: int) -> Trainable:
    """A linear model, or a network."""
    return Network(Perceptron(n_inputs, config.hidden)) if config.hidden else Linear(n_inputs)


def _algorithm(config: TrainConfig, population: Population) -> FedAvg | Fpfl:
    model = make_model(config, population.users.a.shape[1])
    if config.method == "fedavg":
        return FedAvg(
            model,
            learning_rate=config.learning_rate,
            local_steps=config.local_steps,
            momentum=config.momentum,
            by_rows=config.clip is None,
        )
    return Fpfl(
        model,
        Parity(config.notion, population.groups) if config.constrained else None,
        alpha=config.alpha,
        learning_rate=config.learning_rate,
        multiplier_rate=config.multiplier_rate,
        damping=config.damping,
        memory=config.memory,
        count_scale=config.count_scale,
        rate_scale=config.rate_scale,
    )


def _fair_sgd_plan(population: Population, config: TrainConfig) -> Plan:
    """All users take part in every round, and nothing is private."""
    users = population.users
    method = FairSgd(
        make_model(config, users.a.shape[1]),
        Parity(config.notion, population.groups),
        slack=config.alpha,
        learning_rate=config.learning_rate,
        kappa=config.kappa,
        kappa_rate=config.kappa_rate,
        batch=config.batch,
        local_steps=steps_of(users, batch=config.batch, epochs=config.local_epochs),
    )
    return Plan(method, Cohorts(len(users), len(users)), chunk=1)


def _two_phase_plan(population: Population, config: TrainConfig) -> Plan:
    """All users take part in every round; noise is added on their side."""
    users, clip = population.users, config.clip or float("inf")
    _require_batch(config.batch, int(users.size.min()))
    method = two_phase(
        make_model(config, users.a.shape[1]),
        Parity(config.notion, population.groups),
        users,
        end_to_end=config.end_to_end,
        noise=0.0,
        clip=clip,
        learning_rate=config.learning_rate,
        batch=config.batch,
        local_epochs=config.local_epochs,
        teacher_epochs=config.teacher_epochs,
        slack=config.alpha,
        kappa=config.kappa,
        kappa_rate=config.kappa_rate,
    )
    plan = Plan(method, Cohorts(len(users), len(users)), chunk=1)
    if config.epsilon is None or config.delta is None:
        return plan
    _require_small(config.delta, int(users.size.min()), "the smallest client's rows")
    promise = _promise_two_phase(method, population, config, epsilon=config.epsilon)
    noise = promise.mechanisms[-1].noise / clip
    return plan._replace(algorithm=method.with_noise(noise), guarantee=promise)


def _require_batch(batch: int, smallest: int) -> None:
    """A sum over fewer rows than expected, divided by the number expected, is too short a step."""
    if batch > smallest:
        raise InputError(f"batch = {batch}: must be 1 to {smallest}, the smallest client's rows")


def _promise_two_phase(
    method: TwoPhase, population: Population, config: TrainConfig, *, epsilon: float
) -> TrainingGuarantee:
    """Names the sums of each phase, with the norm that a row's part of them has at most."""
    clip = config.clip or 0.0
    *teacher, student = method.sums(population.users, config.rounds)
    kinds: dict[Summed, tuple[SampledSums, float]] = {"student's gradients": (student, clip)}
    if teacher:
        kinds = {"teacher's gradients": (teacher[0], clip * SENSITIVITY), **kinds}
    return promise_rows(
        kinds,
        epsilon=epsilon,
        delta=config.delta or 0.0,
        condition=None if method.end_to_end else TEACHER_NOT_COVERED,
    )

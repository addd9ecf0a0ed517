"""How a budget is spent: which sums are released, how often, and with how much noise."""

from __future__ import annotations

from typing import NamedTuple

from synthfair.config import DistillConfig
from synthfair.data.schema import Schema
from synthfair.privacy.accounting import accountant, mu_for
from synthfair.privacy.bounds import feature_ball, input_ball, with_one
from synthfair.privacy.mechanism import sensitivity
from synthfair.privacy.statement import Guarantee, Mechanism, Sum


class Parts(NamedTuple):
    """Shares of mu^2 that each sum gets; together 1."""

    moments: float
    curvature: float
    gradients: float
    rates: float = 0.0


PARTS = Parts(moments=0.2, curvature=0.1, gradients=0.7)
"""Chosen, like the number of steps, by F on training rows; see benchmarks/privacy."""

PARTS_WITH_RATES = Parts(moments=0.1, curvature=0.1, gradients=0.4, rates=0.4)
"""The same where the penalty must be told the groups' smooth selection rates in every step."""

STEPWISE = ("gradients", "rates")
"""What is released in every step, not once."""


class Query(NamedTuple):
    """A sum over rows.

    Attributes:
        bound: norm to which the term of each row is clipped.
        mechanism: by which the sum is released.
    """

    bound: float
    mechanism: Mechanism


class Plan(NamedTuple):
    """What is released; made without a look at the rows.

    Attributes:
        moments: sums of (x, 1) by group and label.
        curvature: sum of b b' over the model's inputs b.
        gradients: sum of the losses' gradients, in each step.
        rates: smooth selection rates by group and label with their gradients, in each step; None
            where the penalty does not need them.
    """

    moments: Query
    curvature: Query
    gradients: Query
    rates: Query | None

    @property
    def mechanisms(self) -> tuple[Mechanism, ...]:
        """All there are."""
        return tuple(query.mechanism for query in self if query)


def make_plan(
    config: DistillConfig,
    schema: Schema,
    *,
    parts: Parts | None = None,
) -> Plan:
    """Spends config.epsilon and config.delta, which must be given.

    Args:
        config: settings.
        schema: public; its bounds are all that sensitivities rely on.
        parts: how the budget is shared; chosen by the penalty if not given.
    """
    bounds = term_bounds(config, schema)
    parts = parts or (PARTS_WITH_RATES if "rates" in bounds else PARTS)
    mu = mu_for(*budget(config))
    queries = {
        name: _query(name, bound, mu * getattr(parts, name) ** 0.5, config)
        for name, bound in bounds.items()
    }
    return Plan(
        queries["moments"], queries["curvature"], queries["gradients"], queries.get("rates")
    )


def term_bounds(config: DistillConfig, schema: Schema) -> dict[Sum, float]:
    """Norm to which the term of each row is clipped, for each sum that the settings need."""
    features, inputs = (with_one(ball(schema).radius) for ball in (feature_ball, input_ball))
    bounds: dict[Sum, float] = {
        "moments": features,
        "curvature": inputs**2,
        "gradients": config.clip * inputs,
    }
    if config.penalty == "selection_rate":
        bounds["rates"] = rate_bound(config.temperature, features)
    return bounds


def _uses(name: Sum, config: DistillConfig) -> int:
    return config.private_steps if name in STEPWISE else 1


def _query(name: Sum, bound: float, mu: float, config: DistillConfig) -> Query:
    """The sum of that name, so noisy that all its releases together are mu-GDP."""
    times, change = _uses(name, config), sensitivity(bound, config.relation)
    noise = change * times**0.5 / mu
    return Query(bound, Mechanism(name=name, sensitivity=change, noise=noise, times=times))


def rate_bound(temperature: float, row_bound: float) -> float:
    """Norm of (sigma(tau z), d sigma(tau z)/dz (x, 1)), at most: sigma <= 1, its slope <= tau/4."""
    return float((1.0 + (temperature / 4 * row_bound) ** 2) ** 0.5)


def guarantee(config: DistillConfig, plan: Plan) -> Guarantee:
    """What a release made by this plan may claim."""
    epsilon, delta = budget(config)
    return Guarantee(
        epsilon=epsilon,
        delta=delta,
        relation=config.relation,
        mechanisms=plan.mechanisms,
        accountant=accountant(),
    )


def require_true(said: Guarantee, config: DistillConfig, schema: Schema) -> None:
    """Refuses a guarantee whose mechanisms are not those that settings and schema imply.

    The noise is not compared: that it is enough for epsilon the guarantee has checked itself.

    Raises:
        ValueError: a mechanism is missing or unknown, has another sensitivity, or another number of
            uses.
    """
    expected = term_bounds(config, schema)
    names = [mechanism.name for mechanism in said.mechanisms]
    if sorted(names) != sorted(expected):
        raise ValueError(f"mechanisms are {names}; must be {list(expected)}, each once")
    for found in said.mechanisms:
        right = sensitivity(expected[found.name], config.relation)
        times = _uses(found.name, config)
        if abs(found.sensitivity / right - 1) > 1e-9 or found.times != times:
            raise ValueError(
                f"mechanism {found.name}: sensitivity {found.sensitivity:g}, used {found.times}"
                f" times; must be {right:g}, {times} times"
            )


def budget(config: DistillConfig) -> tuple[float, float]:
    """Epsilon and delta.

    Raises:
        ValueError: they are not given.
    """
    if config.epsilon is None or config.delta is None:
        raise ValueError("a private release needs epsilon and delta")
    return config.epsilon, config.delta

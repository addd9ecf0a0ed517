"""The private part of a client's routine: real rows are measured once, with noise."""

from __future__ import annotations

import json

from synthfair.config import DistillConfig
from synthfair.data.encode import Encoded
from synthfair.data.schema import Schema
from synthfair.distill.problem import make_penalty
from synthfair.errors import InputError
from synthfair.fairness.penalties import Penalty
from synthfair.model import LinearModel, Model
from synthfair.privacy.fit import (
    MARGINS,
    Penalties,
    PrivateFit,
    largest_curvature,
    private_fit,
)
from synthfair.privacy.noise import RandomBytes, system_entropy
from synthfair.privacy.queries import PrivateQueries
from synthfair.privacy.statement import Guarantee, make_guarantee
from synthfair.release.format import name_of

MEASURED = (
    "epsilon", "delta", "relation", "private_steps", "clip", "penalty", "notion", "temperature",
    "rho_o", "lambda_theta", "intercept",
)  # fmt: skip
"""Settings that :func:`measure` reads."""

MOST_CURVED = 1000.0
"""Second derivative of a loss that private steps can handle."""


def measure(
    real: Encoded,
    schema: Schema,
    config: DistillConfig,
    *,
    model: Model | None = None,
    penalty: Penalty | None = None,
    noise: RandomBytes = system_entropy,
) -> PrivateFit:
    """Reads the real rows, each time with noise, until the budget is spent.

    Nothing that is made of them later may enter a release but what this returns.

    Guarantee: (config.epsilon, config.delta)-differential privacy. Unit: one row. Neighbouring
    relation: config.relation.

    Args:
        real: the real rows.
        schema: theirs, public.
        config: with epsilon and delta.
        model: a linear model, with any convex loss of the margin.
        penalty: one of those that come with synthfair; that of the settings if not given.
        noise: where its bytes come from; other than the system's, it protects nothing.

    Raises:
        InputError: another kind of model or penalty, whose sensitivity is not known.
    """
    model, known = require_known(model, penalty, config, schema)
    guarantee = make_guarantee(config, schema)
    queries = PrivateQueries(
        real, schema, guarantee, intercept=config.intercept, loss=model.margin_loss, source=noise
    )
    return private_fit(
        queries,
        guarantee,
        known,
        rho_o=config.rho_o,
        lambda_theta=config.lambda_theta,
        curvature=largest_curvature(model.margin_loss),
    )


def guaranteed(
    config: DistillConfig,
    schema: Schema,
    *,
    model: Model | None = None,
    penalty: Penalty | None = None,
) -> Guarantee:
    """The guarantee that :func:`measure` gives, known before it reads a row. Raises as it does."""
    require_known(model, penalty, config, schema)
    return make_guarantee(config, schema)


def measured_settings(config: DistillConfig, schema: Schema, guarantee: Guarantee | None) -> str:
    """All but the rows that :func:`measure` depends on, as JSON: other settings change for free.

    Args:
        config: settings.
        schema: public.
        guarantee: None where the noise protects nothing.
    """
    stated = guarantee.model_dump(mode="json") if guarantee else None
    settings = config.model_dump(mode="json", include=set(MEASURED))
    return json.dumps({"schema": schema.hash, "guarantee": stated, **settings}, sort_keys=True)


def require_known(
    model: Model | None, penalty: Penalty | None, config: DistillConfig, schema: Schema
) -> tuple[LinearModel, Penalties]:
    """Model and penalty, which must be of the kinds whose sensitivities are worked out."""
    model, named = model or LinearModel(), make_penalty(config, n_groups=len(schema.groups))
    loss = getattr(model, "margin_loss", None)
    if loss is None or model != LinearModel(loss):  # a subclass may compute something else
        raise InputError(
            f"epsilon: needs a LinearModel (with any loss), not {type(model).__name__}"
        )
    if penalty not in (None, named):
        raise InputError(
            f"epsilon: the penalty must be that of the settings, {name_of(named)!r}, not"
            f" {name_of(penalty)!r}: readers of the release must know its sensitivity"
        )
    steepest = largest_curvature(loss)
    if not 0 < steepest <= MOST_CURVED:
        raise InputError(
            f"epsilon: the second derivative of {name_of(model)} reaches {steepest:g} at margins up"
            f" to {MARGINS:g}; it must be above 0 and at most {MOST_CURVED:g}, for noisy steps to"
            " find the minimum"
        )
    return LinearModel(loss), named  # type: ignore[return-value]

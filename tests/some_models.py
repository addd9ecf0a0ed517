"""Trained models of a small schema."""

import hashlib
import json

import numpy as np
from conftest import make_schema

from synthfair.trained import TrainedModel, input_names


def some_model(n_groups=2, intercept=True):
    schema = make_schema(n_groups)
    names = input_names(schema, intercept=intercept, group_input=True)
    theta = np.random.default_rng(0).normal(size=len(names))
    return TrainedModel(
        schema=schema, version="0", loss="l", intercept=intercept, inputs=names, group_input=True,
        theta=tuple(theta.tolist()), gradient_norm=0.0, converged=True,
    )  # fmt: skip


def checksum(body):
    """Of all but itself and the coefficients, which follow; whatever the code does now."""
    body = {k: v for k, v in body.items() if k not in ("sha256", "coefficients")}
    text = json.dumps(body, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()

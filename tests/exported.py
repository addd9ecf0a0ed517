"""Models of each kind, to export."""

import numpy as np
from builders import make_schema

from synthfair.data.bases import Spline, Steps
from synthfair.data.schema import Categorical
from synthfair.trained import Layer, TrainedModel, input_names


def schema_of(**changes):
    """Three groups; text and number categories, of two and of more; clipped and refused numbers."""
    codes = {"code": Categorical(categories=(7, 5)), "kind": Categorical(categories=(1.5, 2, 3))}
    schema = make_schema(3)
    return schema.model_copy(update={"columns": codes | schema.columns} | changes)


def linear(schema=None, *, intercept=True, group_input=True, loss="linear, logistic loss"):
    schema = schema or schema_of()
    names = input_names(schema, intercept=intercept, group_input=group_input)
    theta = np.random.default_rng(1).normal(size=len(names))
    return TrainedModel(
        schema=schema, version="0", loss=loss, intercept=intercept, inputs=names,
        group_input=group_input, theta=tuple(theta.tolist()), gradient_norm=0.0, converged=True,
    )  # fmt: skip


def network():
    """A hidden layer of three."""
    model, rng = linear(intercept=False), np.random.default_rng(2)
    n = len(model.inputs)
    layer = Layer(weight=tuple(map(tuple, rng.normal(size=(3, n)).tolist())), bias=(0.1, 0.2, -0.3))
    new = {"hidden": (layer,), "theta": (1.0, -2.0, 0.5, 0.1), "intercept": True}
    return model.model_copy(update=new)


def additive():
    """With splines, steps, products of columns, and a category that may be unknown."""
    columns = dict(schema_of().columns)
    bases = {"age": Spline(knots=(18, 30, 50, 90)), "income": Steps(edges=(20, 50, 100))}
    for name, basis in bases.items():
        columns[name] = columns[name].model_copy(update={"basis": basis})
    columns["kind"] = columns["kind"].model_copy(update={"unknown": "ignore"})
    return schema_of(columns=columns, interactions=(("age", "home"), ("income", "code")))

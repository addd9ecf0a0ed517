"""A trained model as a fitted pipeline of scikit-learn."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import FunctionTransformer

from synthfair.data.encode import in_pandas
from synthfair.errors import InputError

if TYPE_CHECKING:
    from synthfair.trained import TrainedModel


def to_pipeline(model: TrainedModel) -> Pipeline:
    """Return a model as a fitted pipeline, see :meth:`synthfair.TrainedModel.to_sklearn`."""
    for is_present, obstacle in (
        (model.hidden, "it has hidden layers"),
        (model.decision, "it decides by group"),
        (not model.logistic, f"its loss is {model.loss!r}"),
    ):
        if is_present:
            raise InputError(
                f"to_sklearn: only logistic regressions become scikit-learn's, and {obstacle}"
            )
    schema, theta = model.schema_, np.array(model.theta)
    n_inputs = len(theta) - model.intercept
    # As scikit-learn wants them: in order, with scores for the second.
    classes = np.array(sorted(schema.decided))  # type: ignore[type-var]
    sign = 1.0 if classes[1] == schema.decided[1] else -1.0
    classifier = LogisticRegression()
    classifier.classes_ = classes
    classifier.n_features_in_ = n_inputs  # pyright: ignore[reportAttributeAccessIssue]
    classifier.coef_ = sign * theta[None, :n_inputs]
    classifier.intercept_ = sign * (theta[n_inputs:] if model.intercept else np.zeros(1))
    classifier.n_iter_ = np.zeros(1, np.int32)
    encoder = FunctionTransformer(
        _model_inputs, kw_args={"model": model}, feature_names_out=_input_names
    )
    encoder.fit(pd.DataFrame(columns=_columns(model)))
    return Pipeline([("encode", encoder), ("model", classifier)])


def _columns(model: TrainedModel) -> list[str]:
    schema = model.schema_
    return [*schema.features, *(schema.attributes if model.group_input else ())]


def _model_inputs(table: pd.DataFrame, model: TrainedModel) -> np.ndarray:
    """[N, n] what the model reads of raw columns, without the 1 of the intercept."""
    if not isinstance(table := in_pandas(table), pd.DataFrame):
        raise InputError(
            f"X: {type(table).__name__}; must be a DataFrame of the columns {_columns(model)}"
        )
    inputs = model.rows(*model.encode(table, source="X"))
    return inputs[:, : len(model.theta) - model.intercept]


def _input_names(encoder: FunctionTransformer, _columns: object) -> np.ndarray:
    model = encoder.get_params()["kw_args"]["model"]
    return np.array(model.inputs[: len(model.theta) - model.intercept], dtype=object)

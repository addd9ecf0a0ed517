"""A table distilled into few rows on which ordinary logistic training gives a fair model."""

from __future__ import annotations

import warnings
from typing import Any, Literal

import jax
import numpy as np
import pandas as pd
from pydantic import ValidationError
from sklearn.base import BaseEstimator
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state

from synthfair.client.many_clients import distill_clients
from synthfair.config import DistillConfig, Notion, ServerConfig
from synthfair.errors import InputError, refusal
from synthfair.sklearn.codebook import (
    Bounds,
    Categories,
    read_arrays,
    warn_of_learned,
)

NOT_CONVERGED = "distillation has not converged: raise steps"


def fairness_settings(estimator: Any) -> ServerConfig:
    """The validated settings of fairness of an estimator. Raises InputError: one is not allowed."""
    names = "max_gap", "penalty", "notion", "temperature", "lambda_theta"
    given = {name: getattr(estimator, name) for name in names}
    if given["max_gap"] is None:
        given["rho"] = estimator.rho
    if given["penalty"] is None:
        del given["penalty"]
    try:
        return ServerConfig(**given)
    except ValidationError as error:
        raise refusal(type(estimator).__name__, error) from error


FEWEST = 5
"""Rows that are distilled, at least; the least that ``n_min`` may be."""


def distill_settings(estimator: Any, fairness: ServerConfig, **given: Any) -> DistillConfig:
    """Those of a client's distillation, with its own. Raises InputError: one is not allowed.

    Of few rows, too: these rows are made where they are used, and not sent as a file is.
    """
    names = "max_gap", "penalty", "notion", "temperature", "lambda_theta"
    shared = {name: getattr(fairness, name) for name in names}
    try:
        return DistillConfig(**shared, rho_o=fairness.rho, n_min=FEWEST, **given)
    except ValidationError as error:
        raise refusal(type(estimator).__name__, error) from error


def seed_of(random_state: Any) -> int:
    """A seed of ours from scikit-learn's ``random_state``."""
    return int(check_random_state(random_state).randint(2**31))


class Distiller(BaseEstimator):
    """Distils rows, Wu et al. (2024) algorithm 1, in the idiom of imbalanced-learn.

    Logistic regression on the synthetic rows gives a model that is accurate and fair on the real
    ones, without reading the group:

        X_fair = argmin over x  F(theta(x)),   F = mean loss + rho penalty on the real rows,
        theta(x) = argmin (1/M) sum_i loss(theta; x_i, y_i) + lambda_theta / (2 n^2) ||theta||^2,

    with features scaled to [0, 1] by their bounds, and n inputs: features, indicators of all groups
    but one (which count as 0), and the intercept. No guarantee of privacy: the rows are a function
    of the real ones without noise.

    Args:
        rho: weight of the fairness penalty, at least 0; not used with ``max_gap``.
        max_gap: largest difference between the groups' decision rates that is wanted on the real
            rows, between 0 and 1; a small rho that reaches it is searched for.
        notion: rows in which groups are compared: ``statistical_parity``, all;
            ``equal_opportunity``, those of the positive class; ``equalized_odds``, those of each.
        penalty: ``covariance`` of group and score, or the smooth ``selection_rate`` gap; if None,
            the covariance, and with ``max_gap`` the selection rate.
        temperature: steepness of the smooth selection rate, positive.
        lambda_theta: regularisation, positive.
        n_synthetic: number M of rows; if None, 200 for each pair of group and class.
        steps: of the optimiser, at most.
        bounds: public (lower, upper) of the numbers, by column name or index; or one pair for all;
            values beyond are clipped. If None, learned from the rows, with a warning.
        categories: public values of the columns that are categories, by column; learned, with a
            warning, for other columns of a DataFrame that are no numbers.
        random_state: of the first synthetic features.

    Attributes:
        classes_: the two labels; the second is the positive one.
        groups_: values of the sensitive features.
        sensitive_features_: [M] group of each synthetic row.
        release_: the rows as a :class:`synthfair.Release`, scaled; what a client may send.
        encoder_: a fitted transformer of rows like X to the columns of X_fair: numbers as they are,
            an indicator of each category, of two only the second. In front of a model that is
            trained on X_fair, it makes a pipeline.
        converged_: whether inner and outer problem are solved; else more ``steps`` are needed.
        schema_: made from the rows and arguments.

    Example:
        >>> import numpy as np
        >>> import synthfair as sf
        >>> rng = np.random.default_rng(0)
        >>> s = rng.integers(2, size=300)
        >>> X = rng.normal(size=(300, 2)) + 0.5 * s[:, None]
        >>> y = (X.sum(axis=1) + rng.normal(size=300) > 0.5).astype(int)
        >>> distiller = sf.sklearn.Distiller(rho=10, n_synthetic=40, steps=100, bounds=(-4, 4))
        >>> X_fair, y_fair, w = distiller.fit_resample(X, y, sensitive_features=s)
        >>> X_fair.shape, sorted(set(y_fair.tolist()))
        ((40, 2), [0, 1])
    """

    def __init__(
        self,
        *,
        rho: float = 10.0,
        max_gap: float | None = None,
        notion: Notion = "statistical_parity",
        penalty: Literal["covariance", "selection_rate"] | None = None,
        temperature: float = 4.0,
        lambda_theta: float = 1e-3,
        n_synthetic: int | None = None,
        steps: int = 1000,
        bounds: Bounds | None = None,
        categories: Categories | None = None,
        random_state: Any = None,
    ) -> None:
        """See the class."""
        self.rho = rho
        self.max_gap = max_gap
        self.notion = notion
        self.penalty = penalty
        self.temperature = temperature
        self.lambda_theta = lambda_theta
        self.n_synthetic = n_synthetic
        self.steps = steps
        self.bounds = bounds
        self.categories = categories
        self.random_state = random_state

    def fit_resample(
        self,
        X: Any,
        y: Any,
        *,
        sensitive_features: Any = None,
    ) -> tuple[Any, np.ndarray, np.ndarray]:
        """Makes the synthetic rows.

        Args:
            X: [N, n_features] array or DataFrame without missing values.
            y: [N] labels of two classes.
            sensitive_features: [N] groups, 2 to 100; needed.

        Returns:
            X_fair [M, d] in the units of X, the columns those of ``encoder_``; a DataFrame where X
            is one. Numbers may leave their bounds, and indicators of categories 0 and 1.
            y_fair [M]. And w [M], all alike, with which ``LogisticRegression(C=1)`` regularises as
            the rows were made for: w = n^2 / (lambda_theta M).

        Raises:
            ValueError: arrays that do not fit, or settings that are not allowed.
        """
        if sensitive_features is None:
            raise InputError(
                "sensitive_features: None; rows are made fair between groups: give them"
            )
        config = distill_settings(
            self,
            fairness_settings(self),
            n_synthetic=self.n_synthetic,
            steps=self.steps,
            seed=seed_of(self.random_state),
        )
        codebook, rows, _, self.classes_, self.groups_ = read_arrays(self, X, y, sensitive_features)
        warn_of_learned(codebook)
        with jax.enable_x64(True):
            (found,) = distill_clients({"X": rows}, codebook.schema, config, model=codebook.model)
        self.release_, self.converged_ = found.release, found.converged
        if not self.converged_:
            warnings.warn(NOT_CONVERGED, ConvergenceWarning, stacklevel=2)
        self.schema_, self.encoder_ = codebook.schema, codebook.encoder(X)
        made, (offset, width) = self.release_, codebook.units
        self.sensitive_features_ = self.groups_[made.s]
        n = len(offset) + len(self.groups_)  # d features, G - 1 indicators and the intercept
        w = np.full(len(made.y), n**2 / (config.lambda_theta * len(made.y)))
        x = offset + made.x * width
        if isinstance(X, pd.DataFrame):
            x = pd.DataFrame(x, columns=list(self.schema_.encoded_names))
        return x, self.classes_[(made.y > 0).astype(int)], w

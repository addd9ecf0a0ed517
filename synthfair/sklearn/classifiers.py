"""A fair logistic regression, trained on rows in one place."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self, cast

import numpy as np
import pandas as pd
from scipy.special import expit
from sklearn.base import ClassifierMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import check_is_fitted

from synthfair.data.schema import INTERCEPT
from synthfair.errors import InputError
from synthfair.server.pooling import pool_table, train_pool
from synthfair.sklearn.estimator import FairEstimator, as_pandas, encoded, warn


@dataclass(kw_only=True, eq=False, repr=False)
class FairLogisticRegression(ClassifierMixin, FairEstimator):
    """A logistic regression under a fairness penalty, on all rows in one place.

        theta = argmin (1/W) sum_i w_i loss_i + rho penalty + 1 / (2 C W) ||theta||^2

    with features scaled to [0, 1] by their bounds, and an intercept, which the last term leaves
    free; W is the sum of the weights. Predictions need no group. Nothing is released, so bounds and
    categories may be learned.

    Args:
        rho: weight of the penalty, at least 0; not used with ``max_gap``. With ``rho=0``, ordinary
            logistic regression, which needs no sensitive features.
        max_gap: largest difference between the groups' decision rates that is wanted on the rows,
            between 0 and 1: of the models within it that are met on the way, the most accurate is
            taken, and a warning says where there is none.
        notion: rows in which groups are compared: ``statistical_parity``, all;
            ``equal_opportunity``, those of the positive class; ``equalized_odds``, those of each.
        pos_label: the label of the positive class, such as "granted"; if None, the second of
            ``classes_``, with a warning where that matters and labels are text.
        groups_by: of several columns of sensitive features those whose groups are compared, each
            column by itself, by name or index; of several gaps the largest counts. If None, all
            combinations of their values are compared, of which those of few rows are merged.
        penalty: ``covariance`` of group and score, Wu et al. (2024) eq. (12), or the smooth
            ``selection_rate`` gap; if None, the covariance, and with ``max_gap`` the selection
            rate. Or a function of scores and weighted rows, see
            :class:`synthfair.fairness.penalties.Penalty`, which compares groups as it likes:
            ``notion`` is then that of ``gap_`` and ``max_gap`` alone.
        temperature: steepness of the smooth selection rate, positive.
        C: inverse strength of the ridge, positive, as in scikit-learn.
        bounds: (lower, upper) by which numbers are scaled, by column name or index; or one pair for
            all. Values beyond are clipped, with a warning where they are many. If None, round
            numbers about those of the rows.
        categories: values of the columns that are categories, by column. Later values that are none
            of them count as missing, or as each category by its share in the rows of fit, with a
            warning. Other columns of a DataFrame that are no numbers are read as ``synthfair
            schema`` drafts them, and booleans are the categories False and True.

    Attributes:
        coef_: [1, d] in the units of X, for the columns ``encoded_names_``: numbers as they are and
            an indicator of each category, of two only the second.
        intercept_: [1].
        encoded_names_: [d].
        classes_: the two labels, sorted.
        groups_: values of the sensitive features.
        gap_: largest difference between the groups' decision rates on the rows of fit, clipped to
            their bounds.
        rho_: weight of the penalty, with ``max_gap`` 0 where none was needed, and else that of what
            is beyond about that gap.
        model_: the :class:`synthfair.TrainedModel`, for :func:`synthfair.write_model`.
        schema_: made from the rows and arguments.

    Example:
        >>> import numpy as np
        >>> import synthfair as sf
        >>> rng = np.random.default_rng(0)
        >>> s = rng.integers(2, size=300)
        >>> X = rng.normal(size=(300, 2)) + 0.5 * s[:, None]
        >>> y = (X.sum(axis=1) + rng.normal(size=300) > 0.5).astype(int)
        >>> model = sf.sklearn.FairLogisticRegression(notion="equalized_odds", max_gap=0.05)
        >>> model = model.fit(X, y, sensitive_features=s)
        >>> model.coef_.shape, model.gap_ <= 0.05
        ((1, 2), True)
    """

    C: float = 1.0

    def fit(
        self,
        X: Any,
        y: Any,
        *,
        sensitive_features: Any = None,
        sample_weight: Any = None,
    ) -> Self:
        """Train the model, and return the estimator.

        Args:
            X: [N, n_features] array or DataFrame. A column with missing values gets an indicator of
                them; in the others, later rows may have none.
            y: [N] labels of two classes.
            sensitive_features: [N] groups, 2 to 100; needed unless rho is 0. Of several columns
                [N, k], groups are the combinations of their values, or see ``groups_by``. They, y
                and weights belong to X by position; a warning says where an index differs. Or the
                name of a column of X, which is then no input.
            sample_weight: [N] how much each row counts, at least 0; all alike if None.

        Raises:
            ValueError: arrays that do not fit, or settings that are not allowed.
        """
        fairness = self._fairness(C=self.C)
        if sensitive_features is None and fairness.asked.fairness:
            raise InputError(
                "sensitive_features: None; give the group of each row, or rho=0 for none"
            )
        x, self._group_column = as_pandas(X), None
        if isinstance(sensitive_features, str):
            self._group_column = sensitive_features
            if sensitive_features not in getattr(x, "columns", ()):
                raise InputError(f"sensitive_features: X has no column {sensitive_features!r}")
            sensitive_features = x[sensitive_features]
        table, labels = self._read_arrays(self._inputs(x), y, sensitive_features, sample_weight)
        schema, limit = self.schema_, fairness.max_gap
        pooled = pool_table(table, schema, fairness, self._own_penalty)
        self.model_, point = cast(Any, train_pool(pooled, schema))
        self._sign = 1.0 if labels[1] == self.classes_[1] else -1.0
        self.encoded_names_ = np.array(schema.encoded_names, dtype=object)
        coefficients = self.model_.coefficients
        self.coef_ = self._sign * np.array([[coefficients[name] for name in self.encoded_names_]])
        self.intercept_ = self._sign * np.array([coefficients[INTERCEPT]])
        self.gap_, self.rho_ = point.gap, point.price.rho

        if not self.model_.converged:
            warn(
                "training has not met its tolerance: ask for less fairness, or lower C",
                ConvergenceWarning,
            )
        if limit is not None and not self.gap_ <= limit:
            gap = f"the gap on the rows of fit is {self.gap_:.3f}, and at most {limit:g} was asked"
            warn(f"max_gap: {gap} for; no model that was tried reaches it")
        return self

    def decision_function(self, X: Any) -> np.ndarray:
        """Return the scores [N], X coef_' + intercept_; positive for the second class.

        X is that of fit's columns, clipped to their bounds: the scores are those of ``model_``.

        Raises ValueError: rows that do not fit those of fit.
        """
        check_is_fitted(self)
        x = encoded(self._read_table(self._inputs(X), reset=False)[0], self.schema_)
        return self._sign * self.model_.scores(x, np.zeros(len(x), int))

    def predict(self, X: Any) -> np.ndarray:
        """Return the class of each row [N]. Raises as :meth:`decision_function`."""
        positive = self.decision_function(X) > 0
        return self.classes_[positive.astype(int)]

    def predict_proba(self, X: Any) -> np.ndarray:
        """Return the classes' probabilities [N, 2], by the logistic function of the scores."""
        p = expit(self.decision_function(X))
        return np.column_stack([1 - p, p])

    def _inputs(self, X: Any) -> Any:
        """Return X without the column of groups, where fit was given its name."""
        x = as_pandas(X)
        if self._group_column is None or not isinstance(x, pd.DataFrame):
            return x
        return x.drop(columns=self._group_column, errors="ignore")

    def __sklearn_tags__(self) -> Any:
        """Return tags that say: two classes only, and inputs that may be missing."""
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = tags.input_tags.sparse = True
        tags.classifier_tags.multi_class = False
        return tags

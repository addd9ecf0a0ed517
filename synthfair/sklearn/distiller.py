"""A table distilled into few rows on which ordinary logistic training gives a fair model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import jax
import numpy as np
import pandas as pd
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state

from synthfair.client.from_table import distill_table
from synthfair.data.encode import Encoded
from synthfair.errors import InputError
from synthfair.release.settings import DistillConfig
from synthfair.sklearn.estimator import SHARED, FairEstimator, as_pandas, encoder_of, to_units, warn


@dataclass(kw_only=True, eq=False, repr=False)
class Distiller(FairEstimator):
    """A resampler that distils rows, Wu et al. (2024) algorithm 1, as imbalanced-learn has them.

    Logistic regression on the synthetic rows gives a model that is accurate and fair on the real
    ones. Neither the model nor the synthetic rows have the group:

        X_fair = argmin over x  F(theta(x)),   F = mean loss + rho penalty on the real rows,
        theta(x) = argmin (1/M) sum_i loss(theta; x_i, y_i) + lambda_theta / (2 n^2) ||theta||^2,

    with features scaled to [0, 1] by their bounds, and n inputs: features and the intercept. No
    guarantee of privacy: the rows are a function of the real ones without noise.

    Args:
        rho: weight of the fairness penalty, at least 0; not used with ``max_gap``.
        max_gap: largest difference between the groups' decision rates that is wanted on the real
            rows, between 0 and 1; a small rho that reaches it is searched for.
        notion: as of :class:`FairLogisticRegression`.
        pos_label: as there.
        groups_by: as there.
        penalty: as there.
        temperature: as there.
        lambda_theta: regularisation of the model that is trained on the rows, positive.
        n_synthetic: number M of rows; if None, 200 for each pair of group and class.
        steps: of the optimiser, at most.
        bounds: public (lower, upper) of the numbers, by column name or index; or one pair for all;
            values beyond are clipped. If None, learned from the rows, with a warning.
        categories: public values of the columns that are categories, by column; learned, with a
            warning, for other columns of a DataFrame that are no numbers.
        random_state: of the first synthetic features.

    Attributes:
        classes_: the two labels, sorted.
        groups_: values of the sensitive features.
        sample_weight_: [M] weights, all alike, with which ``LogisticRegression(C=1)`` regularises
            as the rows were made for: n^2 / (lambda_theta M).
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
        >>> X_fair, y_fair = distiller.fit_resample(X, y, sensitive_features=s)
        >>> X_fair.shape, sorted(set(y_fair.tolist()))
        ((40, 2), [0, 1])
    """

    is_published: ClassVar[bool] = True
    lambda_theta: float = 1e-3
    n_synthetic: int | None = None
    steps: int = 1000
    random_state: Any = None

    def get_metadata_routing(self) -> Any:
        """Return what is asked of a pipeline: in imbalanced-learn's, the groups of the rows."""
        routing = super().get_metadata_routing()
        resampling = getattr(routing, "fit_resample", None)  # sklearn itself knows no such method
        if resampling and resampling.requests.get("sensitive_features") is None:
            resampling.add_request(param="sensitive_features", alias=True)
        return routing

    def fit_resample(
        self,
        X: Any,
        y: Any,
        *,
        sensitive_features: Any = None,
        sample_weight: Any = None,
    ) -> tuple[Any, np.ndarray]:
        """Return synthetic rows made of the given ones.

        Args:
            X: [N, n_features] array or DataFrame. A column with missing values gets an indicator of
                them; in the others, later rows may have none.
            y: [N] labels of two classes.
            sensitive_features: [N] groups, 2 to 100, or several columns [N, k]; needed.
            sample_weight: [N] how much each row counts in loss and penalty, at least 0; all alike
                if None.

        Returns:
            X_fair [M, d] in the units of X, the columns those of ``encoder_``; a DataFrame where X
            is one. Numbers may leave their bounds, and indicators of categories 0 and 1. And y_fair
            [M].

        Raises:
            ValueError: arrays that do not fit, or settings that are not allowed.
        """
        if sensitive_features is None:
            raise InputError(
                "sensitive_features: None; rows are made fair between groups: give them"
            )
        fairness = self._fairness()
        config = DistillConfig(
            **{name: getattr(fairness, name) for name in SHARED},
            rho_o=fairness.rho,
            n_synthetic=self.n_synthetic,
            lambda_theta=self.lambda_theta,
            steps=self.steps,
            seed=int(check_random_state(self.random_state).randint(2**31)),
        )
        table = as_pandas(X)
        (*real, weight), labels = self._read_arrays(table, y, sensitive_features, sample_weight)
        schema, rows, weight = self.schema_, Encoded(*real), weight if np.ptp(weight) else None
        with jax.enable_x64(True):
            client: Any = distill_table(
                rows, schema, config, weight=weight, penalty=self._own_penalty, source="X"
            )
        release, self.converged_ = client.release, client.converged
        if not self.converged_:
            warn("distillation has not converged: raise steps", ConvergenceWarning)
        self.release_, self.encoder_ = release, encoder_of(table, schema)
        x = to_units(release.x, schema)
        n = x.shape[1] + 1  # features and the intercept
        self.sample_weight_ = np.full(len(x), n**2 / (config.lambda_theta * len(x)))
        if isinstance(table, pd.DataFrame):
            x = pd.DataFrame(x, columns=list(schema.encoded_names))
        return x, labels[(release.y > 0).astype(int)]

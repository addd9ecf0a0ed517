"""Classifiers: a fair logistic regression, trained on rows or on clients' releases."""

from __future__ import annotations

import numbers
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, Self, cast

import jax
import numpy as np
import pandas as pd
from scipy.special import expit
from sklearn.base import ClassifierMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import check_is_fitted

from synthfair.client.fair_task import check_rows
from synthfair.client.from_table import distill_table
from synthfair.config import ServerConfig, SurrogateConfig
from synthfair.data.batches import in_memory
from synthfair.data.schema import INTERCEPT
from synthfair.distill.problem import make_penalty, make_rows
from synthfair.errors import InputError
from synthfair.evaluation import evaluate_scores
from synthfair.fairness.intervals import missed_gap
from synthfair.fairness.metrics import METRIC_OF, Metric, Scored
from synthfair.fairness.penalties import SumPenalty, decision_gaps
from synthfair.federated import Users, make_users
from synthfair.federated.refine import refine_model
from synthfair.model import LinearModel, Rows, padded
from synthfair.release.format import Release, name_of
from synthfair.server.parts import check_pool
from synthfair.server.pooling import Pool, compared_groupings, make_pool, train_pool
from synthfair.sklearn.codebook import TrainingRows, one_each, read_arrays, read_table
from synthfair.sklearn.keywords import NOT_CONVERGED, FairEstimator, seed_of, warn
from synthfair.surrogate.weighted_table import WeightedTable
from synthfair.trained import TrainedModel

ROWS = "rows of fit"
"""What gaps are measured on."""

UNLIKE = 'The clients may be unlike: take release="surrogate", which is fair over all of them.'
"""What to do where a pool of fair releases is not as it should be."""


class _LinearClassifier(ClassifierMixin, FairEstimator):
    """A linear model in the user's units, which reads no group."""

    def decision_function(self, X: Any) -> np.ndarray:
        """[N] scores X coef_' + intercept_; positive for the second class.

        Raises ValueError: rows that do not fit those of fit.
        """
        check_is_fitted(self)
        table, _ = read_table(self, self._inputs(X), reset=False)
        return self._codebook.in_units(table) @ self.coef_[0] + self.intercept_[0]

    def predict(self, X: Any) -> np.ndarray:
        """[N] the class of each row. Raises as :meth:`decision_function`."""
        positive = self.decision_function(X) > 0
        return self.classes_[positive.astype(int)]

    def predict_proba(self, X: Any) -> np.ndarray:
        """[N, 2] probabilities of the classes, by the logistic function of the scores."""
        p = expit(self.decision_function(X))
        return np.column_stack([1 - p, p])

    def _inputs(self, X: Any) -> Any:
        """X without the column of groups, where fit was given its name."""
        if self._group_column is None or not isinstance(X, pd.DataFrame):
            return X
        return X.drop(columns=self._group_column, errors="ignore")

    def _read(self, X: Any, y: Any, sensitive_features: Any, sample_weight: Any) -> TrainingRows:
        """What fit is given; the groups may be the name of a column of X."""
        name = sensitive_features if isinstance(sensitive_features, str) else None
        if name is not None:
            if name not in getattr(X, "columns", ()):
                raise InputError(f"sensitive_features: X has no column {name!r}")
            sensitive_features = X[name]
        self._group_column = name
        return read_arrays(self, self._inputs(X), y, sensitive_features, sample_weight)

    def __sklearn_tags__(self) -> Any:
        """Two classes only, and inputs that may be missing."""
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.classifier_tags.multi_class = False
        return tags

    def _train(
        self,
        pool: Pool,
        fitted: TrainingRows,
        fairness: ServerConfig,
        fair: Mapping[str, Release] | None = None,
        *,
        users: Users | None = None,
        exchanges: int = 0,
    ) -> Self:
        """Trains on a pool, maybe of ``fair`` releases; the indicators of groups count as 0.

        Exchanges with ``users`` refine the model.
        """
        codebook, real = fitted.codebook, fitted.rows
        self._codebook, self.schema_ = codebook, codebook.schema
        self.classes_, self.groups_ = fitted.classes, fitted.groups
        self.encoded_names_ = np.array(self.schema_.encoded_names, dtype=object)
        n_groups, measured = len(self.schema_.groups), fairness.model_copy(update={"resamples": 1})

        def score(model: TrainedModel) -> Scored:
            return Scored(real.y, np.asarray(model.scores(real.x, real.s)), real.s, n_groups)

        with jax.enable_x64(True):
            # The model, and its gaps on the rows of fit.
            blind = pool.rows._replace(a=codebook.model.blind(pool.rows.a))
            trained = pool._replace(rows=blind, model=name_of(LinearModel()))
            self.model_, point = train_pool(trained, self.schema_)
            if users and point:
                self.model_, _ = refine_model(
                    self.model_,
                    users,
                    cast(SumPenalty, trained.penalty),
                    rho=point.rho,
                    lambda_theta=trained.lambda_theta,
                    exchanges=exchanges,
                )
            scored = score(self.model_)
            # With the scores as a column of inputs, they are padded like the rest.
            rows = padded(Rows(scored.score[:, None], real.s, real.y, fitted.weight))  # type: ignore[arg-type]
            gaps = decision_gaps(
                rows.a[:, 0], rows, notion=fairness.notion, n_groups=n_groups, by=pool.by
            )
            messages: list[str] = []
            if fair:
                evaluation = evaluate_scores({"X": scored}, measured, schema=self.schema_)
                check = check_pool(fair.values(), trained, self.schema_, score, evaluation)
                messages += check._replace(remedy=UNLIKE, rows=ROWS).warnings
        coefficients = self.model_.coefficients
        self.coef_ = np.array([[coefficients[name] for name in self.encoded_names_]])
        self.intercept_ = np.array([coefficients[INTERCEPT]])
        self.gap_ = float(np.nanmax(gaps))
        self.rho_ = point.rho if point else None if fairness.max_gap else fairness.rho

        # What to say of it.
        if not self.model_.converged:
            warn(
                "training has not met its tolerance: lower rho, or raise lambda_theta"
                + ", or exchanges" * (users is not None),
                ConvergenceWarning,
            )
        if not fair and fairness.max_gap is not None and self.gap_ > fairness.max_gap:
            gap = Metric(self.gap_, np.nan, np.nan)
            if fitted.count_alike:  # intervals are of rows that count alike
                evaluation = evaluate_scores({"X": scored}, measured, schema=self.schema_)
                gap = evaluation.overall[METRIC_OF[fairness.notion]]
            missed = point is not None and point.gap > fairness.max_gap
            messages.append(
                f"max_gap: {missed_gap(gap, fairness.max_gap, ROWS)}"
                + "; no weight of the penalty that was tried reaches it" * missed
            )
        for message in messages:
            warn(message)
        return self


class FairLogisticRegression(_LinearClassifier):
    """Logistic regression under a fairness penalty, on all rows in one place.

        theta = argmin (1/W) sum_i w_i loss_i + rho penalty + lambda_theta / (2 n^2) ||theta||^2

    with features scaled to [0, 1] by their bounds; W is the sum of the weights, n the number of
    inputs: features, indicators of all groups but one (which count as 0: predictions need no
    group), and the intercept. Nothing is released, so bounds and categories may be learned.

    Args:
        rho: weight of the penalty, at least 0; not used with ``max_gap``. With ``rho=0``, ordinary
            logistic regression, which needs no sensitive features.
        max_gap: largest difference between the groups' decision rates that is wanted on the rows,
            between 0 and 1: about the least rho that reaches it is looked for, and a warning says
            where it is missed.
        notion: rows in which groups are compared: ``statistical_parity``, all;
            ``equal_opportunity``, those of the positive class; ``equalized_odds``, those of each.
        groups_by: of several columns of sensitive features those whose groups are compared, each
            column by itself, by name or index; of several gaps the largest counts. If None, all
            combinations of their values are compared, of which those of few rows are merged.
        penalty: ``covariance`` of group and score, Wu et al. (2024) eq. (12), or the smooth
            ``selection_rate`` gap; if None, the covariance, and with ``max_gap`` the selection
            rate. Or a function of scores and weighted rows, see
            :class:`synthfair.fairness.penalties.Penalty`, which compares groups as it likes:
            ``notion`` is then that of ``gap_`` and ``max_gap`` alone.
        temperature: steepness of the smooth selection rate, positive.
        lambda_theta: regularisation, positive.
        bounds: (lower, upper) by which numbers are scaled, by column name or index; or one pair for
            all. In training, values beyond are clipped. If None, those of the rows.
        categories: values of the columns that are categories, by column. Other columns of a
            DataFrame that are no numbers are categories, too; theirs are learned. Booleans are the
            numbers 0 and 1.

    Attributes:
        coef_: [1, d] in the units of X, for the columns ``encoded_names_``: numbers as they are and
            an indicator of each category, of two only the second.
        intercept_: [1].
        encoded_names_: [d].
        classes_: the two labels; the second is the positive one.
        groups_: values of the sensitive features.
        gap_: largest difference between the groups' decision rates on the rows of fit, clipped to
            their bounds.
        rho_: weight of the penalty, with ``max_gap`` 0 where none was needed; None of fair releases
            with ``max_gap``: each client finds one.
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

    def fit(
        self,
        X: Any,
        y: Any,
        *,
        sensitive_features: Any = None,
        sample_weight: Any = None,
    ) -> Self:
        """Trains.

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
        fairness = self._fairness()
        free = fairness.rho == 0 and fairness.max_gap is None
        if sensitive_features is None and not free:
            raise InputError(
                "sensitive_features: None; give the group of each row, or rho=0 for none"
            )
        fitted = self._read(X, y, sensitive_features, sample_weight)
        schema, rows = fitted.codebook.schema, fitted.rows
        config, n_groups = self._distillation(fairness), len(schema.groups)
        table, by = WeightedTable(*rows, fitted.weight), ()
        if not free and len(schema.attributes) > 1:
            by, _ = compared_groupings(table, schema, fairness)
        elif not free:
            check_rows(rows, schema, config, source="X")
        pool = Pool(
            table.rows(n_groups=n_groups),
            parts={"X": slice(None)},
            model=name_of(LinearModel()),
            intercept=True,
            lambda_theta=fairness.lambda_theta,
            notion=fairness.notion,
            n_groups=n_groups,
            penalty=None
            if free
            else self._own_penalty or make_penalty(config, n_groups=n_groups, by=by),
            rho=fairness.rho,
            max_gap=fairness.max_gap,
            by=by,
        )
        return self._train(pool, fitted, fairness)


@dataclass(kw_only=True, eq=False, repr=False)
class SingleShotClassifier(_LinearClassifier):
    """Clients each make one release, a server pools them and trains: a simulation in one process.

    Of ``surrogate`` releases: each client sends weighted records that stand in for its own rows,
    and the server trains under the penalty, so that the model is fair over all clients, who may be
    unlike. Of ``fair`` releases, Wu et al. (2024): each distils rows on which ordinary logistic
    training is fair, and the server trains so. A warning says where such a model is less fair on
    the rows of fit than models of single clients, misses ``max_gap``, or is hardly more accurate
    than the more frequent class for everybody. No guarantee of privacy; for releases with one, or
    of clients apart, see :func:`synthfair.distill_table`.

    Args:
        release: ``surrogate`` or ``fair``.
        rho: weight of the penalty, at least 0, for each client or for the server; not used with
            ``max_gap``.
        max_gap: largest difference between the groups' decision rates that is wanted, between 0 and
            1: on each client's rows, or on all surrogates; a small rho is searched for, and a
            warning says where it is missed on the rows of all clients together.
        notion: as of :class:`FairLogisticRegression`.
        groups_by: as there.
        penalty: as there.
        temperature: as there.
        lambda_theta: as there.
        n_synthetic: rows of each fair release; if None, 200 for each pair of group and class.
        steps: of each client's optimiser, at most, for fair releases.
        k_min: least rows of a client that a sum in its surrogate is over; where a pair of group and
            class has fewer, sums by class and by group stand in its place, or, at a client of 60
            times as many rows, it is left out.
        exchanges: of exact sums over each client's rows after the surrogates, which lead towards
            the model of all rows in one place; 0 for one upload alone.
        bounds: public (lower, upper) of the numbers, by column name or index; or one pair for all;
            in training, values beyond are clipped. If None, learned from the rows of all clients,
            with a warning.
        categories: public values of the columns that are categories, by column; learned, with a
            warning, for other columns of a DataFrame that are no numbers.
        random_state: of the releases.

    Attributes:
        releases_: the release of each client, by its value in ``clients``.
        n_iter_: exchanges after them.
        coef_: as of :class:`FairLogisticRegression`, like the others.

    Example:
        >>> import numpy as np
        >>> import synthfair as sf
        >>> rng = np.random.default_rng(0)
        >>> s, site = rng.integers(2, size=(2, 1000))
        >>> X = rng.normal(size=(1000, 2)) + 0.5 * s[:, None]
        >>> y = np.where(X.sum(axis=1) + rng.normal(size=1000) > 0.5, "paid", "not")
        >>> model = sf.sklearn.SingleShotClassifier(rho=100, bounds=(-4, 4), random_state=0)
        >>> model = model.fit(X, y, sensitive_features=s, clients=site)
        >>> list(model.releases_), model.coef_.shape, list(map(str, model.classes_))
        ([0, 1], (1, 2), ['not', 'paid'])
    """

    release: Literal["surrogate", "fair"] = "surrogate"
    n_synthetic: int | None = None
    steps: int = 1000
    k_min: int = 50
    exchanges: int = 0
    random_state: Any = None

    def fit(
        self,
        X: Any,
        y: Any,
        *,
        sensitive_features: Any = None,
        sample_weight: Any = None,
        clients: Any = None,
    ) -> Self:
        """Cuts the rows by client, makes a release of each, and trains on the pool.

        Args:
            X: [N, n_features] array or DataFrame. A column with missing values gets an indicator of
                them; in the others, later rows may have none.
            y: [N] labels of two classes.
            sensitive_features: [N] groups, 2 to 100, or several columns [N, k], or the name of a
                column of X; needed. For fair releases, each client needs all groups and both
                classes.
            sample_weight: [N] how much each row counts in its client's fair release, at least 0;
                all alike if None, as in a surrogate, of which sums are over so many rows.
            clients: [N] whose each row is; one client's if None.

        Raises:
            ValueError: arrays that do not fit, or settings that are not allowed.
        """
        if self.release not in ("fair", "surrogate"):
            raise InputError(f"release = {self.release!r}: must be fair or surrogate")
        if not isinstance(self.exchanges, numbers.Integral) or self.exchanges < 0:
            raise InputError(f"exchanges = {self.exchanges!r}: must be a whole number, at least 0")
        if self.exchanges and (self.release == "fair" or self._own_penalty):
            raise InputError(
                'exchanges: take release="surrogate" and a penalty by name; a fair release has its'
                " own model"
            )
        if sensitive_features is None:
            raise InputError("sensitive_features: None; give the group of each row")
        fairness, seed = self._fairness(), seed_of(self.random_state)
        if self.release == "fair":
            config = self._distillation(
                fairness, n_synthetic=self.n_synthetic, steps=self.steps, seed=seed
            )
        else:
            config = self._checked(SurrogateConfig, {"k_min": self.k_min, "seed": seed})

        # The rows of each client.
        fitted = self._read(X, y, sensitive_features, sample_weight)
        codebook, schema = fitted.codebook, fitted.codebook.schema
        codebook.warn_of_learned()
        owner = np.zeros(len(fitted.counted), int)
        if clients is not None:
            owner = one_each(clients, "clients", X)
        owner = owner[fitted.counted]
        values = np.unique(owner).tolist()
        rows_of = {f"client {value!r}": owner == value for value in values}

        # A release of each, and the pool.
        with jax.enable_x64(True):
            if isinstance(config, SurrogateConfig):
                answers = [
                    distill_table(in_memory(fitted.plain_part(own)), schema, config, source=name)
                    for name, own in rows_of.items()
                ]
            else:
                answers = [
                    distill_table(
                        fitted.part(own),
                        schema,
                        config,
                        model=codebook.model,
                        penalty=self._own_penalty,
                        source=name,
                    )
                    for name, own in rows_of.items()
                ]
                if not all(answer.converged for answer in answers):
                    warn(NOT_CONVERGED, ConvergenceWarning)
            releases = dict(zip(rows_of, [answer.release for answer in answers], strict=True))
            of_surrogates = self.release == "surrogate"
            pool = make_pool(
                releases,
                schema,
                fairness if of_surrogates else None,
                penalty=self._own_penalty if of_surrogates else None,
            )
            self.releases_: dict[Any, Release] = dict(zip(values, releases.values(), strict=True))
            users = None
            if self.exchanges:
                rows = make_rows(fitted.rows, n_groups=len(schema.groups), intercept=True)
                a, s, y = map(np.asarray, (codebook.model.blind(rows.a), rows.s, rows.y))
                users = make_users(a, s, y, owner)
        self.n_iter_ = int(self.exchanges)
        # The checks of a pool of fair releases are of rows that count alike.
        fair = releases if self.release == "fair" and fitted.count_alike else None
        return self._train(pool, fitted, fairness, fair, users=users, exchanges=self.n_iter_)


def expected_failed_checks(estimator: Any) -> dict[str, str]:
    """The checks of scikit-learn that an estimator is known not to pass, by name, and why.

    For ``sklearn.utils.estimator_checks.check_estimator`` and ``parametrize_with_checks``, which
    take it as ``expected_failed_checks``. They give no sensitive features, so that only
    ``FairLogisticRegression(rho=0)``, which needs none, can be checked.

    Args:
        estimator: one of this package.

    Example:
        >>> import synthfair as sf
        >>> model = sf.sklearn.FairLogisticRegression(rho=0)
        >>> list(sf.sklearn.expected_failed_checks(model))
        ['check_sample_weight_equivalence_on_dense_data']
    """
    if not isinstance(estimator, FairLogisticRegression):
        return {}
    reason = "training ends at a tolerance above that of this check"
    return {"check_sample_weight_equivalence_on_dense_data": reason}

"""The base of the estimators, which turns arguments into settings, a schema, encoded rows."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, cast

import numpy as np
import pandas as pd
from pydantic import ValidationError
from scipy.sparse import issparse
from sklearn.base import BaseEstimator
from sklearn.preprocessing import FunctionTransformer
from sklearn.utils.multiclass import check_classification_targets, type_of_target
from sklearn.utils.validation import _check_sample_weight, _num_samples, validate_data

from synthfair.data.draft import DECLARED, draft_column
from synthfair.data.encode import (
    Clipping,
    encode_inputs,
    expand,
    find_categories,
    in_pandas,
    tidied,
)
from synthfair.data.schema import CROSS, MAX_COLUMNS, Categorical, Numeric, Schema
from synthfair.errors import InputError, refusal
from synthfair.fairness.penalties import Penalty
from synthfair.server.settings import ServerConfig
from synthfair.settings import Notion, PenaltyName
from synthfair.surrogate.fair import WeightedTable

Bounds = Mapping[Any, tuple[float, float]] | tuple[Any, Any]
"""A pair (lower, upper) by column; or one for all, of numbers or of arrays [n_features]."""

Categories = Mapping[Any, Any]
"""A list of values by column, for columns that are categories."""

GROUP = "sensitive_features"
"""Column of the sensitive features in the schema."""

SHARED = "max_gap", "penalty", "notion", "temperature", "groups_by"
"""Settings of fairness that a server and a client have alike."""

LABEL = "y"
"""Column of y in the schema."""

MAX_FEATURE_GROUPS = 100
"""Values of the sensitive features; of more, each has too few rows to be compared."""

NO_GROUPS = np.array(["all", "none"])
"""Where there are no sensitive features: all rows are of the first."""


@dataclass(kw_only=True, eq=False, repr=False)
class FairEstimator(BaseEstimator):
    """The settings that FairLogisticRegression explains, and the reading of rows by them."""

    is_published: ClassVar[bool] = False
    """A flag: the schema is published, and should hold nothing that is learned from the rows."""

    rho: float = 10.0
    max_gap: float | None = None
    notion: Notion = "statistical_parity"
    pos_label: Any = None
    groups_by: Sequence[Any] | None = None
    penalty: PenaltyName | Penalty | None = None
    temperature: float = 4.0
    bounds: Bounds | None = None
    categories: Categories | None = None
    basis: Literal["spline"] | None = None
    interactions: Sequence[tuple[Any, Any]] = ()

    def _fairness(self, **more: Any) -> ServerConfig:
        """Return what is asked of a model. Raises InputError: a setting is not allowed."""
        given = {name: getattr(self, name) for name in SHARED} | more
        if self.groups_by is not None:
            if isinstance(self.groups_by, str):
                raise InputError(f"groups_by = {self.groups_by!r}: must be a list of columns")
            given["groups_by"] = tuple(
                CROSS.join(map(group_column, str(name).split(CROSS))) for name in self.groups_by
            )
        if self.max_gap is None:
            given["rho"] = self.rho
        if self.penalty is None or self._own_penalty:
            del given["penalty"]
        if self._own_penalty and self.groups_by is not None:
            raise InputError("groups_by: needs a penalty by name; a function has its own groups")
        return ServerConfig(**given)

    @property
    def _own_penalty(self) -> Penalty | None:
        """The penalty, where it is a function."""
        return self.penalty if callable(self.penalty) else None

    def _read_arrays(
        self, x: Any, y: Any, sensitive_features: Any, sample_weight: Any = None
    ) -> tuple[WeightedTable, np.ndarray]:
        """Return the encoded rows that fit is given, and the labels of y = -1 and of y = +1.

        Without sensitive features, all rows are of one group; without weights, all count alike, and
        rows that weigh 0 are left out. The schema of the rows, the classes and the groups become
        attributes of the estimator. There is a UserWarning where more than a twentieth of a column
        lies outside of its bounds.

        Raises:
            ValueError: as scikit-learn's checks do.
            InputError: a column, value, bound or category does not fit, or there are too many
                groups.
        """
        # One label and one weight for each row of X; rows without weight are as if not there.
        table, y = self._read_table(x, y, reset=True)
        y = _one_each(y, "y", x)
        check_classification_targets(y)
        _warn_of_index(sample_weight, "sample_weight", x)
        weight = _check_sample_weight(
            sample_weight, table, dtype=np.float64, ensure_non_negative=True
        )
        counted = weight > 0
        classes, labels = np.unique(y[counted], return_inverse=True)
        if len(classes) > 2:
            kind = type_of_target(y)
            raise ValueError(
                f"Only binary classification is supported. The type of the target is {kind}."
            )
        if len(classes) < 2:
            raise InputError(f"y: holds one class, {classes.tolist()[0]!r}; two are needed")

        # One group for each row, and few enough that they can be compared.
        groups, s = {GROUP: NO_GROUPS}, np.zeros(len(labels), int)
        if sensitive_features is not None:
            groups = {}
            for name, column in _attributes(sensitive_features).items():
                groups[name], codes = np.unique(
                    _one_each(column, name, x, bare=True)[counted], return_inverse=True
                )
                _require_few(groups[name], len(s), name, sensitive_features)
                s = s * len(groups[name]) + codes
        self.classes_ = classes
        if self._positive(classes) == classes[0]:
            classes, labels = classes[::-1], 1 - labels

        # The schema of these columns, and the rows by it. A value that is not listed is refused,
        # which the schema itself allows for later rows.
        table = table[counted]
        self.schema_ = schema = self._make_schema(table, classes, groups)
        self.groups_ = groups.get(GROUP, np.array(schema.groups))
        x = expand(encoded(table, schema.plain), schema)
        return WeightedTable(x, s, 2.0 * labels - 1, weight[counted]), classes

    def _read_table(
        self, x: Any, y: Any = "no_validation", *, reset: bool
    ) -> tuple[pd.DataFrame, Any]:
        """Return X as a table whose columns have names, and y [N].

        Raises:
            ValueError: as scikit-learn's checks do.
            InputError: no values at all, or columns of one name.
        """
        x = cast(Any, as_pandas(x))
        if isinstance(x, pd.DataFrame):
            table = _of_frame(x)
            validate_data(self, cast(Any, x), y, reset=reset, skip_check_array=True)
            return table, y
        how: Any = {"dtype": np.float64, "ensure_all_finite": "allow-nan"}
        checked = validate_data(self, x, y, reset=reset, **how)
        values, y = (checked, y) if isinstance(y, str) else checked
        names = getattr(self, "feature_names_in_", None)
        return _of_frame(pd.DataFrame(values, columns=names)), y

    def _positive(self, classes: np.ndarray) -> Any:
        """Return the label of the positive class, with a warning where the alphabet says which."""
        if self.pos_label is None:
            if self.notion == "equal_opportunity" and classes.dtype.kind not in "biuf":
                warn(
                    f"pos_label: {str(classes[1])!r} counts as the positive class, as it comes last"
                    " in the alphabet; pos_label says which label is the good one"
                )
            return classes[1]
        if self.pos_label not in classes:
            raise InputError(f"pos_label: {self.pos_label!r}; must be one of {classes.tolist()}")
        return self.pos_label

    def _make_schema(
        self, table: pd.DataFrame, classes: np.ndarray, groups: Mapping[str, np.ndarray]
    ) -> Schema:
        """Return the schema of a table, with y and the sensitive features as further columns.

        Columns are as the arguments say, or else as they are drafted; those of numbers stay
        numbers, and those with ``categories``, by argument or dtype, are these. A value that is
        none of them has no indicator. Where a column has missing values, they have an indicator.

        Raises:
            InputError: bounds or categories of a column that there is not, or that are not
                allowed; or another basis or other interactions than there are.
        """
        if self.basis not in (None, "spline"):
            raise InputError(f"basis: {self.basis!r}; must be 'spline' or None")
        roles = {**groups, LABEL: classes}
        if taken := set(roles) & set(table.columns):
            raise InputError(
                f"X: column {min(taken)!r}: y or sensitive features are called so; rename the"
                " column"
            )
        if not isinstance(self.categories, Mapping | None):
            raise InputError(f"categories: {self.categories!r}; must be lists of values by column")
        bounds = _bounds(table, self.bounds)
        categories = _by_name("categories", self.categories or {}, table)
        columns, learned = {}, []
        for name in map(str, table.columns):
            pair, listed = bounds.get(name), categories.get(name)
            columns[name], cause = self._column(table[name], pair, listed)
            if cause != DECLARED:
                learned.append(name)
        if learned and self.is_published:
            warn(
                f"X: columns {learned}: bounds or categories are learned from the rows, and"
                " so not public: what is made of the rows discloses them; give bounds= and"
                " categories= from a codebook"
            )

        texts = {name: tuple(map(str, values)) for name, values in roles.items()}
        columns |= {name: Categorical(categories=values) for name, values in texts.items()}
        try:
            return Schema(
                name="arrays",
                label=LABEL,
                positive=texts[LABEL][1],
                sensitive=GROUP if len(groups) == 1 else tuple(groups),
                columns=columns,
                ignored=(),
                missing_values=(),
                interactions=tuple((_name(a), _name(b)) for a, b in self.interactions) or None,
            )
        except ValidationError as error:
            raise refusal("X, y and sensitive_features", error) from error

    def _column(
        self, values: pd.Series, pair: Any, categories: Any
    ) -> tuple[Numeric | Categorical, str]:
        """Return a column as it is drafted, and why so; later values not listed are unknown."""
        entry, cause = draft_column(
            values,
            additive=self.basis is not None,
            categories=categories,
            bounds=pair,
            quantities=True,
        )
        source = f"X: column {values.name!r}"
        if entry is None:
            raise InputError(f"{source}: {cause}; drop it, or give categories=")
        if "unlisted" in entry:
            warn(f"{source}: {cause}; drop it, merge values, or give categories=")
        try:
            if entry["kind"] == "numeric":
                return Numeric.model_validate(entry), cause
            unknown = None if "unlisted" in entry else "ignore"
            column = Categorical.model_validate(entry | {"unknown": unknown})
        except ValidationError as error:
            raise refusal(source, error) from error
        if unknown and not self.is_published:
            tidy = tidied(values.to_frame("x"), (), ["x"])["x"]
            position = find_categories(tidy, column.categories)
            counts = np.bincount(position[position >= 0], minlength=len(column.categories))
            shares = counts / max(1, counts.sum())
            column = column.model_copy(update={"shares": tuple(shares.tolist())})
        return column, cause


def as_pandas(x: Any) -> Any:
    """Return tables of polars and Arrow in pandas, and sparse rows as an array; others as is.

    Raises InputError: sparse rows of more columns than a schema may have.
    """
    if not issparse(x):
        return in_pandas(x)
    if x.shape[1] > MAX_COLUMNS:
        raise InputError(f"X: {x.shape[1]} columns; at most {MAX_COLUMNS} are allowed")
    return x.toarray()


def group_column(name: object) -> str:
    """Return the schema's name of one of several sensitive features; X may have that name."""
    return f"{GROUP}: {name}"


def warn(message: str, category: type[Warning] = UserWarning) -> None:
    """Warn of the line of the user: the first that is not of this package."""
    level = 1
    while str(sys._getframe(level).f_globals.get("__name__")).startswith("synthfair."):
        level += 1
    warnings.warn(message, category, stacklevel=level + 1)


def encoded(table: pd.DataFrame, schema: Schema) -> np.ndarray:
    """Return the encoded rows [N, d], with a warning of values that are clipped or unknown.

    Raises:
        InputError: other columns, or a value that is no number.
    """
    clipping = Clipping()
    given: Any = {"source": "X", "clipping": clipping, "extra_columns": False, "groups": False}
    values, _ = encode_inputs(table, schema, **given)
    for sentence in clipping.warnings("Correct bounds="):
        warn(f"X: {sentence}")
    return values


def to_units(x: np.ndarray, schema: Schema) -> np.ndarray:
    """Return [N, d] encoded rows, scaled back to the units of X."""
    values, features = np.array(x), schema.features
    for i, name in enumerate(schema.encoded_names):
        if isinstance(column := features.get(name), Numeric):
            values[:, i] = column.lower + x[:, i] * (column.upper - column.lower)
    return values


def encoder_of(x: Any, schema: Schema) -> FunctionTransformer:
    """Return a transformer of rows like X to columns in the units of X; pandas where X is."""
    encoder = FunctionTransformer(
        _transform, kw_args={"schema": schema}, feature_names_out=_encoded_names
    )
    encoder.fit(x)
    return encoder.set_output(transform="pandas") if isinstance(x, pd.DataFrame) else encoder


def _transform(x: Any, schema: Schema) -> np.ndarray:
    x = as_pandas(x)
    if not isinstance(x, pd.DataFrame):
        x = pd.DataFrame(np.asarray(x), columns=list(schema.features))
    return to_units(encoded(_of_frame(x), schema), schema)


def _encoded_names(encoder: FunctionTransformer, _names: object) -> np.ndarray:
    return np.array(encoder.get_params()["kw_args"]["schema"].encoded_names, dtype=object)


def _attributes(sensitive_features: Any) -> dict[str, Any]:
    """Return one column, or several by the names that they have in the schema."""
    if isinstance(sensitive_features, pd.DataFrame):
        columns = dict(sensitive_features.items())
    else:
        values = np.asarray(sensitive_features)
        columns = dict(enumerate(values.T)) if values.ndim == 2 else {}
    if len(columns) < 2:
        return {GROUP: sensitive_features}
    return {group_column(name): column for name, column in columns.items()}


def _require_few(groups: np.ndarray, n_rows: int, name: str, sensitive_features: Any) -> None:
    """Refuse groups that cannot be compared: a single one, or too many for the rows."""
    if len(groups) > min(MAX_FEATURE_GROUPS, max(2, n_rows / 2)):
        title = getattr(sensitive_features, "name", None)
        raise InputError(
            f"{name}{f' {title!r}' if title else ''}: {len(groups)} different values in {n_rows}"
            f" rows; at most {MAX_FEATURE_GROUPS} groups are compared, of two rows or more on"
            " average: bin numbers, such as by pandas.cut, or merge values"
        )
    if len(groups) < 2:
        raise InputError(f"{name}: holds one group, {groups.tolist()[0]!r}; two are needed")


def _one_each(values: Any, name: str, x: Any, *, bare: bool = False) -> np.ndarray:
    """Return values [N], one for each row of X by position; warn where indexes say otherwise.

    Args:
        values: of labels or groups.
        name: of the argument, for messages.
        x: the rows.
        bare: without the blanks round texts.

    Raises:
        InputError: more or fewer of them, one that is missing, or kinds that have no order.
    """
    _warn_of_index(values, name, x)
    array, n_rows = np.asarray(values), _num_samples(x)
    if array.shape == (n_rows, 1):
        array = array[:, 0]
    if array.shape != (n_rows,):
        raise InputError(
            f"{name}: of shape {array.shape}; must be one value for each of the {n_rows} rows of X"
        )
    if array.dtype.kind in "OU":
        column = pd.Series(array, dtype=object)
        column = column.map(lambda v: v.strip() if isinstance(v, str) else v) if bare else column
        array = column.infer_objects().to_numpy()  # such as of nullable integers
    if (missing := pd.isna(array)).any():
        raise InputError(f"{name}, row {np.argmax(missing) + 1}: missing; each row needs a value")
    try:
        np.unique(array)
    except TypeError as error:
        raise InputError(f"{name}: must be all numbers or all text: {error}") from error
    return array


def _warn_of_index(values: Any, name: str, x: Any) -> None:
    index = getattr(values, "index", None)
    if isinstance(x, pd.DataFrame) and isinstance(index, pd.Index) and not index.equals(x.index):
        warn(
            f"{name}: its index is not that of X; values are taken by position, the first for the"
            f" first row of X. If they belong together by index, give {name}.loc[X.index]"
        )


def _of_frame(x: pd.DataFrame) -> pd.DataFrame:
    """Return a table with names, each column of the simplest dtype that holds its values.

    Raises:
        InputError: no values at all, or columns of one name.
    """
    if not x.size:
        raise InputError(f"X: of shape {x.shape}; must have a row and a column at least")
    return tidied(x.set_axis(list(map(_name, x.columns)), axis=1), ()).infer_objects()


def _name(column: Any) -> str:
    """Return what scikit-learn calls a column, which without a name is x0, x1, ..."""
    return column.strip() if isinstance(column, str) else f"x{column}"


def _by_name(argument: str, given: Mapping[Any, Any], table: pd.DataFrame) -> dict[str, Any]:
    """Return what is given, by the column's name. Raises InputError: X has no such column."""
    named = {_name(column): value for column, value in given.items()}
    if unknown := set(named) - set(table.columns):
        raise InputError(f"{argument}: X has no column {min(unknown)!r}")
    return named


def _bounds(table: pd.DataFrame, bounds: Bounds | None) -> dict[str, tuple[float, float]]:
    """Return the bounds that are given, by column; a pair for all is for columns of numbers."""
    if isinstance(bounds, Mapping | None):
        pairs = _by_name("bounds", bounds or {}, table)
        return {name: _ends(f"bounds: column {name!r}", pair, ()) for name, pair in pairs.items()}
    pairs = zip(table.columns, *_ends("bounds", bounds, table.shape[1]), strict=True)
    is_number = pd.api.types.is_any_real_numeric_dtype
    return {name: (lower, upper) for name, lower, upper in pairs if is_number(table[name])}


def _ends(source: str, pair: Any, shape: Any) -> tuple[Any, Any]:
    """Return the lower and the upper bounds of a shape. Raises InputError: they are no numbers."""
    try:
        lower, upper = (np.broadcast_to(np.asarray(end, float), shape).tolist() for end in pair)
    except (TypeError, ValueError) as error:
        raise InputError(
            f"{source}: {pair!r}; must be a pair (lower, upper) of numbers, or for all columns of"
            " arrays with a number for each"
        ) from error
    return lower, upper

"""A schema made from arrays, and the rows that it encodes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, cast

import numpy as np
import pandas as pd
from pydantic import ValidationError
from sklearn.preprocessing import FunctionTransformer
from sklearn.utils.multiclass import check_classification_targets, type_of_target
from sklearn.utils.validation import _check_sample_weight, _num_samples, validate_data

from synthfair.data.batches import RealRows, gather
from synthfair.data.draft import draft_column, draft_number
from synthfair.data.encode import (
    Clipping,
    Encoded,
    as_numbers,
    encode,
    encode_inputs,
    expand,
    find_categories,
    tidied,
)
from synthfair.data.schema import Categorical, Numeric, Schema
from synthfair.errors import InputError, refusal
from synthfair.sklearn.keywords import GROUP, Bounds, FairEstimator, as_pandas, group_column, warn

LABEL = "y"
"""Column of y in the schema."""

MOST_GROUPS = 100
"""Values of the sensitive features; of more, each has too few rows to be compared."""

NO_GROUPS = np.array(["all", "none"])
"""Where there are no sensitive features: all rows are of the first."""


def encoded(table: pd.DataFrame, schema: Schema) -> np.ndarray:
    """Return the encoded rows [N, d], with a warning of values that are clipped or unknown.

    Raises:
        InputError: other columns, or a value that is no number.
    """
    clipping = Clipping()
    given: Any = {"source": "X", "clipping": clipping, "others": False, "groups": False}
    values, _ = encode_inputs(table, schema, **given)
    warn_of(clipping)
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


class TrainingRows(NamedTuple):
    """What fit reads from its arguments.

    Attributes:
        schema: with y and the sensitive features as columns LABEL and GROUP; of several sensitive
            features see :func:`synthfair.sklearn.keywords.group_column`.
        learned: names of the columns whose bounds or categories are of the rows.
        rows: encoded; without those that weigh 0.
        weight: [N] of the rows, positive.
        classes: the two labels; the second is y = +1, that of ``pos_label``.
        groups: values of the sensitive features, or combinations of those of several columns;
            position is group index.
    """

    schema: Schema
    learned: list[str]
    rows: Encoded
    weight: np.ndarray
    classes: np.ndarray
    groups: np.ndarray

    @property
    def count_alike(self) -> bool:
        """Whether all rows weigh the same."""
        return np.ptp(self.weight) == 0

    @property
    def distilled(self) -> Encoded | RealRows:
        """The rows with their weights, as they are distilled."""
        if self.count_alike:
            return self.rows
        return gather(self.rows, n_groups=1, intercept=True, weight=self.weight)


def read_arrays(
    estimator: FairEstimator, x: Any, y: Any, sensitive_features: Any, sample_weight: Any = None
) -> TrainingRows:
    """Return the rows that fit is given, checked and encoded by a schema of them.

    Without sensitive features, all rows are of one group; without weights, all count alike. There
    is a UserWarning where more than a twentieth of a column lies outside of its bounds.

    Raises:
        ValueError: as scikit-learn's checks do.
        InputError: a column, value, bound or category does not fit, or there are too many groups.
    """
    # One label and one weight for each row of X; rows without weight are as if not there.
    table, y = read_table(estimator, x, y, reset=True)
    y = _one_each(y, "y", x)
    check_classification_targets(y)
    _warn_of_index(sample_weight, "sample_weight", x)
    weight = _check_sample_weight(sample_weight, table, dtype=np.float64, ensure_non_negative=True)
    counted = weight > 0
    classes, labels = np.unique(y[counted], return_inverse=True)
    if len(classes) > 2:
        kind = type_of_target(y)
        raise ValueError(
            f"Only binary classification is supported. The type of the target is {kind}."
        )

    # One group for each row, and few enough that they can be compared.
    attributes = {GROUP: (NO_GROUPS, np.zeros(len(labels), int))}
    if sensitive_features is not None:
        attributes = {
            name: np.unique(_bare(_one_each(column, name, x)[counted]), return_inverse=True)
            for name, column in _attributes(sensitive_features).items()
        }
    for name, (groups, s) in attributes.items():
        if len(groups) > min(MOST_GROUPS, max(2, len(s) / 2)):
            own = getattr(sensitive_features, "name", None)
            raise InputError(
                f"{name}{f' {own!r}' if own else ''}: {len(groups)} different values in"
                f" {len(s)} rows; at most {MOST_GROUPS} groups are compared, of two rows or more on"
                " average: bin numbers, such as by pandas.cut, or merge values"
            )
    if len(classes) < 2:
        raise InputError(f"y: holds one class, {classes.tolist()[0]!r}; two are needed")
    if _positive(estimator, classes) == classes[0]:
        classes, labels = classes[::-1], 1 - labels
    for name, (groups, _) in attributes.items():
        if len(groups) < 2:
            raise InputError(f"{name}: holds one group, {groups.tolist()[0]!r}; two are needed")

    # The schema of these columns, and the rows by it.
    table = table[counted]
    listed = {name: groups for name, (groups, _) in attributes.items()}
    schema, learned = make_schema(table, classes, listed, estimator)
    roles = {name: groups.astype(str)[s] for name, (groups, s) in attributes.items()}
    roles[LABEL] = classes.astype(str)[labels]
    clipping = Clipping()
    # A value that is not listed is refused, which the schema itself allows for later rows.
    plain = encode(table.assign(**roles), schema.plain, source="X", clipping=clipping)
    rows = plain._replace(x=expand(plain.x, schema))
    warn_of(clipping)
    groups = listed[GROUP] if GROUP in listed else np.array(schema.groups)
    return TrainingRows(schema, learned, rows, weight[counted], classes, groups)


def _positive(estimator: FairEstimator, classes: np.ndarray) -> Any:
    """Return the label of the positive class, with a warning where the alphabet says which."""
    if estimator.pos_label is None:
        if estimator.notion == "equal_opportunity" and classes.dtype.kind not in "biuf":
            warn(
                f"pos_label: {str(classes[1])!r} counts as the positive class, as it comes last in"
                " the alphabet; pos_label says which label is the good one"
            )
        return classes[1]
    if estimator.pos_label not in classes:
        raise InputError(f"pos_label: {estimator.pos_label!r}; must be one of {classes.tolist()}")
    return estimator.pos_label


def warn_of(clipping: Clipping) -> None:
    """Warn of columns with unknown values, or of which more than a twentieth was clipped."""
    for sentence in clipping.warnings("Correct bounds="):
        warn(f"X: {sentence}")


def _attributes(sensitive_features: Any) -> dict[str, Any]:
    """One column, or several by the names that they have in the schema."""
    if isinstance(sensitive_features, pd.DataFrame):
        columns = dict(sensitive_features.items())
    else:
        values = np.asarray(sensitive_features)
        columns = dict(enumerate(values.T)) if values.ndim == 2 else {}
    if len(columns) < 2:
        return {GROUP: sensitive_features}
    return {group_column(name): column for name, column in columns.items()}


def _one_each(values: Any, name: str, x: Any) -> np.ndarray:
    """[N] values, one for each row of X, by position; warns where indexes say otherwise.

    Raises:
        InputError: more or fewer of them, one that is missing, or kinds that have no order.
    """
    _warn_of_index(values, name, x)
    array, n_rows = np.asarray(values), _num_samples(x)
    if array.dtype == object and array.ndim == 1:
        array = pd.Series(array).infer_objects().to_numpy()  # such as of nullable integers
    if array.shape == (n_rows, 1):
        array = array[:, 0]
    if array.shape != (n_rows,):
        raise InputError(
            f"{name}: of shape {array.shape}; must be one value for each of the {n_rows} rows of X"
        )
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


def read_table(
    estimator: FairEstimator, x: Any, y: Any = "no_validation", *, reset: bool
) -> tuple[pd.DataFrame, Any]:
    """X as a table whose columns have names, and y [N].

    Raises:
        ValueError: as scikit-learn's checks do.
        InputError: no values at all, or columns of one name.
    """
    x = as_pandas(x)
    if isinstance(x, pd.DataFrame):
        table = _of_frame(x)
        validate_data(estimator, cast(Any, x), y, reset=reset, skip_check_array=True)
        return table, y
    checked = validate_data(
        estimator, cast(Any, x), y, reset=reset, dtype=np.float64, ensure_all_finite="allow-nan"
    )
    values, y = (checked, y) if isinstance(y, str) else checked
    table = pd.DataFrame(values, columns=getattr(estimator, "feature_names_in_", None))
    return table.set_axis(list(map(_name, table.columns)), axis=1), y


def _of_frame(x: pd.DataFrame) -> pd.DataFrame:
    """Return a table with names, each column of the simplest dtype that holds its values.

    Raises:
        InputError: no values at all, or columns of one name.
    """
    if not x.size:
        raise InputError(f"X: of shape {x.shape}; must have a row and a column at least")
    return tidied(x.set_axis(list(map(_name, x.columns)), axis=1), ()).infer_objects()


def _bare(values: np.ndarray) -> np.ndarray:
    """Return values without the blanks round texts."""
    if values.dtype.kind not in "OU":
        return values
    return np.array([each.strip() if isinstance(each, str) else each for each in values.tolist()])


def _name(column: Any) -> str:
    """As scikit-learn calls columns without names: x0, x1, ..."""
    return column.strip() if isinstance(column, str) else f"x{column}"


def make_schema(
    table: pd.DataFrame,
    classes: np.ndarray,
    attributes: Mapping[str, np.ndarray],
    estimator: FairEstimator,
) -> tuple[Schema, list[str]]:
    """Return the schema of a table, and what of it was learned from the rows.

    Columns are as the arguments say, or else as they are drafted; those of numbers stay numbers,
    and those with ``categories``, by argument or dtype, are these. A value that is none of them has
    no indicator. Where a column has missing values, they have an indicator.

    Raises:
        InputError: bounds or categories of a column that there is not, or that are not allowed; or
            another basis or other interactions than there are.
    """
    bounds, categories = estimator.bounds, estimator.categories
    if estimator.basis not in (None, "spline"):
        raise InputError(f"basis: {estimator.basis!r}; must be 'spline' or None")
    if taken := {LABEL, *attributes} & set(table.columns):
        raise InputError(
            f"X: column {min(taken)!r}: y or sensitive features are called so; rename the column"
        )
    if not isinstance(categories, Mapping | None):
        raise InputError(f"categories: {categories!r}; must be lists of values by column")
    given = _bounds(table, bounds)
    listed = _by_name("categories", categories or {}, table)

    columns: dict[str, Numeric | Categorical] = {}
    learned = []
    for name in map(str, table.columns):
        try:
            columns[name] = _make_column(table[name], listed.get(name), given.get(name), estimator)
        except ValidationError as error:
            raise refusal(f"X: column {name!r}", error) from error
        is_text = isinstance(columns[name], Categorical)
        said = _listed(table[name], listed.get(name)) if is_text else given.get(name)
        if said is None:
            learned.append(name)

    pairs = tuple((_name(one), _name(other)) for one, other in estimator.interactions)
    labels = tuple(map(str, classes))
    roles = {**attributes, LABEL: classes}
    columns |= {name: Categorical(categories=tuple(map(str, roles[name]))) for name in roles}
    try:
        schema = Schema(
            name="arrays",
            label=LABEL,
            positive=labels[1],
            sensitive=GROUP if len(attributes) == 1 else tuple(attributes),
            columns=columns,
            ignored=(),
            missing_values=(),
            interactions=pairs or None,
        )
    except ValidationError as error:
        raise refusal("X, y and sensitive_features", error) from error
    return schema, learned


def _by_name(argument: str, given: Mapping[Any, Any], table: pd.DataFrame) -> dict[str, Any]:
    """What is given by name or index of a column. Raises InputError: X has no such column."""
    named = {_name(column): value for column, value in given.items()}
    if unknown := set(named) - set(table.columns):
        raise InputError(f"{argument}: X has no column {min(unknown)!r}")
    return named


def _listed(values: pd.Series, categories: Any) -> list[Any] | None:
    """Return the categories that the argument or the dtype lists, None where neither does."""
    if categories is None and pd.api.types.is_bool_dtype(values):
        categories = [False, True]
    elif categories is None and isinstance(values.dtype, pd.CategoricalDtype):
        categories = values.dtype.categories
    elif categories is None:
        return None
    listed = pd.Index(np.atleast_1d(categories))
    if not pd.api.types.is_any_real_numeric_dtype(listed):
        listed = listed.astype("string").str.strip()
    return listed.tolist()


def _make_column(
    values: pd.Series, categories: Any, pair: Any, estimator: FairEstimator
) -> Numeric | Categorical:
    """Return a column as the arguments or its dtype say, and else as it is drafted."""
    name, entry = str(values.name), {"categories": _listed(values, categories)}
    by_name = isinstance(estimator.bounds, Mapping) and pair is not None  # such a column is numbers
    is_number = by_name or pd.api.types.is_any_real_numeric_dtype(values)
    if entry["categories"] is None and not is_number:
        entry, cause = draft_column(values)
        if entry is None:
            raise InputError(f"X: column {name!r}: {cause}; drop it, or give categories=")
        if "unlisted" in entry:
            warn(f"X: column {name!r}: {cause}; drop it, merge values, or give categories=")

    known = tidied(values.to_frame(), (), [name])[name].dropna()
    missing = "category" if len(known) < len(values) else "refuse"
    if entry.get("categories") is None:
        numbers = as_numbers(known)
        numbers = numbers[np.isfinite(numbers)]  # encoding refuses the others
        if not len(numbers):
            raise InputError(f"X: column {name!r}: holds no number; drop the column")
        if np.ptp(numbers) == 0:  # bounds have a width
            numbers = numbers[0] + np.array([0, max(1.0, abs(numbers[0]))])
        entry = draft_number(numbers, pair, additive=estimator.basis is not None)
        return Numeric.model_validate(entry | {"missing": missing})
    unknown = None if "unlisted" in entry else "ignore"
    column = Categorical.model_validate(entry | {"missing": missing, "unknown": unknown})
    if unknown is None or not estimator.keeps_shares:
        return column
    position = find_categories(known, column.categories)
    counts = np.bincount(position[position >= 0], minlength=len(column.categories))
    return column.model_copy(update={"shares": tuple((counts / max(1, counts.sum())).tolist())})


def _bounds(table: pd.DataFrame, bounds: Bounds | None) -> dict[str, tuple[float, float]]:
    """Return the bounds that are given, by column."""
    given: Any = {} if bounds is None else bounds
    if not isinstance(given, Mapping):
        try:
            low, high = (np.broadcast_to(np.asarray(end, float), table.shape[1]) for end in given)
        except (TypeError, ValueError) as error:
            raise InputError(
                f"bounds: must be a pair (lower, upper) of numbers or of {table.shape[1]} numbers"
                f" each, or such a pair by column: {error}"
            ) from error
        given = dict(zip(table.columns, zip(low, high, strict=True), strict=True))
    pairs = _by_name("bounds", given, table)
    for name, pair in pairs.items():
        try:
            low, high = map(float, pair)
        except (TypeError, ValueError) as error:
            raise InputError(
                f"bounds: column {name!r}: {pair!r}; must be a pair of numbers"
            ) from error
        pairs[name] = low, high
    return pairs

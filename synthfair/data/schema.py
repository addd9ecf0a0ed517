"""The public schema of a table: a codebook, never fitted to rows."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import compress, pairwise, product
from math import prod
from os import PathLike
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

import numpy as np
from pydantic import (
    AfterValidator,
    BaseModel,
    Field,
    StringConstraints,
    ValidationError,
    model_validator,
)

from synthfair.data.bases import Basis
from synthfair.errors import CONTROLS, InputError, refusal
from synthfair.files import parse_as, read_bytes
from synthfair.settings import STRICT, on_one_line

INTERCEPT = "(intercept)"
"""The name that models give the input that is always 1; no encoded column has it."""

RELEASE_COLUMNS: tuple[str, str, str] = "(group)", "(label)", "(weight)"
"""The names of a release's columns behind the features; only surrogates have the last. No column of
a schema has one of them."""

Text = Annotated[str, StringConstraints(strip_whitespace=True)]
"""A name of a column, or a text in one; blanks around it do not count."""

Value = int | float | Text
"""A value in a categorical column. Numbers are equal by value: 1 and 1.0 are one category."""

MISSING_VALUES = ("", "NA", "NaN")
"""Texts that stand for a missing value where a schema does not say."""

MIN_WIDTH, MAX_WIDTH = 1e-100, 1e100
"""The range of widths of a number's bounds; beyond, coefficients in its unit overflow."""

CROSS = " x "
"""The separator of attributes, or of their values, that are taken together."""

SMALL_COMBINATIONS = f"{CROSS}other"
"""The ending of the name of a first attribute's value under which its small combinations merge."""

MAX_COMBINATIONS = 1000
"""The most combinations of several sensitive attributes."""

MAX_COLUMNS = 10_000
"""The most columns of a table or a schema, encoded columns, and categories of a column."""

MAX_SCHEMA_BYTES = 2**21
"""The largest size of a schema's file, and half that of a release's header, which holds it."""


RULES = ("at_least", "below", "between")
"""Rules by which numbers of a label are positive."""


def bin_names(bins: Sequence[float | None]) -> tuple[str, ...]:
    """Return the names of the bins between edges, of which the first and last may be None: open.

    >>> bin_names([0, 25, 40, 65])
    ('0 to below 25', '25 to below 40', '40 to 65')
    >>> bin_names([None, 10, None])
    ('below 10', 'at least 10')
    """
    edges, last = [edge if edge is None else f"{edge:.12g}" for edge in bins], len(bins) - 2
    names = []
    for i, (low, high) in enumerate(pairwise(edges)):
        if low is None or high is None:
            names.append(f"below {high}" if low is None else f"at least {low}")
        else:
            names.append(f"{low} to {high}" if i == last else f"{low} to below {high}")
    return tuple(names)


def ruled(document: dict[str, Any], rule: dict[str, Any]) -> dict[str, Any]:
    """Return a schema's document whose label is positive by a rule: of bins, one of them positive.

    Raises:
        ValueError: no rule of :data:`RULES` with its number, or two; or the label is not numeric.
    """
    (name, given), *more = [*rule.items()] or [("", None)]
    numbers = given if name == "between" else [given]
    is_rule = not more and name in RULES and isinstance(numbers, list | tuple)
    n_edges = 1 + (name == "between")
    if not (is_rule and len(numbers) == n_edges and all(type(v) in (int, float) for v in numbers)):
        raise ValueError(f"positive {rule}: must be one of {shown(RULES)} with its number or two")
    columns, label = document.get("columns"), document.get("label")
    columns = columns if isinstance(columns, dict) else {}
    column = columns.get(label) if isinstance(label, str) else None
    if not isinstance(column, dict) or column.get("kind") != "numeric":
        raise ValueError(f"positive {rule}: is for a label of kind numeric")
    bins = [None, *numbers, None]
    kept = {key: value for key, value in column.items() if key == "missing"}
    binned = {"kind": "categorical", "bins": bins} | kept
    positive = bin_names(bins)[name != "below"]
    return document | {"positive": positive, "columns": columns | {label: binned}}


Label = Annotated[Text, StringConstraints(min_length=1, max_length=60), AfterValidator(on_one_line)]
"""A name of a category for people."""


class Numeric(BaseModel):
    """A column of numbers, scaled to (value - lower) / (upper - lower), or functions of that.

    A missing value, where allowed, is encoded as 0 with a 1 in a column of its own; where there is
    a basis, all its functions are 0 then.
    """

    model_config = STRICT

    kind: Literal["numeric"] = "numeric"
    lower: float
    upper: float
    out_of_range: Literal["refuse", "clip"] = "refuse"
    missing: Literal["refuse", "category"] = "refuse"
    basis: Basis | None = None

    @model_validator(mode="after")
    def _bounds_fit(self) -> Numeric:
        if not MIN_WIDTH <= self.upper - self.lower <= MAX_WIDTH:
            raise ValueError(
                f"upper {self.upper}: must be {MIN_WIDTH:g} to {MAX_WIDTH:g} above lower"
                f" {self.lower}"
            )
        if self.basis is not None:
            self.basis.require_between(self.lower, self.upper)
        return self


class Categorical(BaseModel):
    """A column of listed values, or of numbers in bins, encoded one-hot in the order listed.

    Of two categories only the second gets a column: the first is where that is 0. A value that is
    not listed is refused, or stands for the category ``unlisted``, or is ``unknown``: then it
    counts as a missing one, or where these have no indicator as each category by its share, with a
    warning. ``shares`` are those of the categories; equal ones if not given. A missing value is
    refused, has an indicator of its own (``category``), or is taken as an unlisted one
    (``unlisted``).

    ``bins`` are increasing edges that sort numbers into categories: each from one edge to below the
    next, the last one with its upper edge. None at an end is no bound. ``categories`` are then the
    names of the bins.

    ``labels`` are names for people, by category as text: {"0": "not white"}. Groups are called so
    in results. They do not enter the schema's hash: releases pool whether they have labels or not,
    and a result has those of the schema that its command read.
    """

    model_config = STRICT

    kind: Literal["categorical"] = "categorical"
    categories: tuple[Value, ...] = Field(min_length=2, max_length=MAX_COLUMNS, strict=False)
    bins: tuple[float | None, ...] | None = Field(
        default=None, strict=False, exclude_if=lambda given: given is None
    )
    unlisted: Value | None = None
    unknown: Literal["ignore"] | None = None
    shares: tuple[Annotated[float, Field(ge=0, le=1)], ...] | None = Field(
        default=None, strict=False, exclude_if=lambda given: given is None
    )
    missing: Literal["refuse", "category", "unlisted"] = "refuse"
    labels: dict[Text, Label] | None = Field(default=None, exclude_if=lambda given: given is None)

    @model_validator(mode="before")
    @classmethod
    def _bins_are_categories(cls, document: object) -> object:
        if not isinstance(document, dict) or (bins := document.get("bins")) is None:
            return document
        edges = bins if isinstance(bins, list | tuple) else ()
        numbers = [v for i, v in enumerate(edges) if v is not None or 0 < i < len(edges) - 1]
        is_number = all(type(v) in (int, float) for v in numbers)
        if len(edges) < 3 or not is_number or not is_increasing(numbers):
            raise ValueError(
                f"bins {bins}: must increase in 12 digits, 3 or more; ends may be null"
            )
        names = bin_names(bins)
        if tuple(document.get("categories", names)) != names:
            raise ValueError(f"categories: with bins they must be {shown(names)}, or not be given")
        return document | {"categories": names}

    @model_validator(mode="after")
    def _values_are_listed(self) -> Categorical:
        if len({isinstance(value, str) for value in self.categories}) > 1:
            raise ValueError(
                f"categories {shown(self.categories)}: must be all numbers or all text"
            )
        if len(set(self.categories)) < len(self.categories):
            twice = Counter(self.categories).most_common(1)[0][0]
            raise ValueError(f"categories: must not repeat a value; {twice!r} is there twice")
        if large := [v for v in self.categories if not isinstance(v, str) and abs(v) > 2**53]:
            raise ValueError(f"categories: {large[0]}: beyond 2^53 numbers differ as text only")
        if self.unlisted is not None and self.unlisted not in self.categories:
            raise ValueError(f"unlisted is {self.unlisted!r}, which must be one of the categories")
        if self.missing == "unlisted" and self.unlisted is None:
            raise ValueError("missing is 'unlisted', which needs the key unlisted")
        if self.unlisted is not None and self.unknown is not None:
            raise ValueError("unknown and unlisted are both given; one says what is not listed")
        each = len(self.categories) if self.unknown else 0
        if self.shares is not None and len(self.shares) != each:
            raise ValueError("shares: must be one of each category, and go with unknown")
        values = [*map(str, self.categories)]
        if unlisted := [name for name in self.labels or () if name not in values]:
            raise ValueError(f"labels: {unlisted[0]!r} must be one of {shown(values)}")
        return self


Column = Annotated[Numeric | Categorical, Field(discriminator="kind")]

Pair = Annotated[tuple[Text, Text], Field(strict=False)]


class GroupNames(NamedTuple):
    """A grouping: the groups that are compared with each other, with their names.

    Attributes:
        grouping: the group of each index s, or -1 where it is not compared.
        names: the names of the groups.
    """

    grouping: tuple[int, ...]
    names: tuple[str, ...]

    def with_rows(self, rows: np.ndarray, least: float) -> GroupNames:
        """Return the groups that have ``least`` rows, of numbers of rows [G] by index s."""
        grouping = np.array(self.grouping)
        is_compared = grouping >= 0
        size = np.bincount(grouping[is_compared], rows[is_compared], minlength=len(self.names))
        kept = size >= least
        place = np.append(np.where(kept, np.cumsum(kept) - 1, -1), -1)  # the last is of no group
        return GroupNames(tuple(place[grouping].tolist()), tuple(compress(self.names, kept)))


class Schema(BaseModel):
    """The public description of a table: columns, ranges, categories and roles.

    Attributes:
        name: of the table.
        description: for people; where the bounds come from.
        label: name of a categorical column.
        positive: the category of the label, or several, that are y = +1; all others are y = -1. In
            JSON, for a label of numbers, a rule: {"at_least": 10}, {"below": 10} or {"between": [5,
            10]}, of which the last means from 5 to below 10; the label is then in bins.
        sensitive: name of a categorical column; its categories, in order, are the groups 0, 1, ...
            Of several columns, such as sex and race, the groups are all combinations of their
            categories, those of the last column changing first.
        columns: by name. All but the label and the sensitive attribute are features, in this order.
        ignored: columns that a table may have and that are not used.
        missing_values: texts that stand for a missing value in a file.
        interactions: pairs of features, of whose encoded columns all products enter, too.

    Raises:
        ValueError: the parts do not fit together; the message says which.

    Example:
        >>> from synthfair.data.schema import Categorical, Numeric, Schema
        >>> schema = Schema(
        ...     name="loans",
        ...     label="paid",
        ...     positive="yes",
        ...     sensitive="town",
        ...     columns={
        ...         "income": Numeric(lower=0.0, upper=100.0, out_of_range="clip"),
        ...         "home": Categorical(categories=("own", "rent"), missing="category"),
        ...         "town": Categorical(categories=("a", "b")),
        ...         "paid": Categorical(categories=("no", "yes")),
        ...     },
        ... )
        >>> schema.encoded_names
        ('income', 'home=rent', 'home is missing')
        >>> schema.groups
        ('a', 'b')
    """

    model_config = STRICT

    name: str
    description: str = ""
    label: Text
    positive: Value | Annotated[tuple[Value, ...], Field(strict=False)]
    sensitive: Text | Annotated[tuple[Text, ...], Field(strict=False, min_length=2)]
    columns: dict[Text, Column]
    ignored: tuple[Text, ...] = Field((), max_length=MAX_COLUMNS, strict=False)
    missing_values: tuple[Text, ...] = Field(MISSING_VALUES, strict=False)
    interactions: (
        Annotated[tuple[Pair, ...], Field(strict=False, max_length=MAX_COLUMNS)] | None
    ) = None

    @model_validator(mode="before")
    @classmethod
    def _readable(cls, document: object) -> object:
        # Before each column is looked at, as one error for each would bury these.
        fields = document if isinstance(document, dict) else {}
        if isinstance(rule := fields.get("positive"), dict):
            document = fields = ruled(fields, rule)
        if "draft" in fields:
            raise ValueError("still marked a draft; review it, then delete its block 'draft'")
        if isinstance(columns := fields.get("columns"), dict):
            if len(columns) > MAX_COLUMNS:
                raise ValueError(f"holds {len(columns)} columns; at most {MAX_COLUMNS} are allowed")
            if twice := repeated(str(name).strip() for name in columns):
                raise ValueError(f"column {twice[0]!r} appears more than once; blanks do not count")
        return document

    @model_validator(mode="after")
    def _roles_fit(self) -> Schema:
        attributes = self.attributes
        for role, name in (("label", self.label), *(("sensitive", a) for a in attributes)):
            column = self.columns.get(name)
            if not isinstance(column, Categorical):
                allowed = [n for n, c in self.columns.items() if isinstance(c, Categorical)]
                raise ValueError(  # noqa: TRY004
                    f"{role} is {name!r}, which must be a categorical column:"
                    f" {shown(allowed) or 'there is none'}"
                )
            if column.missing != "refuse" and (name == self.label or column.missing == "category"):
                raise ValueError(f"{role} column {name!r} must refuse missing values")
            if column.unknown:
                raise ValueError(f"{role} column {name!r} must refuse unknown values")
            texts = [name, *map(str, column.categories)]
            if role == "sensitive" and (odd := [*filter(CONTROLS.search, texts)]):
                raise ValueError(f"sensitive column {name!r}: {odd[0]!r} holds control characters")
        if clashes := repeated([self.label, *attributes]):
            raise ValueError(f"label, sensitive: {clashes[0]!r} is given twice")
        n_groups = prod(len(self.categorical(name).categories) for name in attributes)
        if len(attributes) > 1 and n_groups > MAX_COMBINATIONS:
            raise ValueError(f"sensitive: {n_groups} groups; at most {MAX_COMBINATIONS} may be")
        if not self.features:
            raise ValueError("columns holds no feature other than label and sensitive")
        return self

    @model_validator(mode="after")
    def _choices_fit(self) -> Schema:
        values, positive = self.label_values, self.positives
        if not positive or len(set(positive)) < len(positive) or not set(positive) < set(values):
            raise ValueError(
                f"positive {self.positive!r}: must be some, not all, of {self.label!r}:"
                f" {shown(values)}"
            )
        features, pairs = self.features, self.interactions or ()
        for pair in pairs:
            if len(set(pair)) < 2 or not set(pair) <= set(features):
                raise ValueError(f"interactions: {list(pair)}: must be two of {shown([*features])}")
        if len({frozenset(pair) for pair in pairs}) < len(pairs):
            raise ValueError("interactions must not repeat a pair")
        return self

    @model_validator(mode="after")
    def _names_fit(self) -> Schema:
        if overlap := set(self.columns) & set(self.ignored):
            raise ValueError(f"columns also ignored: {sorted(overlap)}")
        # Counted before the products are named, of which there may be too many to name.
        width = {name: len(encoded_as(name, column)) for name, column in self.features.items()}
        pairs = self.interactions or ()
        n = sum(width.values()) + sum(width[first] * width[second] for first, second in pairs)
        if n > MAX_COLUMNS:
            raise ValueError(f"columns encode to {n} columns; at most {MAX_COLUMNS} are allowed")
        products = (f"{first} and {second}" for first, second in pairs)
        if clashes := repeated([*self.columns, *products, *RELEASE_COLUMNS]):
            raise ValueError(f"names clash: {clashes}; rename a column")
        names = self.encoded_names
        inputs = [f"{self.sensitive_name}={group}" for group in self.groups]
        if clashes := repeated([*names, *inputs, INTERCEPT]):
            raise ValueError(f"encoded column names clash: {clashes}; rename a column")
        groups = [name for by in self.groupings for name in self.group_names(by)]
        if len(self.attributes) > 1:  # how small combinations are called, see compared
            groups += [
                f"{name}{SMALL_COMBINATIONS}" for name in self.group_names(self.attributes[0])
            ]
        if clashes := repeated(groups):
            raise ValueError(f"names of groups clash: {clashes}; change the labels")
        for name, column in self.columns.items():
            categories = getattr(column, "categories", ())
            if words := set(self.missing_values) & set(categories):
                raise ValueError(f"column {name!r}: {sorted(words)} are also missing_values")
        return self

    def __repr__(self) -> str:
        """Its columns by their roles, in a line."""
        return (
            f"Schema({self.name}: {len(self.features)} features, label {self.label} ="
            f" {self.positive!r}, sensitive {self.sensitive_name})"
        )

    def __str__(self) -> str:
        """Return the same: pydantic's own is of all fields."""
        return repr(self)

    @property
    def features(self) -> dict[str, Numeric | Categorical]:
        """The columns that are neither label nor sensitive attribute."""
        roles = (self.label, *self.attributes)
        return {name: column for name, column in self.columns.items() if name not in roles}

    @property
    def attributes(self) -> tuple[str, ...]:
        """The sensitive attributes: one column, or several."""
        return (self.sensitive,) if isinstance(self.sensitive, str) else self.sensitive

    @property
    def sensitive_name(self) -> str:
        """The sensitive attribute for people; of several as in "sex x race"."""
        return CROSS.join(self.attributes)

    @property
    def groups(self) -> tuple[Value, ...]:
        """Values of the sensitive attribute, or combinations of several; position is group index.

        >>> from synthfair.data.datasets import dataset_schema
        >>> dataset_schema("adult", ("sex", "race")).groups[:2]
        ('Female x White', 'Female x Asian-Pac-Islander')
        """
        values = [self.categorical(name).categories for name in self.attributes]
        if len(values) == 1:
            return values[0]
        return tuple(CROSS.join(map(str, each)) for each in product(*values))

    @property
    def groupings(self) -> dict[str, tuple[int, ...]]:
        """By which groups can be compared: each sensitive attribute, and all of them together.

        By name, the group of each index s. ``groups_of`` names the groups.

        >>> from synthfair.data.datasets import dataset_schema
        >>> dataset_schema("adult", ("sex", "race")).groupings["sex"]
        (0, 0, 0, 0, 0, 1, 1, 1, 1, 1)
        """
        sizes = [len(self.categorical(name).categories) for name in self.attributes]
        index = list(product(*map(range, sizes)))
        by_attribute = zip(self.attributes, zip(*index, strict=True), strict=True)
        return dict(by_attribute) | {self.sensitive_name: tuple(range(len(index)))}

    def groups_of(self, grouping: str) -> tuple[Value, ...]:
        """Return the names of a grouping's groups; of :attr:`groupings`."""
        if grouping == self.sensitive_name:
            return self.groups
        return self.categorical(grouping).categories

    def group_names(self, grouping: str) -> list[str]:
        """Return the names of a grouping's groups for people: labels, or as in "sex=Female".

        >>> from synthfair.data.datasets import dataset_schema
        >>> dataset_schema("loanapp").group_names("white")
        ['other applicants', 'white applicants']
        """
        attributes = self.attributes if grouping == self.sensitive_name else (grouping,)
        columns = {name: self.categorical(name) for name in attributes}
        if not any(column.labels for column in columns.values()):
            return [f"{grouping}={group}" for group in self.groups_of(grouping)]
        parts = [
            [(column.labels or {}).get(str(v), f"{name}={v}") for v in column.categories]
            for name, column in columns.items()
        ]
        return [CROSS.join(each) for each in product(*parts)]

    def groupings_by(self, names: Sequence[str] | None) -> tuple[tuple[int, ...], ...]:
        """Return the groupings of these names; none if None: each index s is a group then.

        Raises:
            InputError: one is not in :attr:`groupings`.
        """
        groupings, wanted = self.groupings, dict.fromkeys(names or ())
        for name in wanted:
            if name not in groupings:
                raise InputError(f"groups_by: {name!r} must be one of {shown([*groupings])}")
        return tuple(groupings[name] for name in wanted)

    def compared(
        self, by: Sequence[str] | None, rows: Sequence[float] | np.ndarray, least: float
    ) -> dict[str, GroupNames]:
        """Return the groups that are compared, by name of the grouping.

        Combinations of several attributes with few rows are one group, called "other", with the
        others of the same first attribute that have few.

        Args:
            by: groupings, of :attr:`groupings`; if None, all attributes together.
            rows: [G] numbers of rows of the groups.
            least: rows that a combination must have.

        Raises:
            InputError: a grouping is not one of the schema's.

        Example:
            >>> from synthfair.data.datasets import dataset_schema
            >>> schema = dataset_schema("law_school", ("race", "male"))
            >>> schema.compared(None, [12, 25, 300, 400], 30)["race x male"].names
            ('race x male=White x 0', 'race x male=White x 1', 'race=Non-White x other')
        """
        by, rows, compared = list(dict.fromkeys(by or (self.sensitive_name,))), np.asarray(rows), {}
        for name, groups in zip(by, self.groupings_by(by), strict=True):
            compared[name] = GroupNames(groups, tuple(self.group_names(name)))
            if name == self.sensitive_name and len(self.attributes) > 1:
                first = self.attributes[0]
                merged = len(groups) + np.array(self.groupings[first])
                grouping = tuple(np.where(rows < least, merged, groups).tolist())
                small = (f"{value}{SMALL_COMBINATIONS}" for value in self.group_names(first))
                every_name = (*compared[name].names, *small)
                tiny = np.finfo(float).tiny
                compared[name] = GroupNames(grouping, every_name).with_rows(rows, tiny)
        return compared

    @property
    def label_values(self) -> tuple[Value, ...]:
        """All values of the label."""
        return self.categorical(self.label).categories

    @property
    def positives(self) -> tuple[Value, ...]:
        """The values of the label that are y = +1."""
        return self.positive if isinstance(self.positive, tuple) else (self.positive,)

    @property
    def negatives(self) -> tuple[Value, ...]:
        """The values of the label that are y = -1."""
        return tuple(value for value in self.label_values if value not in self.positives)

    @property
    def decisions(self) -> tuple[Value, Value]:
        """The names of y = -1 and y = +1: a value of the label; or several, as "a or b"."""
        negative, positive = self.negatives, self.positives
        if len(negative) == len(positive) == 1:
            return negative[0], positive[0]
        return " or ".join(map(str, negative)), " or ".join(map(str, positive))

    @property
    def decided(self) -> tuple[Value, Value]:
        """The decisions for y = -1 and y = +1: the value of the label, or a name of several."""
        of_name = {"negative": self.negatives, "positive": self.positives}
        if any(len(vs) > 1 and name in self.label_values for name, vs in of_name.items()):
            return self.decisions  # a word for several values is a value itself
        no, yes = (vs[0] if len(vs) == 1 else name for name, vs in of_name.items())
        return (no, yes) if type(no) is type(yes) else (str(no), str(yes))

    def pair(self, group: int, label: float) -> str:
        """Return the name of a group (by its index) and a label (-1 or +1) for people."""
        decision = self.decisions[int(label > 0)]
        return f"{self.group_names(self.sensitive_name)[group]} with {self.label}={decision}"

    def categorical(self, name: str) -> Categorical:
        """Return a column that is categorical, as the label and the sensitive attribute are.

        Raises:
            InputError: it is a column of numbers.
        """
        column = self.columns[name]
        if not isinstance(column, Categorical):
            raise InputError(f"column {name!r}: must be categorical")
        return column

    @property
    def encoded_names(self) -> tuple[str, ...]:
        """Names of the d encoded feature columns, in order; products are last."""
        blocks = self.encoded_blocks.values()
        return tuple(name for names in blocks for name in names)

    @property
    def encoded_blocks(self) -> dict[str, list[str]]:
        """Names of the encoded columns of each feature, and of each interaction."""
        blocks = {name: encoded_as(name, column) for name, column in self.features.items()}
        return blocks | {
            f"{first} and {second}": [f"{a} and {b}" for a in blocks[first] for b in blocks[second]]
            for first, second in self.interactions or ()
        }

    @property
    def plain(self) -> Schema:
        """The same without bases and interactions: each number is one encoded column.

        Nor does it take unknown categories: its rows are records, whose values are all known.
        """
        columns = {
            name: column.model_copy(
                update={key: None for key in ("basis", "unknown") if getattr(column, key, None)}
            )
            for name, column in self.columns.items()
        }
        if columns == self.columns and self.interactions is None:
            return self
        return self.model_copy(update={"columns": columns, "interactions": None})

    @property
    def hash(self) -> str:
        """sha256 of the schema in canonical JSON. Files with different hashes never pool.

        Labels are left out: they are names for people alone.
        """
        text = json.dumps(self.document, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()

    @property
    def document(self) -> dict[str, Any]:
        """The schema as JSON has it, without labels."""
        labels = {"columns": {"__all__": {"labels"}}}
        return self.model_dump(mode="json", exclude_none=True, exclude=labels)

    def with_sensitive(self, sensitive: str | Sequence[str]) -> Schema:
        """Make another attribute the sensitive one, or several; others become features.

        Raises:
            InputError: no categorical column has that name, or it may miss values; one is given
                twice.
        """
        names = [sensitive] if isinstance(sensitive, str) else list(sensitive)
        changed = {"sensitive": names[0] if len(names) == 1 else names}
        try:
            return Schema.model_validate(self.model_dump() | changed)
        except ValidationError as error:
            raise refusal(f"sensitive attribute {sensitive!r} of {self.name}", error) from error

    def to_json(self) -> str:
        """Readable JSON; :func:`parse_schema` reads it back."""
        return self.model_dump_json(indent=2, exclude_none=True) + "\n"


def encoded_as(name: str, column: Numeric | Categorical) -> list[str]:
    """Return the names of the encoded columns of one feature."""
    if isinstance(column, Categorical):
        first = 1 if len(column.categories) == 2 else 0
        names = [f"{name}={value}" for value in column.categories[first:]]
    else:
        names = column.basis.names(name) if column.basis else [name]
    return names + ([f"{name} is missing"] if column.missing == "category" else [])


def differences(released: Schema, given: Schema) -> list[str]:
    """Return the differences between the schema of a release and the given one, by column."""
    names = "in the release", "in the schema given"
    lines = document_differences(released.document, given.document, names, 200)
    return [line[:500] for line in lines[:10]] + ["and more"] * (len(lines) > 10)


def document_differences(
    first: dict[str, Any], second: dict[str, Any], names: tuple[str, str], most: int | None
) -> list[str]:
    """Return the differences between two schemas as JSON, a line for each key of a column.

    Args:
        first: the one.
        second: the other.
        names: what lies where, as in "in the release".
        most: letters that are shown of a value; all if None.
    """
    lines, documents = [], []
    for document in map(dict, (first, second)):
        columns = {f"column {name!r}": column for name, column in document.pop("columns").items()}
        document.pop("draft", None)
        documents.append({"schema": document} | columns)
    for place in documents[0] | documents[1]:
        old, new = (document.get(place, {}) for document in documents)
        for key in [key for key in old | new if old.get(key) != new.get(key)]:
            values, only = [old.get(key, ()), new.get(key, ())], ""
            is_set = key in ("categories", "ignored", "missing_values")
            if is_set and set(values[0]) != set(values[1]):
                values = [[v for v in values[i] if v not in values[1 - i]] for i in (0, 1)]
                only = " alone"
            shares = ("none" if v in ((), []) else repr(v)[:most] for v in values)
            where = ", ".join(f"{v} {name}{only}" for v, name in zip(shares, names, strict=True))
            lines.append(f"{place}: {key}: {where}")
    return lines


def is_within(released: Schema, given: Schema) -> bool:
    """Return whether records of one schema are records of another, as of a table that grew.

    They are where columns and roles agree, and each column allows no more than the other's: fewer
    categories, or narrower bounds. Bases and interactions are of the server, unless the release's
    schema has them.
    """
    labels = set(released.label_values)
    return (
        (released.label, released.attributes) == (given.label, given.attributes)
        and set(released.columns) == set(given.columns)
        and set(released.positives) == labels.intersection(given.positives)
        and released.interactions in (None, given.interactions)
        and all(
            _is_column_within(column, given.columns[name])
            for name, column in released.columns.items()
        )
    )


def _is_column_within(released: Numeric | Categorical, given: Numeric | Categorical) -> bool:
    if released.missing not in ("refuse", given.missing):
        return False
    if isinstance(released, Categorical) and isinstance(given, Categorical):
        fewer = set(given.categories) - set(released.categories)
        within = set(released.categories) <= set(given.categories)
        return within and (
            released.unlisted is None or (not fewer and released.unlisted == given.unlisted)
        )
    if isinstance(released, Numeric) and isinstance(given, Numeric):
        narrower = given.lower <= released.lower and released.upper <= given.upper
        return narrower and released.basis in (None, given.basis)
    return False


def is_increasing(numbers: Sequence[float]) -> bool:
    """Return whether each number is finite and above the one before, in the digits of bin_names."""
    values = np.array([f"{number:.12g}" for number in numbers], float)
    return bool(np.isfinite(values).all() and (np.diff(values) > 0).all())


def repeated(names: Iterable[str]) -> list[str]:
    """Return the names that occur more than once, sorted."""
    return sorted(name for name, count in Counter(names).items() if count > 1)


def shown(values: Sequence[Value], most: int = 20) -> str:
    """Return values for an error: the first of them, and how many there are."""
    text = ", ".join(map(str, values[:most]))
    return text if len(values) <= most else f"{text}, ... ({len(values)} in all)"


def parse_schema(text: str | bytes, *, source: str) -> Schema:
    """Return a schema from JSON text, which is hostile until validated.

    Args:
        text: JSON.
        source: what to call it in errors.

    Raises:
        InputError: not JSON, not a schema, or still marked a draft.
    """
    return parse_as(text, Schema, source)


def read_schema(path: str | PathLike[str]) -> Schema:
    """Return a reviewed schema from a JSON file.

    Args:
        path: of the file, such as ``synthfair schema`` drafts and a person completes.

    Raises:
        InputError: unreadable, not a schema, or still a draft; the message names the file, the key,
            the value and what is allowed.

    Example:
        >>> import synthfair as sf
        >>> from synthfair.data.datasets import configs_folder
        >>> schema = sf.read_schema(configs_folder() / "schemas" / "adult.json")
        >>> schema.label, schema.positive, schema.groups
        ('income', '>50K', ('Female', 'Male'))
    """
    return parse_schema(read_bytes(Path(path), MAX_SCHEMA_BYTES), source=str(path))

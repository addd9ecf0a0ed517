"""Settings: frozen models, read from Python, TOML files or flags."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Iterable, Mapping
from math import isnan, nan
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Self, TypeVar, get_args

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Discriminator,
    Field,
    PlainSerializer,
    SerializerFunctionWrapHandler,
    Tag,
    ValidationError,
    WrapValidator,
    model_serializer,
    model_validator,
)

from synthfair.errors import CONTROLS, InputError, refusal
from synthfair.files import read_bytes

STRICT = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False, defer_build=True)
"""Validation of all that is read from outside: no other keys, and no value of another type, such as
"10" or true for 10."""


def on_one_line(text: str) -> str:
    """Return a text. Raises ValueError: it has control characters, or several lines."""
    if CONTROLS.search(text):
        raise ValueError("must be on one line, without control characters")
    return text


Line = Annotated[str, Field(max_length=10_000), AfterValidator(on_one_line)]
"""Text that is safe to show."""


def _nan_where_null(value: Any, check: Callable[[Any], float]) -> float:
    is_undefined = value is None or (isinstance(value, float) and isnan(value))
    return nan if is_undefined else check(value)


Undefined = (
    WrapValidator(_nan_where_null),
    PlainSerializer(lambda value: None if isnan(value) else value, float | None),
)
"""Annotations of a number that may be not-a-number, which JSON has as null."""

AsObject = PlainSerializer(
    lambda part: {name: None if isnan(value) else value for name, value in part._asdict().items()},
    dict[str, Any],
)
"""Annotation of a named tuple of numbers, which JSON has as an object."""

Count = Annotated[int, Field(ge=0, lt=2**53)]
Share = Annotated[float, Field(ge=0, le=1), *Undefined]
Number = Annotated[float, Field(ge=-1e12, le=1e12), *Undefined]
"""Numbers in files of results."""

LEAST_EPSILON, LARGEST_EPSILON = 1e-6, 100.0
"""Beyond, a guarantee says nothing, and exp(epsilon) leaves the range in which it is computed."""

LEAST_DELTA = 1e-15
"""A smaller one would see where the noise of rounds ends, which is of floating-point numbers."""

Seed = Field(
    default=0,
    ge=0,
    lt=2**32,
    description="Seed of everything random; the same seed gives the same bytes.",
)

GroupsBy = Field(
    default=None,
    min_length=1,
    max_length=20,
    strict=False,
    exclude_if=lambda given: given is None,
    description="Of a schema with several sensitive attributes, such as sex and race: by which of"
    ' them groups are compared: "sex" and "race", each by itself, or "sex x race", which is all'
    " combinations, small ones merged. Of several gaps the largest counts. Default: combinations.",
)
"""Groupings of several sensitive attributes."""


_Notion = Literal["statistical_parity", "demographic_parity", "equal_opportunity", "equalized_odds"]


def notion_of(name: str, *others: str) -> Any:
    """Return a notion's own name; statistical parity may be called ``demographic_parity``, too.

    Args:
        name: of a notion.
        others: notions that are allowed in addition to the usual three.

    Raises:
        InputError: there is no such notion.
    """
    if name not in (allowed := (*get_args(_Notion), *others)):
        raise InputError(f"notion = {name!r}: must be one of {', '.join(allowed)}")
    return "statistical_parity" if name == "demographic_parity" else name


Notion = Annotated[_Notion, AfterValidator(notion_of)]
"""Rows in which groups are compared: all; those with the positive label; those of each label.
``demographic_parity`` is another name for the first."""

ParityNotion = Annotated[
    Literal[_Notion, "accuracy_parity"],
    AfterValidator(lambda name: notion_of(name, "accuracy_parity")),
]
"""Rates that must not differ between groups: of true positives (computed as those of false
negatives); of positive decisions, which have two names; of true and of false positives; of right
decisions."""

PenaltyName = Literal["covariance", "selection_rate"]
"""The penalties that come with synthfair."""

Relation = Literal["add_or_remove", "replace"]
"""The neighbouring relation: one table has a row more than the other, or one row is another."""

WeightMethod = Literal["published", "kamiran_calders"]
"""The goal of weights: pairs of group and label weigh the same; or the two become independent."""


class Checked(BaseModel):
    """A model whose values are validated once.

    Raises:
        InputError: a value out of range or an unknown key, in a line each.
    """

    model_config = STRICT

    if not TYPE_CHECKING:  # type checkers know the fields

        def __init__(self, **values: Any) -> None:  # noqa: D107
            try:
                super().__init__(**values)
            except ValidationError as error:
                raise refusal("", error) from None

        # What is read from a file is validated without it, and its errors name the file.
        __init__.__pydantic_base_init__ = True


class Settings(Checked):
    """Settings that are validated once, and show what differs from the defaults."""

    model_config = {"use_attribute_docstrings": True}

    other_names: ClassVar[Mapping[str, str]] = {}
    """What a setting may also be called."""

    if not TYPE_CHECKING:

        def __init__(self, **values: Any) -> None:  # noqa: D107
            super().__init__(**self.named(values))

        __init__.__pydantic_base_init__ = True

    @classmethod
    def named(cls, values: Mapping[str, Any]) -> dict[str, Any]:
        """Return the values under the names of the fields.

        Raises:
            InputError: one is given by both of its names.
        """
        for other, name in cls.other_names.items():
            if {other, name} <= values.keys():
                raise InputError(f"{name}, {other}: two names of one setting; give one")
        return {cls.other_names.get(key, key): value for key, value in values.items()}

    @property
    def given(self) -> dict[str, Any]:
        """Settings that make the same: those that are no defaults, or not those of the others."""
        given = self.model_dump(exclude_defaults=True)
        made = dict(type(self).model_validate(given))
        settable = {n for n, field in type(self).model_fields.items() if not field.exclude}
        return given | {n: value for n, value in self if n in settable and value != made[n]}

    def replace(self, **values: Any) -> Self:
        """Return the settings with other values, validated; defaults that others led to stay."""
        return type(self)(**self.given | self.named(values))

    def __repr__(self) -> str:
        """Return the call that makes the same."""
        given = ", ".join(f"{name}={value!r}" for name, value in self.given.items())
        return f"{type(self).__name__}({given})"

    def __str__(self) -> str:
        """Return the same: pydantic's own is of all fields."""
        return repr(self)


RULE_OF_THUMB = 0.1
"""Gap that counts as fair enough where nobody says another. Documentation of fairness libraries
names it as acceptable (Holistic AI's ``statistical_parity``); it is no law and no theorem."""

MAX_AMOUNTS = 100_000
"""The most amounts, as many as a run may have clients."""


class Target(BaseModel):
    """The fairness that a run was asked for; metrics.json has it as ``asked``.

    Attributes:
        by: what asks for fairness: the ``weight`` of a penalty (rho, rho_o); the ``tolerance`` of a
            constraint (alpha, eps); the largest ``gap`` that is wanted, for which a weight is
            searched; ``row_weights``, by group and label; or ``nothing``, in a method that has none
            of these.
        amounts: weights, tolerances or gaps of the clients, each once; a tolerance without one
            means that the constraint is left out.
        client_gap: the largest gap of a client that is wanted; None where none is.

    Example:
        >>> import synthfair as sf
        >>> asked = sf.DistillConfig(max_gap=0.05).asked
        >>> asked.by, asked.amounts, asked.fairness
        ('gap', (0.05,), True)
        >>> sf.ServerConfig(rho=0.0).asked.fairness
        False
    """

    model_config = STRICT

    by: Literal["weight", "tolerance", "gap", "row_weights", "nothing"]
    amounts: tuple[Annotated[float, Field(ge=0)], ...] = Field(default=(), max_length=MAX_AMOUNTS)
    client_gap: float | None = Field(default=None, gt=0, lt=1)

    @classmethod
    def of(cls, clients: Iterable[Target]) -> Target:
        """Combine several clients' targets; where some want a gap, those gaps."""
        targets = list(clients) or [cls(by="nothing")]
        combined = [one for one in targets if one.by == "gap"] or targets
        amounts = dict.fromkeys(amount for one in combined for amount in one.amounts)
        return cls(by=combined[0].by, amounts=tuple(amounts))

    @property
    def fairness(self) -> bool:
        """Return whether fairness is asked for at all; a weight of 0 asks for none."""
        if self.by == "weight":
            return any(self.amounts)
        return bool(self.amounts) if self.by == "tolerance" else self.by != "nothing"

    @property
    def max_gap(self) -> float | None:
        """Return the largest gap over all rows that is wanted, of several clients' the smallest."""
        return min(self.amounts) if self.by == "gap" and self.amounts else None

    @property
    def other_limit(self) -> str | None:
        """Return a limit that is asked for in words, where it is none of the gap over all rows."""
        if self.by == "tolerance" and self.amounts:
            return f"a tolerance of {min(self.amounts):g} was asked"
        if self.client_gap is not None and self.max_gap is None:
            return f"at most {self.client_gap:g} at each client was asked"
        return None

    @property
    def client_limit(self) -> float:
        """Return the gap up to which a client counts as treated fairly."""
        return self.client_gap or self.max_gap or RULE_OF_THUMB

    @model_validator(mode="after")
    def _amounts_fit(self) -> Target:
        if self.by in ("weight", "gap") and not self.amounts and self.client_gap is None:
            raise ValueError(f"amounts: {self.by} needs at least one")
        if self.by in ("row_weights", "nothing") and self.amounts:
            raise ValueError(f"amounts: {self.by} has none")
        return self


MAX_ROWS = 10_000_000
"""Most synthetic rows of one release; a file that says it holds more is not read."""

MIN_ROWS = 50
"""The fewest real rows of a fair release without an epsilon: rows distilled from fewer give them
away. With one, a minimum would tell how many rows there are."""


class ReleaseSettings(Settings):
    """Settings that releases of both kinds have."""

    epsilon: float | None = Field(default=None, ge=LEAST_EPSILON, le=LARGEST_EPSILON)
    """Makes the release differentially private, e.g. 1; smaller is more private and noisier.
    Without it nothing is guaranteed."""

    delta: float | None = Field(default=None, ge=LEAST_DELTA, lt=1)
    """Goes with epsilon; well below 1 / (number of rows), e.g. 1e-6. It is published: take a round
    number, not one computed from the table."""

    relation: Relation = "add_or_remove"
    """Tables that epsilon makes hard to tell apart: with a row more or less, so that the number of
    rows is protected, too; or with another row in place of one, which takes up to twice the
    noise."""

    k_min: int = Field(default=50, ge=5)
    """Least real rows of a sum, of surrogates and with epsilon. Where a pair of group and label has
    fewer, sums by label and by group stand in its place, as its own would give a few rows away; in
    tables of 60 times as many rows, and of groups or labels with fewer, it is left out. With
    epsilon, a pair whose noisy count is below that, or below three times the standard deviation of
    its noise, gets the number of rows that its label and its group suggest."""

    seed: int = Seed

    @model_validator(mode="after")
    def _epsilon_and_delta(self) -> Self:
        if (self.epsilon is None) != (self.delta is None):
            raise ValueError("epsilon and delta go together: give both or neither")
        return self


GAPS = "max_gap", "max_client_gap"
"""Gaps that a model is searched for."""


def _with_penalty(data: Any) -> Any:
    """Return settings with the penalty of a search, which needs one near the gap itself."""
    if isinstance(data, dict) and any(data.get(name) is not None for name in GAPS):
        return {"penalty": "selection_rate", **data}
    return data


class DistillConfig(ReleaseSettings):
    """Settings of one client's distillation. Symbols as in Wu et al. (2024).

    With epsilon, private records of the rows take the place of the real rows: they are those of a
    surrogate with this epsilon, delta, relation and k_min.
    """

    other_names: ClassVar[Mapping[str, str]] = {"rho": "rho_o"}

    rho_o: float = Field(default=10.0, ge=0)
    """Weight of the fairness penalty on real rows; 0 is plain distillation. The server calls it
    rho, which is taken here, too."""

    max_gap: float | None = Field(default=None, gt=0, lt=1)
    """Largest difference between the groups' decision rates that is wanted on the real rows, e.g.
    0.05: a small rho_o that reaches it is searched for; rho_o itself is not used. Each weight tried
    takes 50 steps. Where it is not given, penalty is then selection_rate."""

    rho_s: float = Field(default=0.0, ge=0)
    """Weight of the fairness penalty on synthetic rows, which have groups with group_input."""

    notion: Notion = "statistical_parity"
    """Rows in which groups are compared: all, those with the positive label, those of each
    label."""

    groups_by: tuple[str, ...] | None = GroupsBy
    penalty: PenaltyName = "covariance"
    """The penalised quantity: covariance of group and score, or the smooth selection-rate gap."""

    temperature: float = Field(default=4.0, gt=0)
    """Steepness of the smooth selection rate; the covariance does not use it."""

    lambda_x: float = Field(default=0.0001, ge=0)
    """Regularisation of the synthetic features."""

    lambda_theta: float = Field(default=0.001, gt=0)
    """Regularisation of the model, here and on the server."""

    intercept: bool = True
    """The model has an intercept."""

    group_input: bool = False
    """The model reads the sensitive attribute. If it does not, the release holds no groups."""

    n_synthetic: int | None = Field(default=None, ge=1, le=MAX_ROWS)
    """Number of synthetic rows; if not given, 200 for each pair of group and label of the schema,
    or, with labels = copy, as many as there are real rows."""

    labels: Literal["balanced", "proportional", "copy"] = "balanced"
    """Labels of the synthetic rows, and groups where the model reads them: equally many of each
    pair; in the real rows' proportions (disclosed); or the real rows' own (disclosed, row by
    row)."""

    start: Literal["range", "middle", "normal", "real"] = "range"
    """First synthetic features: uniform over the schema's range; or over its middle half, from
    where pooled rows of unlike clients keep nearer to central training; normal with the real rows'
    mean and variance (disclosed); or real rows (disclosed)."""

    steps: int = Field(default=1000, ge=1, lt=2**31)
    """Steps of the optimizer; a search with max_gap may need fewer. The release has the synthetic
    features of the lowest outer objective among them."""

    learning_rate: float = Field(default=0.01, gt=0)
    """Learning rate of Adam."""

    inner_tolerance: float | None = Field(default=None, gt=0)
    """The inner solver stops at this gradient norm (in the metric of the Hessian); if not given,
    1e-8, or 1e-5 in single precision."""

    inner_solver: Literal["auto", "lbfgs", "newton"] = "auto"
    """Solver that trains on the synthetic rows in every step; both find the same model. auto is
    L-BFGS, and Newton from some 200 inputs on."""

    linear_solver: Literal["auto", "cholesky", "conjugate_gradient"] = "auto"
    """Solver for the derivative of that model: cholesky forms the Hessian, conjugate_gradient
    only multiplies by it; auto takes the latter from some 200 inputs on."""

    # Without the type, the documentation takes it for a field.
    _penalty_of_a_search: ClassVar = model_validator(mode="before")(_with_penalty)

    @model_validator(mode="after")
    def _groups_of_synthetic_rows(self) -> DistillConfig:
        if self.rho_s and not self.group_input:
            raise ValueError("rho_s: synthetic rows have groups only with group_input = true")
        return self

    @property
    def records(self) -> SurrogateConfig:
        """Return the settings of the private records that replace the rows with epsilon."""
        return SurrogateConfig(
            epsilon=self.epsilon, delta=self.delta, relation=self.relation, k_min=self.k_min
        )

    @property
    def asked(self) -> Target:
        """Return the fairness that is asked of the release."""
        if self.max_gap is not None:
            return Target(by="gap", amounts=(self.max_gap,))
        return Target(by="weight", amounts=(self.rho_o,))


class SurrogateConfig(ReleaseSettings):
    """Settings of a surrogate release. Nothing in it is a choice of fairness: that is the server's.

    A cell is a pair of group and label.

    Raises:
        ValueError: a value out of range, an unknown key, or epsilon without delta.

    Example:
        >>> import synthfair as sf
        >>> sf.SurrogateConfig(epsilon=1.0, delta=1e-6).k_min
        50
    """

    release: Literal["surrogate"] = "surrogate"
    """Kind of the release."""


def _kind(config: Any) -> str:
    """Return the kind of settings that may be hostile: all but a surrogate's are a fair one's."""
    release = (
        config.get("release") if isinstance(config, dict) else getattr(config, "release", None)
    )
    return "surrogate" if release == "surrogate" else "fair"


ReleaseConfig = Annotated[
    Annotated[DistillConfig, Tag("fair")] | Annotated[SurrogateConfig, Tag("surrogate")],
    Discriminator(_kind),
]
"""Settings of a release of either kind; those of a fair release do not name it."""


FOR_SURROGATES = (
    "rho", "max_gap", "max_client_gap", "penalty", "notion", "temperature", "C",
    "intercept", "group_input", "max_rows",
)  # fmt: skip
"""Settings that only surrogates leave to the server; in a fair release they are the client's."""


class ServerConfig(Settings):
    """Settings of the server: of its report, and, for surrogates, of fairness.

    Raises:
        ValueError: a value out of range, or an unknown key.

    Example:
        >>> import synthfair as sf
        >>> sf.ServerConfig(max_gap=0.05).penalty
        'selection_rate'
    """

    other_names: ClassVar[Mapping[str, str]] = {"rho_o": "rho"}

    resamples: int = Field(default=1000, ge=1)
    """Bootstrap resamples behind the 95 % interval of the covariance; those of rates need none."""

    min_group_rows: int = Field(default=0, ge=0, lt=2**53)
    """Gaps leave out groups with fewer test rows, of those that the gap compares; with 0 all groups
    count, and a gap is undefined where one has no row. Whether a client is unfair is asked of
    groups with at least 30."""

    groups_by: tuple[str, ...] | None = GroupsBy
    max_influence: float | None = Field(default=None, gt=0, le=1e12)
    """Largest change of the pooled model's scores that one release may cause, relative to the
    scores without it (root mean squares); a pool in which one causes more is refused. A change of 2
    reverses every decision. Default: 1 for fair releases, 3 for surrogates, as a penalty gives
    another model where an honest client unlike the others is left out; their weights (max_rows) and
    their effect on SPD have caps, too."""

    max_spd_influence: float = Field(default=0.5, gt=0, le=2)
    """Largest change of SPD that one release may cause, on the test rows or, where there are none,
    on the other surrogates; a pool in which one causes more is refused. Who relabels the groups of
    a client's rows changes SPD more than scores. Alike clients change it by hundredths: lower this
    then, e.g. to 0.05; unlike ones by tenths."""

    rho: float = Field(default=10.0, ge=0, le=1000000000.0)
    """Surrogates: weight of the fairness penalty; 0 is none."""

    max_gap: float | None = Field(default=None, gt=0, lt=1)
    """Surrogates: largest difference between the groups' decision rates that is wanted on the
    pooled rows, e.g. 0.05; an accurate model within it is looked for. penalty is then
    selection_rate, if not given."""

    max_client_gap: float | None = Field(default=None, gt=0, lt=1)
    """Surrogates: the same of each client by itself, on its pooled rows, e.g. 0.1: each has a
    penalty of its own, too, and a model is looked for that brings the largest gap of a client to
    it. A client with few rows of some group (fewer than 30, or than min_group_rows) is left out,
    and named."""

    penalty: PenaltyName = "covariance"
    """Surrogates: the penalised quantity: covariance of group and score, or the smooth
    selection-rate gap."""

    notion: Notion = "statistical_parity"
    """Surrogates: rows in which groups are compared: all, those with the positive label, those of
    each label."""

    temperature: float = Field(default=4.0, gt=0)
    """Surrogates: steepness of the smooth selection rate."""

    C: float = Field(default=1.0, gt=0)
    """Surrogates: inverse strength of the ridge, as in scikit-learn: |theta|^2 / (2 C) is added to
    the sum of the losses; the intercept is free."""

    intercept: bool = True
    """Surrogates: the model has an intercept."""

    group_input: bool = False
    """Surrogates: the model reads the sensitive attribute."""

    max_rows: float | None = Field(default=None, gt=0)
    """Surrogates: most real rows that one client can have; public. One that claims more counts as
    so many. Default: 20 times the lower median of what releases claim."""

    seed: int = Seed

    # Without the type, the documentation takes it for a field.
    _penalty_of_a_search: ClassVar = model_validator(mode="before")(_with_penalty)

    @model_validator(mode="after")
    def _one_weight(self) -> ServerConfig:
        for name in GAPS:
            if getattr(self, name) is not None and "rho" in self.model_fields_set:
                raise ValueError(f"rho, {name}: give one; a search for {name} has no weight")
        return self

    @model_serializer(mode="wrap")
    def _serialize(self, dump: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Leaves out the weight that a search does not use, so that a written file can be read."""
        unused = {"rho"} if self.searches else set()
        return {name: value for name, value in dump(self).items() if name not in unused}

    @property
    def searches(self) -> bool:
        """Return whether a gap is asked for, in place of a weight."""
        return self.max_gap is not None or self.max_client_gap is not None

    def most_influence(self, *, surrogates: bool) -> float:
        """Return the cap of ``max_influence``: as given, or the default of such releases."""
        return self.max_influence or (3.0 if surrogates else 1.0)

    @property
    def asked(self) -> Target:
        """Return the fairness that is asked of a model of surrogates."""
        if self.searches:
            amounts = () if self.max_gap is None else (self.max_gap,)
            return Target(by="gap", amounts=amounts, client_gap=self.max_client_gap)
        return Target(by="weight", amounts=(self.rho,))

    @property
    def surrogate_keys(self) -> tuple[str, ...]:
        """Return the settings given that only surrogates need."""
        keys = self.model_fields_set - ({"penalty"} if self.searches else set())
        return tuple(name for name in FOR_SURROGATES if name in keys)


_Config = TypeVar("_Config", bound=Settings)


MAX_BYTES = 2**20
"""The largest size of a file of settings."""

RELEASES: dict[str, type[DistillConfig] | type[SurrogateConfig]] = {
    "fair": DistillConfig,
    "surrogate": SurrogateConfig,
}
"""Settings of each kind of release."""

WITHOUT_EPSILON = "without_epsilon"
"""Key of a file by which a client decides against an epsilon. It is no setting, as releases with
and without that key are the same."""


def load_release_config(
    path: Path | None = None,
    *,
    release: str | None = None,
    without_epsilon: bool = False,
    **overrides: Any,
) -> tuple[DistillConfig | SurrogateConfig, bool]:
    """Return the settings of a release of either kind, and whether it is to have no epsilon.

    The kind is ``release``, or that key of the file, or fair. The decision is ``without_epsilon``,
    or that key of the file, unless the overrides have an epsilon.

    Raises:
        InputError: as :func:`load_settings`; or a setting of the other kind, or both an epsilon and
            the decision against one.
    """
    settings = {} if path is None else read_toml(path)
    key, in_file = settings.pop(WITHOUT_EPSILON, False), settings.pop("release", "fair")
    kind = release or in_file
    if not isinstance(kind, str) or kind not in RELEASES:
        raise InputError(
            f"{path or 'settings'}: release: {kind!r} is not allowed; must be"
            f" {' or '.join(RELEASES)}"
        )
    given = {key: value for key, value in overrides.items() if value is not None}
    if wrong := sorted(given.keys() - RELEASES[kind].model_fields.keys()):
        raise InputError(
            f"flags: {', '.join(wrong)}: not read for a {kind} release"
            + ("; fairness is chosen at the server" if kind == "surrogate" else "")
        )
    config = _over(settings, RELEASES[kind], path, given)
    if kind == "fair" and config.epsilon is None and "k_min" in given:
        raise InputError("flags: k_min: not read for a fair release without epsilon")
    if not isinstance(key, bool):
        raise InputError(f"{path}: {WITHOUT_EPSILON}: must be true or false; got {key!r}")
    is_decided = without_epsilon or (key and "epsilon" not in given)
    if is_decided and config.epsilon is not None:
        places = "flags" if path is None else f"flags and {path}"
        raise InputError(
            f"{places}: {WITHOUT_EPSILON} and epsilon = {config.epsilon:g} exclude each other; give"
            " one"
        )
    return config, is_decided


def load_settings(kind: type[_Config], path: Path | None, overrides: Mapping[str, Any]) -> _Config:
    """Return a TOML file's settings (or the defaults), with overrides that are not None on top.

    Args:
        kind: of the settings.
        path: of the file.
        overrides: settings by their names.

    Raises:
        InputError: unreadable file, unknown key, or a value that is not allowed.
    """
    return _over({} if path is None else read_toml(path), kind, path, overrides)


def _over(
    settings: dict[str, Any], kind: type[_Config], path: Path | None, overrides: Mapping[str, Any]
) -> _Config:
    """Return the settings that a file holds, with overrides that are not None on top."""
    flags = {key: value for key, value in overrides.items() if value is not None}
    try:
        return kind.model_validate(kind.named(settings) | kind.named(flags))
    except ValidationError as error:
        from_flags = path is None or all(
            problem["loc"][:1] and problem["loc"][0] in flags for problem in error.errors()
        )
        raise refusal("flags" if from_flags else str(path), error) from error


def read_toml(path: Path) -> dict[str, Any]:
    """Read a file of settings as they are. Raises InputError: unreadable, or not TOML."""
    try:
        return tomllib.loads(read_bytes(path, MAX_BYTES).decode())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: not TOML: {error}") from error
    except RecursionError as error:
        raise InputError(f"{path}: not settings: values are nested too deeply") from error

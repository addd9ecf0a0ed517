"""The settings of a release, fair or surrogate."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self, cast

from pydantic import Discriminator, Field, Tag, model_validator

from synthfair.errors import InputError
from synthfair.fairness.target import Target, with_penalty
from synthfair.settings import (
    Delta,
    Epsilon,
    GroupsBy,
    Notion,
    PenaltyName,
    Relation,
    Seed,
    Settings,
    override,
    read_toml,
)

MAX_SYNTHETIC_ROWS = 10_000_000
"""Most synthetic rows of one release; a file that says it holds more is not read."""

MIN_EXACT_ROWS = 50
"""The fewest real rows of a fair release without an epsilon: rows distilled from fewer give them
away. With one, a minimum would tell how many rows there are."""


class ReleaseSettings(Settings):
    """The settings that releases of both kinds have."""

    epsilon: Epsilon | None = None
    """Makes the release differentially private, e.g. 1; smaller is more private and noisier.
    Without it nothing is guaranteed."""

    delta: Delta | None = None
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

    without_epsilon: bool = Field(default=False, exclude=True)
    """Makes a release without epsilon on purpose, so that nothing warns of it; epsilon as a flag
    overrides it in a file. Releases with and without it are the same."""

    @model_validator(mode="after")
    def _epsilon_and_delta(self) -> Self:
        if (self.epsilon is None) != (self.delta is None):
            raise ValueError("epsilon and delta go together: give both or neither")
        if self.epsilon is not None and self.without_epsilon:
            raise ValueError("without_epsilon, epsilon: exclude each other; give one")
        return self

    def __eq__(self, other: object) -> bool:
        """Return whether releases are the same; ``without_epsilon``, which none holds, is left out.

        So the settings that were asked for equal those that are read from a file.
        """
        return type(self) is type(other) and self.model_dump() == cast(Self, other).model_dump()

    def __hash__(self) -> int:
        """Return a hash that equal settings share."""
        return hash(self.model_dump_json())


class DistillConfig(ReleaseSettings):
    """The settings of one client's distillation; symbols as in Wu et al. (2024).

    With epsilon, private records of the rows take the place of the real rows: they are those of a
    surrogate with this epsilon, delta, relation and k_min.
    """

    rho_o: float = Field(default=10.0, ge=0)
    """Weight of the fairness penalty on real rows; 0 is plain distillation. The server calls it
    rho."""

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

    n_synthetic: int | None = Field(default=None, ge=1, le=MAX_SYNTHETIC_ROWS)
    """Number of synthetic rows; if not given, 200 for each pair of group and label of the schema,
    or, with labels = copy, as many as there are real rows."""

    labels: Literal["balanced", "copy"] = "balanced"
    """Labels of the synthetic rows, and groups where the model reads them: equally many of each
    pair, or the real rows' own (disclosed, row by row)."""

    start: Literal["range", "middle", "normal"] = "range"
    """First synthetic features: uniform over the schema's range; or over its middle half, from
    where pooled rows of unlike clients keep nearer to central training; or normal with the real
    rows' mean and variance (disclosed)."""

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
    _penalty_of_a_search: ClassVar = model_validator(mode="before")(with_penalty)

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
    """The settings of a surrogate release; fairness is chosen at its server.

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
    """Return the kind of settings that may be hostile; those of a fair release do not name it."""
    given = config if isinstance(config, dict) else getattr(config, "__dict__", {})
    return str(given.get("release", "fair"))


ReleaseConfig = Annotated[
    Annotated[DistillConfig, Tag("fair")] | Annotated[SurrogateConfig, Tag("surrogate")],
    Discriminator(
        _kind,
        custom_error_type="release",
        custom_error_message="release: must be surrogate; a fair release does not name its kind",
    ),
]
"""Settings of a release of either kind."""


def release_settings(kind: Any) -> type[DistillConfig] | type[SurrogateConfig]:
    """Return the class of the settings of a kind of release. Raises InputError: no such kind."""
    if kind not in ("fair", "surrogate"):
        raise InputError(f"release: {kind!r} is not allowed; must be fair or surrogate")
    return SurrogateConfig if kind == "surrogate" else DistillConfig


def load_release_config(
    path: Path | None = None, *, release: str | None = None, **overrides: Any
) -> DistillConfig | SurrogateConfig:
    """Return the settings of a release of the kind ``release``, or of that key of a file, or fair.

    Raises:
        InputError: as :func:`load_settings`; a setting of the other kind; or a k_min of a fair
            release without an epsilon, where it would protect nobody.
    """
    settings = {} if path is None else read_toml(path)
    named = settings.pop("release", "fair")
    try:
        kind = release_settings(release or named)
    except InputError as error:
        raise InputError(f"{path or 'flags'}: {error}") from error
    given = {key: value for key, value in overrides.items() if value is not None}
    if wrong := sorted(given.keys() - kind.model_fields.keys()):
        raise InputError(f"flags: {', '.join(wrong)}: not read; fairness is chosen at the server")
    if "epsilon" in given:
        settings.pop("without_epsilon", None)
    config = override(settings, kind, path, given)
    if isinstance(config, DistillConfig) and config.epsilon is None and "k_min" in given:
        raise InputError("flags: k_min: not read for a fair release without epsilon")
    return config

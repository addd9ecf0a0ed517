"""Settings of a client's release, fair or surrogate."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Discriminator, Field, Tag, model_validator

from synthfair.config.rules import (
    LARGEST_EPSILON,
    LEAST_DELTA,
    LEAST_EPSILON,
    GroupsBy,
    Notion,
    PenaltyName,
    Relation,
    Seed,
    Settings,
)
from synthfair.config.target import Target

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
    only multiplies by it, which is faster from some 200 inputs on; auto chooses by their number."""

    @model_validator(mode="before")
    @classmethod
    def _other_defaults(cls, data: Any) -> Any:
        """Choose the penalty of a search, which needs one near the gap itself."""
        if isinstance(data, dict) and data.get("max_gap") is not None:
            return {"penalty": "selection_rate", **data}
        return data

    @model_validator(mode="after")
    def _groups_of_synthetic_rows(self) -> DistillConfig:
        if self.rho_s and not self.group_input:
            raise ValueError("rho_s: synthetic rows have groups only with group_input = true")
        return self

    @property
    def records(self) -> SurrogateConfig:
        """The settings of the private records that take the place of the rows with epsilon."""
        return SurrogateConfig(
            epsilon=self.epsilon, delta=self.delta, relation=self.relation, k_min=self.k_min
        )

    @property
    def asked(self) -> Target:
        """The fairness that is asked of the release."""
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

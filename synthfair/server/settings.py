"""The settings of a server."""

from __future__ import annotations

from typing import Any, ClassVar

from pydantic import Field, SerializerFunctionWrapHandler, model_serializer, model_validator

from synthfair.fairness.target import Target, with_penalty
from synthfair.settings import GroupsBy, Notion, PenaltyName, Seed, Settings

FOR_SURROGATES = (
    "rho", "max_gap", "max_client_gap", "min_ratio", "penalty", "notion", "temperature", "C",
    "intercept", "group_input", "max_rows",
)  # fmt: skip
"""Settings that only surrogates leave to the server; in a fair release they are the client's."""


class ServerConfig(Settings):
    """The settings of a server: of its report, and, for surrogates, of fairness.

    Raises:
        ValueError: a value out of range, or an unknown key.

    Example:
        >>> import synthfair as sf
        >>> sf.ServerConfig(max_gap=0.05).penalty
        'selection_rate'
    """

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

    min_ratio: float | None = Field(default=None, gt=0, lt=1)
    """Surrogates: least ratio of the lowest selection rate to the highest that is wanted on the
    pooled rows, e.g. 0.8 (four fifths): an accurate model with the largest gap that meets it is
    looked for. For statistical_parity."""

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
    _penalty_of_a_search: ClassVar = model_validator(mode="before")(with_penalty)

    @model_validator(mode="after")
    def _one_weight(self) -> ServerConfig:
        if self.searches and "rho" in self.model_fields_set:
            limits = ("max_gap", "max_client_gap", "min_ratio")
            gap = next(name for name in limits if getattr(self, name) is not None)
            raise ValueError(f"rho, {gap}: give one; a search for a gap has no weight")
        if self.min_ratio is not None and self.notion != "statistical_parity":
            raise ValueError(f"min_ratio, notion: compares selection rates, not {self.notion}")
        return self

    @model_serializer(mode="wrap")
    def _serialize(self, dump: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Leaves out the weight that a search does not use, so that a written file can be read."""
        unused = {"rho"} if self.searches else set()
        return {name: value for name, value in dump(self).items() if name not in unused}

    @property
    def searches(self) -> bool:
        """Return whether a gap is asked for, in place of a weight."""
        return (self.max_gap, self.max_client_gap, self.min_ratio) != (None, None, None)

    @property
    def asked(self) -> Target:
        """Return the fairness that is asked of a model of surrogates."""
        if self.searches:
            amounts = () if self.max_gap is None else (self.max_gap,)
            limits = {"client_gap": self.max_client_gap, "min_ratio": self.min_ratio}
            return Target(by="gap", amounts=amounts, **limits)
        return Target(by="weight", amounts=(self.rho,))

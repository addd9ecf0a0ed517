"""Settings of the methods that train in rounds."""

from __future__ import annotations

from typing import Any, Literal, get_args

from pydantic import BaseModel, Field, model_validator

from synthfair.config.asked import Asked
from synthfair.config.notions import Notion, WeightMethod
from synthfair.config.rules import LARGEST_EPSILON, LEAST_DELTA, LEAST_EPSILON, STRICT, Seed

TrainMethod = Literal[
    "fedavg",
    "fedsgd",
    "fpfl",
    "mmdm",
    "dp_sgd",
    "fair_sgd",
    "two_phase",
    "privfairfl_pre",
    "privfairfl_post",
]
"""Federated averaging; a gradient step a round; the same under fairness constraints; the same with
all rows in one place; noisy steps on each client, averaged; fair training on each client, averaged;
the same once, for a teacher, and a private student of it, averaged; dp_sgd with weights of rows
from counts over all clients; and with decisions by group from a histogram over all clients."""

ParityNotion = Literal[
    "equal_opportunity", "statistical_parity", "equalized_odds", "accuracy_parity"
]
"""Rates that must not differ between groups: of true positives (computed as those of false
negatives); of positive decisions; of true and of false positives; of right decisions."""

_DEFAULTS: dict[str, dict[str, Any]] = {
    "dp_sgd": {"rounds": 4, "learning_rate": 2.0},
    "fair_sgd": {"rounds": 4, "learning_rate": 0.01, "alpha": 0.01},
    "two_phase": {"rounds": 4, "learning_rate": 2.0, "alpha": 0.01},
    "privfairfl_pre": {"rounds": 4, "learning_rate": 2.0},
    "privfairfl_post": {"rounds": 4, "learning_rate": 2.0},
}
"""Of methods that have others than :class:`TrainConfig`."""

_ALL: tuple[TrainMethod, ...] = get_args(TrainMethod)
_COUNTING: tuple[TrainMethod, ...] = ("privfairfl_pre", "privfairfl_post")
_PRIVATE: tuple[TrainMethod, ...] = (
    "fedavg", "fedsgd", "fpfl", "dp_sgd", "two_phase", *_COUNTING,
)  # fmt: skip
_IN_STEPS: tuple[TrainMethod, ...] = ("fedsgd", "fpfl", "mmdm")
_CONSTRAINED: tuple[TrainMethod, ...] = ("fpfl", "mmdm")
_ON_CLIENTS: tuple[TrainMethod, ...] = ("fair_sgd", "two_phase")
_IN_PASSES: tuple[TrainMethod, ...] = ("dp_sgd", *_ON_CLIENTS, *_COUNTING)
_WEIGHTED: tuple[TrainMethod, ...] = ("fedavg", "dp_sgd", "privfairfl_post")

_READ_BY: dict[str, tuple[TrainMethod, ...]] = {
    **dict.fromkeys(("method", "hidden", "group_input", "rounds", "learning_rate", "seed"), _ALL),
    **dict.fromkeys(("cohort", "sampling"), ("fedavg", *_IN_STEPS)),
    **dict.fromkeys(("local_steps", "momentum"), ("fedavg",)),
    **dict.fromkeys(("notion", "alpha"), (*_CONSTRAINED, *_ON_CLIENTS, "privfairfl_post")),
    **dict.fromkeys(("also", "multiplier_rate", "damping", "rate_scale"), _CONSTRAINED),
    **dict.fromkeys(("memory", "count_scale"), _IN_STEPS),
    **dict.fromkeys(("clip", "epsilon", "delta"), _PRIVATE),
    "secure": ("fedavg", "fedsgd", "fpfl"),
    **dict.fromkeys(("end_to_end", "teacher_epochs"), ("two_phase",)),
    **dict.fromkeys(("batch", "local_epochs"), _IN_PASSES),
    **dict.fromkeys(("kappa", "kappa_rate"), _ON_CLIENTS),
    "counts_epsilon": _COUNTING,
    "weight_method": ("privfairfl_pre",),
    **dict.fromkeys(("bins", "randomized", "counts_share"), ("privfairfl_post",)),
}
"""Which methods read a setting."""


class TrainConfig(BaseModel):
    """Settings of a method that trains in rounds. Symbols of Rodríguez-Gálvez et al. (2021).

    Example:
        >>> import synthfair as sf
        >>> config = sf.TrainConfig(method="two_phase", clip=1.0, epsilon=2.0, delta=1e-4)
        >>> config.rounds, config.learning_rate  # the method's own defaults
        (4, 2.0)
        >>> config.given["epsilon"]
        2.0
    """

    model_config = STRICT

    method: TrainMethod = Field(
        default="fpfl",
        description="fedavg: local steps, then averaging. fedsgd: one gradient step a round. fpfl:"
        " the same under fairness constraints. mmdm: that with all rows in one place. dp_sgd:"
        " noisy steps on each client's rows, averaged in 4 rounds unless said otherwise. fair_sgd:"
        " fair training on each client, averaged in 4 rounds unless said otherwise. two_phase: the"
        " same once, for a teacher, and a student of it by noisy steps, averaged likewise."
        " privfairfl_pre: dp_sgd with rows weighed by counts of group and label. privfairfl_post:"
        " dp_sgd, then decisions by group from a histogram of scores.",
    )
    hidden: tuple[int, ...] = Field(
        default=(),
        strict=False,
        max_length=20,
        description="Widths of a network's hidden layers; none for a linear model.",
    )
    group_input: bool = Field(
        default=True, description="Whether the model sees the sensitive attribute."
    )
    rounds: int = Field(default=500, ge=1, lt=2**31, description="Rounds in all.")
    cohort: int | None = Field(
        default=None,
        ge=1,
        description="Users of a round, or, with Poisson sampling, on average; all if not given.",
    )
    sampling: Literal["poisson", "fixed"] = Field(
        default="poisson",
        description="Each user by itself with the same chance, which protects whether a user is"
        " there at all; or cohorts of a fixed number, which protects what a user's rows are, and"
        " needs about three to four times the noise at equal epsilon, as the bound known for it is"
        " loose.",
    )
    learning_rate: float = Field(
        default=0.5, gt=0, description="eta, of a step; of fedavg, of a local step."
    )
    local_steps: int = Field(
        default=5, ge=1, lt=2**31, description="Steps of a user in a round of fedavg."
    )
    momentum: float = Field(
        default=0.0,
        ge=0,
        lt=1,
        description="Share of its last movement that fedavg's server adds to the next.",
    )
    notion: ParityNotion = Field(
        default="statistical_parity",
        description="Rates that must not differ between groups: of true positives; of positive"
        " decisions; of true and of false positives; of right decisions.",
    )
    also: tuple[str, ...] = Field(
        default=(),
        strict=False,
        max_length=20,
        description="Further attributes, by column, whose groups are constrained likewise.",
    )
    alpha: float = Field(
        default=0.02,
        ge=0,
        lt=1,
        description="Most by which a group's rate may differ from all's; of fair_sgd and two_phase,"
        " from another group's (0.01 if not given); of privfairfl_post, from another group's.",
    )
    multiplier_rate: float = Field(default=0.1, ge=0, description="gamma, of the multipliers.")
    damping: float = Field(default=2.0, ge=0, description="c, of violated constraints.")
    memory: float = Field(
        default=0.9,
        ge=0,
        lt=1,
        description="Share that earlier cohorts' counts keep in each round; 0 as published.",
    )
    count_scale: float = Field(
        default=1.0, gt=0, description="The counts for accuracy are sent times this, then clipped."
    )
    rate_scale: float = Field(
        default=1.0,
        gt=0,
        description="The same for the constraint's sums and gradients; above 1 with less noise.",
    )
    clip: float | None = Field(
        default=None,
        gt=0,
        description="Euclidean norm to which what a user sends is clipped; needed with epsilon.",
    )
    epsilon: float | None = Field(
        default=None,
        ge=LEAST_EPSILON,
        le=LARGEST_EPSILON,
        description="Makes training differentially private, a user with all its rows being"
        " protected. Without it nothing is guaranteed.",
    )
    delta: float | None = Field(
        default=None,
        ge=LEAST_DELTA,
        lt=1,
        description="Goes with epsilon; less than 1 / (number of users, or of a client's rows).",
    )
    secure: bool = Field(
        default=False,
        description="Sums what users send by shares of two aggregators, so that nobody sees a"
        " user's; each adds discrete noise of its own where epsilon asks for it. Needs clip.",
    )
    end_to_end: bool = Field(
        default=False,
        description="two_phase: whether the teachers are private, too. If not, its epsilon is"
        " conditional on them, and nothing is guaranteed from end to end.",
    )
    batch: int | None = Field(
        default=None,
        ge=1,
        description="dp_sgd, fair_sgd, two_phase, privfairfl_pre, privfairfl_post: rows of a batch."
        " If not given: 500; but all of the smallest client's rows where it has fewer, except for"
        " fair_sgd, which draws rows with replacement.",
    )
    local_epochs: float = Field(
        default=5.0,
        gt=0,
        description="dp_sgd, fair_sgd, two_phase, privfairfl_pre, privfairfl_post: passes over the"
        " smallest client's rows in a round.",
    )
    teacher_epochs: float = Field(
        default=10.0, gt=0, description="two_phase: passes of the teacher."
    )
    kappa: float = Field(
        default=1.0,
        ge=0,
        description="fair_sgd, two_phase: initial weight of unfairness in the loss; 0 leaves it"
        " out, unless kappa_rate lets it grow.",
    )
    kappa_rate: float = Field(
        default=0.0,
        ge=0,
        description="fair_sgd, two_phase: kappa grows in each step by this times the unfairness; 0:"
        " it is constant. In the paper it grows, at a rate that is not known.",
    )
    counts_epsilon: float | None = Field(
        default=None,
        ge=LEAST_EPSILON,
        le=LARGEST_EPSILON,
        description="privfairfl_pre, privfairfl_post: privacy budget of the counts over all"
        " clients, for one row; on top of the training's epsilon. Without it counts are exact.",
    )
    weight_method: WeightMethod = Field(
        default="kamiran_calders",
        description="privfairfl_pre: how weights follow from counts, see weights.",
    )
    bins: int = Field(
        default=101,
        ge=2,
        le=2**11,
        description="privfairfl_post: number of score bins; 21 where counts_epsilon is 0.1 or"
        " less.",
    )
    randomized: bool = Field(
        default=False, description="privfairfl_post: whether decisions may be drawn by coins."
    )
    counts_share: float = Field(
        default=0.0,
        ge=0,
        lt=1,
        description="privfairfl_post: share of each client's rows that are counted and not trained"
        " on; 0: all are trained on, and counted, as published, so that estimates flatter.",
    )
    seed: int = Seed

    @model_validator(mode="before")
    @classmethod
    def _other_defaults(cls, data: Any) -> Any:
        if not isinstance(data, dict):
            return data
        return {**_DEFAULTS.get(str(data.get("method")), {}), **data}

    @model_validator(mode="after")
    def _on_clients(self) -> TrainConfig:
        if self.method not in _ON_CLIENTS:
            return self
        if self.notion not in ("statistical_parity", "equalized_odds"):
            raise ValueError(f"{self.method}: notion must be statistical_parity or equalized_odds")
        if self.cohort is not None or self.also:
            raise ValueError(f"{self.method}: all clients take part, and one attribute counts")
        return self

    @model_validator(mode="after")
    def _fits_together(self) -> TrainConfig:
        if (self.epsilon is None) != (self.delta is None):
            raise ValueError("epsilon and delta go together: give both or neither")
        if self.epsilon is not None and self.clip is None:
            raise ValueError("epsilon needs clip: what a user may send must be bounded")
        if self.secure and self.reads("secure") and self.clip is None:
            raise ValueError("secure needs clip: sums by shares are of bounded numbers on a grid")
        if self.end_to_end and self.clip is None:
            raise ValueError("end_to_end needs clip: what a row may add to a sum must be bounded")
        if self.clip is not None and self.method not in _PRIVATE:
            raise ValueError(
                f"{self.method} is never private; for clip or epsilon take {', '.join(_PRIVATE)}"
            )
        if min(self.hidden, default=1) < 1:
            raise ValueError("hidden: widths must be at least 1")
        return self

    @model_validator(mode="after")
    def _with_counts(self) -> TrainConfig:
        if self.method not in _COUNTING:
            return self
        if self.method == "privfairfl_post" and self.notion not in get_args(Notion):
            raise ValueError(
                f"privfairfl_post: notion must be one of {', '.join(get_args(Notion))}"
            )
        if self.also:
            raise ValueError(f"{self.method}: one attribute counts")
        if self.epsilon is not None:
            if self.counts_epsilon is None:
                raise ValueError("epsilon needs counts_epsilon: exact counts have no guarantee")
            if self.epsilon + self.counts_epsilon > LARGEST_EPSILON:
                raise ValueError(f"epsilon + counts_epsilon: must be at most {LARGEST_EPSILON:g}")
        return self

    @property
    def asked(self) -> Asked:
        """How much fairness is asked of the model."""
        if self.method == "privfairfl_pre":
            return Asked(by="row_weights")
        if not self.constrained:
            return Asked(by="nothing")
        return Asked(by="tolerance", amounts=(self.alpha,))

    @property
    def constrained(self) -> bool:
        """Whether groups are compared."""
        return self.method in _READ_BY["alpha"]

    @property
    def averaged(self) -> bool:
        """Whether clients make passes over their rows, and the mean is taken, in few rounds."""
        return self.method in _IN_PASSES

    @property
    def weighted(self) -> bool:
        """Whether rows may have weights."""
        return self.method in _WEIGHTED

    @property
    def given(self) -> dict[str, Any]:
        """What was asked for, without what is the method's own default."""
        own = _DEFAULTS.get(self.method, {})
        chosen = {name: getattr(self, name) for name in self.model_fields_set}
        return {k: v for k, v in chosen.items() if k not in own or v != own[k]}

    def reads(self, setting: str) -> bool:
        """Whether the method reads it."""
        return is_read(setting, self.method)


def is_read(setting: str, method: str) -> bool:
    """Whether a method reads a setting."""
    return method in _READ_BY[setting]

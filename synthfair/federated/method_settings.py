"""Settings that all methods in rounds have in common, and how they become a plan.

A method is its settings: a frozen model of its own, :class:`FpflSettings` for example, which knows
how to train on some users. :mod:`synthfair.federated.methods` lists them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from typing import Annotated, Any, ClassVar, NamedTuple

from pydantic import Field, ModelWrapValidatorHandler, model_validator

from synthfair.errors import InputError
from synthfair.federated.algorithm import Algorithm, Count, Positive, RoundRecord
from synthfair.federated.engine import UNPROTECTED, Protection, report_size
from synthfair.federated.networks import LogisticRegression, Perceptron, Trainable
from synthfair.federated.secure_sums import SecureSums, make_secure_sums
from synthfair.federated.users import Cohorts, UserData, Users
from synthfair.model import Params
from synthfair.postprocess.histogram import ScoreHistogram
from synthfair.privacy.accounting import SampledSums, Sampling
from synthfair.privacy.guarantee import Guarantee, Summed
from synthfair.privacy.rounds import noise_for_shares, training_guarantee
from synthfair.settings import LARGEST_EPSILON, LEAST_DELTA, LEAST_EPSILON, Seed, Settings, Target
from synthfair.trained import TrainedModel

BATCH = 500
"""Rows of a batch, where the settings name no number."""

ROWS = "the smallest client's rows"
"""Whose number bounds delta where clients add noise for their rows."""

Epsilon = Annotated[float, Field(ge=LEAST_EPSILON, le=LARGEST_EPSILON)]
Delta = Annotated[float, Field(ge=LEAST_DELTA, lt=1)]

METHODS: dict[str, type[TrainConfig]] = {}
"""The settings of each method, by its name; :mod:`synthfair.federated.methods` fills it in."""


class TrainingPlan(NamedTuple):
    """The plan of a training.

    Attributes:
        algorithm: what the server and the users do.
        cohorts: which users take part.
        protection: of what users send; sums by shares, if so.
        guarantee: of privacy, if the settings ask for one.
        prepare: what happens once, on the users' side, before the rounds: of users, the seed and
            their numbers among all users, the same users with the labels that they learn.
    """

    algorithm: Algorithm
    cohorts: Cohorts
    protection: Protection | SecureSums = UNPROTECTED
    guarantee: Guarantee | None = None
    prepare: Callable[[Users, int, Sequence[int]], Users] | None = None

    @property
    def secure(self) -> SecureSums | None:
        """The sums by shares; None where whoever sums sees the reports."""
        return self.protection if isinstance(self.protection, SecureSums) else None


class TrainConfig(Settings):
    """Settings of a method that trains in rounds: those that the method reads, and no others.

    ``TrainConfig(method="two_phase", ...)`` makes the settings of the method that is named. Flags
    of ``python -m synthfair train``, and keys of its configuration, are named as the fields are.

    Attributes:
        method: its name; fpfl, if none is given.
        hidden: widths of a network's hidden layers; none for a linear model.
        group_input: whether the model reads the sensitive attribute.
        rounds: in all.
        learning_rate: eta, of a step.
        seed: of everything random; the same seed gives the same bytes.

    Raises:
        ValueError: a value out of range, an unknown key, or one that the method does not read.

    Example:
        >>> import synthfair as sf
        >>> config = sf.TrainConfig(method="two_phase", clip=1.0, epsilon=2.0, delta=1e-4)
        >>> config.rounds, config.learning_rate  # the method's own defaults
        (4, 2.0)
        >>> type(config).__name__, config.reads("memory")
        ('TwoPhaseSettings', False)
    """

    method: Any = "fpfl"  # each method has a literal of its own
    hidden: tuple[Annotated[int, Field(ge=1)], ...] = Field(default=(), strict=False, max_length=20)
    group_input: bool = False
    rounds: Count = 500
    learning_rate: Positive = 0.5
    seed: int = Seed

    # What else distinguishes methods
    one_place: ClassVar[bool] = False  # all rows are in one place, and each is a user by itself
    local_passes: ClassVar[bool] = False  # all clients make passes over their rows in each round
    row_weights: ClassVar[bool] = False  # rows may have weights by group and label
    counts_rows: ClassVar[bool] = False  # rows are counted, with noise that no seed repeats
    resumes: ClassVar[bool] = True  # an interrupted run goes on, and does not begin anew
    unconstrained: ClassVar[Mapping[str, str | float]] = {}  # what leaves the constraint out

    # The settings of which method

    def __new__(cls, **settings: Any) -> TrainConfig:
        """An instance of the method's own class, which takes the settings."""
        method = settings.get("method", "fpfl")
        method_class = (
            METHODS.get(method) if cls is TrainConfig and isinstance(method, str) else None
        )
        return super().__new__(method_class or cls)  # type: ignore[arg-type]

    @model_validator(mode="wrap")
    @classmethod
    def _refuse_unread(cls, data: Any, handler: ModelWrapValidatorHandler) -> Any:
        if not isinstance(data, dict):
            return handler(data)
        method = data.get("method", cls.model_fields["method"].default)
        if cls is TrainConfig:
            if not isinstance(method, str) or method not in METHODS:
                raise ValueError(f"method: {method!r} is none; must be one of {', '.join(METHODS)}")
            return METHODS[method].model_validate(data)
        keys = {key for other in METHODS.values() for key in other.model_fields}
        if unread := sorted(key for key in data if key in keys and not cls.reads(key)):
            raise ValueError(f"{', '.join(unread)}: not read by {method}")
        return handler(data)

    @classmethod
    def reads(cls, key: str) -> bool:
        """Whether the method has such a setting."""
        return key in cls.model_fields

    def get(self, key: str, default: Any = None) -> Any:
        """A setting, or a default where the method has no such setting."""
        return getattr(self, key) if self.reads(key) else default

    @property
    def asked(self) -> Target:
        """The fairness that is asked of the model."""
        alpha = self.get("alpha")
        return Target(by="nothing") if alpha is None else Target(by="tolerance", amounts=(alpha,))

    # How it trains, in the order of what happens

    def count_first(
        self,
        data: UserData,
        noise_seed: int | None,  # noqa: ARG002
    ) -> tuple[UserData, ScoreHistogram | None]:
        """Returns the users with weights of rows, and the counts behind these, before planning."""
        return data, None

    def plan(self, data: UserData) -> TrainingPlan:
        """Plans how the method trains on these users.

        Raises:
            InputError: the cohort is larger than the population, or no noise is enough.
        """
        raise NotImplementedError

    def progress(self, history: RoundRecord) -> str:
        """Describes the last round in a few words."""
        raise NotImplementedError

    def converged(self, plan: TrainingPlan, history: RoundRecord) -> bool | None:  # noqa: ARG002
        """Whether a whole history ended well; None where there is no test."""
        return None

    def decide(
        self,
        model: TrainedModel,
        params: Params,  # noqa: ARG002
        data: UserData,  # noqa: ARG002
        noise_seed: int | None,  # noqa: ARG002
    ) -> tuple[TrainedModel, ScoreHistogram | None]:
        """Returns the model with decisions by group, and the counts behind these."""
        return model, None

    # What plans are made of

    def trainable(self, data: UserData) -> Trainable:
        """A linear model, or a network."""
        n = data.users.a.shape[1]
        return Perceptron(n, self.hidden) if self.hidden else LogisticRegression(n)

    def numbers(self, algorithm: type) -> dict[str, Any]:
        """The settings that an algorithm has by the same names."""
        names = {field.name for field in fields(algorithm)}
        return {key: value for key, value in self if key in names}


class CohortSettings(TrainConfig):
    """Settings of methods in which cohorts of users take part.

    Attributes:
        cohort: users of a round, or, with Poisson sampling, on average; all if not given.
        sampling: ``poisson``: each user by itself with the same chance, which protects whether a
            user is there at all; or cohorts of a ``fixed`` number, which protects what a user's
            rows are, and needs about three to four times the noise at equal epsilon, as the bound
            known for it is loose.
    """

    cohort: Annotated[int, Field(ge=1)] | None = None
    sampling: Sampling = "poisson"

    def in_cohorts(self, algorithm: Algorithm, data: UserData) -> TrainingPlan:
        """Returns the plan without protection."""
        n = len(data.users)
        return TrainingPlan(algorithm, Cohorts(n, self.cohort or n, self.sampling))


class PrivacySettings(TrainConfig):
    """Settings of methods that may be private.

    Attributes:
        clip: Euclidean norm to which what a user sends, or a row adds, is clipped; needed with
            epsilon.
        epsilon: makes training differentially private; without it nothing is guaranteed.
        delta: goes with epsilon; less than 1 / (number of users, or of a client's rows).
    """

    clip: Positive | None = None
    epsilon: Epsilon | None = None
    delta: Delta | None = None

    @model_validator(mode="after")
    def _require_bound(self) -> PrivacySettings:
        if (self.epsilon is None) != (self.delta is None):
            raise ValueError("epsilon and delta go together: give both or neither")
        if self.epsilon is not None and self.clip is None:
            raise ValueError("epsilon needs clip: what a user may send must be bounded")
        return self

    def guarantee(
        self, number: int, unit: str, sums: Mapping[Summed, tuple[SampledSums, float]], **more: Any
    ) -> Guarantee | None:
        """Return the guarantee with the least noise, or None where no epsilon is asked for.

        Args:
            number: of whom delta must be far below the inverse.
            unit: what they are.
            sums: and the norm of what is added up, see :func:`training_guarantee`.
            more: arguments of that function.

        Raises:
            InputError: delta is so large that publishing somebody drawn at random would be private.
        """
        if self.epsilon is None or self.delta is None:
            return None
        if self.delta * number >= 1:
            raise InputError(
                f"delta = {self.delta:g}: must be below 1 / {number}, the number of {unit};"
                " better far below"
            )
        return training_guarantee(sums, epsilon=self.epsilon, delta=self.delta, **more)


class UserPrivacySettings(CohortSettings, PrivacySettings):
    """Settings of methods whose users are protected with all their rows.

    Attributes:
        secure: whether what users send is summed by shares of two aggregators, so that nobody sees
            a user's; each adds discrete noise of its own where epsilon asks for it. Needs clip.
    """

    secure: bool = False

    @model_validator(mode="after")
    def _require_shared_bound(self) -> UserPrivacySettings:
        if self.secure and self.clip is None:
            raise ValueError("secure needs clip: sums by shares are of bounded numbers on a grid")
        return self

    def in_cohorts(self, algorithm: Algorithm, data: UserData) -> TrainingPlan:
        """The plan with clipping and noise as the settings ask for; by shares, if they say so."""
        plan, clip, n = super().in_cohorts(algorithm, data), self.clip, len(data.users)
        if clip is None:
            return plan
        sums = SampledSums(n, plan.cohorts.size, self.rounds, self.sampling)
        if not self.secure:
            guarantee = self.guarantee(n, "users", {"reports": (sums, clip)})
            protection = Protection(clip, guarantee.samples[0].noise if guarantee else 0.0)
            return plan._replace(protection=protection, guarantee=guarantee)
        multiplier = None
        if self.epsilon is not None and self.delta is not None:
            multiplier = noise_for_shares((sums,), self.epsilon, self.delta)
        length = report_size(algorithm, data.users)[0]
        secure = make_secure_sums(length, clip=clip, relation=sums.relation, multiplier=multiplier)
        guarantee = self.guarantee(
            n, "users", {"reports": (sums, clip)}, shares=secure.shares, noise=secure.noise_of_one
        )
        return plan._replace(protection=secure, guarantee=guarantee)


class PassSettings(TrainConfig):
    """Settings of methods in which all clients make passes over their rows in each round.

    Attributes:
        batch: rows of a batch. If not given: 500; but all of the smallest client's rows where it
            has fewer.
        local_epochs: passes over the smallest client's rows in a round.
    """

    rounds: Count = 4
    learning_rate: Positive = 2.0
    batch: Annotated[int, Field(ge=1)] | None = None
    local_epochs: Positive = 5.0

    local_passes: ClassVar[bool] = True

    def progress(self, history: RoundRecord) -> str:
        """Shows how far the mean of the clients' movements moved the server."""
        return f"moved by {history.moved[-1]:.2f}"

    def batch_of(self, users: Users) -> int:
        """Rows of a batch; a sum over fewer, divided by the batch, would be too short.

        Raises:
            InputError: a batch that is larger than the smallest client.
        """
        if self.batch is None:
            return min(BATCH, users.smallest)
        if self.batch > users.smallest:
            raise InputError(
                f"batch = {self.batch}: must be 1 to {users.smallest}, the smallest client's rows",
                "batch",
            )
        return self.batch

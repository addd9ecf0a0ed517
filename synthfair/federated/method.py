"""The base of all methods in rounds: their settings, bound to a population.

A method is a frozen model whose fields are its settings, and which trains by them:
:class:`~synthfair.federated.fpfl.Fpfl`, for example. :mod:`synthfair.federated.methods` names them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Annotated, Any, ClassVar, Self, TypeVar

import jax
from pydantic import (
    ConfigDict,
    Field,
    ModelWrapValidatorHandler,
    SerializerFunctionWrapHandler,
    SkipValidation,
    WithJsonSchema,
    model_serializer,
    model_validator,
)

from synthfair.errors import InputError
from synthfair.fairness.target import Target
from synthfair.federated import engine
from synthfair.federated.engine import Algorithm, Protection, RoundRecord, UserReport
from synthfair.federated.networks import LogisticRegression, Perceptron, Trainable
from synthfair.federated.users import Cohorts, UserData, Users
from synthfair.model import Params
from synthfair.postprocess.histogram import ScoreHistogram
from synthfair.privacy.accounting import SampledSums, Sampling
from synthfair.privacy.guarantee import Guarantee, Summed, noise_for_shares, training_guarantee
from synthfair.settings import Delta, Epsilon, Seed, Settings
from synthfair.trained import TrainedModel

Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
AtLeast0 = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Share = Annotated[float, Field(ge=0, lt=1)]
Count = Annotated[int, Field(ge=1, lt=2**31)]
"""Ranges of settings."""


NOT_COMPILED = {"rounds", "seed", "group_input", "cohort", "cohorts", "protection", "guarantee"}
NOT_COMPILED |= {"start", "teacher"}
"""Settings that no function of a round reads: other values need no other code."""

_T = TypeVar("_T")
Given = Annotated[_T, SkipValidation, WithJsonSchema({})]
"""What a method is about, such as its model: no setting; a plan gives it."""


def given(default: Any = None) -> Any:
    """Return a field that is no setting: no file, flag or result has it."""
    return Field(default=default, exclude=True, repr=False)


class TrainConfig(Settings, Algorithm):
    """A method that trains in rounds: a frozen model of the settings that it reads, and no others.

    ``TrainConfig(method="two_phase", ...)`` makes the method that is named. Flags of ``python -m
    synthfair train``, and keys of its configuration, are named as the fields are. With what
    :meth:`plan` gives to it, it has the functions of
    :class:`~synthfair.federated.engine.Algorithm`, and is a pytree of its numbers: code is
    compiled anew for other whole numbers and names that a round reads.

    Attributes:
        model: that is trained.
        cohorts: which users take part; None before the method is planned for users.
        protection: of what users send.
        guarantee: of privacy, if the settings ask for one.

    Raises:
        InputError: a value out of range, an unknown key, or one that the method does not read.

    Example:
        >>> import synthfair as sf
        >>> config = sf.TrainConfig(method="two_phase", clip=1.0, epsilon=2.0, delta=1e-4)
        >>> config.rounds, config.learning_rate  # the method's own defaults
        (4, 2.0)
        >>> type(config).__name__, config.reads("memory")
        ('TwoPhase', False)
    """

    model_config = ConfigDict(arbitrary_types_allowed=True)

    method: Any = "fpfl"  # each method has a literal of its own
    hidden: tuple[Annotated[int, Field(ge=1)], ...] = Field(default=(), strict=False, max_length=20)
    """Widths of a network's hidden layers; none for a linear model."""

    group_input: bool = False
    """Whether the model reads the sensitive attribute."""

    rounds: Count = 500
    """Rounds in all."""

    learning_rate: Positive = 0.5
    """Length eta of a step."""

    seed: int = Seed

    model: Given[Trainable] = given()
    cohorts: Given[Cohorts] = given()
    protection: Given[Protection] = given(engine.UNPROTECTED)
    guarantee: Given[Guarantee | None] = given()

    # What else distinguishes methods
    unread: ClassVar[frozenset[str]] = frozenset()  # settings of others that it does without
    one_place: ClassVar[bool] = False  # all rows are in one place, and each is a user by itself
    local_passes: ClassVar[bool] = False  # all clients make passes over their rows in each round
    by_rows: ClassVar[bool] = False  # users count by their rows, unless a clip makes them alike
    takes_weights: ClassVar[bool] = False  # rows may have weights by group and label
    is_job: ClassVar[bool] = True  # organisations can train so, each one user
    unconstrained: ClassVar[Mapping[str, str | float]] = {}  # what leaves the constraint out
    unsettled: ClassVar[str] = ""  # what to say of rounds that did not end well

    # The settings of which method

    def __new__(cls, **settings: Any) -> TrainConfig:
        """Return an instance of the method's own class, which takes the settings."""
        from synthfair.federated.methods import METHODS

        name = str(settings.get("method", cls.model_fields["method"].default))
        return super().__new__(METHODS.get(name, cls) if cls is TrainConfig else cls)

    @classmethod
    def __pydantic_init_subclass__(cls, **_: Any) -> None:
        """Make the class a pytree of its numbers and arrays."""
        names = [name for name in cls.model_fields if name not in NOT_COMPILED]

        def flatten(method: Self) -> tuple[list[Any], tuple[Any, ...]]:
            read = {name: getattr(method, name) for name in names}
            numbers = [name for name in names if isinstance(read[name], float | jax.Array)]
            static = tuple((name, read[name]) for name in names if name not in numbers)
            return [read[name] for name in numbers], (tuple(numbers), static)

        def unflatten(names: tuple[Any, ...], leaves: Sequence[Any]) -> Self:
            numbers, static = names
            return cls.model_construct(**dict(zip(numbers, leaves, strict=True)), **dict(static))

        jax.tree_util.register_pytree_node(cls, flatten, unflatten)

    @model_validator(mode="wrap")
    @classmethod
    def _refuse_unread(cls, data: Any, handler: ModelWrapValidatorHandler) -> Any:
        from synthfair.federated.methods import METHODS

        if not isinstance(data, dict):
            return handler(data)
        method = data.get("method", cls.model_fields["method"].default)
        kind = METHODS.get(str(method)) if cls is TrainConfig else cls
        if kind is None:
            raise ValueError(f"method: {method!r} is none; must be one of {', '.join(METHODS)}")
        keys = {key for other in METHODS.values() for key in other.model_fields}
        if cls is kind:  # Python may give what no file can
            keys -= {key for key, field in cls.model_fields.items() if field.exclude}
        if unread := sorted(key for key in data if key in keys and not kind.reads(key)):
            raise ValueError(f"{', '.join(unread)}: not read by {method}")
        return handler(data) if cls is kind else kind.model_validate(data)

    @classmethod
    def reads(cls, key: str) -> bool:
        """Return whether the method has such a setting."""
        fields = cls.model_fields
        return key in fields and not fields[key].exclude and key not in cls.unread

    @model_serializer(mode="wrap")
    def _leave_out_unread(self, dump: SerializerFunctionWrapHandler) -> dict[str, Any]:
        return {key: value for key, value in dump(self).items() if key not in self.unread}

    def get(self, key: str, default: Any = None) -> Any:
        """Return a setting, or a default where the method has no such setting."""
        return getattr(self, key) if self.reads(key) else default

    @property
    def asked(self) -> Target:
        """The fairness that is asked of the model."""
        alpha = self.get("alpha")
        return Target(by="nothing") if alpha is None else Target(by="tolerance", amounts=(alpha,))

    @property
    def counts_by_rows(self) -> bool:
        """Return whether a user weighs as much as the rows that it says it has."""
        return self.by_rows and (self.local_passes or self.get("clip") is None)

    # How it trains, in the order of what happens

    def count_first(
        self, data: UserData, noise_seed: int | None
    ) -> tuple[Self, ScoreHistogram | None]:
        """Return the method with weights of rows, and the counts behind these, if any."""
        del data, noise_seed
        return self, None

    def plan(self, data: UserData) -> Self:
        """Return the method as it trains on these users, with all that is given to it.

        Raises:
            InputError: the cohort is larger than the population, or no noise is enough.
        """
        raise NotImplementedError

    def teach(self, users: Users, seed: int, numbers: Sequence[int] | None = None) -> Users:  # noqa: ARG002
        """Return users with the labels that they learn, which are made once, before the rounds.

        Args:
            users: with their own labels.
            seed: of the run.
            numbers: [K] of the users among all, by which their draws differ; 0 to K - 1 if not
                given. A site that is user 3 by itself draws as user 3 among the others does.
        """
        return users

    def check(self, report: UserReport, least_rows: int, most_rows: float) -> None:
        """Refuse a report that no user of so many rows can have. Raises ValueError."""

    def progress(self, history: RoundRecord) -> str:
        """Describe the last round by the first numbers of its record."""
        pairs = list(zip(history._fields, history, strict=True))[:2]
        return ", ".join(f"{name} {values[-1]:.4g}" for name, values in pairs)

    def converged(self, history: RoundRecord) -> bool | None:  # noqa: ARG002
        """Return whether a whole history ended well; None where there is no test."""
        return None

    def decide(
        self, model: TrainedModel, params: Params, data: UserData, noise_seed: int | None
    ) -> tuple[TrainedModel, ScoreHistogram | None]:
        """Return the model with decisions by group, and the counts behind these, if any."""
        del params, data, noise_seed
        return model, None

    # What plans are made of

    def bound(self, **values: Any) -> Self:
        """Return the method with what is given to it, unchecked."""
        return self.model_copy(update=values)

    def bound_to(self, data: UserData, **values: Any) -> Self:
        """Return the method with a linear model, or a network, in which all users take part."""
        n, everyone = data.users.a.shape[1], Cohorts(len(data.users), len(data.users))
        model = Perceptron(n, self.hidden) if self.hidden else LogisticRegression(n)
        return self.bound(model=model, cohorts=everyone, **values)


class Private(TrainConfig):
    """A method that may be private."""

    clip: Positive | None = None
    """Euclidean norm to which what a user sends, or a row adds, is clipped; needed with epsilon."""

    epsilon: Epsilon | None = None
    """Makes training differentially private; without it nothing is guaranteed."""

    delta: Delta | None = None
    """Goes with epsilon; less than 1 / (number of users, or of a client's rows)."""

    @model_validator(mode="after")
    def _require_bound(self) -> Private:
        if (self.epsilon is None) != (self.delta is None):
            raise ValueError("epsilon and delta go together: give both or neither")
        if self.epsilon is not None and self.clip is None:
            raise ValueError("epsilon needs clip: what a user may send must be bounded")
        return self

    def promise(
        self, number: int, sums: Mapping[Summed, tuple[SampledSums, float]], **more: Any
    ) -> Guarantee | None:
        """Return the guarantee with the least noise, or None where no epsilon is asked for.

        Args:
            number: of users, or of the smallest client's rows, of which delta must be far below
                the inverse.
            sums: and the norm of what is added up, see :func:`training_guarantee`.
            more: arguments of that function.

        Raises:
            InputError: delta is so large that publishing somebody drawn at random would be private.
        """
        if self.epsilon is None or self.delta is None:
            return None
        unit = "users" if "reports" in sums else "the smallest client's rows"
        if self.delta * number >= 1:
            raise InputError(
                f"delta = {self.delta:g}: must be below 1 / {number}, the number of {unit};"
                " better far below"
            )
        return training_guarantee(sums, epsilon=self.epsilon, delta=self.delta, **more)


class InCohorts(Private):
    """A method in which cohorts of users take part, who are protected with all their rows."""

    cohort: Annotated[int, Field(ge=1)] | None = None
    """Users of a round, or, with Poisson sampling, on average; all if not given."""

    sampling: Sampling = "poisson"
    """``poisson``: each user by itself with the same chance, which protects whether a user is there
    at all; or cohorts of a ``fixed`` number, which protects what a user's rows are, and needs about
    three to four times the noise at equal epsilon, as the bound known for it is loose."""

    secure: bool = False
    """Whether what users send is summed by shares of two aggregators, so that nobody sees a user's;
    each adds discrete noise of its own where epsilon asks for it. Needs clip."""

    @model_validator(mode="after")
    def _require_shared_bound(self) -> InCohorts:
        if self.secure and self.clip is None:
            raise ValueError("secure needs clip: sums by shares are of bounded numbers on a grid")
        return self

    def in_cohorts(self, data: UserData, **values: Any) -> Self:
        """Return the method with cohorts, clipping and noise of the settings, maybe by shares."""
        n, clip = len(data.users), self.clip
        cohorts = Cohorts(n, self.cohort or n, self.sampling)
        method = self.bound_to(data, **values).bound(cohorts=cohorts)
        if clip is None:
            return method
        sums = SampledSums(n, cohorts.size, self.rounds, self.sampling)
        promise = partial(self.promise, n, {"reports": (sums, clip)})
        if not self.secure:
            guarantee = promise()
            noise = guarantee.samples[0].noise if guarantee else 0.0
            return method.bound(protection=Protection(clip, noise), guarantee=guarantee)
        multiplier = None
        if self.epsilon is not None and self.delta is not None:
            multiplier = noise_for_shares((sums,), self.epsilon, self.delta)
        length = engine.report_size(method, data.users)[0]
        shared = engine.shared(length, clip=clip, relation=sums.relation, multiplier=multiplier)
        # The guarantee rests on one aggregator's noise.
        noise = float(shared.noise) / engine.AGGREGATORS**0.5
        guarantee = promise(shares=shared.shares, noise=noise)
        return method.bound(protection=shared, guarantee=guarantee)

"""A training in rounds: what its server and its sites agree on, and both compute from it.

Of public knowledge alone, so that both have the same plan: the same noise, the same steps.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import numpy as np
from pydantic import AfterValidator, Field, model_validator

import synthfair
from synthfair.files import validated
from synthfair.settings import Checked
from synthfair.task.messages import Name, sha256

if TYPE_CHECKING:
    from synthfair.data.schema import Schema
    from synthfair.federated.method import TrainConfig
    from synthfair.federated.users import UserData


def train_config(settings: dict[str, Any]) -> TrainConfig:
    """Return settings of a method as a job has them.

    Raises:
        ValueError: an unknown key, a value that is not allowed, or what a job cannot do.
    """
    from synthfair.federated.method import TrainConfig
    from synthfair.federated.methods import METHODS

    config = validated(TrainConfig, settings)
    if not config.is_job:
        jobs = ", ".join(name for name, method in METHODS.items() if method.is_job)
        raise ValueError(f"method: {config.method!r} is not a job; must be one of {jobs}")
    if config.get("cohort") is not None or config.get("also", ()):
        raise ValueError(
            "cohort and also are not read by a job: all sites take part, and one attribute counts"
        )
    return config


def _readable(settings: dict[str, Any]) -> dict[str, Any]:
    train_config(settings)
    return settings


TrainSettings = Annotated[dict[str, Any], AfterValidator(_readable)]
"""Settings of a method, see :func:`train_config`."""

LeastRows = Annotated[int | None, Field(default=None, ge=1, lt=2**31)]
"""Rows of the smallest site: a public number, on which noise and numbers of steps rest."""


class Agreement(Checked):
    """The public description of a training, which is the same in the questions of all rounds.

    Attributes:
        train: settings of the method.
        sites: all that take part, in the order of their names; each is one user of the method.
        least_rows: rows of the smallest site, where the method needs them.
    """

    train: TrainSettings
    sites: tuple[Name, ...] = Field(min_length=1, max_length=1000)
    least_rows: LeastRows

    @model_validator(mode="after")
    def _is_whole(self) -> Agreement:
        if list(self.sites) != sorted(set(self.sites)):
            raise ValueError("sites: must be in the order of their names, each once")
        require_rows(self.config, self.least_rows)
        return self

    @property
    def config(self) -> TrainConfig:
        """The settings of the method."""
        return train_config(self.train)

    def run(self, schema: Schema, *more: str) -> str:
        """Return the fingerprint of the training, and of whatever else it depends on.

        With an epsilon also on what computes: another version, or another device, may compute other
        numbers, with the same noise.
        """
        import jax

        version = None
        if self.config.get("epsilon") is not None:
            version = synthfair.__version__, jax.__version__, jax.default_backend()
        public = version, schema.hash, self.sites, self.least_rows
        return sha256(repr((*public, self.config.model_dump_json(), *more)).encode())


def require_rows(config: TrainConfig, least_rows: int | None) -> None:
    """Refuses methods of passes over rows without a number of rows. Raises ValueError."""
    if config.local_passes and least_rows is None:
        raise ValueError(f"least_rows: {config.method} needs the rows of the smallest site")


def has_guarantee(config: TrainConfig) -> bool:
    """Whether the settings have an epsilon, and it holds on no condition.

    That of ``two_phase`` does end to end alone, see
    :data:`synthfair.privacy.guarantee.Condition`.
    """
    return config.get("epsilon") is not None and config.get("end_to_end", True)


def is_private(config: TrainConfig) -> bool:
    """Whether the guarantee holds against the server, too.

    Each site adds the noise itself; or sends shares, to whose sum the aggregators add it.
    """
    return (config.local_passes or config.get("secure", False)) and has_guarantee(config)


class TrainingSetup(NamedTuple):
    """The plan of a training between organisations.

    Attributes:
        users: that stand in for the sites: shapes and numbers are theirs, and no row is.
        plan: the method as it trains on them.
    """

    users: UserData
    plan: TrainConfig


def make_setup(agreement: Agreement, schema: Schema) -> TrainingSetup:
    """Plans from public knowledge alone. Raises InputError where the settings do not fit."""
    import jax.numpy as jnp

    from synthfair.data.encode import Encoded
    from synthfair.federated.users import make_user_data

    config, sites = agreement.config, len(agreement.sites)
    s, y = (part.ravel() for part in np.meshgrid(np.arange(len(schema.groups)), [-1.0, 1.0]))
    x = np.zeros((sites * len(s), len(schema.encoded_names)))
    rows = Encoded(x, np.tile(s, sites), np.tile(y, sites))
    data = make_user_data(rows, np.repeat(np.arange(sites), len(s)), schema, config)
    if agreement.least_rows is not None:
        size = jnp.full(sites, agreement.least_rows)
        data = data._replace(users=replace(data.users, size=size))
    plan = config.plan(data)
    if plan.guarantee:  # what is stated, and booked, is not that of a simulation
        deployed = plan.guarantee.model_copy(update={"simulated": False})
        plan = plan.bound(guarantee=deployed)
    return TrainingSetup(data, plan)


# Numbers on their way


def pack(tree: Any) -> bytes:
    """Packs the numbers of a pytree, float64, little-endian."""
    from jax.flatten_util import ravel_pytree

    return np.asarray(ravel_pytree(tree)[0], "<f8").tobytes()


def unpack(content: bytes, like: Any) -> Any:
    """Unpacks a pytree from its numbers, which may be infinite or none.

    Args:
        content: of :func:`pack`.
        like: shapes and types of what it must be.

    Raises:
        ValueError: of another length.
    """
    import jax.numpy as jnp
    from jax import tree
    from jax.flatten_util import ravel_pytree

    size = sum(math.prod(leaf.shape) for leaf in tree.leaves(like))
    if len(content) != 8 * size:  # before so much is made room for
        raise ValueError(f"has {len(content)} bytes; must have {8 * size}")
    flat, unravel = ravel_pytree(tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), like))
    return unravel(jnp.asarray(np.frombuffer(content, "<f8"), flat.dtype))

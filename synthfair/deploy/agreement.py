"""A training in rounds: what its server and its sites agree on, and both compute from it.

Of public knowledge alone, so that both have the same plan: the same noise, the same steps.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from pydantic import Field, model_validator

import synthfair
from synthfair.files import validated
from synthfair.settings import Checked
from synthfair.task.messages import Name, sha256

if TYPE_CHECKING:
    from synthfair.data.schema import Schema
    from synthfair.federated.method import TrainConfig, TrainingPlan
    from synthfair.federated.users import UserData


class TrainJob(Checked):
    """The settings of a job.

    Attributes:
        train: settings of the method, see :class:`synthfair.federated.TrainConfig`.
        least_rows: rows of the smallest site, a public number, on which noise and numbers of steps
            rest; ``dp_sgd``, ``fair_sgd`` and ``two_phase`` need it.
        most_rows: rows of the largest site, a public number, which a job must name where sites
            count by their rows: in fedavg and refine without a clip, dp_sgd, fair_sgd and
            two_phase. A site that claims more is refused.
        least_answers: sites that must answer well in every round; all if not given.
        timeout: seconds to wait for the answers of a round; in the first one of ``two_phase`` sites
            train their teachers as well.
        save_each: rounds between two checkpoints; from the last, the same job submitted anew goes
            on. With an epsilon every round is saved, as sites answer one question a round.
    """

    train: dict[str, Any]
    least_rows: int | None = Field(default=None, ge=1, lt=2**31)
    most_rows: int | None = Field(default=None, ge=1, lt=2**31)
    least_answers: int | None = Field(default=None, ge=1)
    timeout: int = Field(default=600, ge=1, le=7 * 24 * 3600)
    save_each: int = Field(default=10, ge=1)

    @property
    def config(self) -> TrainConfig:
        """The settings of the method. Raises ValueError: they are none, or not for a job."""
        from synthfair.federated.method import TrainConfig
        from synthfair.federated.methods import METHODS

        config = validated(TrainConfig, self.train)
        if not config.is_job:
            jobs = ", ".join(name for name, method in METHODS.items() if method.is_job)
            raise ValueError(f"method: {config.method!r} is not a job; must be one of {jobs}")
        if config.get("cohort") is not None or config.get("also", ()):
            raise ValueError(
                "cohort and also are not read by a job: all sites take part, and one attribute"
                " counts"
            )
        return config

    @model_validator(mode="after")
    def _is_whole(self) -> TrainJob:
        config = self.config
        if config.local_passes and self.least_rows is None:
            raise ValueError(f"least_rows: {config.method} needs the rows of the smallest site")
        if self.most_rows is None and config.counts_by_rows:
            raise ValueError(
                f"most_rows: {config.method} counts sites by their rows, and needs those of the"
                " largest site"
            )
        if self.most_rows is not None and self.most_rows < (self.least_rows or 1):
            raise ValueError("most_rows: must be at least least_rows")
        return self


class Agreement(TrainJob):
    """The public description of a training, which is the same in the questions of all rounds.

    Attributes:
        sites: all that take part, in the order of their names; each is one user of the method.
    """

    sites: tuple[Name, ...] = Field(min_length=1, max_length=1000)

    @model_validator(mode="after")
    def _is_ordered(self) -> Agreement:
        if list(self.sites) != sorted(set(self.sites)):
            raise ValueError("sites: must be in the order of their names, each once")
        return self

    def run(self, schema: Schema) -> str:
        """Return the fingerprint of the training.

        With an epsilon also of what computes: another version, or another device, may compute other
        numbers, with the same noise.
        """
        import jax

        config, version = self.config, None
        if config.get("epsilon") is not None:
            version = synthfair.__version__, jax.__version__, jax.default_backend()
        public = version, schema.hash, self.sites, self.least_rows, config.model_dump_json()
        return sha256(repr(public).encode())

    def plan(self, schema: Schema) -> tuple[UserData, TrainingPlan]:
        """Return users that stand in for the sites, and the method's plan for them.

        The users' shapes and numbers are those of the sites, and no row is.

        Raises:
            InputError: the settings do not fit together, or not the schema.
        """
        import jax.numpy as jnp

        from synthfair.data.encode import Encoded
        from synthfair.federated.user_data import make_user_data

        config, sites = self.config, len(self.sites)
        s, y = (part.ravel() for part in np.meshgrid(np.arange(len(schema.groups)), [-1.0, 1.0]))
        x = np.zeros((sites * len(s), len(schema.encoded_names)))
        rows = Encoded(x, np.tile(s, sites), np.tile(y, sites))
        data = make_user_data(rows, np.repeat(np.arange(sites), len(s)), schema, config)
        if self.least_rows is not None:
            size = jnp.full(sites, self.least_rows)
            data = data._replace(users=replace(data.users, size=size))
        plan = config.plan(data)
        if plan.guarantee:  # what is stated, and booked, is not that of a simulation
            deployed = plan.guarantee.model_copy(update={"simulated": False})
            plan = plan._replace(guarantee=deployed)
        return data, plan


# Numbers on their way


def pack(tree: Any) -> bytes:
    """Return the numbers of a pytree, float64, little-endian."""
    from jax.flatten_util import ravel_pytree

    return np.asarray(ravel_pytree(tree)[0], "<f8").tobytes()


def unpack(content: bytes, like: Any) -> Any:
    """Return a pytree of its numbers, which may be infinite or none.

    Args:
        content: of :func:`pack`.
        like: shapes and types of what it must be.

    Raises:
        ValueError: of another length.
    """
    import jax.numpy as jnp
    from jax import tree
    from jax.flatten_util import ravel_pytree

    flat, unravel = ravel_pytree(tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), like))
    if len(content) != 8 * flat.size:
        raise ValueError(f"has {len(content)} bytes; must have {8 * flat.size}")
    return unravel(jnp.asarray(np.frombuffer(content, "<f8"), flat.dtype))

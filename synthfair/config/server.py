"""Settings of the server."""

from __future__ import annotations

from pydantic import BaseModel, Field

from synthfair.config.rules import STRICT, Seed


class ServerConfig(BaseModel):
    """Settings of the server. The model's settings come with the releases.

    Raises:
        ValueError: a value out of range, or an unknown key.

    Example:
        >>> import synthfair as sf
        >>> sf.ServerConfig(resamples=200, seed=1)
        ServerConfig(resamples=200, max_influence=1.0, seed=1)
    """

    model_config = STRICT

    resamples: int = Field(
        default=1000, ge=1, description="Bootstrap resamples behind each 95 % interval."
    )
    max_influence: float = Field(
        default=1.0,
        gt=0,
        description="Largest change of the pooled model's scores that one release may cause,"
        " relative to the scores without it (root mean squares); a pool in which one causes more"
        " is refused. A change of 2 reverses every decision.",
    )
    seed: int = Seed

"""Settings of the server."""

from __future__ import annotations

from pydantic import BaseModel, Field

from synthfair.config.rules import STRICT, Seed


class ServerConfig(BaseModel):
    """Settings of the server. The model's settings come with the releases."""

    model_config = STRICT

    resamples: int = Field(
        default=1000, ge=1, description="Bootstrap resamples behind each 95 % interval."
    )
    max_influence: float = Field(
        default=1.0,
        gt=0,
        description="Most that one release may move the scores of the pooled model, relative to"
        " the scores without it (root mean squares): a server refuses a pool in which one moves"
        " them further. 2 turns every decision around.",
    )
    seed: int = Seed

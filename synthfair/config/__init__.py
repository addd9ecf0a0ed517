"""Settings: one frozen, validated model for each stage, and the notions they share."""

from synthfair.config.distill import HOLD_OUT, MAX_ROWS, DistillConfig
from synthfair.config.loading import (
    changed_settings,
    load_distill_config,
    load_release_config,
    load_server_config,
    load_settings,
)
from synthfair.config.rules import (
    LARGEST_EPSILON,
    LEAST_DELTA,
    LEAST_EPSILON,
    STRICT,
    Notion,
    Relation,
)
from synthfair.config.server_settings import ServerConfig
from synthfair.config.surrogate import ReleaseConfig, SurrogateConfig
from synthfair.config.target import Target

__all__ = [
    "HOLD_OUT",
    "LARGEST_EPSILON",
    "LEAST_DELTA",
    "LEAST_EPSILON",
    "MAX_ROWS",
    "STRICT",
    "DistillConfig",
    "Notion",
    "Relation",
    "ReleaseConfig",
    "ServerConfig",
    "SurrogateConfig",
    "Target",
    "changed_settings",
    "load_distill_config",
    "load_release_config",
    "load_server_config",
    "load_settings",
]

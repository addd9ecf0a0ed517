"""One frozen, validated model a stage."""

from synthfair.config.changed import changed_settings
from synthfair.config.distill import HOLD_OUT, MAX_ROWS, DistillConfig
from synthfair.config.loading import (
    load_distill_config,
    load_server_config,
    load_train_config,
    require_read,
)
from synthfair.config.rules import LARGEST_EPSILON, LEAST_DELTA, LEAST_EPSILON
from synthfair.config.server import ServerConfig
from synthfair.config.train import TrainConfig

__all__ = [
    "HOLD_OUT",
    "LARGEST_EPSILON",
    "LEAST_DELTA",
    "LEAST_EPSILON",
    "MAX_ROWS",
    "DistillConfig",
    "ServerConfig",
    "TrainConfig",
    "changed_settings",
    "load_distill_config",
    "load_server_config",
    "load_train_config",
    "require_read",
]

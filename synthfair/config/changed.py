"""Which settings are not the defaults."""

from __future__ import annotations

from typing import Any

from synthfair.config.distill import DistillConfig
from synthfair.config.train import TrainConfig


def changed_settings(config: DistillConfig | TrainConfig) -> dict[str, Any]:
    """The settings that are not the defaults. A wanted gap, or an epsilon, has its own."""
    if isinstance(config, TrainConfig):
        default = TrainConfig(method=config.method).model_dump() | {"method": TrainConfig().method}
        read = {k: v for k, v in config.model_dump().items() if config.reads(k)}
        return {k: v for k, v in read.items() if v != default[k]}
    asked = {name: getattr(config, name) for name in ("max_gap", "epsilon", "delta")}
    default = DistillConfig(**asked).model_dump() | dict.fromkeys(asked)
    return {k: v for k, v in config.model_dump().items() if v != default[k]}

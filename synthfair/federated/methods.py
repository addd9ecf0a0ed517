"""The methods that train in rounds: all settings, and how they are read from outside."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from synthfair.config.loading import load_settings
from synthfair.federated.dp_sgd import DpSgdSettings
from synthfair.federated.fair_sgd import FairSgdSettings
from synthfair.federated.fedavg import FedAvgSettings
from synthfair.federated.fpfl import FedSgdSettings, FpflSettings, MmdmSettings
from synthfair.federated.method_settings import METHODS, TrainConfig
from synthfair.federated.privfairfl import PrivFairFLPostSettings, PrivFairFLPreSettings
from synthfair.federated.refine import RefineSettings
from synthfair.federated.two_phase import TwoPhaseSettings

METHODS.update(
    fedavg=FedAvgSettings,
    fedsgd=FedSgdSettings,
    fpfl=FpflSettings,
    mmdm=MmdmSettings,
    dp_sgd=DpSgdSettings,
    fair_sgd=FairSgdSettings,
    two_phase=TwoPhaseSettings,
    privfairfl_pre=PrivFairFLPreSettings,
    privfairfl_post=PrivFairFLPostSettings,
    refine=RefineSettings,
)


def load_train_config(path: Path | None = None, **overrides: Any) -> TrainConfig:
    """Settings from a TOML file (or the defaults), with overrides that are not None on top.

    Raises:
        InputError: unreadable file, unknown key, one that the method does not read, or a value that
            is not allowed.
    """
    return load_settings(TrainConfig, path, overrides)

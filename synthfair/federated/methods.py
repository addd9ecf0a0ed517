"""The methods that train in rounds, by name, with their settings."""

from __future__ import annotations

from synthfair.federated.dp_sgd import DpSgdSettings
from synthfair.federated.fair_sgd import FairSgdSettings
from synthfair.federated.fedavg import FedAvgSettings
from synthfair.federated.fpfl import FedSgdSettings, FpflSettings, MmdmSettings
from synthfair.federated.method_settings import METHODS, TrainConfig
from synthfair.federated.privfairfl import PrivFairFLPostSettings, PrivFairFLPreSettings
from synthfair.federated.refine import RefineSettings
from synthfair.federated.two_phase import TwoPhaseSettings

__all__ = ["METHODS", "TrainConfig"]

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

from . import engine
from .algorithm import Algorithm
from .dp_sgd import DpSgd, DpSgdSettings
from .engine import Protection
from .fair_sgd import FairSgd, FairSgdSettings
from .fedavg import FedAvg, FedAvgSettings
from .fpfl import FedSgdSettings, Fpfl, FpflSettings, MmdmSettings
from .method_settings import TrainingPlan
from .methods import METHODS, TrainConfig
from .networks import LogisticRegression, Perceptron
from .parity import Parity
from .privfairfl import PrivFairFLPostSettings, PrivFairFLPreSettings
from .refine import Refine, RefineSettings
from .secure_sums import SecureSums, make_secure_sums
from .training import Cost, TrainFiles, Training, train_rounds, train_table
from .two_phase import TwoPhase, TwoPhaseSettings, make_two_phase
from .user_data import (
    AssignedTable,
    UserAssignment,
    assign_users,
    make_user_data,
    poisson_users,
)
from .users import Cohorts, UserData, Users, make_users

__all__ = [
    "METHODS",
    "Algorithm",
    "AssignedTable",
    "Cohorts",
    "Cost",
    "DpSgd",
    "DpSgdSettings",
    "FairSgd",
    "FairSgdSettings",
    "FedAvg",
    "FedAvgSettings",
    "FedSgdSettings",
    "Fpfl",
    "FpflSettings",
    "LogisticRegression",
    "MmdmSettings",
    "Parity",
    "Perceptron",
    "PrivFairFLPostSettings",
    "PrivFairFLPreSettings",
    "Protection",
    "Refine",
    "RefineSettings",
    "SecureSums",
    "TrainConfig",
    "TrainFiles",
    "Training",
    "TrainingPlan",
    "TwoPhase",
    "TwoPhaseSettings",
    "UserAssignment",
    "UserData",
    "Users",
    "assign_users",
    "engine",
    "make_secure_sums",
    "make_two_phase",
    "make_user_data",
    "make_users",
    "poisson_users",
    "train_rounds",
    "train_table",
]

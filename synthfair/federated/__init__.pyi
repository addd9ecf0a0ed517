from . import engine
from .dp_sgd import DpSgd
from .engine import Algorithm, Protection
from .fedavg import FedAvg
from .fpfl import FedSgd, Fpfl, Mmdm
from .method import TrainConfig
from .methods import METHODS
from .networks import LogisticRegression, Perceptron
from .parity import Parity
from .privfairfl import PrivFairFLPost, PrivFairFLPre
from .refine import Refine
from .training import Cost, Training, train_rounds, train_table
from .two_phase import FairSgd, TwoPhase
from .users import (
    Cohorts,
    UserData,
    Users,
    assign_users,
    draw_users,
    make_user_data,
    make_users,
)

__all__ = [
    "METHODS",
    "Algorithm",
    "Cohorts",
    "Cost",
    "DpSgd",
    "FairSgd",
    "FedAvg",
    "FedSgd",
    "Fpfl",
    "LogisticRegression",
    "Mmdm",
    "Parity",
    "Perceptron",
    "PrivFairFLPost",
    "PrivFairFLPre",
    "Protection",
    "Refine",
    "TrainConfig",
    "Training",
    "TwoPhase",
    "UserData",
    "Users",
    "assign_users",
    "draw_users",
    "engine",
    "make_user_data",
    "make_users",
    "train_rounds",
    "train_table",
]

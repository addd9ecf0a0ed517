from . import engine
from .algorithm import Algorithm
from .cohorts import Cohorts
from .dp_sgd import DpSgd
from .engine import Protection
from .fair_sgd import FairSgd
from .fedavg import FedAvg
from .fpfl import Fpfl
from .from_table import TrainFiles, train_table
from .methods import METHODS, TrainingPlan, make_plan
from .networks import LogisticRegression, Network, Perceptron
from .parity import Parity
from .secure_sums import SecureSums, make_secure_sums
from .training import Communication, Training, train_rounds
from .two_phase import TwoPhase, make_two_phase
from .user_data import (
    AssignedTable,
    UserAssignment,
    UserData,
    assign_users,
    make_user_data,
    poisson_users,
)
from .users import Users, make_users

__all__ = [
    "METHODS",
    "Algorithm",
    "AssignedTable",
    "Cohorts",
    "Communication",
    "DpSgd",
    "FairSgd",
    "FedAvg",
    "Fpfl",
    "LogisticRegression",
    "Network",
    "Parity",
    "Perceptron",
    "Protection",
    "SecureSums",
    "TrainFiles",
    "Training",
    "TrainingPlan",
    "TwoPhase",
    "UserAssignment",
    "UserData",
    "Users",
    "assign_users",
    "engine",
    "make_plan",
    "make_secure_sums",
    "make_two_phase",
    "make_user_data",
    "make_users",
    "poisson_users",
    "train_rounds",
    "train_table",
]

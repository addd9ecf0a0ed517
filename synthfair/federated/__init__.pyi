from . import engine
from .assignment import Dealing, Dealt, deal, owners
from .cohorts import Cohorts
from .fedavg import FedAvg
from .fpfl import Fpfl
from .from_table import Trained, TrainFiles, train_table
from .networks import Linear, Network, Perceptron
from .parity import Parity
from .population import Population, populate
from .private_sum import Protection
from .training import Cost, Training, rows_bytes, train_rounds
from .two_phase import TwoPhase
from .users import Users, deal_rows, make_users

__all__ = [
    "Cohorts",
    "Cost",
    "Dealing",
    "Dealt",
    "FedAvg",
    "Fpfl",
    "Linear",
    "Network",
    "Parity",
    "Perceptron",
    "Population",
    "Protection",
    "TrainFiles",
    "Trained",
    "Training",
    "TwoPhase",
    "Users",
    "deal",
    "deal_rows",
    "engine",
    "make_users",
    "owners",
    "populate",
    "rows_bytes",
    "train_rounds",
    "train_table",
]

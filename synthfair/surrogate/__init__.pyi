from .fair_table import FairTable, make_fair_table
from .fair_training import train_fair
from .frontier import FrontierPoint, GlobalProblem, frontier, least_weight
from .make import Surrogate, make_surrogate
from .table import WeightedTable, together

__all__ = [
    "FairTable",
    "FrontierPoint",
    "GlobalProblem",
    "Surrogate",
    "WeightedTable",
    "frontier",
    "least_weight",
    "make_fair_table",
    "make_surrogate",
    "together",
    "train_fair",
]

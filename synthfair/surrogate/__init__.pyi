from .fair_training import train_fair
from .frontier import FrontierPoint, GlobalProblem, frontier, least_weight
from .make import Surrogate
from .shared_sums import (
    SecureSurrogate,
    client_sums,
    make_secure_surrogate,
    next_sums,
    surrogate_from_sums,
)
from .weighted_table import WeightedTable, together

__all__ = [
    "FrontierPoint",
    "GlobalProblem",
    "SecureSurrogate",
    "Surrogate",
    "WeightedTable",
    "client_sums",
    "frontier",
    "least_weight",
    "make_secure_surrogate",
    "next_sums",
    "surrogate_from_sums",
    "together",
    "train_fair",
]

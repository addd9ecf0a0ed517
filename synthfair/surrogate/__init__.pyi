from .fair import GlobalProblem, frontier
from .make import Surrogate
from .objective import FrontierPoint, Price
from .shared_sums import (
    SecureSurrogate,
    client_sums,
    make_secure_surrogate,
    next_sums,
    surrogate_from_sums,
)
from .weighted_table import WeightedTable

__all__ = [
    "FrontierPoint",
    "GlobalProblem",
    "Price",
    "SecureSurrogate",
    "Surrogate",
    "WeightedTable",
    "client_sums",
    "frontier",
    "make_secure_surrogate",
    "next_sums",
    "surrogate_from_sums",
]

from .fair import GlobalProblem, frontier
from .make import Surrogate
from .objective import FrontierPoint, Price
from .weighted_table import WeightedTable

__all__ = [
    "FrontierPoint",
    "GlobalProblem",
    "Price",
    "Surrogate",
    "WeightedTable",
    "frontier",
]

from .fair import FrontierPoint, GlobalProblem, Price, WeightedTable, frontier
from .records import Surrogate

__all__ = ["FrontierPoint", "GlobalProblem", "Price", "Surrogate", "WeightedTable", "frontier"]

from .compared_methods import ALL_METHODS, METHODS, Outcome, RoundOptions, run_method
from .demonstration import Demonstration, demonstrate
from .federation import Federation, Fitted, federate
from .grid import ComparedTable, GridPoint, is_done, make_grid, run_point
from .shared_surrogates import SharedSurrogates

__all__ = [
    "ALL_METHODS",
    "METHODS",
    "ComparedTable",
    "Demonstration",
    "Federation",
    "Fitted",
    "GridPoint",
    "Outcome",
    "RoundOptions",
    "SharedSurrogates",
    "demonstrate",
    "federate",
    "is_done",
    "make_grid",
    "run_method",
    "run_point",
]

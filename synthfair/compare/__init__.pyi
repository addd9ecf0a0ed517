from .compared_methods import (
    METHODS,
    RoundOptions,
    SurrogateCache,
    run_method,
)
from .demonstration import Outcome, demonstrate
from .federation import Federation, Fitted, federate
from .grid import ComparedTable, GridPoint, is_done, make_grid, run_point

__all__ = [
    "METHODS",
    "ComparedTable",
    "Federation",
    "Fitted",
    "GridPoint",
    "Outcome",
    "RoundOptions",
    "SurrogateCache",
    "demonstrate",
    "federate",
    "is_done",
    "make_grid",
    "run_method",
    "run_point",
]

from .compared_methods import (
    COMPARED_METHODS,
    Federation,
    Fitted,
    SurrogateCache,
    federate,
    round_settings,
    run_method,
)
from .demonstration import Outcome, demonstrate
from .grid import ComparedTable, GridPoint, is_done, make_grid, run_point

__all__ = [
    "COMPARED_METHODS",
    "ComparedTable",
    "Federation",
    "Fitted",
    "GridPoint",
    "Outcome",
    "SurrogateCache",
    "demonstrate",
    "federate",
    "is_done",
    "make_grid",
    "round_settings",
    "run_method",
    "run_point",
]

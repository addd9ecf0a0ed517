from .demo import demonstrate
from .federation import Federation, federate
from .fitted import Fitted
from .grid import Cell, is_done, plan, run_cell
from .methods import ALL_METHODS, METHODS, Outcome, measure
from .rounds import Rounds

__all__ = [
    "ALL_METHODS",
    "METHODS",
    "Cell",
    "Federation",
    "Fitted",
    "Outcome",
    "Rounds",
    "demonstrate",
    "federate",
    "is_done",
    "measure",
    "plan",
    "run_cell",
]

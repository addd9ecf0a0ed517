from .demo import demonstrate
from .federation import Federation, federate
from .grid import Cell, is_done, plan, run_cell
from .methods import METHODS, Fitted, Outcome, measure

__all__ = [
    "METHODS",
    "Cell",
    "Federation",
    "Fitted",
    "Outcome",
    "demonstrate",
    "federate",
    "is_done",
    "measure",
    "plan",
    "run_cell",
]

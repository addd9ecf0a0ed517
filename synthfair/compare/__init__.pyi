from .demo import demonstrate
from .federation import Federation, federate
from .methods import METHODS, Fitted, Outcome, measure

__all__ = [
    "METHODS",
    "Federation",
    "Fitted",
    "Outcome",
    "demonstrate",
    "federate",
    "measure",
]

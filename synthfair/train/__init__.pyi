from .from_table import Dealing, Dealt, Trained, TrainFiles, deal, train_table
from .population import Population, populate
from .routine import Cost, Training, train

__all__ = [
    "Cost",
    "Dealing",
    "Dealt",
    "Population",
    "TrainFiles",
    "Trained",
    "Training",
    "deal",
    "populate",
    "train",
    "train_table",
]

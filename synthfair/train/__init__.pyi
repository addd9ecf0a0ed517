from .dealing import Dealing, Dealt, deal, owners
from .from_table import Trained, TrainFiles, train_table
from .population import Population, populate
from .routine import Cost, Training, rows_bytes, train

__all__ = [
    "Cost",
    "Dealing",
    "Dealt",
    "Population",
    "TrainFiles",
    "Trained",
    "Training",
    "deal",
    "owners",
    "populate",
    "rows_bytes",
    "train",
    "train_table",
]

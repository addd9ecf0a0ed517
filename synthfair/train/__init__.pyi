from .dealing import Dealing, Dealt, deal, owners
from .from_table import Trained, TrainFiles, train_table
from .population import Population, populate
from .routine import Cost, Training, rows_bytes, train_rounds

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
    "train_rounds",
    "train_table",
]

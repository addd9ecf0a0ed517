from .fair_table import FairTable, make_fair_table
from .fair_training import train_fair
from .frontier import FrontierPoint, GlobalProblem, frontier, least_weight
from .make import Surrogate, make_surrogate
from .private import make_private_surrogate
from .secure import (
    SecureSurrogate,
    client_sums,
    make_secure_surrogate,
    summands,
    surrogate_from_sums,
)
from .sums import Anchors, CellSums, SmoothSums, cell_sums, smooth_sums
from .table import WeightedTable, together

__all__ = [
    "Anchors",
    "CellSums",
    "FairTable",
    "FrontierPoint",
    "GlobalProblem",
    "SecureSurrogate",
    "SmoothSums",
    "Surrogate",
    "WeightedTable",
    "cell_sums",
    "client_sums",
    "frontier",
    "least_weight",
    "make_fair_table",
    "make_private_surrogate",
    "make_secure_surrogate",
    "make_surrogate",
    "smooth_sums",
    "summands",
    "surrogate_from_sums",
    "together",
    "train_fair",
]

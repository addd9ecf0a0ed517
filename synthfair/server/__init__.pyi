from .influence import Influence, Influences, measure_influence, outlier_bound
from .pooling import pool, pool_and_train, read_releases
from .routine import Served, serve

__all__ = [
    "Influence",
    "Influences",
    "Served",
    "measure_influence",
    "outlier_bound",
    "pool",
    "pool_and_train",
    "read_releases",
    "serve",
]

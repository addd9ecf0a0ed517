from .influence import Influence, Influences, measure_influence, outlier_bound
from .page import ServerResult, serve
from .pooling import (
    Pool,
    make_pool,
    pool,
    pool_and_train,
    pool_records,
    read_releases,
    train_pool,
)

__all__ = [
    "Influence",
    "Influences",
    "Pool",
    "ServerResult",
    "make_pool",
    "measure_influence",
    "outlier_bound",
    "pool",
    "pool_and_train",
    "pool_records",
    "read_releases",
    "serve",
    "train_pool",
]

from .page import ServerResult, serve
from .pooling import Pool, make_pool, pool_and_train, pool_records, read_releases, train_pool
from .review import Influence, Influences, measure_influence, outlier_bound

__all__ = [
    "Influence",
    "Influences",
    "Pool",
    "ServerResult",
    "make_pool",
    "measure_influence",
    "outlier_bound",
    "pool_and_train",
    "pool_records",
    "read_releases",
    "serve",
    "train_pool",
]

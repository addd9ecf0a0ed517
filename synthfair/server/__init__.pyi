from .routine import as_trained, pool, pool_and_train, read_releases, serve

__all__ = ["as_trained", "pool", "pool_and_train", "read_releases", "serve"]

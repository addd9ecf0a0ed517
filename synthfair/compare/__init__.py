"""Several methods on one table: same splits, same seeds, one result shape."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)

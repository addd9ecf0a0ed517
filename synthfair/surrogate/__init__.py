"""The surrogate of a table: weighted records that stand in for a client's rows."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)

"""The estimators in scikit-learn's idiom, for arrays or DataFrames without a schema."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)

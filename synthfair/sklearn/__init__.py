"""Estimators in scikit-learn's idiom for people who have arrays or DataFrames and no schema."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)

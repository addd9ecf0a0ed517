"""Gaps between groups, measured without learning anyone's group: local differential privacy."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)

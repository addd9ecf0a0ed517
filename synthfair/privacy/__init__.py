"""Formal privacy: mechanisms, accounting, the ledger, and the gate in front of a release."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)

"""Training in rounds, from a table to a model and its metrics; the users are simulated here."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)

"""The server: reads releases, pools them, trains one model, evaluates it; see :func:`serve`."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)

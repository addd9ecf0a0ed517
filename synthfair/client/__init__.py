"""One client's part. The whole job is in :mod:`synthfair.client.page`; it loads when used."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)

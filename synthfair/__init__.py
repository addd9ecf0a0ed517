"""Train one group-fair model across organisations that may not share rows, in a single upload.

Each client distils its private table into synthetic rows (:func:`distill_table`) and sends one
file (:func:`write_release`). A server pools the files, trains an ordinary logistic model
(:func:`pool_and_train`) and reports accuracy and fairness (:func:`evaluate`). JAX loads when
something is computed.
"""

import lazy_loader

__version__ = "0.1.0"

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)

from .ledger import Ledger
from .sampled import SampledSums

__all__ = [
    "Ledger",
    "SampledSums",
]

from .accounting import delta_of, epsilon_of, mu_for
from .discrete import discrete_gaussian, discrete_laplace
from .gate import Preview, preview
from .guarantee import Guarantee
from .ledger import Booking, Ledger
from .sampled import SampledSums
from .statement import PrivacyStatement, make_guarantee

__all__ = [
    "Booking",
    "Guarantee",
    "Ledger",
    "Preview",
    "PrivacyStatement",
    "SampledSums",
    "delta_of",
    "discrete_gaussian",
    "discrete_laplace",
    "epsilon_of",
    "make_guarantee",
    "mu_for",
    "preview",
]

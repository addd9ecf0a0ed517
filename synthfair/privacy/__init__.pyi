from .accounting import SampledSums, delta_of, epsilon_of, mu_for
from .guarantee import Guarantee, make_guarantee
from .ledger import Ledger, Purchase
from .noise import discrete_gaussian, discrete_laplace

__all__ = [
    "Guarantee",
    "Ledger",
    "Purchase",
    "SampledSums",
    "delta_of",
    "discrete_gaussian",
    "discrete_laplace",
    "epsilon_of",
    "make_guarantee",
    "mu_for",
]

from .metrics import (
    demographic_parity_difference,
    equal_opportunity_difference,
    equalized_odds_difference,
    statistical_parity_difference,
)

__all__ = [
    "demographic_parity_difference",
    "equal_opportunity_difference",
    "equalized_odds_difference",
    "statistical_parity_difference",
]

from .metrics import statistical_parity_difference

__all__ = ["statistical_parity_difference"]

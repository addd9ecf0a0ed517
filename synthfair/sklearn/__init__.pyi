from .classifiers import FairLogisticRegression, expected_failed_checks
from .distiller import Distiller

__all__ = [
    "Distiller",
    "FairLogisticRegression",
    "expected_failed_checks",
]

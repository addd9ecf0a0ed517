from .classifiers import FairLogisticRegression, SingleShotClassifier, expected_failed_checks
from .distiller import Distiller

__all__ = [
    "Distiller",
    "FairLogisticRegression",
    "SingleShotClassifier",
    "expected_failed_checks",
]

from .classifiers import FairLogisticRegression, SingleShotClassifier
from .distiller import Distiller

__all__ = ["Distiller", "FairLogisticRegression", "SingleShotClassifier"]

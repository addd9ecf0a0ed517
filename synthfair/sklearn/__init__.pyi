from .classifiers import FairLogisticRegression
from .distiller import Distiller

__all__ = ["Distiller", "FairLogisticRegression"]

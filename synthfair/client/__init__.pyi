from .fair_task import Distillation
from .from_table import distill_table
from .page import Receipt, distill_file
from .surrogate_task import SurrogateRelease

__all__ = [
    "Distillation",
    "Receipt",
    "SurrogateRelease",
    "distill_file",
    "distill_table",
]

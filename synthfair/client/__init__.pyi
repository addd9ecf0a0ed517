from .comparable import check_rows
from .distillation import Distillation
from .from_file import Options, Receipt, distill_file
from .from_table import distill_table
from .surrogate_task import SurrogateRelease

__all__ = [
    "Distillation",
    "Options",
    "Receipt",
    "SurrogateRelease",
    "check_rows",
    "distill_file",
    "distill_table",
]

from .comparable import check_rows
from .distillation import Distillation
from .from_table import distill_table
from .page import Options, Receipt, distill_file
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

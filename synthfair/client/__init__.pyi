from .distillation import Distillation, distill_table
from .from_file import Options, Receipt, RefusedReleaseError, distill_file
from .many_clients import distill_clients
from .prepare import check_rows
from .surrogate_release import SurrogateRelease

__all__ = [
    "Distillation",
    "Options",
    "Receipt",
    "RefusedReleaseError",
    "SurrogateRelease",
    "check_rows",
    "distill_clients",
    "distill_file",
    "distill_table",
]

from .distillation import Distillation, distill_table
from .from_file import Options, Receipt, RefusedReleaseError, distill_file
from .prepare import check_rows
from .simulate import distill_clients

__all__ = [
    "Distillation",
    "Options",
    "Receipt",
    "RefusedReleaseError",
    "check_rows",
    "distill_clients",
    "distill_file",
    "distill_table",
]

from .routine import Distillation, Receipt, check_rows, distill_file, distill_table
from .simulate import distill_clients

__all__ = [
    "Distillation",
    "Receipt",
    "check_rows",
    "distill_clients",
    "distill_file",
    "distill_table",
]

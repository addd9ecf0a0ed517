from .routine import Distillation, Receipt, check_rows, distill_file, distill_table

__all__ = ["Distillation", "Receipt", "check_rows", "distill_file", "distill_table"]

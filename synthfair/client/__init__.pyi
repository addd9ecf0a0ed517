from .routine import Distillation, check_rows, distill_table

__all__ = ["Distillation", "check_rows", "distill_table"]

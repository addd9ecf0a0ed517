from .page import write_report
from .results import Result, read_result
from .tables import (
    distillation_table,
    evaluation_tables,
    gap_warning,
    outcomes_table,
    plain_text,
    unconverged_warning,
    untrained_warning,
)

__all__ = [
    "Result",
    "distillation_table",
    "evaluation_tables",
    "gap_warning",
    "outcomes_table",
    "plain_text",
    "read_result",
    "unconverged_warning",
    "untrained_warning",
    "write_report",
]

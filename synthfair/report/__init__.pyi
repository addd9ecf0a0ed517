from .overview import overviews
from .page import files_of_one, write_report
from .pictures import frontier_plot
from .real_rows import clipping_table, real_rows_warnings
from .releases import inspection_table, ledger_table, preview_table, statement_lines
from .results import Result, read_histories, read_results, run_names
from .terminal import (
    evaluation_tables,
    federation_table,
    fit_warnings,
    influence_table,
    outcomes_table,
    outlier_warning,
    overview_tables,
    plain_text,
    pooled_table,
    release_table,
    training_table,
    untrained_warning,
)

__all__ = [
    "Result",
    "clipping_table",
    "evaluation_tables",
    "federation_table",
    "files_of_one",
    "fit_warnings",
    "frontier_plot",
    "influence_table",
    "inspection_table",
    "ledger_table",
    "outcomes_table",
    "outlier_warning",
    "overview_tables",
    "overviews",
    "plain_text",
    "pooled_table",
    "preview_table",
    "read_histories",
    "read_results",
    "real_rows_warnings",
    "release_table",
    "run_names",
    "statement_lines",
    "training_table",
    "untrained_warning",
    "write_report",
]

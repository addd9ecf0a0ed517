"""The file of runs."""

from __future__ import annotations

from benchmarks.adult_fpfl.problem import Measured
from benchmarks.adult_fpfl.settings import ROWS, SETTINGS
from benchmarks.row_runs import RowRuns

RUNS = RowRuns(ROWS, SETTINGS.get, Measured)

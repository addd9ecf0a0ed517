"""The file of runs."""

from __future__ import annotations

from benchmarks.femnist_fpfl.settings import ROWS, SETTING
from benchmarks.femnist_fpfl.train import Measured
from benchmarks.row_runs import RowRuns

RUNS = RowRuns(ROWS, SETTING.of, Measured)

"""The tables as Markdown."""

from __future__ import annotations

import csv
import math
from collections.abc import Sequence
from pathlib import Path

from benchmarks.gap.tables import Cell, Errors


def first(cells: Sequence[Cell]) -> str:
    """Table 1."""
    lines = [
        "# Table 1 of Juarez and Korolova (2022)",
        "",
        "`python -m benchmarks.gap table1`: the least epsilon for which Chebyshev's inequality"
        " keeps the gap within alpha with probability 0.99, two equal groups of known size."
        " *Recomputed* is the paper's own accounting, and *in truth* the exact epsilon of the"
        " mechanism it means: M_R is less private than printed, and M_L with k other than 2 has no"
        " finite epsilon. *Corrected* is the least true epsilon, at the best split of M_R, and of"
        " M_L with k = 2.",
        "",
        "| clients | mechanism | alpha | printed | recomputed | same digits | in truth"
        " | corrected |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for cell in cells:
        printed = "-" if cell.printed is None else f"{cell.printed:.2f}"
        found = _epsilon(cell.published)
        same = "yes" if printed == found else "NO"
        lines.append(
            f"| {cell.clients:.0e} | {cell.mechanism} | {cell.alpha:g} | {printed} | {found} |"
            f" {same} | {_true(cell)} | {_epsilon(cell.corrected)} |"
        )
    return "\n".join(lines) + "\n"


def _epsilon(value: float) -> str:
    return f"{value:.2f}" if math.isfinite(value) else "-"


def _true(cell: Cell) -> str:
    if math.isinf(cell.published):
        return "-"
    return f"{cell.true:.2f}" if math.isfinite(cell.true) else "none is finite"


def second(rows: Sequence[tuple[str, Errors]], printed: Path, runs: int) -> str:
    """Table 2."""
    with printed.open(newline="") as file:
        paper = {(line["mechanism"], float(line["epsilon"])): line for line in csv.DictReader(file)}
    lines = [
        "# Table 2 of Juarez and Korolova (2022)",
        "",
        f"`python -m benchmarks.gap table2`: 10,000,000 clients of the sensor data, {runs} runs,"
        " seeded. Mean error (standard deviation over runs) of the gap in false negative rates,"
        " which are mapped to v in [-1, 1] and back; *expected* is sqrt(2 / pi) standard deviations"
        " in closed form; *bound* is Chebyshev's of probability 0.99 for equal groups and any"
        " values; *normal* is half of our 99 % interval, sizes estimated. Under *published*"
        " accounting epsilon is the paper's, and *true epsilon* that of the mechanism. Other"
        " readings of the printed table: [table2_readings.md](table2_readings.md).",
        "",
        "| accounting | mechanism | epsilon | true epsilon | printed error | error | expected"
        " | sizes estimated | printed bound | bound | normal |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for title, row in rows:
        line = paper[row.mechanism, row.epsilon] if title == "published" else None
        error = f"{line['mean_error']} ({line['error_sd']})" if line else ""
        cells = (
            title, row.mechanism, f"{row.epsilon:g}",
            f"{row.true:.3f}" if math.isfinite(row.true) else "none is finite",
            error, f"{row.mean:.4f} ({row.deviation:.4f})", f"{row.expected:.4f}",
            f"{row.unknown:.4f}", line["chebyshev_alpha"] if line else "", f"{row.bound:.4f}",
            f"{row.normal:.4f}",
        )  # fmt: skip
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"

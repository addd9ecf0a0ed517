"""How time and memory grow with rows, inputs, clients and releases.

    python -m benchmarks.scale                                  # about ten minutes
    python -m benchmarks.scale rows --output elsewhere

Writes a table for each, and a plot for the rows. The modules of this package run one of them each,
at any size.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path

from matplotlib.figure import Figure

from benchmarks.scale import clients, inputs, releases, rows
from benchmarks.scale.rows import Distilled
from synthfair.files import write_text
from synthfair.report.plots import as_svg

RESULTS = Path(__file__).parent.parent / "results" / "scale"

MANY_ROWS = (10_000, 100_000, 300_000, 1_000_000)
MANY_RELEASES = (1_000, 10_000)


def many_rows(output: Path) -> str:
    """Parquet at all sizes, CSV at the largest; and the plot."""
    lines = [rows.distil_rows(n, "parquet") for n in MANY_ROWS]
    write_text(output / "rows.svg", plot(lines))
    lines.append(rows.distil_rows(MANY_ROWS[-1], "csv"))
    return (
        f"## Rows\n\nOne client, {rows.INPUTS} inputs, {rows.N_SYNTHETIC} synthetic rows,"
        f" {rows.STEPS} steps: the whole process. Goals for a million rows: 150 s, 2.5 times the"
        f" encoded table.\n\n{rows.table(lines)}\n"
    )


def plot(lines: Sequence[Distilled]) -> str:
    """Time and memory over the number of rows, with straight lines through the largest."""
    figure = Figure(figsize=(7, 3), layout="constrained")
    for axes, name, label in zip(
        figure.subplots(1, 2), ("seconds", "megabytes"), ("wall time, s", "peak memory, MB"),
        strict=True,
    ):  # fmt: skip
        n, values = [one.n for one in lines], [getattr(one, name) for one in lines]
        slope = (values[-1] - values[0]) / (n[-1] - n[0])
        axes.plot(n, values, "o", color="#0072B2", label="measured")
        axes.plot(
            n, [values[0] + slope * (m - n[0]) for m in n], "--", color="0.5", label="straight line"
        )
        axes.set(xlabel="real rows", ylabel=label, ylim=(0, None))
        axes.xaxis.set_major_formatter(lambda value, _: f"{value / 1e6:g} M")
        axes.spines[["top", "right"]].set_visible(False)
    figure.axes[0].legend(frameon=False)
    return as_svg(figure)


def many_inputs(_output: Path) -> str:
    """All sizes."""
    return (
        "## Inputs\n\nOne outer step; what solves the inner problem and for its derivative.\n\n"
        + inputs.table(found for n in inputs.SIZES for found in inputs.step_inputs(n))
        + "\n"
    )


def many_clients(_output: Path) -> str:
    """A thousand."""
    return (
        f"## Clients\n\n{clients.ROWS} rows, {clients.N_SYNTHETIC} synthetic rows,"
        f" {clients.STEPS} steps each, in one process. Goal: 60 s. Differences are relative,"
        f" between the batch and one by one.\n\n{clients.table(clients.simulate(1000))}\n"
    )


def many_releases(_output: Path) -> str:
    """Up to ten thousand."""
    lines = [releases.pool_releases(n, 100) for n in MANY_RELEASES]
    return f"## Releases\n\nThe server's whole process. Goal: 30 s.\n\n{releases.table(lines)}\n"


SECTIONS: dict[str, Callable[[Path], str]] = {
    "rows": many_rows,
    "releases": many_releases,
    "clients": many_clients,
    "inputs": many_inputs,
}
"""Those that start processes first: a process begins as large as the one that starts it."""


def _section(name: str) -> str:
    if name not in SECTIONS:
        raise argparse.ArgumentTypeError(f"{name!r}: must be one of {', '.join(SECTIONS)}")
    return name


def main() -> None:
    """Prints and writes the tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "sections", nargs="*", type=_section, metavar="|".join(SECTIONS), help="Default: all."
    )
    parser.add_argument("--output", type=Path, default=RESULTS, help="Folder of the results.")
    args = parser.parse_args()
    args.output.mkdir(parents=True, exist_ok=True)
    for name in args.sections or SECTIONS:
        text = SECTIONS[name](args.output)
        write_text(args.output / f"{name}.md", text)
        print(text, flush=True)


if __name__ == "__main__":
    main()

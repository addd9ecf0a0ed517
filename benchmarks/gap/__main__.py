"""Juarez and Korolova (2022) again, with guarantees that hold; and how fast it is.

    python -m benchmarks.gap                    # some minutes
    python -m benchmarks.gap table1 figures     # seconds
    python -m benchmarks.gap speed --clients 100_000_000

SYNTHFAIR_DATA names the folder with bed_exit_sensors.zip (table 2). The printed numbers of the
paper lie in benchmarks/published.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from pathlib import Path

from benchmarks.gap import devices, figures, readings, show, speed
from benchmarks.gap.published import PUBLISHED
from benchmarks.gap.tables import KINDS, corrected, sensor_clients, table_1, table_2
from synthfair.data.datasets import DATA_VARIABLE
from synthfair.files import write_text

ROOT = Path(__file__).parent.parent
RESULTS, PRINTED = ROOT / "results" / "gap", ROOT / "published"
EPSILONS = (0.01, 0.1, 1.0, 10.0)
PARTS = ("table1", "table2", "figures", "speed", "devices")


def tables_of_clients(output: Path, runs: int) -> None:
    """Table 2, and what it may mean."""
    data = sensor_clients(Path(os.environ[DATA_VARIABLE]))
    rows = [
        (title, table_2(make, name, epsilon, data, runs))
        for name in KINDS
        for title, make in (("published", PUBLISHED[name]), ("true", corrected(name)))
        for epsilon in EPSILONS
    ]
    printed = PRINTED / "juarez_2022_table2.csv"
    write_text(output / "table2.md", show.second(rows, printed, runs))
    fits = [readings.fit(reading, data, printed) for reading in readings.READINGS]
    write_text(output / "table2_readings.md", readings.table(fits))


def draw(output: Path) -> None:
    """Figures, and their numbers."""
    for name, make in (("mse", figures.by_epsilon), ("unbalanced", figures.by_share)):
        svg, numbers = make()
        write_text(output / f"{name}.svg", svg)
        write_text(output / f"{name}.csv", numbers)


def main(arguments: Sequence[str] | None = None) -> None:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("parts", nargs="*", help=f"Of {', '.join(PARTS)}; all if none is named.")
    parser.add_argument("--clients", type=int, default=10**7, help="Of speed. Default: 10^7.")
    parser.add_argument("--runs", type=int, default=10, help="Of table 2. Default: 10.")
    parser.add_argument("--output", type=Path, default=RESULTS, help="Folder of the results.")
    args = parser.parse_args(arguments)
    if unknown := set(args.parts) - set(PARTS):
        parser.error(f"{', '.join(unknown)}: must be of {', '.join(PARTS)}")
    args.output.mkdir(parents=True, exist_ok=True)
    parts = args.parts or PARTS
    if "speed" in parts:
        text = speed.table(speed.measure(args.clients))
        write_text(args.output / "speed.md", text)
        print(text)
    if "table1" in parts:
        text = show.first(table_1(PRINTED / "juarez_2022_table1.csv"))
        write_text(args.output / "table1.md", text)
    if "figures" in parts:
        draw(args.output)
    if "devices" in parts:
        write_text(args.output / "devices.md", devices.table(devices.measure()))
    if "table2" in parts:
        tables_of_clients(args.output, args.runs)


if __name__ == "__main__":
    main()

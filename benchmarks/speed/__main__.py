"""How long an outer step takes, against other packages and against the machine's limits.

    python -m benchmarks.speed                        # the peers need .[bench]
    python -m benchmarks.speed --steps 100 --peers jaxopt --output quick

One Law School client (sensitive: race), covariance penalty, rho_o = 10, no intercept, 1,000 steps
of Adam, double precision, but for the moments in our Adam. All start from the same synthetic rows
and should end at the same objective. Times are after compilation, all in one run: on a shared
machine, ratios are what counts.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from benchmarks import use_float64
from benchmarks.speed import plots
from benchmarks.speed.limits import best, measured_ceilings
from benchmarks.speed.measure import ALL_ROWS, PEERS, SMALL, config_of, measure, one_client
from benchmarks.speed.show import document
from synthfair.cli.start import LOOPS
from synthfair.files import write_text

RESULTS = Path(__file__).parent.parent / "results" / "speed"


def main() -> None:
    """Prints the tables, and writes them and the plots."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--steps", type=int, default=1000, help="Outer steps. Default: 1000.")
    parser.add_argument(
        "--peers", nargs="*", default=[*PEERS], choices=[*PEERS], help="Default: all."
    )
    parser.add_argument("--output", type=Path, default=RESULTS, help="Folder of the results.")
    args = parser.parse_args()
    use_float64()
    # As the client command for a table of this size, see synthfair/cli/start.py.
    os.environ.setdefault("PJRT_NPROC", "1")
    os.environ.setdefault("XLA_FLAGS", LOOPS)
    real = one_client()
    before = measured_ceilings()
    results = [measure(real, config_of(n, args.steps), args.peers) for n in (SMALL, ALL_ROWS)]
    ceilings = best(before, measured_ceilings())
    args.output.mkdir(parents=True, exist_ok=True)
    text = document(results, ceilings)
    write_text(args.output / "speed.md", text)
    write_text(args.output / "seconds.svg", plots.seconds(results))
    write_text(args.output / "limits.svg", plots.limits(results, ceilings))
    print(text)


if __name__ == "__main__":
    main()

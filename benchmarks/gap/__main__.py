"""Juarez and Korolova (2022) again, with guarantees that hold.

    python -m benchmarks.gap                    # some minutes
    python -m benchmarks.gap table1 mse         # seconds

SYNTHFAIR_DATA names the folder with bed_exit_sensors.zip (table 2). The printed numbers of the
paper lie in benchmarks/published.
"""

from benchmarks.gap.devices import DEVICES
from benchmarks.gap.paper import MSE, TABLE1, TABLE2, UNBALANCED
from benchmarks.harness import main

EXPERIMENTS = (TABLE1, MSE, UNBALANCED, TABLE2, DEVICES)

if __name__ == "__main__":
    main(__doc__, "gap", *EXPERIMENTS)

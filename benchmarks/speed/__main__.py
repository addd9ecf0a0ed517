"""How long an outer step takes, next to other packages.

    python -m benchmarks.speed                        # the peers need .[bench]
    python -m benchmarks.speed --only package=jaxopt package=synthfair --output quick

One Law School client (sensitive: race), covariance penalty, rho_o = 10, no intercept, 1,000 steps
of Adam, double precision, but for the moments in our Adam. All start from the same synthetic rows
and should end at the same objective. Times are after compilation; on a shared machine, ratios
within a run are what counts.
"""

from benchmarks.harness import main
from benchmarks.speed.measure import STEPS

EXPERIMENTS = (STEPS,)

if __name__ == "__main__":
    main(__doc__, "speed", *EXPERIMENTS)

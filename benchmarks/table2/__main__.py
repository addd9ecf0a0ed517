"""Table 2 of Wu, Curtis and Robinson (2024): accuracy and SPD for three tasks, two sizes, rho_o.

    python -m benchmarks.table2                      # 20 seeds; goes on where it stopped
    python -m benchmarks.table2 --seeds 1 --output one_seed
    python -m benchmarks.table2 --only recipe=ours
    python -m benchmarks.table2 covariance           # what the paper's penalty can reach on Dutch

Two recipes. faithful: the paper's settings: no intercept, covariance penalty, Adam, first features
normal, labels copied or balanced. ours: an intercept, the smooth selection rate, a start in the
middle of the range; and on the same splits and seeds the methods that one would otherwise use.
"""

from benchmarks.harness import main
from benchmarks.table2.covariance import COVARIANCE
from benchmarks.table2.pages import TABLE2

EXPERIMENTS = (TABLE2, COVARIANCE)

if __name__ == "__main__":
    main(__doc__, "table2", *EXPERIMENTS)

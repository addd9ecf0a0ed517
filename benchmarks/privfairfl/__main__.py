"""Fairness before and after federated training, from counts that nobody sees the parts of.

    python -m benchmarks.privfairfl                 # 10 seeds; goes on where it stopped
    python -m benchmarks.privfairfl runs --seeds 1 --only table=adult training=FL
    python -m benchmarks.privfairfl seconds         # times alone

Adult and Dutch by sex, Law School by race, each among 100 clients: the comparison of Table 3 of
Pentyala et al. (2022). Noise comes from the system, so that a repetition differs within the errors
shown. seconds: the protocol of Post, by encrypted files and in memory.
"""

from benchmarks.harness import main
from benchmarks.privfairfl.comparison import COMPARISON
from benchmarks.privfairfl.times import TIMES

EXPERIMENTS = (COMPARISON, TIMES)

if __name__ == "__main__":
    main(__doc__, "privfairfl", *EXPERIMENTS)

"""Fairness before and after federated training, from counts that nobody sees the parts of.

    python -m benchmarks.privfairfl                 # 3 seeds; goes on where it stopped
    python -m benchmarks.privfairfl runs --seeds 1 --only table=adult training=FL
    python -m benchmarks.privfairfl seconds peer    # times alone

Adult and Dutch by sex, Law School by race, each among 100 clients: the comparison of Table 3 of
Pentyala et al. (2022). Noise comes from the system, so that a repetition differs within the errors
shown. seconds: the protocol of Post, by encrypted files and in memory. peer: the published one, by
three processes; needs pip install -e ".[bench]".
"""

from benchmarks.harness import main
from benchmarks.privfairfl.comparison import COMPARISON
from benchmarks.privfairfl.peer import INSTALLED, PEER
from benchmarks.privfairfl.times import TIMES

EXPERIMENTS = (COMPARISON, TIMES, PEER)

if __name__ == "__main__":
    if not INSTALLED:
        print("peer: skipped, needs MPyC: pip install -e '.[bench]'")
    main(__doc__, "privfairfl", *(one for one in EXPERIMENTS if INSTALLED or one is not PEER))

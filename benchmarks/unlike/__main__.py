"""Accuracy and SPD of one upload where clients are unlike, next to central training.

    python -m benchmarks.unlike                     # 3 seeds; goes on where it stopped
    python -m benchmarks.unlike runs --seeds 1 --only task=law_school_race clients=4 split=0.3
    python -m benchmarks.unlike client frontier     # times alone
    python -m benchmarks.unlike one_noise           # private sums over all clients

Dutch by sex, Law School by race and by gender, Adult by sex. Clients are alike, cut by
Dirichlet(0.3) or Dirichlet(0.1) on pairs of group and label, or those that Adult has by itself:
an occupation, or a region of birth. Four fifths of a client's rows are for training.

client: seconds and memory of a client with many rows, its whole process. frontier: seconds of a
point for a thousand clients.
"""

from benchmarks.harness import main
from benchmarks.unlike.one_noise import ONE_NOISE
from benchmarks.unlike.pages import UNLIKE
from benchmarks.unlike.times import CLIENT

EXPERIMENTS = (UNLIKE, CLIENT, ONE_NOISE)

if __name__ == "__main__":
    main(__doc__, "unlike", *EXPERIMENTS)

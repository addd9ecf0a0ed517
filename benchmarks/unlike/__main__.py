"""Accuracy and SPD of one upload where clients are unlike, next to central training.

    python -m benchmarks.unlike                     # 3 seeds; goes on where it stopped
    python -m benchmarks.unlike runs --seeds 1 --only task=law_school_race clients=4 split=0.3

Dutch by sex, Law School by race and by gender, Adult by sex. Clients are alike, cut by
Dirichlet(0.3) or Dirichlet(0.1) on pairs of group and label, or those that Adult has by itself:
an occupation, or a region of birth. Four fifths of a client's rows are for training.
"""

from benchmarks.harness import main
from benchmarks.unlike.pages import UNLIKE

EXPERIMENTS = (UNLIKE,)

if __name__ == "__main__":
    main(__doc__, "unlike", *EXPERIMENTS)

"""Tables 1 and 2 of Rodríguez-Gálvez et al. (2021), on Adult.

    python -m benchmarks.adult_fpfl                 # 5 seeds; goes on where it stopped
    python -m benchmarks.adult_fpfl --only cohort=200 algorithm=FPFL
    python -m benchmarks.adult_fpfl choices         # the choice behind our settings

The published split; sex is the sensitive attribute and no input; epsilon = 2 and delta = 5e-5 for
users with two rows on average, cohorts drawn user by user (Poisson), and neighbours that differ by
one user more or less. Seeds are of users, first params, cohorts and noise: an experiment on public
rows, not a release.
"""

from benchmarks.adult_fpfl.accounts import ACCOUNTS
from benchmarks.adult_fpfl.choices import CHOICES
from benchmarks.adult_fpfl.experiment import ADULT
from benchmarks.harness import main

EXPERIMENTS = (ADULT, ACCOUNTS, CHOICES)

if __name__ == "__main__":
    main(__doc__, "adult_fpfl", *EXPERIMENTS)

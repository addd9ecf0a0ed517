"""Accuracy and gap against epsilon: two-phase, its end-to-end variant, and the baselines B1, B2.

    python -m benchmarks.two_phase              # 5 seeds; goes on where it stopped
    python -m benchmarks.two_phase --seeds 1 --only table=adult epsilon=2 epsilon=inf
    python -m benchmarks.two_phase wide --seeds 1 --only table=adult    # networks as published
    python -m benchmarks.two_phase choices      # the choice behind kappa

Adult, Bank and Dutch, statistical parity (5 clients) and equalized odds (2 clients), delta = 1e-4;
every client spends epsilon. The seed sets split, batches and noise,
so that a run can be repeated: such noise protects nobody.
"""

from benchmarks.harness import main
from benchmarks.two_phase.choices import CHOICES
from benchmarks.two_phase.phases import TWO_PHASE, WIDE

EXPERIMENTS = (TWO_PHASE, WIDE, CHOICES)

if __name__ == "__main__":
    main(__doc__, "two_phase", *EXPERIMENTS)

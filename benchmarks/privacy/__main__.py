"""Accuracy and SPD against epsilon.

    python -m benchmarks.privacy                    # 10 seeds; goes on where it stopped
    python -m benchmarks.privacy choose             # methods at an equal budget, on training rows

Law School by race and Dutch with the settings in configs/, delta = 1 / N^1.1 with N a client's
training rows; private runs start in the middle of the range, as is the default with epsilon. Each
client spends epsilon. For comparison: the non-private run, and local randomisation of (s, y): each
row's pair of group and label is replaced by a random one so that epsilon holds for the pair (k-ary
randomised response), and the rows are then distilled without further noise. That protects neither
the features nor whether a row is there at all. Noise comes from the system, so that a repetition
differs within the errors shown.
"""

from benchmarks.harness import main
from benchmarks.privacy.budgets import BUDGETS
from benchmarks.privacy.choose import CHOOSE

if __name__ == "__main__":
    main(__doc__, "privacy", BUDGETS, CHOOSE)

"""Table 3 of Rodríguez-Gálvez et al. (2021): unfair FEMNIST.

    python -m benchmarks.femnist_fpfl                    # 5 seeds; goes on where it stopped
    python -m benchmarks.femnist_fpfl --seeds 1 --output elsewhere

201 writers instead of 3,383, and shorter runs on fewer images, see ``settings``: orderings can be
compared, not digits after the point. Larger populations exist in the accounts alone, as in the
paper.
"""

from benchmarks.femnist_fpfl.experiment import FEMNIST
from benchmarks.harness import main

EXPERIMENTS = (FEMNIST,)

if __name__ == "__main__":
    main(__doc__, "femnist_fpfl", *EXPERIMENTS)

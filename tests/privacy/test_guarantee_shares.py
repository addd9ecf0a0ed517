"""Guarantees of sums by shares count their noise as normal: on a fine grid, of few numbers."""

import pytest

from synthfair.errors import InputError
from synthfair.federated.engine import shared
from synthfair.privacy.guarantee import SampledMechanism


def test_guarantee_of_shares_on_a_coarse_grid_or_of_too_many_numbers_is_refused():
    sums = shared(8, clip=0.5, relation="add_or_remove", multiplier=6.0)
    fields = {"name": "reports", "population": 50, "sample": 50, "times": 2, "clip": 0.5,
              "sampling": "poisson", "noise": sums.noise / 2**0.5, "shares": sums.shares}  # fmt: skip
    SampledMechanism(**fields)
    with pytest.raises(InputError, match="34 steps"):
        SampledMechanism(**fields | {"noise": fields["noise"] / 8})
    with pytest.raises(InputError, match="below 2.32"):
        SampledMechanism(**fields | {"times": 2**30})

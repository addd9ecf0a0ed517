"""The memory of report ids: none passes twice, and few new ones are lost."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from synthfair.errors import InputError
from synthfair.measure.identifiers import SeenIds
from synthfair.privacy.noise import seeded


def as_ids(numbers):
    return np.frombuffer("".join(f"{i:032x}" for i in numbers).encode(), np.uint8).reshape(-1, 32)


class TestSeenIds:
    @given(st.lists(st.lists(st.integers(0, 2**128 - 1) | st.integers(0, 20)), max_size=9))
    def test_it_never_lets_one_pass_twice(self, batches):
        seen, passed = SeenIds(2**10), []
        for batch in batches:
            new = seen.new(as_ids(batch))
            passed += [i for i, fine in zip(batch, new, strict=True) if fine]
        assert len(set(passed)) == len(passed)

    def test_it_loses_as_many_new_ones_as_stated(self):
        """Over keys, too: 40 times 500 ids, at 4.5 standard errors."""
        lost, predicted = [], 0.0
        for seed in range(40):
            seen = SeenIds(2**10, seeded(seed))
            for i in range(0, 1000, 10):
                seen.new(as_ids(range(i, i + 10)))
            predicted = seen.lost_share()
            bits = seen._words.copy()
            place, wanted = seen._places(seen._hashed(as_ids(range(10**6, 10**6 + 500))))
            lost.append(float(np.mean(bits[place] & wanted == wanted)) - predicted)
        assert predicted > 0.01
        assert abs(np.mean(lost)) < 4.5 * np.std(lost) / math.sqrt(40)

    def test_stated_defaults(self):
        seen = SeenIds()
        seen.accepted = 10**7
        assert 5e-5 < seen.lost_share() < 7e-5
        seen.accepted = 10**8
        assert 0.015 < seen.lost_share() < 0.025

    @pytest.mark.parametrize("size", [0, 2**40])
    def test_impossible_memory_is_refused(self, size):
        with pytest.raises(InputError, match=f"id memory = {size} bytes"):
            SeenIds(size)

"""Report ids in constant memory: none passes twice, and few new ones are lost."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from synthfair.measure.aggregate import SeenIds
from synthfair.privacy.noise import seeded


def as_ids(numbers):
    return np.array([f"{i:032x}" for i in numbers], object)


def test_a_repeated_id_is_found_within_and_across_batches():
    seen = SeenIds(2**20, seeded(0))
    assert seen.add_new(as_ids([1, 2, 1])).tolist() == [True, True, False]
    assert seen.add_new(as_ids([3, 2])).tolist() == [True, False]
    assert seen.accepted == 3


@settings(max_examples=40)
@given(st.lists(st.lists(st.integers(0, 2**128 - 1) | st.integers(0, 20)), max_size=9))
def test_no_id_passes_twice(batches):
    seen, passed = SeenIds(2**10), []
    for batch in batches:
        passed += [i for i, new in zip(batch, seen.add_new(as_ids(batch)), strict=True) if new]
    assert len(set(passed)) == len(passed)


def lost_ids(seed):
    """New ids of 20 that are lost after 1,000, minus the number expected."""
    seen = SeenIds(2**10, seeded(seed))
    seen.add_new(as_ids(range(1000)))
    before = seen.lost_share()
    lost = 20 - int(seen.add_new(as_ids(range(10**6, 10**6 + 20))).sum())
    return lost - 20 * (before + seen.lost_share()) / 2


def test_as_many_new_ids_are_lost_as_stated():
    """At 4.5 standard errors over 300 draws of the keys: one false alarm in 150,000."""
    off = [lost_ids(seed) for seed in range(300)]
    assert np.std(off) > 0.3  # about 3 of 20 are lost
    assert abs(np.mean(off)) < 4.5 * np.std(off) / np.sqrt(len(off))


def test_the_default_memory_loses_as_few_as_its_documentation_says():
    seen = SeenIds()
    seen.accepted = 10**7
    assert 5e-5 < seen.lost_share() < 7e-5
    seen.accepted = 10**8
    assert 0.015 < seen.lost_share() < 0.025

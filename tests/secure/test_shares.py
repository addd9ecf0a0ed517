"""Shares add up to the vector, exactly, and each alone is uniform whatever the vector."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from synthfair.errors import InputError
from synthfair.privacy.noise import seeded
from synthfair.secure.shares import Sharing

INTEGERS = st.integers(-(2**63), 2**63 - 1)


@given(vector=st.lists(INTEGERS, min_size=1, max_size=9), roles=st.integers(2, 3))
def test_shares_add_up_exactly_and_their_messages_have_one_length(vector, roles):
    sharing = Sharing(bytes(32), len(vector), roles)
    messages = sharing.split(np.array(vector))
    assert {len(message) for message in messages} == {max(8 * len(vector), 32)}
    assert len({*messages}) == roles
    shares = [sharing.share(message, role) for role, message in enumerate(messages)]
    assert sum(shares).view(np.int64).tolist() == vector


def test_share_says_nothing_of_the_vector():
    """The seed of one role is the same for any; another seed changes all of the full share."""
    sharing = Sharing(bytes(32), 50, 2)
    one, other = (sharing.split(np.full(50, v), seeded(1)) for v in (1, 9))
    assert one[1] == other[1]
    fresh = sharing.share(sharing.split(np.full(50, 1))[0], 0)
    shares = np.append(fresh, sharing.share(one[0], 0))
    assert len({*shares}) == 100  # and no byte of them is constant, or few values
    assert min(len(np.unique(byte)) for byte in shares.view(np.uint8).reshape(100, 8).T) > 50


def test_seed_is_expanded_otherwise_for_another_task_or_role():
    tasks = [Sharing(task, 6, 3) for task in (bytes(32), b"\1" * 32)]
    assert len({task.share(bytes(48), role).tobytes() for task in tasks for role in (1, 2)}) == 4


@pytest.mark.parametrize("message", [b"", bytes(47), bytes(49), bytes(32) + b"\1" + bytes(15)])
def test_message_of_another_length_or_padding_is_refused(message):
    with pytest.raises(InputError, match=f"c.to_1: {len(message)} bytes"):
        Sharing(bytes(32), 6, 2).share(message, 1, source="c.to_1")

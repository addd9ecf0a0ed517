"""A federation for tests of all its carriers."""

import pytest
from builders import NAMES
from sum_world import ADDERS, SumWorld


@pytest.fixture
def sums(tmp_path):
    """A federation whose aggregators add up even one site's share."""
    world = SumWorld(tmp_path)
    for name in ADDERS:
        world.allow(name, least_clients=1)
    for name in NAMES:
        world.bound(name)
    return world

"""Sites that are asked for their reports in rounds send no exact sums that tell a row."""

import pytest
from builders import World, make_table
from site_training import FPFL, MANY, REFINE, channel_of, train

from synthfair.task.job_sites import TooFewError


@pytest.fixture
def world(tmp_path):
    """Sites of which the north has one row with home = other."""
    found, table = World(tmp_path, rows=MANY), make_table(MANY)
    found.limit("north", most_rounds=50)
    found.limit("south", most_rounds=50, value_rows=10)
    table.loc[table["home"] == "other", "home"] = "own"
    table.loc[0, "home"] = "other"
    table.to_csv(tmp_path / "north" / "rows.csv", index=False)
    return found


@pytest.mark.parametrize(
    "settings", [FPFL | {"clip": 1.0}, REFINE, {"method": "fedsgd", "rounds": 1}]
)
def test_site_refuses_sums_that_tell_a_row(world, settings):
    with pytest.raises(TooFewError, match="north: table"):
        train(world, channel_of(world), settings, most_rows=MANY)
    assert "home=other: 1, must be none or 10" in "".join(world.said)
    assert not world.ledger().records()


def test_site_may_ask_for_more_rows_of_a_value(world):
    world.limit("south", most_rounds=50, value_rows=200)
    make_table(MANY).to_csv(world.folder / "north" / "rows.csv", index=False)
    with pytest.raises(TooFewError, match="south: table"):
        train(world, channel_of(world), FPFL | {"rounds": 1})

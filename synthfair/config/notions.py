"""Notions that several rooms share: of fairness, of neighbouring tables, of weights of rows."""

from __future__ import annotations

from typing import Literal

Notion = Literal["statistical_parity", "equal_opportunity", "equalized_odds"]
"""Rows in which groups are compared: all; those with the positive label; those of each label."""

Relation = Literal["add_or_remove", "replace"]
"""Which tables are neighbours: one has a row more than the other; or one row is another."""

WeightMethod = Literal["published", "kamiran_calders"]
"""Every pair of group and label weighs the same in all; or group and label become independent."""

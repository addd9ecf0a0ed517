"""Texts are compared as readers would: words exactly, numbers nearly."""

import pytest
from comparison import EXAMPLE, same_text

PRINTED = "SPD +0.21 of 1,234 at 2e-05"


@pytest.mark.parametrize(("claimed", "tolerance", "same"), [
    ("SPD  +0.24\n of 1,234 at 2e-05", EXAMPLE, True),
    ("SPD +0.25 of 1,234 at 2e-05", EXAMPLE, False),
    ("SPD -0.21 of 1,234 at 2e-05", EXAMPLE, False),
    ("gap +0.21 of 1,234 at 2e-05", EXAMPLE, False), ("SPD +0.21 of 1,234", EXAMPLE, False),
    ("SPD +0.22 of 1,234 at 3e-05", None, True), ("SPD +0.23 of 1,234 at 2e-05", None, False),
    ("SPD +0.21 of 1,235 at 2e-05", None, False),
])  # fmt: skip
def test_texts_may_differ_in_numbers_a_little_and_not_in_words(claimed, tolerance, same):
    assert same_text(claimed, PRINTED, tolerance=tolerance) is same

"""The public file of a measurement, and the reports that devices make by it."""

import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from synthfair.errors import InputError
from synthfair.fairness.metrics import Scored
from synthfair.measure.collection import (
    NO_VALUE,
    Collection,
    make_collection,
    perturb_rates,
    perturb_records,
    rate_of,
)
from synthfair.measure.mechanisms import LaplaceValue, RandomizedValue
from synthfair.privacy.noise import seeded

BIT = RandomizedValue(2, 1.0, 1.0)
COLLECTION = make_collection(("f", "m"), BIT)
LAPLACE = make_collection(("f", "m"), LaplaceValue(2, 1.0, 1.0), lower=0.0, upper=5.0)
ALMOST_OPEN = make_collection(("a", "b", NO_VALUE), RandomizedValue(3, 28.0, 28.0))
"""So large an epsilon that no report is noisy, but for one in a million million."""
ROWS = Scored(np.array([1.0, 1.0, -1.0]), np.array([2.0, -2.0, 2.0]), np.array([0, 1, 1]))
"""A hit, a miss, and a row with the other label."""


@pytest.mark.parametrize(
    ("changes", "key"),
    [
        ({"epsilon": 0.5}, "epsilon = 0.5"), ({"k": 1.0}, "k"), ({"groups": ["f", "f"]}, "'f'"),
        ({"groups": [f"g{i}" for i in range(501)]}, "500"), ({"groups": ["f", NO_VALUE]}, "groups"),
        ({"groups": ["f\n", "m"]}, "groups.0"), ({"groups": ["f,", "m"]}, "groups.0"),
        ({"lower": 9.0}, "lower"), ({"epsilon1": -1.0}, "epsilon1"),
        ({"epsilon": 40.0, "epsilon1": 39.0}, "at most 30"),
    ],
)  # fmt: skip
def test_collection_file_that_claims_too_much_is_refused(tmp_path, changes, key):
    path = tmp_path / "gap.json"
    LAPLACE.write(path)
    assert Collection.read(path) == LAPLACE
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))
    with pytest.raises(InputError, match=key) as caught:
        Collection.read(path)
    assert "gap.json" in str(caught.value)


@pytest.mark.parametrize("content", ["", "[]", "null", "{", "[" * 100_000])
def test_collection_file_of_something_else_is_refused(tmp_path, content):
    (tmp_path / "gap.json").write_text(content)
    with pytest.raises(InputError, match="gap.json"):
        Collection.read(tmp_path / "gap.json")


def test_collection_fingerprints_differ_and_stay_the_same_between_versions():
    others = [make_collection(("f", "m"), BIT, upper=2.0), make_collection(("m", "f"), BIT),
              make_collection(("f", "m"), RandomizedValue(2, 1.0, 1.1)), LAPLACE]  # fmt: skip
    assert len({one.fingerprint for one in (COLLECTION, *others)}) == 5
    assert COLLECTION.fingerprint == "ce33587a"


@given(lower=st.floats(-1e308, 1e308), upper=st.floats(-1e308, 1e308), part=st.floats(0, 1))
def test_collection_scales_values_into_the_range_that_epsilon_is_for(lower, upper, part):
    try:
        collection = make_collection(("f", "m"), BIT, lower=lower, upper=upper)
    except InputError:
        return
    value = min(max(lower + part * (upper - lower), lower), upper)
    (scaled,) = collection.scaled(np.array([value]))
    assert abs(scaled) <= 1
    assert scaled == pytest.approx(2 * (value - lower) / (upper - lower) - 1, abs=1e-9)


@pytest.mark.parametrize(("group", "value"), [("x", 0.5), ("f", 1.5), ("f", -0.1), ("f", math.nan)])
def test_record_outside_the_public_file_is_refused(group, value):
    with pytest.raises(InputError, match="group" if group == "x" else "value"):
        perturb_records(COLLECTION, [group], [value])


def test_records_are_reported_with_ids_that_are_new_each_time():
    reports = [perturb_records(COLLECTION, ["f"], [0.3])[0] for _ in range(50)]
    assert len({report.report for report in reports}) == 50
    assert {len(report.report) for report in reports} == {32}
    assert {(r.collection, abs(r.value)) for r in reports} == {(COLLECTION.fingerprint, 1.0)}


def sent(rows, rate, **options):
    """Group and value of each report; they come in random order."""
    reports = perturb_rates(ALMOST_OPEN, rows, ("a", "b"), rate, **options)
    assert reports == sorted(reports)
    return sorted((report.group, report.value) for report in reports)


def test_rates_are_reported_row_by_row_and_none_for_the_other_label():
    none, *found = sent(ROWS, "true_positive_rate")
    assert none[0] == NO_VALUE
    assert found == [("a", 1.0), ("b", -1.0)]
    *nobody, found = sent(ROWS, "false_positive_rate")
    assert [group for group, _ in nobody] == [NO_VALUE] * 2
    assert found == ("b", 1.0)


def test_rates_of_one_persons_rows_are_one_report():
    """Of 3 of 4 rows, 0.75 of the range: v = 0.5; 4.9 standard errors of 1,000 reports."""
    rows = Scored(np.ones(4), np.array([1.0, -1.0, 1.0, 1.0]), np.ones(4, int))
    source = seeded(0)
    reports = [sent(rows, "true_positive_rate", together=True, source=source) for _ in range(1000)]
    assert {group for ((group, _),) in reports} == {"b"}
    assert np.mean([value for ((_, value),) in reports]) == pytest.approx(
        0.5, abs=4.9 * 0.87 / 31.6
    )


@pytest.mark.parametrize(
    ("collection", "rows", "said"),
    [
        (ALMOST_OPEN, ROWS.take(np.arange(0)), "rows: none"), (ALMOST_OPEN, ROWS, "row 2"),
        (COLLECTION, ROWS, "groups"), (make_collection(("a", "b", NO_VALUE), RandomizedValue(3, 1, 1), upper=0.9), ROWS, "range"),
    ],
)  # fmt: skip
def test_rates_that_cannot_be_are_refused(collection, rows, said):
    with pytest.raises(InputError, match=said):
        perturb_rates(collection, rows, ("a", "b"), "true_positive_rate", together=True)


def test_rates_by_device_are_means_of_the_probability_of_its_rows():
    rng = np.random.default_rng(0)
    rows = Scored(rng.choice([-1.0, 1.0], 90), np.zeros(90), np.zeros(90, int), 2, rng.random(90))
    device = np.arange(90) % 3
    for name, label in (("true_positive_rate", 1), ("false_positive_rate", -1)):
        expected = [rows.selected[(device == d) & (rows.y == label)].mean() for d in range(3)]
        np.testing.assert_allclose(rate_of(name, rows, device, 4), [*expected, np.nan])

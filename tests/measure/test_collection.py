"""The public file of a measurement, and the reports that devices make by it."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from synthfair import measure
from synthfair.errors import InputError
from synthfair.fairness.metrics import Scored
from synthfair.measure import NO_VALUE
from synthfair.privacy.noise import seeded

BIT = measure.RandomizedValue(2, 1.0, 1.0)
COLLECTION = measure.make_collection(("f", "m"), BIT)
LAPLACE = measure.make_collection(("f", "m"), measure.LaplaceValue(2, 1.0, 1.0), upper=5.0)
ALMOST_OPEN = measure.make_collection(("a", "b", NO_VALUE), measure.RandomizedValue(3, 28.0, 28.0))
"""So large an epsilon that no report is noisy, but for one in a million million."""
ROWS = Scored(np.array([1.0, 1.0, -1.0]), np.array([2.0, -2.0, 2.0]), np.array([0, 1, 1]))
"""A hit, a miss, and a row with the other label."""


@pytest.mark.parametrize(("changes", "key"), [
    ({"epsilon": 1.499}, "epsilon = 1.499"), ({"k": 1.0}, "k"), ({"groups": ["f", "f"]}, "'f'"),
    ({"groups": [f"g{i}" for i in range(501)]}, "500"), ({"groups": ["f", NO_VALUE]}, "groups"),
    ({"groups": ["f\n", "m"]}, "groups.0"), ({"groups": ["f,", "m"]}, "groups.0"),
    ({"lower": 9.0}, "lower"), ({"epsilon1": -1.0}, "epsilon1"),
    ({"epsilon": 40.0, "epsilon1": 39.0}, "at most 30"),
])  # fmt: skip
def test_collection_file_that_claims_too_much_is_refused(tmp_path, changes, key):
    path = tmp_path / "gap.json"
    LAPLACE.write(path)
    assert measure.Collection.read(path) == LAPLACE
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))
    with pytest.raises(InputError, match=key) as caught:
        measure.Collection.read(path)
    assert "gap.json" in str(caught.value)


def test_collection_fingerprints_differ_and_stay_the_same_between_versions():
    others = [measure.make_collection(("f", "m"), BIT, upper=2.0), measure.make_collection(("m", "f"), BIT),
              measure.make_collection(("f", "m"), measure.RandomizedValue(2, 1.0, 1.1)), LAPLACE]  # fmt: skip
    assert len({one.fingerprint for one in (COLLECTION, *others)}) == 5
    assert COLLECTION.fingerprint == "ce33587a"


@given(lower=st.floats(-1e99, 1e99), size=st.floats(1e-99, 1e99), part=st.floats(0, 1))
def test_collection_scales_values_into_the_range_that_epsilon_is_for(lower, size, part):
    upper = max(lower + size, np.nextafter(lower, np.inf))
    public = measure.make_collection(("f", "m"), BIT, lower=lower, upper=upper)
    value = min(lower + part * (upper - lower), upper)
    (scaled,) = public.scaled(np.array([value]))
    assert abs(scaled) <= 1
    assert scaled == pytest.approx((value - lower) / (upper - lower) * 2 - 1, abs=1e-9)


@pytest.mark.parametrize(("group", "value"), [("x", 0.5), ("f", 1.5), ("f", -0.1), ("f", np.nan)])
def test_record_outside_the_public_file_is_refused(group, value):
    with pytest.raises(InputError, match="group" if group == "x" else "value"):
        measure.perturb_records(COLLECTION, [group], [value])


def test_records_are_reported_with_ids_that_are_new_each_time():
    reports = [measure.perturb_records(COLLECTION, ["f"], [0.3])[0] for _ in range(50)]
    assert len({report.report for report in reports}) == 50
    assert {(len(r.report), r.collection) for r in reports} == {(32, COLLECTION.fingerprint)}
    places, values = np.arange(300) % 2, np.linspace(0, 5, 300)
    reports = measure.perturb_records(LAPLACE, np.array(["f", "m"])[places], values, seeded(0))
    drawn = LAPLACE.make_mechanism().perturb(places, values / 2.5 - 1, seeded(0))
    assert [("fm".index(r.group), r.value) for r in reports] == [*zip(*drawn, strict=True)]


def sent(rows, rate, **options):
    """Group and value of each report; they come in random order."""
    reports = measure.perturb_rates(ALMOST_OPEN, rows, ("a", "b"), rate, **options)
    assert reports == sorted(reports)
    return sorted((report.group, report.value) for report in reports)


def test_rates_are_reported_row_by_row_and_none_for_the_other_label():
    (none, _), *found = sent(ROWS, "true_positive_rate")
    assert (none, found) == (NO_VALUE, [("a", 1.0), ("b", -1.0)])
    (none, _), (nobody, _), found = sent(ROWS, "false_positive_rate")
    assert (none, nobody, found) == (NO_VALUE, NO_VALUE, ("b", 1.0))


def test_rates_of_one_persons_rows_are_one_report():
    """Of 3 of 4 decisions that are drawn, 0.75: v = 0.5; 4.9 standard errors of 1,000 reports."""
    y, chance = np.array([1.0, 1, 1, 1, -1]), np.array([1.0, 0.5, 0.5, 1, 0])
    rows = Scored(y, -np.ones(5), np.ones(5, int), 2, chance)
    options = {"together": True, "source": seeded(0)}
    ((none, _),) = sent(rows.take(np.array([4])), "true_positive_rate", together=True)
    assert none == NO_VALUE
    reports = [sent(rows, "true_positive_rate", **options) for _ in range(1000)]
    assert {group for ((group, _),) in reports} == {"b"}
    assert abs(np.mean([value for ((_, value),) in reports]) - 0.5) < 4.9 * 0.87 / 31.6


NARROW = measure.make_collection(("a", "b", NO_VALUE), ALMOST_OPEN.make_mechanism(), upper=0.9)


@pytest.mark.parametrize(("public", "rows", "said"), [
    (ALMOST_OPEN, ROWS.take(np.arange(0)), "rows: none"), (ALMOST_OPEN, ROWS, "row 2"),
    (COLLECTION, ROWS, "groups"), (NARROW, ROWS, "range"),
])  # fmt: skip
def test_rates_that_cannot_be_are_refused(public, rows, said):
    with pytest.raises(InputError, match=said):
        measure.perturb_rates(public, rows, ("a", "b"), "true_positive_rate", together=True)

"""The public file of a measurement."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from synthfair.errors import InputError
from synthfair.measure.collection import Collection, make_collection
from synthfair.measure.mechanisms import LaplaceValue, RandomizedValue

COLLECTION = make_collection(("f", "m"), RandomizedValue(2, 1.0, 1.0))
LAPLACE = make_collection(("f", "m"), LaplaceValue(2, 1.0, 1.0), lower=0.0, upper=5.0)


def test_a_written_file_is_read_back(tmp_path):
    LAPLACE.write(tmp_path / "gap.json")
    assert Collection.read(tmp_path / "gap.json") == LAPLACE


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"epsilon": 0.5}, "epsilon = 0.5 is claimed, but the mechanism's is 1.5"),
        ({"k": 1.0}, "unknown key"),
        ({"groups": [f"g{i}" for i in range(501)]}, "500"),
        ({"groups": ["f", "f"]}, "named twice"),
        ({"groups": ["f", "(no value)"]}, "at least two must be others than '\\(no value\\)'"),
        ({"lower": 9.0}, "must be below upper"),
        ({"groups": ["f\n", "m"]}, "printable"),
        ({"epsilon1": -1.0}, "epsilon1 = -1"),
    ],
)
def test_a_file_that_claims_too_much_is_refused(tmp_path, changes, message):
    document = LAPLACE.model_dump(mode="json") | changes
    (tmp_path / "gap.json").write_text(json.dumps(document))
    with pytest.raises(InputError, match=message) as caught:
        Collection.read(tmp_path / "gap.json")
    assert "gap.json" in str(caught.value)


@pytest.mark.parametrize("content", ["", "[]", "null", "{", "[" * 100_000])
def test_another_file_is_refused(tmp_path, content):
    (tmp_path / "gap.json").write_text(content)
    with pytest.raises(InputError, match="gap.json"):
        Collection.read(tmp_path / "gap.json")


def test_fingerprints_differ_and_stay_the_same_between_versions():
    others = [
        make_collection(("f", "m"), RandomizedValue(2, 1.0, 1.0), upper=2.0),
        make_collection(("m", "f"), RandomizedValue(2, 1.0, 1.0)),
        make_collection(("f", "m"), RandomizedValue(2, 1.0, 1.1)),
        LAPLACE,
    ]
    assert len({one.fingerprint for one in (COLLECTION, *others)}) == 5
    assert COLLECTION.fingerprint == "ce33587a"


@given(lower=st.floats(-1e308, 1e308), upper=st.floats(-1e308, 1e308), part=st.floats(0, 1))
def test_scaled_values_never_leave_the_range_that_epsilon_is_for(lower, upper, part):
    try:
        collection = make_collection(
            ("f", "m"), RandomizedValue(2, 1.0, 1.0), lower=lower, upper=upper
        )
    except InputError:
        return
    value = min(max(lower + part * (upper - lower), lower), upper)
    assert np.abs(collection.scaled(np.array([value]))).max() <= 1


def test_an_epsilon_that_protects_nothing_is_refused():
    with pytest.raises(InputError, match="must be at most 30"):
        make_collection(("f", "m"), RandomizedValue(2, 40.0, 40.0))

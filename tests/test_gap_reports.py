"""Reports from anywhere: what is malformed or repeated is counted, and never used."""

import io
import json
import math
import tracemalloc

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from synthfair.errors import InputError
from synthfair.measure.collection import (
    make_collection,
    read_collection,
    write_collection,
)
from synthfair.measure.estimate import estimate_gaps
from synthfair.measure.identifiers import SeenIds
from synthfair.measure.mechanisms import LaplaceValue, RandomizedValue
from synthfair.measure.reports import aggregate_reports, perturb_record
from synthfair.measure.tally import tally
from synthfair.privacy.noise import seeded

SMALL = 2**16
COLLECTION = make_collection(("f", "m"), RandomizedValue(2, 1.0, 1.0))
LAPLACE = make_collection(("f", "m"), LaplaceValue(2, 1.0, 1.0), lower=0.0, upper=5.0)


def csv_of(*lines, header="report,group,value"):
    return io.BytesIO("\n".join([header, *lines, ""]).encode())


def read(*lines, collection=COLLECTION, **options):
    return aggregate_reports([csv_of(*lines, **options)], collection, id_bytes=SMALL)


def made(n, collection=COLLECTION):
    source = seeded(2)
    return pd.DataFrame(
        [perturb_record(collection, "fm"[i % 2], (i % 5) / 4, source) for i in range(n)]
    )


@pytest.mark.parametrize(
    ("line", "why", "example"),
    [
        ("2,x,1", "unknown group", "row 2: column 'group': 'x'; must be one of f, m"),
        ("2,F,1", "unknown group", "'F'"),
        ("2,f,0.5", "value not possible", "column 'value': '0.5'; must be -1 or 1"),
        ("2,f,nan", "value not possible", "'nan'"),
        ("2,f,inf", "value not possible", "'inf'"),
        ("2,f,one", "value not possible", "'one'"),
        ("2,f,", "missing", "column 'value': None"),
        ("2,,1", "missing", "column 'group'"),
        (",f,1", "missing", "column 'report'"),
        ("1,m,-1", "repeated report", "column 'report': '1'"),
        ("2,f", "wrong number of columns", "2 columns where 3"),
        ("2,f,1,1", "wrong number of columns", "4 columns where 3"),
    ],
)
def test_a_malformed_report_is_refused_and_counted(line, why, example):
    found = read("1,f,1", line, "3,m,-1")
    assert found.tally.reports == 2
    assert found.tally.totals.tolist() == [1.0, -1.0]
    assert {key: n for key, n in found.rejected.items() if n} == {why: 1}
    assert example in found.examples[why]


def test_laplace_values_beyond_what_the_mechanism_can_draw_are_refused():
    limit = LAPLACE.noise().limit
    beyond = math.nextafter(limit, math.inf)
    found = read(f"1,f,{limit!r}", f"2,f,{beyond!r}", "3,m,-1e300", "4,m,0", collection=LAPLACE)
    assert found.tally.reports == 2
    assert found.rejected["value not possible"] == 2


def test_no_report_is_used_twice_within_or_across_files(tmp_path):
    reports = made(500)
    reports.to_csv(tmp_path / "a.csv", index=False)
    pd.concat([reports, reports]).to_parquet(tmp_path / "b.parquet")
    found = aggregate_reports(
        [tmp_path / "a.csv", tmp_path / "b.parquet"], COLLECTION, id_bytes=SMALL
    )
    assert found.tally.reports == 500
    assert found.rejected["repeated report"] == 1000


@pytest.mark.parametrize("collection", [COLLECTION, LAPLACE], ids=["M_R", "M_L"])
def test_csv_parquet_and_arrays_give_the_same(tmp_path, collection):
    reports = made(3000, collection)
    reports.to_csv(tmp_path / "a.csv", index=False)
    reports.astype({"group": "category"}).to_parquet(tmp_path / "b.parquet")
    groups = (reports["group"] == "m").to_numpy().astype(int)
    expected = tally(groups, reports["value"].to_numpy(), 2)
    for name in ("a.csv", "b.parquet"):
        found = aggregate_reports([tmp_path / name], collection, id_bytes=2**20)
        assert found.tally.reports == 3000
        for x, y in zip(found.tally, expected, strict=True):
            assert x == pytest.approx(y, rel=1e-12)


def test_other_columns_are_ignored_and_ids_may_be_absent():
    found = read("1,f,x,1", "1,f,y,1", header="value,group,note,number")
    assert found.tally.counts.tolist() == [2.0, 0.0]
    assert found.ids is None


@pytest.mark.parametrize(
    ("header", "said"),
    [
        ("report,group", "column 'value': missing"),
        ("a,b", "column 'group': missing"),
        ("group,value,value", "more than once"),
    ],
)
def test_a_file_without_its_columns_is_refused(header, said):
    with pytest.raises(InputError, match=said):
        read("1,f,1", header=header)


@pytest.mark.parametrize("value", [[[1.0]], [{"a": 1}], [pd.Timestamp(0)], [b"1"], [True]])
def test_a_parquet_column_that_holds_no_numbers_is_refused(tmp_path, value):
    pd.DataFrame({"group": ["f"], "value": value}).to_parquet(tmp_path / "r.parquet")
    with pytest.raises(InputError, match="column 'value': is .*; must be numbers"):
        aggregate_reports([tmp_path / "r.parquet"], COLLECTION, id_bytes=SMALL)


def test_files_with_and_without_ids_do_not_mix():
    files = [csv_of("1,f,1"), csv_of("f,1", header="group,value")]
    with pytest.raises(InputError, match="in all files or in none"):
        aggregate_reports(files, COLLECTION, id_bytes=SMALL)


@pytest.mark.parametrize("content", [b"", b"PAR1junk", b"\xff\xfe\x00", b"report,group,value\n"])
def test_broken_files_end_in_an_input_error_or_nothing(tmp_path, content):
    path = tmp_path / "r"
    path.write_bytes(content)
    try:
        found = aggregate_reports([path], COLLECTION, id_bytes=SMALL)
    except InputError as error:
        assert str(path) in str(error)  # noqa: PT017 - either is right
    else:
        assert found.tally.reports == 0


@given(st.lists(st.text(st.characters(codec="utf-8"), max_size=12), max_size=8))
def test_no_text_breaks_the_reading_or_becomes_a_report(cells):
    content = csv_of(",".join(cells), "1,f,1")
    try:
        found = aggregate_reports([content], COLLECTION, id_bytes=SMALL)
    except InputError:
        return
    assert np.isin(found.tally.totals, [-2.0, -1.0, 0.0, 1.0, 2.0]).all()
    assert (found.tally.counts == found.tally.squares).all()


def test_memory_does_not_grow_with_the_reports():
    def peak(n):
        rows = csv_of(*(f"{i},f,1" for i in range(n)))
        tracemalloc.start()
        aggregate_reports([rows], COLLECTION, id_bytes=2**20)
        most = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return most

    peak(1000)  # what is loaded once
    assert peak(400_000) < 1.3 * peak(150_000)


class TestSeenIds:
    @given(st.lists(st.text(max_size=6), max_size=60))
    def test_it_never_lets_one_pass_twice(self, ids):
        seen = SeenIds(2**10)
        passed = [text for text in ids if seen.new(np.array([text], object))[0]]
        assert len(set(passed)) == len(passed)

    def test_it_loses_as_many_new_ones_as_stated(self):
        seen, n = SeenIds(2**10, seeded(1)), 1000
        seen.new(np.array([f"first {i}" for i in range(n)], object))
        predicted = seen.lost_share()
        before = seen.accepted
        lost = sum(
            not SeenIdsCopy(seen).new(np.array([f"second {i}"], object))[0] for i in range(2000)
        )
        assert before <= n
        assert lost / 2000 == pytest.approx(predicted, abs=4.5 * math.sqrt(predicted / 2000))

    @pytest.mark.parametrize("size", [0, 2**40])
    def test_impossible_memory_is_refused(self, size):
        with pytest.raises(InputError, match="id memory"):
            SeenIds(size)


class SeenIdsCopy(SeenIds):
    """One that may be asked without being changed."""

    def __init__(self, other):
        self._bits, self._key, self.accepted = other._bits.copy(), other._key, other.accepted


class TestPerturb:
    @pytest.mark.parametrize(
        ("group", "value", "said"),
        [
            ("x", 0.5, "must be one of f, m"),
            ("f", 1.5, "from 0 to 1"),
            ("f", math.nan, "from 0 to 1"),
        ],
    )
    def test_a_record_outside_the_public_file_is_refused(self, group, value, said):
        with pytest.raises(InputError, match=said):
            perturb_record(COLLECTION, group, value)

    def test_ids_are_new_each_time_and_reports_are_accepted(self):
        reports = [perturb_record(COLLECTION, "f", 0.3) for _ in range(50)]
        assert len({report.report for report in reports}) == 50
        found = read(*(f"{r.report},{r.group},{r.value!r}" for r in reports))
        assert found.tally.reports == 50

    def test_many_devices_give_the_gap(self, tmp_path):
        collection = make_collection(("f", "m"), RandomizedValue(2, 3.0, 3.0))
        source = seeded(9)
        rows = [
            perturb_record(collection, "fm"[i % 2], 0.9 - 0.4 * (i % 2), source)
            for i in range(8000)
        ]
        pd.DataFrame(rows).to_parquet(tmp_path / "r.parquet")
        found = aggregate_reports([tmp_path / "r.parquet"], collection, id_bytes=2**22)
        gap = estimate_gaps(found.tally, collection.noise(), confidence=0.9999).gaps[0]
        assert gap.interval.low * collection.unit < -0.4 < gap.interval.high * collection.unit < 0


class TestCollection:
    def test_it_comes_back(self, tmp_path):
        write_collection(LAPLACE, tmp_path / "gap.json")
        assert read_collection(tmp_path / "gap.json") == LAPLACE

    @pytest.mark.parametrize(
        ("changes", "said"),
        [
            ({"epsilon": 0.5}, "epsilon = 0.5 is claimed, and the mechanism has 1.5"),
            ({"k": 1.0}, "no finite epsilon"),
            ({"groups": ["f", "f"]}, "named twice"),
            ({"lower": 9.0}, "must be below upper"),
            ({"groups": ["f\n", "m"]}, "printable"),
            ({"mystery": 1}, "unknown key"),
            ({"epsilon1": -1.0}, "epsilon1 = -1"),
        ],
    )
    def test_a_file_that_claims_too_much_is_refused(self, tmp_path, changes, said):
        write_collection(LAPLACE, tmp_path / "gap.json")
        document = json.loads((tmp_path / "gap.json").read_text()) | changes
        (tmp_path / "gap.json").write_text(json.dumps(document))
        with pytest.raises(InputError, match=said) as caught:
            read_collection(tmp_path / "gap.json")
        assert "gap.json" in str(caught.value)

    @pytest.mark.parametrize("content", ["", "[]", "null", "{", "[" * 100_000])
    def test_what_is_no_collection_is_refused(self, tmp_path, content):
        (tmp_path / "gap.json").write_text(content)
        with pytest.raises(InputError, match="gap.json"):
            read_collection(tmp_path / "gap.json")


def test_a_stray_quotation_mark_swallows_no_other_report():
    found = read('x,"f,1', *(f"{i},f,1" for i in range(100)))
    assert found.tally.reports == 100


def test_a_byte_order_mark_hides_no_report_ids():
    twice = io.BytesIO(b"\xef\xbb\xbfreport,group,value\n1,f,1\n1,f,1\n")
    assert aggregate_reports([twice], COLLECTION, id_bytes=SMALL).tally.reports == 1


@pytest.mark.parametrize("text", ["1_0", "0_1", "\u0661", "nan", "inf", "0x1", ""])
def test_what_python_takes_for_a_number_is_none_in_a_report(text):
    from synthfair.measure.reports import NUMBER

    assert not NUMBER.fullmatch(text)


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


def test_a_collection_whose_reports_protect_nothing_is_refused():
    with pytest.raises(InputError, match="a report has at most 30"):
        make_collection(("f", "m"), RandomizedValue(2, 40.0, 40.0))

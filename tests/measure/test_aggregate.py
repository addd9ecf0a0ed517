"""Reports from anywhere: what is malformed or repeated is counted, and never used."""

import io
from collections import Counter

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from synthfair import measure
from synthfair.errors import InputError
from synthfair.measure.aggregate import CSV_BLOCK_BYTES
from synthfair.measure.estimate import tally
from synthfair.privacy.noise import seeded

COLLECTION = measure.make_collection(("f", "m"), measure.RandomizedValue(2, 1.0, 1.0))
LAPLACE = measure.make_collection(("f", "m"), measure.LaplaceValue(2, 1.0, 1.0), upper=5.0)
MARK, HEADER = COLLECTION.fingerprint, "report,collection,group,value"


def row(i, rest, mark=MARK):
    return f"{i:032x},{mark},{rest}"


def total(*files, collection=COLLECTION, ids=2**16):
    return measure.aggregate_reports(files, collection, ids and measure.SeenIds(ids, seeded(0)))


def read(*lines, header=HEADER, end="\n", **options):
    text = end.join([*([header] if header else []), *lines, ""])
    return total(io.BytesIO(text.encode()), **options)


def made(n, collection=COLLECTION):
    groups, values = ["fm"[i % 2] for i in range(n)], [(i % 5) / 4 for i in range(n)]
    return pd.DataFrame(measure.perturb_records(collection, groups, values, seeded(2)))


@pytest.mark.parametrize(("line", "why", "column"), [
    (row(2, "x,1"), "unknown group", "group"), (row(2, "F,1"), "unknown group", "group"),
    *[(row(2, f"f,{text}"), "value not possible", "value") for text in
      ("0.5", "nan", "inf", "one", "1_0", "0_1", "\u0661", "0x1", " 1")],
    (row(2, "f,"), "missing", "value"), (row(2, ",1"), "missing", "group"),
    (row(2, "f,1")[32:], "missing", "report"), (row(2, "f,1", ""), "missing", "collection"),
    (f"{2:032x},,,", "missing", "collection"), (HEADER, "another collection", "collection"),
    (row(2, "f,1", LAPLACE.fingerprint), "another collection", "collection"),
    *[(prefix + row(2, "f,1")[skip:], "not a report id", "report") for prefix, skip in
      (("1", 0), ("", 1), ("G", 1))],
    (row(1, "m,-1"), "repeated report", "report"), ("2,f", "wrong number of columns", "2 c"),
    *[(line, "wrong number of columns", "columns") for line in (row(2, "f,1,1"), 'x,"f,1')],
])  # fmt: skip
def test_report_that_is_malformed_is_counted_and_no_other(line, why, column):
    found = read(row(1, "f,1"), line, row(3, "m,-1"), row(1, "f,1"))
    assert found.tally.totals.tolist() == [1.0, -1.0]
    assert found.tally.reports == 2
    assert found.rejected == Counter([why, "repeated report"])
    assert ": row 2: " in found.examples[why]
    assert column in found.examples[why]


def test_report_rows_are_numbered_as_they_lie_in_the_file():
    many = 3 * CSV_BLOCK_BYTES // len(row(0, "f,1"))
    lines = [row(i, "f,1") for i in range(many)]
    lines[1], lines[5], lines[6] = "", "broken", "1,2"
    found = read(*lines, row(many, "x,1"), ids=None)
    assert +found.rejected == {"wrong number of columns": 2, "unknown group": 1}
    assert f": row {many + 1}: " in found.examples["unknown group"]
    assert ": row 6: " in found.examples["wrong number of columns"]


@settings(max_examples=50)
@given(st.binary(max_size=200) | st.text(st.characters(codec="utf-8"), max_size=60).map(str.encode))
def test_report_bytes_of_any_kind_break_nothing_and_are_no_report(noise):
    content = f"{HEADER}\n".encode() + noise + f"\n{row(1, 'f,1')}\n".encode()
    assert total(io.BytesIO(content)).tally.totals.tolist() == [1.0, 0.0]
    try:
        assert total(io.BytesIO(noise)).tally.reports == 0
    except InputError as error:
        assert "standard input" in str(error)  # noqa: PT017 - either is right


@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("header", [
    HEADER, '"report","collection","group","value"', f"\ufeff{HEADER}", None,
])  # fmt: skip
def test_report_cells_in_quotation_marks_are_read(header, end):
    """As R's write.csv and Arrow write texts; or no header, as ``perturb`` prints them."""
    lines = [f'"{i:032x}","{MARK}","f",1' for i in range(5)] + [row(9, 'm,"-1"')] * 2
    found = read(*lines, header=header, end=end)
    assert found.tally.totals.tolist() == [5.0, -1.0]


@pytest.mark.parametrize("collection", [COLLECTION, LAPLACE], ids=["M_R", "M_L"])
def test_report_files_of_csv_and_parquet_give_the_same_and_each_report_once(tmp_path, collection):
    reports = made(3000, collection)
    reports.to_csv(tmp_path / "a.csv", index=False)
    several = pd.concat([reports, reports]).astype({"group": "category"})
    several.to_parquet(tmp_path / "b.parquet")
    groups = (reports["group"] == "m").to_numpy().astype(int)
    expected = tally(groups, reports["value"].to_numpy(), 2)
    for names, repeated in ((["a.csv"], 0), (["b.parquet"], 3000), (["a.csv", "b.parquet"], 6000)):
        found = total(*(tmp_path / name for name in names), collection=collection, ids=2**22)
        for sums, true in zip(found.tally, expected, strict=True):
            assert sums == pytest.approx(true, rel=1e-12)
        assert found.rejected["repeated report"] == repeated


def test_report_ids_may_be_absent_where_nobody_looks_and_other_columns_are_ignored():
    lines, header = [f"1,f,x,{MARK}"] * 2, "value,group,note,collection"
    assert read(*lines, header=header, ids=None).tally.counts.tolist() == [2.0, 0.0]


@pytest.mark.parametrize(("header", "column"), [
    ("value,group,note,collection", "report"), ("a,b", "report"),
    ("report,collection,group", "value"), (f"{HEADER},value", "value"),
])  # fmt: skip
def test_report_file_without_its_columns_once_is_refused(header, column):
    with pytest.raises(InputError, match=f"column '{column}'"):
        read(row(1, "f,1"), header=header)


def as_ids(numbers):
    return np.array([f"{i:032x}" for i in numbers], object)


@settings(max_examples=40)
@given(st.lists(st.lists(st.integers(0, 2**128 - 1) | st.integers(0, 20)), max_size=9))
def test_seen_ids_pass_none_twice(batches):
    seen, passed = measure.SeenIds(2**10), []
    for batch in map(as_ids, batches):
        passed += batch[seen.add_new(batch)].tolist()
    assert len(set(passed)) == len(passed) == seen.accepted
    assert passed or not any(batches)


def test_seen_ids_lose_as_many_new_ones_as_stated():
    """Of 20 after 1,000; at 4.9 standard errors over 300 keys: one false alarm in a million."""
    off = []
    for seed in range(300):
        seen = measure.SeenIds(2**10, seeded(seed))
        seen.add_new(as_ids(range(1000)))
        stated = 20 * seen.lost_share()
        off.append(20 - seen.add_new(as_ids(range(10**6, 10**6 + 20))).sum() - stated)
    assert abs(np.mean(off)) < 4.9 * np.std(off) / np.sqrt(len(off))

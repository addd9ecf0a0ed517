"""Reports from anywhere: what is malformed or repeated is counted, and never used."""

import io
import math
import os
import threading
import tracemalloc
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import parquet

from synthfair.errors import InputError
from synthfair.measure.aggregate import (
    CSV_BLOCK_BYTES,
    MAX_LINE_BYTES,
    SeenIds,
    aggregate_reports,
)
from synthfair.measure.collection import make_collection, perturb_records
from synthfair.measure.estimate import tally
from synthfair.measure.mechanisms import LaplaceValue, RandomizedValue
from synthfair.privacy.noise import seeded

COLLECTION = make_collection(("f", "m"), RandomizedValue(2, 1.0, 1.0))
LAPLACE = make_collection(("f", "m"), LaplaceValue(2, 1.0, 1.0), lower=0.0, upper=5.0)
MARK, HEADER = COLLECTION.fingerprint, "report,collection,group,value"


def row(i, rest, mark=MARK):
    return f"{i:032x},{mark},{rest}"


def total(*files, collection=COLLECTION, ids=2**16):
    return aggregate_reports(files, collection, ids and SeenIds(ids))


def read(*lines, header=HEADER, end="\n", **options):
    text = end.join([*([header] if header else []), *lines, ""])
    return total(io.BytesIO(text.encode()), **options)


def made(n, collection=COLLECTION):
    groups, values = ["fm"[i % 2] for i in range(n)], [(i % 5) / 4 for i in range(n)]
    return pd.DataFrame(perturb_records(collection, groups, values, seeded(2)))


@pytest.mark.parametrize(
    ("line", "why", "column"),
    [
        (row(2, "x,1"), "unknown group", "group"), (row(2, "F,1"), "unknown group", "group"),
        *[(row(2, f"f,{text}"), "value not possible", "value") for text in
          ("0.5", "nan", "inf", "one", "1_0", "0_1", "\u0661", "0x1", " 1")],
        (row(2, "f,"), "missing", "value"), (row(2, ",1"), "missing", "group"),
        (row(2, "f,1")[32:], "missing", "report"), (row(2, "f,1", ""), "missing", "collection"),
        (row(2, "f,1", LAPLACE.fingerprint), "another collection", "collection"),
        (HEADER, "another collection", "collection"), (f"{2:032x},,,", "missing", "collection"),
        (row(1, "m,-1"), "repeated report", "report"),
        ("1" + row(2, "f,1"), "not a report id", "report"),
        (row(2, "f,1")[1:], "not a report id", "report"),
        ("G" + row(2, "f,1")[1:], "not a report id", "report"),
        ("2,f", "wrong number of columns", "2 columns"),
        (row(2, "f,1,1"), "wrong number of columns", "5 columns"),
        ('x,"f,1', "wrong number of columns", "3 columns"),
    ],
)  # fmt: skip
def test_report_that_is_malformed_is_counted_and_no_other(line, why, column):
    found = read(row(1, "f,1"), line, row(3, "m,-1"))
    assert found.tally.totals.tolist() == [1.0, -1.0]
    assert found.tally.reports == 2
    assert +found.rejected == {why: 1}
    assert ": row 2: " in found.examples[why]
    assert column in found.examples[why]


@pytest.mark.parametrize(
    ("line", "rejected"), [("", 0), (",,,", 0), ("\r", 0), ('""', 1), ('","', 1), (" ", 1)]
)
def test_report_lines_without_a_cell_are_none_and_void_no_other(line, rejected):
    assert sum(read(row(1, "f,1"), line, row(2, "f,1")).rejected.values()) == rejected
    last = f"{HEADER}\n{row(1, 'f,1')}\n{line}"
    assert total(io.BytesIO(last.encode())).tally.reports == 1


def test_report_values_beyond_what_laplace_can_draw_are_refused():
    limit, mark = LAPLACE.make_mechanism().limit, LAPLACE.fingerprint
    values = (limit, math.nextafter(limit, math.inf), -1e300, 0)
    lines = [row(i, f"f,{v!r}", mark) for i, v in enumerate(values)]
    found = read(*lines, collection=LAPLACE)
    assert found.tally.reports == 2
    assert found.rejected["value not possible"] == 2


def test_report_rows_are_numbered_as_they_lie_in_the_file():
    many = 3 * CSV_BLOCK_BYTES // len(row(0, "f,1"))
    lines = [row(i, "f,1") for i in range(many)]
    lines[1], lines[5], lines[6] = "", "broken", "1,2"
    found = read(*lines, row(many, "x,1"), ids=2**22)
    assert found.tally.reports == many - 3
    assert +found.rejected == {"wrong number of columns": 2, "unknown group": 1}
    assert f": row {many + 1}: " in found.examples["unknown group"]
    assert ": row 6: " in found.examples["wrong number of columns"]


def test_report_bytes_that_are_no_text_spoil_their_own_rows():
    noise = [b"\xff" * 999] * (2 * CSV_BLOCK_BYTES // 1000)
    bad = [row(3, "f,1").encode() + b"\xff", b"\xff\xfe\x00", row(4, "").encode() + b"\xe9,1"]
    good = [row(i, "f,1").encode() for i in range(3)]
    content = b"\n".join([HEADER.encode(), good[0], *bad, good[1], *noise, good[2]])
    found = total(io.BytesIO(content))
    assert found.tally.reports == 3
    assert +found.rejected == {"value not possible": 1, "unknown group": 1,
                               "wrong number of columns": 1 + len(noise)}  # fmt: skip


@pytest.mark.parametrize("column", range(4))
def test_report_bytes_that_are_no_text_spoil_one_row_of_parquet(tmp_path, column):
    rows = [[f"{i:032x}".encode(), MARK.encode(), b"f", b"1"] for i in range(3)]
    rows[1][column] = b"\xff" * 32
    texts = [pa.array(cells, pa.binary()).view(pa.string()) for cells in zip(*rows, strict=True)]
    parquet.write_table(pa.table(texts, HEADER.split(",")), tmp_path / "r.parquet")
    found = total(tmp_path / "r.parquet")
    assert found.tally.reports == 2
    whys = "not a report id", "another collection", "unknown group", "value not possible"
    assert +found.rejected == {whys[column]: 1}
    assert "row 2: column" in found.examples[whys[column]]


@pytest.mark.parametrize("cell", [[1.0], {"a": 1}, pd.Timestamp(0), True])
def test_report_values_of_parquet_that_are_no_numbers_add_nothing(tmp_path, cell):
    made(1).assign(value=[cell]).to_parquet(tmp_path / "r.parquet")
    try:
        assert +total(tmp_path / "r.parquet").rejected == {"value not possible": 1}
    except InputError as error:
        assert "r.parquet" in str(error)  # noqa: PT017 - either is right


@pytest.mark.parametrize("line", ["," * (MAX_LINE_BYTES + 9), row(2, "x,1.") + "0" * 3 * 2**20])
def test_report_line_without_end_spoils_no_other(line):
    found = read(row(0, "f,1"), line, row(1, "f,1"))
    assert found.tally.reports == 2
    assert 1 <= sum(found.rejected.values()) <= 4


@settings(max_examples=50)
@given(st.binary(max_size=200) | st.text(st.characters(codec="utf-8"), max_size=60).map(str.encode))
def test_report_bytes_of_any_kind_break_nothing_and_are_no_report(noise):
    content = f"{HEADER}\n".encode() + noise + f"\n{row(1, 'f,1')}\n".encode()
    assert total(io.BytesIO(content)).tally.totals.tolist() == [1.0, 0.0]


@settings(max_examples=50)
@given(st.binary(max_size=200) | st.sampled_from([b"\x1f\x8b\rx", HEADER.encode() + b"\ra", b""]))
def test_report_file_of_any_beginning_is_read_or_refused(noise):
    try:
        assert total(io.BytesIO(noise)).tally.reports == 0
    except InputError as error:
        assert "standard input" in str(error)  # noqa: PT017 - either is right


@pytest.mark.parametrize("header", [HEADER, '"report","collection","group","value"', None])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_report_cells_in_quotation_marks_are_read(header, end):
    """As R's write.csv and Arrow write texts; or none, as ``perturb`` prints them."""
    lines = [f'"{i:032x}","{MARK}","f",1' for i in range(5)] + [row(9, 'm,"-1"')]
    found = read(*lines, header=header, end=end)
    assert found.tally.totals.tolist() == [5.0, -1.0]


def test_report_ids_behind_a_byte_order_mark_are_seen():
    assert read(row(1, "f,1"), row(1, "f,1"), header=f"\ufeff{HEADER}").tally.reports == 1


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
    with pytest.raises(InputError, match="'report'"):
        read(*lines, header=header)


@pytest.mark.parametrize(
    ("header", "column"),
    [("report,collection,group", "value"), ("a,b", "report"), (f"{HEADER},value", "value")],
)
def test_report_file_without_its_columns_once_is_refused(header, column):
    with pytest.raises(InputError, match=f"column '{column}'"):
        read(row(1, "f,1"), header=header)


def test_report_pipe_is_read_and_a_device_or_a_stream_of_parquet_is_not(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    writer = threading.Thread(target=made(50).to_csv, args=(tmp_path / "pipe",),
                              kwargs={"index": False})  # fmt: skip
    writer.start()
    assert total(tmp_path / "pipe").tally.reports == 50
    writer.join()
    with pytest.raises(InputError, match="device"):
        total(Path("/dev/zero"))
    made(3).to_parquet(tmp_path / "r.parquet")
    with (tmp_path / "r.parquet").open("rb") as file, pytest.raises(InputError, match="standard"):
        total(file)


@pytest.mark.parametrize("kind", ["csv", "many_row_groups", "one_row_group"])
def test_report_memory_does_not_grow(tmp_path, kind):
    def peak(n):
        if kind == "csv":
            (tmp_path / "r").write_text(f"{HEADER}\n" + f"{row(1, 'f,1')}\n" * n)
        else:
            cells = dict(zip(HEADER.split(","), ("0" * 32, MARK, "f", 1.0), strict=True))
            pd.DataFrame(cells, index=range(n)).to_parquet(
                tmp_path / "r", row_group_size=10**6 if kind == "one_row_group" else 2**15,
                compression=None, use_dictionary=False)  # fmt: skip
        tracemalloc.start()
        total(tmp_path / "r", ids=2**20)
        most = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return most

    peak(1000)  # loads what is loaded once
    assert peak(240_000) < 1.3 * peak(100_000)


def as_ids(numbers):
    return np.array([f"{i:032x}" for i in numbers], object)


@settings(max_examples=40)
@given(st.lists(st.lists(st.integers(0, 2**128 - 1) | st.integers(0, 20)), max_size=9))
def test_seen_ids_pass_none_twice(batches):
    seen, passed = SeenIds(2**10), []
    for batch in batches:
        passed += [i for i, new in zip(batch, seen.add_new(as_ids(batch)), strict=True) if new]
    assert len(set(passed)) == len(passed) == seen.accepted
    assert not batches or not batches[0] or batches[0][0] in passed


def lost_ids(seed):
    """New ids of 20 that are lost after 1,000, minus the number expected."""
    seen = SeenIds(2**10, seeded(seed))
    seen.add_new(as_ids(range(1000)))
    before = seen.lost_share()
    lost = 20 - int(seen.add_new(as_ids(range(10**6, 10**6 + 20))).sum())
    return lost - 20 * (before + seen.lost_share()) / 2


def test_seen_ids_lose_as_many_new_ones_as_stated():
    """At 4.9 standard errors over 300 keys: one false alarm in a million."""
    off = [lost_ids(seed) for seed in range(300)]
    assert np.std(off) > 0.3
    assert abs(np.mean(off)) < 4.9 * np.std(off) / np.sqrt(len(off))
    seen, shares = SeenIds(), []
    for seen.accepted in (10**7, 10**8):
        shares.append(seen.lost_share())
    assert shares == pytest.approx([5e-5, 0.015], rel=0.01)  # as FILTER_BYTES is documented

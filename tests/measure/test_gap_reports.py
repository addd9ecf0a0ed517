"""Reports from anywhere: what is malformed or repeated is counted, and never used."""

import io
import math
import os
import re
import threading
import tracemalloc
from pathlib import Path

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from synthfair.errors import InputError
from synthfair.measure.aggregate import (
    CSV_BLOCK_BYTES,
    MAX_LINE_BYTES,
    NUMBER_PATTERN,
    SeenIds,
    aggregate_reports,
)
from synthfair.measure.collection import make_collection, perturb_records
from synthfair.measure.estimate import estimate_gaps, tally
from synthfair.measure.mechanisms import LaplaceValue, RandomizedValue
from synthfair.privacy.noise import seeded

SMALL = 2**16
COLLECTION = make_collection(("f", "m"), RandomizedValue(2, 1.0, 1.0))
LAPLACE = make_collection(("f", "m"), LaplaceValue(2, 1.0, 1.0), lower=0.0, upper=5.0)


MARK = COLLECTION.fingerprint
HEADER = "report,collection,group,value"


def csv_of(*lines, header=HEADER):
    return io.BytesIO("\n".join([header, *lines, ""]).encode())


def row(i, rest, mark=MARK):
    return f"{i:032x},{mark},{rest}"


def total(*paths, collection=COLLECTION, ids=True):
    return aggregate_reports(paths, collection, SeenIds(SMALL) if ids else None)


def read(*lines, collection=COLLECTION, header=HEADER):
    return total(csv_of(*lines, header=header), collection=collection)


def rejected(found):
    return {why: count for why, count in found.rejected.items() if count}


def made(n, collection=COLLECTION):
    groups, values = ["fm"[i % 2] for i in range(n)], [(i % 5) / 4 for i in range(n)]
    return pd.DataFrame(perturb_records(collection, groups, values, seeded(2)))


@pytest.mark.parametrize(
    ("line", "why", "example"),
    [
        (row(2, "x,1"), "unknown group", "row 2: column 'group': 'x'; must be one of f, m"),
        (row(2, "F,1"), "unknown group", "'F'"),
        (row(2, "f,0.5"), "value not possible", "column 'value': '0.5'; must be -1 or 1"),
        (row(2, "f,nan"), "value not possible", "'nan'"),
        (row(2, "f,inf"), "value not possible", "'inf'"),
        (row(2, "f,one"), "value not possible", "'one'"),
        (row(2, "f,"), "missing", "row 2: column 'value': ''"),
        (row(2, ",1"), "missing", "column 'group'"),
        (row(2, "f,1")[32:], "missing", "column 'report'"),
        (row(2, "f,1", mark=""), "missing", "column 'collection'"),
        (row(2, "f,1", mark=LAPLACE.fingerprint), "another collection", f"must be {MARK}"),
        (row(1, "m,-1"), "repeated report", "row 2: column 'report': '0000"),
        ("1" + row(2, "f,1"), "not a report id", "must be 32 of the digits 0-9 and a-f"),
        (row(2, "f,1")[1:], "not a report id", "row 2"),
        ("G" + row(2, "f,1")[1:], "not a report id", "'G000"),
        ("2,f", "wrong number of columns", "row 2: 2 columns where 4"),
        (row(2, "f,1,1"), "wrong number of columns", "row 2: 5 columns where 4"),
        (HEADER, "another collection", "row 2: column 'collection': 'collection'"),
    ],
)
def test_a_malformed_report_is_rejected_and_counted(line, why, example):
    found = read(row(1, "f,1"), line, row(3, "m,-1"))
    assert found.tally.reports == 2
    assert found.tally.totals.tolist() == [1.0, -1.0]
    assert rejected(found) == {why: 1}
    assert example in found.examples[why]


def test_laplace_values_beyond_what_the_mechanism_can_draw_are_refused():
    limit, mark = LAPLACE.make_mechanism().limit, LAPLACE.fingerprint
    values = (limit, math.nextafter(limit, math.inf), -1e300, 0)
    found = read(*(row(i, f"f,{v!r}", mark) for i, v in enumerate(values)), collection=LAPLACE)
    assert found.tally.reports == 2
    assert found.rejected["value not possible"] == 2


def test_rows_are_numbered_as_they_lie_in_the_file():
    lines = [row(0, "f,1"), "", "broken", row(1, "f,1"), "", row(2, "x,1"), "1,2", row(3, "f,7")]
    found = read(*lines)
    assert found.tally.reports == 2
    assert rejected(found) == {
        "wrong number of columns": 2, "unknown group": 1, "value not possible": 1
    }  # fmt: skip
    for why, number in (("wrong number of columns", 3), ("unknown group", 6)):
        assert f": row {number}: " in found.examples[why]
    assert ": row 8: " in found.examples["value not possible"]


def test_rows_are_numbered_beyond_the_first_block():
    many = 3 * CSV_BLOCK_BYTES // len(row(0, "f,1"))
    lines = [row(i, "f,1") for i in range(many)]
    lines[5] = "broken"
    lines.append(row(many, "x,1"))
    found = read(*lines)
    assert f": row {many + 1}: " in found.examples["unknown group"]
    assert ": row 6: " in found.examples["wrong number of columns"]


def test_bytes_that_are_no_text_spoil_one_row():
    good = [row(i, "f,1").encode() for i in range(3)]
    bad = [row(3, "f,1").encode() + b"\xff", b"\xff\xfe\x00", row(4, "").encode() + b"\xe9,1"]
    content = b"\n".join([HEADER.encode(), good[0], *bad, good[1], good[2]])
    found = total(io.BytesIO(content))
    assert found.tally.reports == 3
    assert rejected(found) == {
        "value not possible": 1, "wrong number of columns": 1, "unknown group": 1
    }  # fmt: skip


def test_blocks_without_any_text_spoil_their_own_rows():
    noise = b"\xff" * 999 + b"\n"
    content = (
        f"{HEADER}\n".encode() + noise * (2 * CSV_BLOCK_BYTES // 1000) + row(1, "f,1").encode()
    )
    found = total(io.BytesIO(content))
    assert found.tally.reports == 1
    assert rejected(found) == {"wrong number of columns": 2 * CSV_BLOCK_BYTES // 1000}


@pytest.mark.parametrize(
    "line",
    [
        "," * (MAX_LINE_BYTES + 9),
        "," * 3 * CSV_BLOCK_BYTES,
        row(2, "x,1.") + "0" * 3 * CSV_BLOCK_BYTES,
    ],
)
def test_a_line_without_end_spoils_no_other(line):
    found = read(row(0, "f,1"), line, row(1, "f,1"))
    assert found.tally.reports == 2
    assert 1 <= sum(found.rejected.values()) <= 4


def test_reports_without_a_header_are_read(tmp_path):
    """As ``perturb`` prints them, one after the other."""
    reports = made(50)
    reports.to_csv(tmp_path / "r.csv", index=False, header=False)
    assert total(tmp_path / "r.csv").tally.reports == 50


def test_a_named_pipe_is_read(tmp_path):
    """As the shell makes one of <(zcat reports.csv.gz)."""
    path, reports = tmp_path / "pipe", made(50)
    os.mkfifo(path)
    writer = threading.Thread(target=reports.to_csv, args=(path,), kwargs={"index": False})
    writer.start()
    assert total(path).tally.reports == 50
    writer.join()


def test_a_device_without_an_end_is_not_read():
    with pytest.raises(InputError, match="/dev/zero: cannot read: it must be a file or a pipe"):
        total(Path("/dev/zero"))


def test_files_without_reports_stop_nothing(tmp_path):
    found = total(csv_of(), csv_of(row(1, "f,1")))
    assert found.tally.reports == 1


def test_blank_lines_are_no_reports_and_rows_without_a_value_are_malformed_ones(tmp_path):
    found = read("", row(1, "f,1"), "2,f", "", ",,,", "\r", f"{2:032x},,,", row(3, "m,1"))
    assert found.tally.reports == 2
    assert rejected(found) == {"wrong number of columns": 1, "missing": 1}
    assert "row 7: column" in found.examples["missing"]
    nothing = pd.DataFrame({name: pd.Series([None], dtype="str") for name in HEADER.split(",")})
    nothing.to_parquet(tmp_path / "nothing.parquet")
    assert rejected(total(tmp_path / "nothing.parquet")) == {"missing": 1}


@pytest.mark.parametrize("last", ['""', '""\n', '","', "\r", " "])
def test_a_last_line_of_nothing_voids_no_other(last):
    text = "\n".join((HEADER, row(1, "f,1"), row(2, "m,1"), last))
    assert total(io.BytesIO(text.encode())).tally.reports == 2
    assert total(io.BytesIO(f"{HEADER}\n{last}".encode())).tally.reports == 0


def test_no_report_is_used_twice_within_or_across_files(tmp_path):
    reports = made(500)
    reports.to_csv(tmp_path / "a.csv", index=False)
    pd.concat([reports, reports]).to_parquet(tmp_path / "b.parquet")
    found = total(tmp_path / "a.csv", tmp_path / "b.parquet")
    assert found.tally.reports == 500
    assert rejected(found) == {"repeated report": 1000}


@pytest.mark.parametrize("collection", [COLLECTION, LAPLACE], ids=["M_R", "M_L"])
def test_csv_parquet_and_arrays_give_the_same(tmp_path, collection):
    reports = made(3000, collection)
    reports.to_csv(tmp_path / "a.csv", index=False)
    reports.astype({"group": "category"}).to_parquet(tmp_path / "b.parquet")
    groups = (reports["group"] == "m").to_numpy().astype(int)
    expected = tally(groups, reports["value"].to_numpy(), 2)
    for name in ("a.csv", "b.parquet"):
        found = aggregate_reports([tmp_path / name], collection, SeenIds(2**22))
        assert found.tally.reports == 3000
        for x, y in zip(found.tally, expected, strict=True):
            assert x == pytest.approx(y, rel=1e-12)


def test_other_columns_are_ignored_and_ids_may_be_absent_where_nobody_looks():
    lines = [f"1,f,x,{MARK},1", f"1,f,y,{MARK},1"]
    header = "value,group,note,collection,number"
    found = total(csv_of(*lines, header=header), ids=False)
    assert found.tally.counts.tolist() == [2.0, 0.0]
    with pytest.raises(InputError, match="column 'report': is there 0 times"):
        read(*lines, header=header)


@pytest.mark.parametrize(
    ("header", "said"),
    [
        ("report,collection,group", "column 'value': is there 0 times"),
        ("a,b", "column 'report': is there 0 times, .* begins with the line report,coll"),
        ("", "column 'report': is there 0 times"),
        ("report,collection,group,value,value", "column 'value': is there 2 times"),
    ],
)
def test_a_file_without_its_columns_is_refused(header, said):
    with pytest.raises(InputError, match=said):
        read(row(1, "f,1"), header=header)


@pytest.mark.parametrize("value", [[[1.0]], [{"a": 1}], [pd.Timestamp(0)], [True]])
def test_a_parquet_column_that_holds_no_numbers_adds_nothing(tmp_path, value):
    made(1).assign(value=value).to_parquet(tmp_path / "r.parquet")
    try:
        found = total(tmp_path / "r.parquet")
    except InputError as error:
        assert "cannot read as CSV or Parquet" in str(error)  # noqa: PT017 - either is right
    else:
        assert rejected(found) == {"value not possible": 1}


@pytest.mark.parametrize("content", [b"", b"PAR1junk", b"\xff\xfe\x00", HEADER.encode()])
def test_broken_files_end_in_an_input_error_or_nothing(tmp_path, content):
    path = tmp_path / "r"
    path.write_bytes(content)
    try:
        found = total(path)
    except InputError as error:
        assert str(path) in str(error)  # noqa: PT017 - either is right
    else:
        assert found.tally.reports == 0


def test_parquet_is_not_read_from_a_stream(tmp_path):
    made(3).to_parquet(tmp_path / "r.parquet")
    with (tmp_path / "r.parquet").open("rb") as file, pytest.raises(InputError, match="standard"):
        total(file)


@settings(max_examples=25)
@given(st.lists(st.text(st.characters(codec="utf-8"), max_size=12), max_size=8))
def test_no_text_breaks_the_reading_or_becomes_a_report(cells):
    found = read(",".join(cells), row(1, "f,1"))
    assert found.tally.totals.tolist() == [1.0, 0.0]


@settings(max_examples=50)
@given(st.binary(max_size=200))
def test_no_bytes_break_the_reading_or_become_a_report(noise):
    content = f"{HEADER}\n".encode() + noise + f"\n{row(1, 'f,1')}\n".encode()
    assert total(io.BytesIO(content)).tally.totals.tolist() == [1.0, 0.0]


def peak_memory(file, ids):
    tracemalloc.start()
    aggregate_reports([file], COLLECTION, ids)
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return most


@pytest.mark.parametrize("kind", ["csv", "many_row_groups", "one_row_group"])
def test_memory_does_not_grow_with_the_reports(tmp_path, kind):
    def peak(n):
        if kind == "csv":
            line = f"{row(1, 'f,1')}\n".encode()
            return peak_memory(io.BytesIO(HEADER.encode() + b"\n" + line * n), SeenIds(2**20))
        size = 10**6 if kind == "one_row_group" else 2**15
        table = pd.DataFrame(dict(zip(HEADER.split(","), ("0" * 32, MARK, "f", 1.0), strict=True)),
                             index=range(n))  # fmt: skip
        table.to_parquet(
            tmp_path / "r", row_group_size=size, compression=None, use_dictionary=False
        )
        return peak_memory(tmp_path / "r", SeenIds(2**20))

    peak(1000)  # loads what is loaded once
    assert peak(240_000) < 1.3 * peak(100_000)


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
            perturb_records(COLLECTION, [group], [value])

    def test_ids_are_new_each_time_and_reports_are_accepted(self):
        reports = [perturb_records(COLLECTION, ["f"], [0.3])[0] for _ in range(50)]
        assert len({report.report for report in reports}) == 50
        found = read(*(f"{r.report},{r.collection},{r.group},{r.value!r}" for r in reports))
        assert found.tally.reports == 50

    def test_many_devices_give_the_gap(self, tmp_path):
        collection = make_collection(("f", "m"), RandomizedValue(2, 3.0, 3.0))
        groups, values = ["f", "m"] * 4000, [0.9, 0.5] * 4000
        rows = perturb_records(collection, groups, values, seeded(9))
        pd.DataFrame(rows).to_parquet(tmp_path / "r.parquet")
        found = aggregate_reports([tmp_path / "r.parquet"], collection, SeenIds(2**22))
        gap = estimate_gaps(found, collection, confidence=0.9999).gaps[0]
        assert gap.low < -0.4 < gap.high < 0


def test_a_stray_quotation_mark_swallows_no_other_report():
    found = read('x,"f,1', *(row(i, "f,1") for i in range(100)))
    assert found.tally.reports == 100


def test_a_byte_order_mark_hides_no_report_ids():
    twice = f"{HEADER}\n{row(1, 'f,1')}\n{row(1, 'f,1')}\n".encode()
    assert total(io.BytesIO(b"\xef\xbb\xbf" + twice)).tally.reports == 1


@pytest.mark.parametrize("text", ["1_0", "0_1", "\u0661", "nan", "inf", "0x1", "", " 1"])
def test_what_python_takes_for_a_number_is_none_in_a_report(text):
    assert not re.compile(NUMBER_PATTERN, re.ASCII).fullmatch(text)
    found = read(row(1, f"f,{text}"), row(2, "f,1"), row(3, "f,x"))
    assert found.tally.reports == 1


def test_bytes_that_are_no_text_spoil_one_row_of_parquet(tmp_path):
    import pyarrow as pa
    from pyarrow import parquet

    for column, why in enumerate(
        ("not a report id", "another collection", "unknown group", "value not possible")
    ):
        rows = [[f"{i:032x}".encode(), MARK.encode(), b"f", b"1"] for i in range(3)]
        rows[1][column] = b"\xff" * 32
        texts = [
            pa.array(cells, pa.binary()).view(pa.string()) for cells in zip(*rows, strict=True)
        ]
        parquet.write_table(pa.table(texts, HEADER.split(",")), tmp_path / "r.parquet")
        found = total(tmp_path / "r.parquet")
        assert found.tally.reports == 2
        assert rejected(found) == {why: 1}
        assert r"row 2: column" in found.examples[why]


@pytest.mark.parametrize("header", [HEADER, '"report","collection","group","value"', None])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_cells_in_quotation_marks_are_read(header, end):
    """As R's write.csv and Arrow write texts."""
    lines = [f'"{i:032x}","{MARK}","f",1' for i in range(5)] + [f'"{9:032x}","{MARK}","m","-1"']
    text = end.join([*([header] if header else []), *lines, ""])
    found = total(io.BytesIO(text.encode()))
    assert found.tally.counts.tolist() == [5.0, 1.0]
    assert found.tally.totals.tolist() == [5.0, -1.0]


@settings(max_examples=50)
@given(st.binary(max_size=200) | st.sampled_from([b"\x1f\x8b\rx", HEADER.encode() + b"\ra"]))
def test_any_beginning_is_read_or_refused(noise):
    try:
        found = total(io.BytesIO(noise))
    except InputError as error:
        assert "standard input" in str(error)  # noqa: PT017 - either is right
    else:
        assert found.tally.reports == 0

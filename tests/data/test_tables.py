"""Files as people have them: read alike at once and in parts, or refused without a row's values."""

import gzip
import io
import zipfile

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from builders import SCHEMA, make_table

from synthfair.data import tables
from synthfair.data.batches import from_files
from synthfair.data.encode import Clipping, Encoded, encode
from synthfair.data.tables import read_chunks, read_raw_table, read_table, write_csv
from synthfair.errors import InputError

TABLE = make_table(60).round({"income": 1, "age": 1})
ROWS = encode(TABLE, SCHEMA)
TEXT = TABLE.to_csv(index=False)
HEADER, *LINES = TEXT.splitlines()
NOTED = SCHEMA.model_copy(update={"ignored": ("note",)})


def in_parts(path, schema=SCHEMA):
    parts = list(from_files(path, schema).read())
    return Encoded(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))


def require_alike(path, schema=SCHEMA):
    """Both ways of reading give the rows of the table."""
    np.testing.assert_equal(encode(read_table(path, schema), schema), ROWS)
    np.testing.assert_equal(in_parts(path, schema), ROWS)


def zipped(*names):
    """A zip archive of files that hold the table."""
    with zipfile.ZipFile(packed := io.BytesIO(), "w") as archive:
        for name in names:
            archive.writestr(name, TEXT)
    return packed.getvalue()


FILES = {
    "comma": ("t.csv", TEXT),
    "decimal comma": ("t.csv", TABLE.to_csv(index=False, sep=";", decimal=",")),
    "blanks": ("t.csv", TEXT.replace(",", " , ")),
    "spreadsheet": ("t.csv", ("\ufeff" + TEXT).replace("\n", "\r\n")),
    "empty lines": ("t.csv", "\n\n" + TEXT.replace("\n", "\n\n")),
    "comments": ("t.csv", "# exported 2026-11-01, by A, B\n# version 3\n" + TEXT),
    "padded": ("t.csv", "sep=;,,,,\n# by A, B, C, and D;;;;\n" + TEXT.replace(",", ";")),
    "sep and comments": ("t.csv", "\ufeffsep=,\n# exported\n\n" + TEXT),
    "trailing": ("t.csv", "\n".join([HEADER, *(f"{line}," for line in LINES)])),
    "trailing in the header": ("t.csv", TEXT.replace("\n", ",\n")),
    "gzip": ("t.csv.gz", gzip.compress(TEXT.encode("utf-8-sig"))),
    "zip": ("t.csv.zip", zipped("loans.csv", "__MACOSX/._loans.csv", ".DS_Store", "folder/")),
}


@pytest.mark.parametrize("name", FILES)
def test_file_as_people_have_it_is_read(tmp_path, name):
    path, content = tmp_path / FILES[name][0], FILES[name][1]
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    require_alike(path)
    np.testing.assert_equal(in_parts(tmp_path), ROWS)
    raw = read_raw_table(path)
    assert (list(raw), len(raw), raw.isna().any(axis=None)) == (list(TABLE), 60, False)


KINDS = [pa.string_view(), pa.binary(), pa.dictionary(pa.int8(), pa.string())]


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_parquet_reads_words_for_missing_whatever_the_type(tmp_path, kind):
    schema = SCHEMA.model_copy(update={"missing_values": ("?",)})
    home = pa.array(TABLE["home"].fillna("?"), pa.string())
    home = home.dictionary_encode() if pa.types.is_dictionary(kind) else home.cast(kind)
    stored = pa.Table.from_pandas(TABLE.drop(columns="home")).append_column(" home", home)
    pq.write_table(stored.replace_schema_metadata({b"pandas": b"garbage"}), tmp_path / "t.parquet")
    require_alike(tmp_path / "t.parquet", schema)
    assert read_table(tmp_path / "t.parquet", schema)["home"].isna().any()


@pytest.mark.parametrize("text", [
    "#id,sex\n1,f\n2,m\n", "#id,sex,\n1,f,\n2,m,\n", "#id,sex\n1,f,\n2,m,\n",
    '#id,sex\n1,"f, or m"\n2,m\n', "sep=;\n# by A, B\n#id;sex\n1;f\n2;m, or f\n",
])  # fmt: skip
def test_header_may_begin_as_comments_do(tmp_path, text):
    """No first row becomes the header: it would be published."""
    (tmp_path / "t.csv").write_text(text)
    found = read_raw_table(tmp_path / "t.csv")
    assert (list(found), len(found)) == (["#id", "sex"], 2)


@pytest.mark.parametrize("separator", [",", ";", "\t", "|"])
def test_separator_is_the_most_frequent_one_outside_quotes(tmp_path, separator):
    path, name = tmp_path / "t.csv", 'a, b; c| d\n" e'
    TABLE.assign(**{name: 'a,b;c|d\te "f\n" g'}).to_csv(path, index=False, sep=separator)
    name = read_raw_table(path).columns[-1]  # Arrow leaves quotes in names doubled
    require_alike(path, SCHEMA.model_copy(update={"ignored": (name,)}))


# What is refused


@pytest.mark.parametrize(("content", "match"), [
    (b"", "empty$"), (b"income,age\n1,2,SECRET\n", "row 1: Expected 2 columns, got 3$"),
    (b"#id,sex,\nSECRET,f\n2,m\n", "row 1: Expected 3 columns, got 2$"),
    (f"# a\n{TEXT}SECRET,31\n".encode(), "row 61: Expected 5 columns, got 2$"),
    (TEXT.replace("\n", ",\n").encode() + b"1,20,own,a,no,SECRET\n", "values in 1 rows$"),
    (b"income, age, income \nSECRET,1,2\n", "'income' appears more than once"),
    (b"PAR1 SECRET", "Parquet"), ("income,age\nSECRET,2\n".encode("utf-16"), "UTF-16"),
    (gzip.compress(b"income,age\n1,2\n", mtime=0), "gzip"),
    (b"\xd0\xcf\x11\xe0\xa1", "spreadsheet"),
    (zipped("[Content_Types].xml", "xl/workbook.xml"), "spreadsheet"),
])  # fmt: skip
def test_unreadable_file_is_refused_without_values_of_a_row(tmp_path, content, match):
    path = tmp_path / "t.csv"
    path.write_bytes(content)
    for read in (read_raw_table, lambda path: read_table(path, SCHEMA), in_parts):
        with pytest.raises(InputError, match=f"t.csv: .*{match}") as refused:
            read(path)
        assert "SECRET" not in str(refused.value)


@pytest.mark.parametrize(("header", "match"), [
    ("income age home", "'income age home'.* not blanks"),
    ("income, monthly;age", "a comma and a semicolon 1 times each"),
    (",".join(f"x{i}" for i in range(10_001)), "10001 columns; at most 10000"),
    (",".join(f"{i:012}" for i in range(100_001)), "longer than 1048576 bytes"),
])  # fmt: skip
def test_header_that_is_none_is_refused_at_once(tmp_path, calls, header, match):
    path = tmp_path / "t.csv"
    path.write_text(header + "\n1,2\n")
    with pytest.raises(InputError, match=f"t.csv: .*{match}"):
        read_raw_table(path)
    assert calls() < 5_000


PAIRS = pa.array([[("a", 1)]] * 60, pa.map_(pa.string(), pa.int64()))


@pytest.mark.parametrize("column", [pa.array([[1, 2]] * 60), PAIRS, pa.array([{"a": 1}] * 60)])
def test_nested_column_is_refused_unless_it_is_ignored(tmp_path, column):
    path, plain = tmp_path / "t.parquet", pa.Table.from_pandas(TABLE)
    pq.write_table(plain.append_column("note ", column), path)
    require_alike(path, NOTED)
    pq.write_table(plain.drop_columns("home").append_column("home ", column), path)
    for read in (in_parts, lambda path: read_table(path, SCHEMA)):
        with pytest.raises(InputError, match="column 'home "):
            read(path)


# Parts


@pytest.fixture
def _small_parts(monkeypatch):
    """Parts of 7 rows of Parquet, and of some ten of CSV."""
    monkeypatch.setattr(tables, "CHUNK_BYTES", 256)
    monkeypatch.setattr(tables, "CHUNK_ROWS", 7)


@pytest.mark.usefixtures("_small_parts")
@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_parts_are_the_whole(tmp_path, kind):
    """Where a column's kind changes late, and quotes hold line ends."""
    path = tmp_path / f"t.{kind}"
    late = TABLE.assign(note=[*map(str, range(50)), *["two\nlines"] * 10])
    late.to_csv(path, index=False) if kind == "csv" else late.to_parquet(path)
    assert len([*read_chunks(path, NOTED)]) > 3
    require_alike(path, NOTED)
    with pytest.raises(InputError, match="'note' is not in schema"):
        in_parts(path)


@pytest.mark.usefixtures("_small_parts")
@pytest.mark.parametrize(("bad", "match"), [
    (b"1,20,own,z,no", "row {}: 'z'"), (b"1,20", "row {}: Expected 5 columns, got 2"),
    (b"1,20,\xe9,a,no", "column 3: row {}: .*save the table as UTF-8"),
])  # fmt: skip
@pytest.mark.parametrize(("good", "rows"), [(b'\n1,20,"own\n",a,no\n', 1), (b"1,20,own,a,no", 80)])
def test_row_1_is_the_first_after_the_header(tmp_path, bad, match, good, rows):
    """A row of several lines is one, empty lines are none."""
    path = tmp_path / "t.csv"
    path.write_bytes(b"\n".join([HEADER.encode(), *[good] * rows, bad]))
    for read in (in_parts, lambda path: encode(read_table(path, SCHEMA), SCHEMA)):
        with pytest.raises(InputError, match=match.format(rows + 1)):
            read(path)


def test_parts_count_what_is_clipped_and_need_a_label(tmp_path):
    TABLE.assign(income=101).to_csv(path := tmp_path / "t.csv", index=False)
    assert [*from_files(path, SCHEMA, clipping=(seen := Clipping())).read()]
    assert seen.clipped()["income"].above == 1
    TABLE.assign(paid="").to_csv(path, index=False)
    with pytest.raises(InputError, match="no rows with a label"):
        in_parts(path)


def test_csv_that_cannot_be_written_leaves_what_was_there(tmp_path):
    write_csv(TABLE, path := tmp_path / "t.csv")
    with pytest.raises(UnicodeEncodeError):
        write_csv(TABLE, path, missing="\ud800")
    require_alike(path)


def test_folder_holds_tables_of_any_kind(tmp_path):
    TABLE[:30].to_csv(tmp_path / "1.csv.gz", index=False)
    (tmp_path / "3").mkdir()
    TABLE[30:40].to_parquet(tmp_path / "3" / "t.parquet")
    TABLE[40:].to_csv(tmp_path / "4.tsv", index=False, sep="\t")
    np.testing.assert_equal(in_parts(tmp_path), ROWS)

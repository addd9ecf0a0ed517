import gzip

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from builders import make_schema, make_table
from pyarrow import csv

from synthfair.data import tables
from synthfair.data.batches import from_files
from synthfair.data.encode import Encoded, encode
from synthfair.data.schema import Categorical
from synthfair.data.tables import read_chunks, read_raw_table, read_table, write_csv
from synthfair.errors import InputError


def test_csv_and_parquet_encode_alike(tmp_path, schema):
    table = make_table()
    write_csv(table, tmp_path / "t.csv")
    table.to_parquet(tmp_path / "t.parquet")
    one, other = (
        encode(read_table(tmp_path / f"t.{e}", schema), schema) for e in ("csv", "parquet")
    )
    assert (one.x == other.x).all()
    assert (one.y == other.y).all()


def test_text_that_looks_missing_is_missing_only_where_the_schema_says(tmp_path):
    schema = make_schema()
    path = tmp_path / "t.csv"
    path.write_text("income,age,home,town,paid\n1,NA,null,a,no\n")
    with pytest.raises(InputError, match="'home', row 1: 'null'"):
        encode(read_table(path, schema), schema)


def test_spreadsheets_write_marks_and_newlines(tmp_path, schema):
    path = tmp_path / "t.csv"
    path.write_bytes(
        b'\xef\xbb\xbf"income",age,home,town,paid\r\n1,20,"own",a,no\r\n2,,"re\nnt",b,yes\r\n'
    )
    table = read_table(path, schema)
    assert list(table["home"]) == ["own", "re\nnt"]
    assert list(table["income"]) == ["1", "2"]


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (b"", "cannot read as CSV or Parquet: it is empty$"),
        (b"\n\r\n", "it is empty$"),
        (b"income,age\n1,2,3\n", "row 1: Expected 2 columns, got 3$"),  # and no value of the row
        (b"income,income\n1,2\n", "'income' appears more than once"),
        (b"income,home\n1,\xff\xfe\n", "cannot read as CSV"),
        (b"PAR1 nonsense", "cannot read as CSV or Parquet"),
        ("income,age\n1,2\n".encode("utf-16"), "its text is UTF-16; save it as UTF-8$"),
        (b"\xfe\xff" + "income,age\n1,2\n".encode("utf-16-be"), "its text is UTF-16"),
        (gzip.compress(b"income,age\n1,2\n", mtime=0), "compressed by gzip; name it .csv.gz"),
        (b"PK\x03\x04 no zip", "it is a spreadsheet, or a zip .*; save as CSV or Parquet"),
    ],
)
def test_unreadable_tables(tmp_path, schema, content, complaint):
    path = tmp_path / "t.csv"
    path.write_bytes(content)
    readers = [read_raw_table] if b"\xff\xfe\n" not in content else []
    readers += [lambda path: read_table(path, schema), lambda path: [*read_chunks(path, schema)]]
    for read in readers:
        with pytest.raises(InputError, match=f"t.csv: .*{complaint}"):
            read(path)


def test_compressed_csv_of_that_name_is_read(tmp_path, schema):
    path = tmp_path / "t.csv.gz"
    path.write_bytes(gzip.compress(make_table().to_csv(index=False).encode()))
    assert len(encode(read_table(path, schema), schema).y) == len(make_table())


NESTED = [
    (pa.array([[1, 2]] * 120), "holds list<"),
    (pa.array([[("a", 1)]] * 120, pa.map_(pa.string(), pa.int64())), "holds map<"),
    (pa.array([{"a": 1}] * 120), "holds struct<"),
]


@pytest.mark.parametrize(("column", "complaint"), NESTED)
@pytest.mark.parametrize("name", ["home", "income", "note"])
def test_nested_columns_of_a_schema_are_refused(tmp_path, schema, name, column, complaint):
    path = tmp_path / "t.parquet"
    plain = pa.Table.from_pandas(make_table())
    other = plain.drop_columns([name] if name in plain.column_names else [])
    pq.write_table(other.append_column(name, column), path)
    for read in (lambda: read_table(path, schema), lambda: list(read_chunks(path, schema))):
        if name != "note":
            with pytest.raises(InputError, match=f"t.parquet: .*column '{name}' {complaint}"):
                read()
    assert name in read_raw_table(path)  # a draft ignores it
    if name == "note":
        with pytest.raises(InputError, match="'note' is not in schema"):
            encode(read_table(path, schema), schema)
        ignoring = schema.model_copy(update={"ignored": ("note",)})
        assert len(encode(read_table(path, ignoring), ignoring).y) == 120
        assert sum(map(len, read_chunks(path, ignoring))) == 120


@pytest.mark.parametrize(
    ("bad", "complaint"),
    [
        (b"1,20,own,z,no", "row 2: 'z'"),
        (b"1,20", "row 2: Expected 5 columns, got 2"),
        (b"1,20,\xe9,a,no", "column 3: row 2: .*invalid UTF8 data; save the table as UTF-8"),
    ],
)
@pytest.mark.parametrize(
    ("good", "rows"),
    [
        (b"1,20,own,a,no", 1),
        (b'1,20,"ow\nn",a,no', 1),
        (b"\n1,20,own,a,no\n", 1),
        (b"1,20,own,a,no", 80_000),  # more than a block of Arrow's
    ],
)
def test_row_1_is_the_first_after_the_header(  # noqa: PLR0917
    tmp_path, schema, good, rows, bad, complaint
):
    """A row of several lines is one, empty lines are none."""
    home = Categorical(categories=("own", "ow\nn", "rent"))
    schema = schema.model_copy(update={"columns": schema.columns | {"home": home}})
    path = tmp_path / "t.csv"
    header = b"income,age,home,town,paid"
    path.write_bytes(b"\n".join([header, *[good] * rows, bad]))
    complaint = complaint.replace("row 2", f"row {rows + 1}")
    with pytest.raises(InputError, match=f"t.csv: .*{complaint}"):
        encode(read_table(path, schema), schema, source="t.csv")
    with pytest.raises(InputError, match=f"t.csv: .*{complaint}"):
        list(from_files(path, schema).read())


def test_links_that_form_a_loop_are_no_table(tmp_path):
    for here, there in ("ab", "ba"):
        (tmp_path / here).symlink_to(tmp_path / there)
    with pytest.raises(InputError, match="a: cannot read as CSV or Parquet: Too many levels"):
        read_raw_table(tmp_path / "a")


def test_no_such_table(tmp_path, schema):
    with pytest.raises(InputError, match="No such file"):
        read_table(tmp_path / "none.csv", schema)


def test_broken_metadata_of_pandas_is_not_read(tmp_path, schema):
    path = tmp_path / "t.parquet"
    table = pa.Table.from_pandas(make_table()).replace_schema_metadata({b"pandas": b"garbage"})
    pq.write_table(table, path)
    assert len(read_table(path, schema)) == 120


def in_parts(path, schema):
    parts = list(from_files(path, schema).read())
    return len(parts), Encoded(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))


@pytest.fixture
def _small_parts(monkeypatch):
    """Parts of at least 7 rows; a CSV file is parsed in blocks of some four rows."""
    real = csv.open_csv

    def small_blocks(path, read_options, *options):
        read_options.block_size = 256
        return real(path, read_options, *options)

    monkeypatch.setattr(csv, "open_csv", small_blocks)
    monkeypatch.setattr(tables, "CHUNK_ROWS", 7)


@pytest.mark.usefixtures("_small_parts")
@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_parts_encode_as_the_whole(tmp_path, schema, kind):
    path = tmp_path / f"t.{kind}"
    table = make_table(50)
    table.loc[:20, "age"] = None  # nothing but missing values in the first parts
    write_csv(table, path) if kind == "csv" else table.to_parquet(path)
    n_parts, found = in_parts(path, schema)
    assert n_parts > 3
    for column, other in zip(found, encode(read_table(path, schema), schema), strict=True):
        np.testing.assert_array_equal(column, other)


@pytest.mark.usefixtures("_small_parts")
def test_an_error_names_the_row_of_the_whole_file(tmp_path, schema):
    table = make_table(50).astype({"income": object})
    table.loc[40, "income"] = "much"
    write_csv(table, tmp_path / "t.csv")
    with pytest.raises(InputError, match=r"t.csv: column 'income', row 41: 'much'"):
        in_parts(tmp_path / "t.csv", schema)


@pytest.mark.usefixtures("_small_parts")
def test_columns_may_change_their_kind_late_in_a_csv_file(tmp_path, schema):
    """In a column that the schema ignores, or a number that is written as text."""
    schema = schema.model_copy(update={"ignored": ("note",)})
    table = make_table(50).assign(note=[*range(49), "text"])
    write_csv(table, tmp_path / "t.csv")
    _, found = in_parts(tmp_path / "t.csv", schema)
    np.testing.assert_array_equal(found.x, encode(table, schema).x)


@pytest.mark.usefixtures("_small_parts")
def test_newlines_inside_quotes_do_not_end_a_row(tmp_path, schema):
    schema = schema.model_copy(update={"ignored": ("note",)})
    table = make_table(50).assign(note="two\nlines")
    write_csv(table, tmp_path / "t.csv")
    np.testing.assert_array_equal(
        in_parts(tmp_path / "t.csv", schema)[1].y, encode(table, schema).y
    )


@pytest.mark.parametrize("text", [" 12", "12 ", "+12", "1.2e1", "12.", "012", "12,0"])
def test_numbers_may_be_written_in_many_ways(tmp_path, schema, text):
    table = make_table(3).assign(income=["1", text, "3"])
    plain = make_table(3).assign(income=[1.0, 12.0, 3.0])
    np.testing.assert_array_equal(encode(table, schema).x, encode(plain, schema).x)


@pytest.mark.parametrize("text", ["twelve", "inf", "nan", "0x12", "1,234", "1_2", "True", "--1"])
def test_what_is_no_finite_number_is_refused(schema, text):
    with pytest.raises(InputError, match="'income', row 2"):
        encode(make_table(3).assign(income=["1", text, "3"]), schema)


def test_an_ignored_column_may_hold_anything(tmp_path, schema):
    schema = schema.model_copy(update={"ignored": ("note",)})
    path = tmp_path / "t.csv"
    path.write_bytes(
        b"note,income,age,home,town,paid\n\xe9t\xe9,1,20,own,a,no\nx,2,30,rent,b,yes\n"
    )
    assert len(in_parts(path, schema)[1].y) == 2


def test_a_column_that_nobody_knows_is_refused_in_parts(tmp_path, schema):
    write_csv(make_table(5).assign(note=1), tmp_path / "t.csv")
    with pytest.raises(InputError, match="'note' is not in schema"):
        in_parts(tmp_path / "t.csv", schema)


@pytest.mark.parametrize("separator", [",", ";", "\t", "|"])
def test_separators_are_found_in_the_header(tmp_path, schema, separator):
    """By everything that reads tables; a name or a value may hold another one, or quotes."""
    table = make_table().assign(note='a,b;c|d\te "f" g')
    path = tmp_path / "t.csv"
    table.rename(columns={"note": 'a, b; c| d\n"e" f'}).to_csv(path, index=False, sep=separator)
    schema = schema.model_copy(update={"ignored": ('a, b; c| d\n"e" f',)})
    if separator == ",":  # Arrow leaves quotes in names doubled
        schema = schema.model_copy(update={"ignored": tuple(read_raw_table(path).columns[-1:])})
    wanted = encode(make_table(), schema)
    for found in (encode(read_table(path, schema), schema), in_parts(path, schema)[1]):
        for one, other in zip(found, wanted, strict=True):
            np.testing.assert_array_equal(one, other)
    raw = read_raw_table(path)
    assert list(raw)[:5] == list(make_table())
    assert raw["age"].isna().sum() == 0
    assert (raw["age"] == "").sum() == make_table()["age"].isna().sum()


@pytest.mark.parametrize("folder", ["t.csv.gz", "\ufeff.csv"])
def test_separators_behind_compression_and_marks(tmp_path, schema, folder):
    text = make_table().to_csv(index=False, sep=";").encode("utf-8-sig")
    path = tmp_path / folder
    path.write_bytes(gzip.compress(text) if folder.endswith("gz") else text)
    assert len(encode(read_table(path, schema), schema).y) == 120


@pytest.mark.parametrize(
    ("header", "complaint"),
    [
        (
            "income age home",
            "header 'income age home' holds no comma, semicolon, tab, vertical bar; one of them must"
            " separate the columns, not blanks",
        ),
        ('"income,age"', "header '\"income,age\"' holds no comma.* separate the columns$"),
        ("income, monthly;age", "holds a comma and a semicolon 1 times each"),
        (",".join(f"x{i}" for i in range(100_001)), "it has 100001 columns; at most 10000 are"),
        (",".join(f"{i:012}" for i in range(100_001)), "first line is longer than 1048576 bytes"),
        ("a,b" * 5000 + "x" * 2**20, "first line is longer than 1048576 bytes"),
    ],
)
def test_headers_that_are_none(tmp_path, calls, header, complaint):
    path = tmp_path / "t.csv"
    path.write_text(header + "\n1,2\n")
    with pytest.raises(InputError, match=f"t.csv: .*{complaint}"):
        read_raw_table(path)
    assert calls() < 5_000


def test_parquet_has_limits_too(tmp_path):
    pq.write_table(pa.table({f"x{i}": [1] for i in range(10_001)}), tmp_path / "t.parquet")
    with pytest.raises(InputError, match="it has 10001 columns; at most 10000 are allowed"):
        read_raw_table(tmp_path / "t.parquet")


@pytest.mark.parametrize(
    "kind",
    [pa.string(), pa.string_view(), pa.binary(), pa.dictionary(pa.int8(), pa.string())],
    ids=str,
)
def test_words_for_missing_are_missing_in_parquet_too(tmp_path, schema, kind):
    schema = schema.model_copy(update={"missing_values": ("?",)})
    table = make_table()
    stored = pa.Table.from_pandas(table.assign(home=table["home"].fillna("?")))
    at = stored.schema.get_field_index("home")
    home = stored.column("home").combine_chunks().cast(pa.string())
    home = home.dictionary_encode() if pa.types.is_dictionary(kind) else home.cast(kind)
    pq.write_table(stored.set_column(at, "home", home), tmp_path / "t.parquet")
    for found in (
        encode(read_table(tmp_path / "t.parquet", schema), schema),
        in_parts(tmp_path / "t.parquet", schema)[1],
    ):
        np.testing.assert_array_equal(found.x, encode(table, schema).x)


def test_a_folder_holds_tables_of_any_separator(tmp_path, schema):
    table = make_table()
    table[:40].to_csv(tmp_path / "1.csv", index=False, sep=";")
    table[40:80].to_csv(tmp_path / "2.csv.gz", index=False)
    table[80:].to_csv(tmp_path / "3.tsv", index=False, sep="\t")
    np.testing.assert_array_equal(in_parts(tmp_path, schema)[1].x, encode(table, schema).x)

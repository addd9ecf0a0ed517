import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from conftest import make_schema, make_table

from synthfair.data.encode import encode
from synthfair.data.tables import read_table, write_csv
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
        (b"", "cannot read as CSV"),
        (b"income,age\n1,2,3\n", "Expected 2 columns, got 3"),
        (b"income,income\n1,2\n", "'income' appears more than once"),
        (b"income,home\n1,\xff\xfe\n", "cannot read as CSV"),
        (b"PAR1 nonsense", "cannot read as CSV or Parquet"),
    ],
)
def test_unreadable_tables(tmp_path, schema, content, complaint):
    path = tmp_path / "t.csv"
    path.write_bytes(content)
    with pytest.raises(InputError, match=f"t.csv: .*{complaint}"):
        read_table(path, schema)


def test_no_such_table(tmp_path, schema):
    with pytest.raises(InputError, match="No such file"):
        read_table(tmp_path / "none.csv", schema)


def test_broken_metadata_is_refused(tmp_path, schema):
    path = tmp_path / "t.parquet"
    table = pa.Table.from_pandas(make_table()).replace_schema_metadata({b"pandas": b"garbage"})
    pq.write_table(table, path)
    with pytest.raises(InputError, match=r"t.parquet: cannot read"):
        read_table(path, schema)

"""Tables as people have them: files and frames, drafts of them, and schemas that grow."""

import json
import zipfile
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import scipy.sparse

import synthfair as sf
from synthfair.cli import main
from synthfair.data.batches import from_files
from synthfair.data.draft import CODES_QUESTION, draft_document
from synthfair.data.encode import Clipping, encode, labelled
from synthfair.data.schema import (
    MISSING_VALUES,
    Categorical,
    Numeric,
    Schema,
    differences,
    is_within,
)
from synthfair.data.tables import read_raw_table, read_table
from synthfair.errors import InputError

SURROGATE = sf.SurrogateConfig(k_min=10)
ROLES: dict[str, Any] = {"label": "paid", "positive": "yes", "sensitive": "sex"}


def loans(n=240, seed=0):
    rng = np.random.default_rng(seed)
    table = pd.DataFrame(
        {
            "sex": rng.choice(["f", "m"], n),
            "age": rng.integers(18, 80, n),
            "pay": rng.lognormal(3.4, 0.7, n).round(1),
            "flat": rng.choice(["own", "rent"], n),
        }
    )
    return table.assign(paid=np.where(table["pay"] + rng.normal(0, 9, n) > 30, "yes", "no"))


LOANS = loans()
SCHEMA = Schema(
    name="loans",
    label="paid",
    positive="yes",
    sensitive="sex",
    columns={
        "sex": Categorical(categories=("f", "m")),
        "age": Numeric(lower=18, upper=80),
        "pay": Numeric(lower=0, upper=500),
        "flat": Categorical(categories=("own", "rent")),
        "paid": Categorical(categories=("no", "yes")),
    },
    ignored=(),
    missing_values=MISSING_VALUES,
)


@pytest.fixture(scope="module")
def loans_release():
    """A surrogate of the table, and how it was made."""
    return sf.distill_table(LOANS, SCHEMA, SURROGATE)


def with_column(schema, name, **changes):
    column = schema.columns[name].model_copy(update=changes)
    return schema.model_copy(update={"columns": schema.columns | {name: column}})


def drafted(table, **roles):
    return draft_document(table, "t", **ROLES | roles)


def reviewed(table):
    with pytest.warns(UserWarning, match="read off the rows"):
        return sf.draft_schema(table, **ROLES)


def same_rows(one, other):
    return all(np.array_equal(a, b) for a, b in zip(one, other, strict=True))


# Files.

TEXT = LOANS.to_csv(index=False)
LINES = TEXT.splitlines()
FILES = {
    "blanks": TEXT.replace(",", " , "),
    "separator": "sep=;\r\n" + TEXT.replace(",", ";").replace("\n", "\r\n"),
    "comments": "# exported 2026-11-01, by A, B\n# version 3\n" + TEXT,
    "padded": "sep=;,,,,\n# exported by A, B, C, and D;;;;\n" + TEXT.replace(",", ";"),
    "both": "\ufeffsep=,\n# exported\n\n" + TEXT,
    "trailing": LINES[0] + "\n" + "".join(f"{line},\n" for line in LINES[1:]),
    "trailing header": "".join(f"{line},\n" for line in LINES),
    "comma": LOANS.astype({"pay": str}).assign(pay=lambda t: t["pay"].str.replace(".", ","))
    .to_csv(index=False, sep=";"),
}  # fmt: skip


@pytest.mark.parametrize("name", FILES)
def test_a_file_as_people_have_it_is_read(tmp_path, name):
    path = tmp_path / "t.csv"
    path.write_text(FILES[name])
    rows = encode(LOANS, SCHEMA)
    assert same_rows(encode(read_table(path, SCHEMA), SCHEMA), rows)
    assert same_rows(next(iter(from_files(path, SCHEMA).read())), rows)
    document = drafted(read_raw_table(path))
    assert list(document["columns"]) == list(LOANS)
    assert document["columns"] == drafted(LOANS)["columns"]


@pytest.mark.parametrize(
    "text",
    ["#id,sex\n1,f\n2,m\n", "#id,sex,\n1,f,\n2,m,\n", "#id,sex\n1,f,\n2,m,\n",
     '#id,sex\n1,"f, or m"\n2,m\n', "sep=;\n# by A, B\n#id;sex\n1;f\n2;m, or f\n"],
)  # fmt: skip
def test_a_first_name_may_begin_as_comments_do(tmp_path, text):
    """No first row becomes the header: it would be published."""
    (tmp_path / "t.csv").write_text(text)
    assert list(read_raw_table(tmp_path / "t.csv")) == ["#id", "sex"]
    assert len(read_raw_table(tmp_path / "t.csv")) == 2


def test_a_header_with_a_field_more_than_the_rows_is_refused(tmp_path):
    (tmp_path / "t.csv").write_text("#id,sex,\n1,f\n2,m\n")
    with pytest.raises(sf.InputError, match="row 1: Expected 3 columns, got 2"):
        read_raw_table(tmp_path / "t.csv")


def test_a_zipped_csv_is_read_and_a_spreadsheet_is_not(tmp_path):
    path = tmp_path / "t.csv.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("loans.csv", TEXT)
        for other in ("__MACOSX/._loans.csv", ".DS_Store", "folder/"):
            archive.writestr(other, "x")
    rows = encode(LOANS, SCHEMA)
    assert same_rows(encode(read_table(path, SCHEMA), SCHEMA), rows)
    assert same_rows(next(iter(from_files(tmp_path, SCHEMA).read())), rows)
    with zipfile.ZipFile(tmp_path / "t.xlsx", "w") as archive:
        archive.writestr("[Content_Types].xml", "x")
        archive.writestr("xl/workbook.xml", "x")
    for name, start in {"t.xlsx": None, "t.xls": b"\xd0\xcf\x11\xe0\xa1"}.items():
        if start:
            (tmp_path / name).write_bytes(start)
        with pytest.raises(InputError, match=f"{name}: .*save as CSV or Parquet$"):
            read_raw_table(tmp_path / name)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (TEXT.replace("\n", ",\n") + "f,1,2,own,no,SECRET\n", "no name, and values in 1 rows"),
        (TEXT + "SECRET,31,9.6,rent,no,\n", "row 241: Expected 5 columns, got 6$"),
        (TEXT + "SECRET,31\n", "row 241: Expected 5 columns, got 2$"),
        ("# a\n" + TEXT + "SECRET,31\n", "row 241: Expected 5 columns, got 2$"),
        ("sex, age, sex \nSECRET,1,2\n", "'sex' appears more than once"),
    ],
)
def test_no_message_has_the_values_of_a_row(tmp_path, text, said):
    path = tmp_path / "t.csv"
    path.write_text(text)
    for read in (read_raw_table, lambda p: read_table(p, SCHEMA), used):
        with pytest.raises(InputError, match=said) as caught:
            read(path)
        assert "SECRET" not in str(caught.value)


def used(path):
    return list(from_files(path, SCHEMA).read())


def test_rows_without_a_label_are_left_out_and_counted(tmp_path):
    empty = [3, 7, 200]
    table = LOANS.astype(object)
    table.loc[empty, "paid"] = ""
    table.loc[7] = ""  # an empty line of a spreadsheet
    path = tmp_path / "t.csv"
    table.to_csv(path, index=False)
    rest = LOANS.drop(index=empty)
    rows, clipping = encode(rest, SCHEMA), Clipping()
    assert same_rows(encode(table, SCHEMA, clipping=clipping), rows)
    assert (clipping.rows, clipping.unlabelled) == (237, 3)
    assert same_rows(next(iter(from_files(path, SCHEMA).read())), rows)
    assert len(labelled(table, SCHEMA)) == 237
    with pytest.warns(UserWarning, match="3 rows have no label, and are left out"):
        release = sf.distill_table(table, SCHEMA, SURROGATE).release
    assert release.fingerprint == sf.distill_table(rest, SCHEMA, SURROGATE).release.fingerprint
    table.loc[9, "age"] = 300
    with pytest.raises(InputError, match="'age', row 10: '300'"):
        encode(table, SCHEMA)
    with pytest.raises(InputError, match="no row has a label"):
        encode(LOANS.assign(paid=None), SCHEMA)


@pytest.mark.filterwarnings("always")
def test_commands_leave_rows_without_a_label_out(tmp_path, capsys):
    table = LOANS.copy()
    table.loc[[3, 7], "paid"] = None
    table.to_csv(tmp_path / "t.csv", index=False)
    (tmp_path / "s.json").write_text(SCHEMA.to_json())
    words = ["--schema", f"{tmp_path}/s.json", "--output"]
    assert main(["split", f"{tmp_path}/t.csv", *words, f"{tmp_path}/out"]) == 0
    assert "2 rows have no label, and are left out" in " ".join(capsys.readouterr().err.split())
    written = [pd.read_csv(file) for file in (tmp_path / "out").glob("*.csv")]
    assert sum(map(len, written)) == 238
    release = ["--release", "surrogate", "--k-min", "10", "--without-epsilon"]
    words += [f"{tmp_path}/r.parquet", *release]
    assert main(["client", "--data", f"{tmp_path}/t.csv", *words]) == 0
    assert "2 rows have no label, and are left out" in " ".join(capsys.readouterr().err.split())


def test_a_list_column_of_parquet_is_ignored_in_a_draft(tmp_path):
    stored = pa.Table.from_pandas(LOANS).append_column("tags", pa.array([["a", "b"]] * 240))
    import pyarrow.parquet as pq

    pq.write_table(stored, tmp_path / "t.parquet")
    document = drafted(read_raw_table(tmp_path / "t.parquet"))
    assert document["ignored"] == ["tags"]
    assert "ignored: holds lists" in document["draft"]["to_review"]["columns.tags"]


# Frames.


def frames(table):
    stored = pa.Table.from_pandas(table, preserve_index=False)

    class Polars:  # which has this method, too
        columns = table.columns

        def to_pandas(self):
            return table

    return [table, stored, Polars()]


@pytest.mark.parametrize("spelled", ["?", " ? ", None])
def test_a_frame_gives_the_release_of_its_file(tmp_path, spelled):
    table = LOANS.assign(flat=LOANS["flat"].where(np.arange(240) % 9 > 0, spelled))
    path = tmp_path / "t.csv"
    table.to_csv(path, index=False)
    schema = reviewed(table)
    assert schema == reviewed(read_raw_table(path))
    assert schema.columns["flat"].missing == "category"
    wanted = sf.distill_table(read_table(path, schema), schema, SURROGATE).release.fingerprint
    for frame in frames(table):
        assert sf.distill_table(frame, schema, SURROGATE).release.fingerprint == wanted
        assert reviewed(frame) == schema


def test_tables_of_polars_and_arrow_go_wherever_those_of_pandas_go(loans_release):
    model = sf.pool_and_train([loans_release], SCHEMA)
    pipeline = model.to_sklearn()
    wanted = sf.evaluate(model, LOANS).overall["accuracy"].value
    for table in frames(LOANS)[1:]:
        assert sf.evaluate(model, table).overall["accuracy"].value == wanted
        assert (model.predict(table) == model.predict(LOANS)).all()
        assert (pipeline.predict(table) == model.predict(LOANS)).all()
        ids = LOANS.assign(id=[f"p{i}" for i in range(240)])
        scored = sf.predict(model, pa.Table.from_pandas(ids), id_column="id")
        pd.testing.assert_frame_equal(scored, sf.predict(model, LOANS))
        one, other = (sf.partition(each, clients=2, seed=0)[1].test for each in (table, LOANS))
        pd.testing.assert_frame_equal(one, other)


def test_a_frame_that_polars_has_not_read_yet_is_read():
    class Lazy:
        def collect(self):
            return frames(LOANS)[2]

    assert same_rows(encode(Lazy(), SCHEMA), encode(LOANS, SCHEMA))


def test_a_partition_has_the_rows_as_they_are():
    table = LOANS.set_index(pd.Index([f"p{i}" for i in range(240)])).astype({"flat": "category"})
    for part in sf.partition(table, clients=2, seed=0, schema=SCHEMA):
        for rows in part:
            pd.testing.assert_frame_equal(rows, table.loc[rows.index])


@pytest.mark.parametrize("role", ["sex", "paid"])
def test_an_unknown_group_or_label_is_no_missing_one(role):
    given = with_column(SCHEMA, role, unknown="ignore").model_dump()
    with pytest.raises(ValueError, match=f"'{role}' must refuse unknown values"):
        Schema.model_validate(given)


def test_decisions_of_codes_and_of_names_are_written_side_by_side():
    codes = with_column(SCHEMA, "paid", categories=(0, 1, 2)).model_copy(update={"positive": 1})
    rows = LOANS.assign(paid=(LOANS["paid"] == "yes").astype(int))
    sent = [sf.distill_table(rows, codes, SURROGATE)]
    model = sf.pool_and_train(sent, codes, sf.ServerConfig(rho=0.0))
    decided = [model.predict(rows.assign(more=1)), model.to_sklearn().predict(rows)]
    for one in (*decided, sf.predict(model, rows)["decision"]):
        assert set(one) == {"negative", "1"}


def test_a_label_may_be_called_positive():
    values = ("negative", "positive", "unclear")
    schema = with_column(SCHEMA, "paid", categories=values)
    for positive, decided in (
        (("unclear", "negative"), ("positive", "unclear or negative")),  # not called "positive"
        (("positive", "unclear"), ("negative", "positive or unclear")),
        (("positive",), ("negative or unclear", "positive")),
    ):
        assert schema.model_copy(update={"positive": positive}).decided == decided
    plain = with_column(SCHEMA, "paid", categories=("no", "maybe", "positive"))
    plain = plain.model_copy(update={"positive": ("positive",)})
    assert plain.decided == ("negative", "positive")


def test_a_column_that_takes_unknown_values_tells_no_group():
    schema = with_column(SCHEMA, "flat", unknown="ignore")
    with pytest.raises(sf.InputError, match="'flat' must refuse unknown values"):
        schema.with_sensitive("flat")


def test_a_number_that_means_missing_is_missing_in_a_frame():
    schema = with_column(SCHEMA, "age", missing="category")
    schema = schema.model_copy(update={"missing_values": ("", "-9")})
    table = LOANS.assign(age=[-9 if i % 5 == 0 else v for i, v in enumerate(LOANS["age"])])
    rows = encode(table.astype({"age": str}), schema)
    assert rows.x[:, schema.encoded_names.index("age is missing")].sum() == 48
    for frame in (table, table.astype({"age": float})):
        assert same_rows(encode(frame, schema), rows)


def test_records_have_nan_as_readers_of_pandas_have():
    preprocessing = pytest.importorskip("sklearn.preprocessing")
    table = LOANS.assign(flat=LOANS["flat"].where(np.arange(240) % 4 > 0))
    schema = with_column(SCHEMA, "flat", missing="category")
    records, _ = sf.pool_records([sf.distill_table(table, schema, SURROGATE)], schema)
    missing = records["flat"].isna()
    assert missing.any()
    assert all(isinstance(value, float) for value in records["flat"][missing])
    encoder = preprocessing.OneHotEncoder().fit(records[["flat"]])
    assert [str(value) for value in encoder.categories_[0]] == ["own", "rent", "nan"]


@pytest.mark.parametrize("categories", [("False", "True"), ("TRUE", "FALSE"), (0, 1)])
@pytest.mark.parametrize(
    "spelled", [("True", "False"), ("TRUE", "FALSE"), ("1", "0"), (True, False)]
)
def test_spellings_of_true_are_one_in_a_column_of_two_values(categories, spelled):
    columns = SCHEMA.columns | {"member": Categorical(categories=categories)}
    schema = SCHEMA.model_copy(update={"columns": columns})
    is_true = np.arange(240) % 3 == 0
    second = str(categories[1]).lower() in ("true", "1")
    rows = encode(LOANS.assign(member=np.where(is_true, *spelled)), schema)
    np.testing.assert_array_equal(rows.x[:, -1] == second, is_true)
    three = SCHEMA.model_copy(
        update={"columns": columns | {"member": Categorical(categories=("true", "false", "x"))}}
    )
    with pytest.raises(InputError, match="'TRUE' is not allowed"):
        encode(LOANS.assign(member="TRUE"), three)


def test_a_draft_of_truths_is_the_same_however_they_are_spelled():
    drafts = [
        drafted(LOANS.assign(member=np.where(LOANS["age"] > 40, *spelled)))["columns"]["member"]
        for spelled in [(True, False), ("TRUE", "FALSE"), ("true", "FALSE")]
    ]
    assert drafts == [{"kind": "categorical", "categories": ["False", "True"]}] * 3


def test_texts_with_zeros_are_numbers_to_a_column_of_numbers():
    columns = SCHEMA.columns | {"postcode": Categorical(categories=("01003", "20095"))}
    schema = SCHEMA.model_copy(update={"columns": columns})
    table = LOANS.assign(postcode=["01003", "20095"] * 120)
    rows = encode(table, schema)
    for kind in (int, float):
        assert same_rows(encode(table.astype({"postcode": kind}), schema), rows)


# Drafts.


def entries(document):
    return {name: document["columns"].get(name) for name in document["draft"]["to_review"]}


def features_of_no_use(n=240):
    rng = np.random.default_rng(0)
    words = [
        "advice",
        "after",
        "again",
        "change",
        "day",
        "findings",
        "no",
        "patient",
        "seen",
        "with",
    ]
    table = loans(n)
    names = {"f": ["Ann", "Eva", "Mia"], "m": ["Ben", "Leo", "Tom"]}
    return table.assign(
        **{
            "": range(n),
            "case id": [f"C{i:06}" for i in rng.permutation(10**6)[:n]],
            "admitted": pd.Timestamp("2025-01-01")
            + pd.to_timedelta(rng.integers(365, size=n), "D"),
            "at": [f"{h:02}:{m:02}" for h, m in rng.integers(24, size=(n, 2))],
            "stay": pd.to_timedelta(rng.integers(10**6, size=n), "s"),
            "seen on": [f"{d}.{m}.2025" for d, m in 1 + rng.integers(12, size=(n, 2))],
            "note": [" ".join(rng.choice(words, 7)) for _ in range(n)],
            "postcode": rng.choice(["20095", "01003", "04155"], n),
            "height": [f"{h:.1f}".replace(".", ",") for h in rng.normal(170, 9, n)],
            "first name": [rng.choice(names[sex]) for sex in table["sex"]],
        }
    )


NO_FEATURES = ["", "case id", "admitted", "at", "stay", "seen on", "note"]


@pytest.mark.parametrize("n", [28, 240])
@pytest.mark.parametrize("as_file", [True, False])
def test_what_is_no_feature_is_ignored_and_said(tmp_path, n, as_file):
    table = features_of_no_use(n)
    if as_file:
        table.to_csv(tmp_path / "t.csv", index=False, sep=";")
        table = read_raw_table(tmp_path / "t.csv")
    document = drafted(table)
    assert document["ignored"] == NO_FEATURES
    review = document["draft"]["to_review"]
    assert all(review[f"columns.{name}"].startswith("ignored: ") for name in NO_FEATURES)
    assert document["columns"]["height"]["kind"] == "numeric"
    assert document["columns"]["postcode"]["categories"] == ["01003", "04155", "20095"]
    assert list(review)[:2] == ["columns.age", "columns.postcode"]
    assert CODES_QUESTION in review["columns.postcode"]


def test_codes_are_asked_about_first():
    rng = np.random.default_rng(0)
    table = LOANS.assign(relation=rng.integers(7, size=240), price=rng.integers(10, 500, 240))
    document = drafted(table)
    review = document["draft"]["to_review"]
    assert list(review)[:3] == ["columns.age", "columns.relation", "columns.price"]
    assert all(CODES_QUESTION in review[name] for name in list(review)[:3])
    assert document["columns"]["relation"]["kind"] == "categorical"
    assert document["columns"]["price"]["kind"] == "numeric"
    assert document["columns"]["age"]["kind"] == "numeric"


@pytest.mark.parametrize(
    ("role", "values", "said"),
    [
        ("paid", ["NO", "no", "yes"], "label 'paid': 'NO' and 'no' differ by case or blanks alone"),
        ("paid", ["no t", "not", "yes"], "'no t' and 'not' differ by case"),
        ("sex", ["F", "f", "m"], "sensitive 'sex': 'F' and 'f' differ by case"),
    ],
)
def test_labels_that_differ_by_case_or_blanks_alone_are_refused(role, values, said):
    with pytest.raises(InputError, match=said):
        drafted(LOANS.assign(**{role: np.resize(values, 240)}))
    blanks = LOANS.assign(paid=LOANS["paid"].where(LOANS["age"] > 40, " " + LOANS["paid"]))
    assert drafted(blanks) == drafted(LOANS)


@pytest.mark.parametrize("values", [[7, None], ["7", ""], [7.0, None], [np.int64(7), 7]])
def test_a_constant_is_said_in_the_words_of_a_table(values):
    review = drafted(LOANS.assign(site=np.resize(np.array(values, object), 240)))["draft"]
    assert review["to_review"]["columns.site"] == "ignored: holds only 7; list all that can occur"


# Schemas that grow.

GROWN = with_column(SCHEMA, "flat", categories=("own", "parents", "rent"))


def test_releases_of_a_schema_that_grew_pool(tmp_path, loans_release):
    """Of a new category in the middle, and in the server's schema other positions."""
    rng = np.random.default_rng(1)
    newer = loans(seed=1).assign(flat=rng.choice(["own", "rent", "parents"], 240))
    sent = [loans_release, sf.distill_table(newer, GROWN, SURROGATE)]
    paths = [tmp_path / "a.parquet", tmp_path / "b.parquet"]
    for path, one in zip(paths, sent, strict=True):
        sf.write_release(one.release, path)
    again = sf.distill_table(LOANS, GROWN, SURROGATE)  # had the site had the schema that grew
    wanted = sf.pool_records([again, sent[1]], GROWN)
    for given in (sent, paths):
        records, weight = sf.pool_records(given, GROWN)
        assert set(records["flat"]) == {"own", "rent", "parents"}
        shares = weight @ pd.get_dummies(records["flat"]).to_numpy()
        expected = wanted[1] @ pd.get_dummies(wanted[0]["flat"]).to_numpy()
        np.testing.assert_allclose(shares, expected, atol=10)  # of 480 rows
    assert sf.pool_and_train(paths, GROWN).theta == sf.pool_and_train(sent, GROWN).theta
    with pytest.raises(InputError, match=r"'flat': categories: \['parents'\] in the release alone"):
        sf.pool_records(sent, SCHEMA)


def test_positions_follow_the_schema_given(loans_release):
    groups = with_column(GROWN, "sex", categories=("d", "m", "f"))
    before, weight = sf.pool_records([loans_release], SCHEMA)
    after, same = sf.pool_records([loans_release], groups)
    pd.testing.assert_frame_equal(before, after)
    np.testing.assert_array_equal(weight, same)


def reordered(schema, *first):
    columns = {name: schema.columns[name] for name in (*first, *schema.columns)}
    return schema.model_copy(update={"columns": columns})


def test_the_order_of_columns_and_of_categories_may_differ(tmp_path, loans_release):
    """Releases that were read by a schema are of it: positions are mapped once."""
    other = reordered(with_column(SCHEMA, "flat", categories=("rent", "own")), "flat", "pay")
    path = tmp_path / "r.parquet"
    sf.write_release(loans_release.release, path)
    before, _ = sf.pool_records([path], SCHEMA)
    for given in ([path], sf.server.read_releases([path], other)):
        after, _ = sf.pool_records(given, other)
        pd.testing.assert_frame_equal(before, after[list(before)])
    fair = sf.distill_table(LOANS, SCHEMA, sf.DistillConfig(n_synthetic=8, steps=2))
    with pytest.raises(InputError, match="in another order"):
        sf.pool_and_train([fair], reordered(SCHEMA, "pay"))


def test_a_message_on_a_schema_has_no_end(tmp_path, loans_release):
    many = {f"{i}{'x' * 90}": Numeric(lower=0, upper=1) for i in range(300)}
    large = SCHEMA.model_copy(update={"columns": SCHEMA.columns | many})
    release = loans_release.release
    header = release.header.model_copy(update={"table_schema": large})
    x = np.hstack([release.x, np.zeros((len(release.y), len(many)))])
    sf.write_release(replace(release, header=header, x=x), tmp_path / "r.parquet")
    with pytest.raises(InputError) as refused:
        sf.server.read_releases([tmp_path / "r.parquet"], SCHEMA)
    assert len(str(refused.value)) < 10_000


def test_inspect_names_groups_whatever_their_order(tmp_path, capsys):
    path, other = tmp_path / "r.parquet", with_column(SCHEMA, "sex", categories=("m", "f"))
    women = LOANS[(LOANS["sex"] == "m") | (LOANS.index % 3 > 0)]
    sf.write_release(sf.distill_table(women, SCHEMA, SURROGATE).release, path)
    (tmp_path / "s.json").write_text(other.to_json())
    shown = []
    for more in ([], ["--schema", f"{tmp_path}/s.json"]):
        assert main(["inspect", str(path), *more]) == 0
        lines = capsys.readouterr().out.splitlines()
        shown.append({line.split("sex=")[1].strip() for line in lines if "sex=" in line})
    assert shown[0] == shown[1]
    assert len(shown[0]) == 4


def test_a_fair_release_of_a_schema_that_grew_does_not_pool():
    config = sf.DistillConfig(n_synthetic=8, steps=2)
    release = sf.distill_table(LOANS, SCHEMA, config)
    said = r"client 0: .*column 'flat': categories: none .*\['parents'\] .* alone"
    with pytest.raises(InputError, match=said):
        sf.pool_and_train([release], GROWN)


WIDER = with_column(SCHEMA, "age", upper=120.0)
CLIPS = with_column(SCHEMA, "age", out_of_range="clip")
OTHER = with_column(SCHEMA, "flat", categories=("own", "other"), unlisted="other")


@pytest.mark.parametrize(
    ("own", "given", "within"),
    [
        (SCHEMA, GROWN, True),
        (GROWN, SCHEMA, False),
        (SCHEMA, WIDER, True),
        (WIDER, SCHEMA, False),
        (SCHEMA, CLIPS, True),
        (CLIPS, CLIPS, True),
        (CLIPS, SCHEMA, True),
        (CLIPS, with_column(WIDER, "age", out_of_range="clip"), True),
        (OTHER, OTHER, True),
        (OTHER, with_column(OTHER, "flat", categories=("own", "rent", "other")), False),
        (SCHEMA, with_column(SCHEMA, "flat", missing="category"), True),
        (with_column(SCHEMA, "flat", missing="category"), SCHEMA, False),
        (SCHEMA, SCHEMA.model_copy(update={"positive": "no"}), False),
        (SCHEMA, with_column(SCHEMA, "paid", categories=("no", "later", "yes")), True),
        (SCHEMA, SCHEMA.model_copy(update={"name": "x", "missing_values": ("?",)}), True),
        (SCHEMA, SCHEMA.with_sensitive("flat"), False),
    ],
)
def test_which_schema_is_within_which(own, given, within):
    assert is_within(own, given) == within


def test_the_command_says_what_differs(tmp_path, capsys, loans_release):
    sf.write_release(loans_release.release, tmp_path / "r.parquet")
    smaller = with_column(SCHEMA, "age", lower=21.0)
    (tmp_path / "s.json").write_text(json.dumps(smaller.document))
    words = ["server", f"{tmp_path}/r.parquet", "--schema", f"{tmp_path}/s.json"]
    assert main([*words, "--output", f"{tmp_path}/o"]) == 2
    said = " ".join(capsys.readouterr().err.split())
    assert "column 'age': lower: 18.0 in the release, 21.0 in the schema given" in said
    zero = with_column(SCHEMA, "age", lower=0.0)
    other = zero.model_copy(update={"columns": zero.columns | {"flat": zero.columns["age"]}})
    found = "; ".join(differences(other, SCHEMA))
    assert "column 'age': lower: 0.0 in the release, 18.0 in the schema given" in found
    assert "column 'flat': kind: 'numeric' in the release, 'categorical' in the schema" in found
    assert "categories: none in the release alone, ['own', 'rent'] in the schema" in found


# Estimators.


def test_blanks_do_not_count_in_estimators_either():
    table = LOANS.rename(columns={"age": " age"}).drop(columns=["paid", "sex"])
    table["flat"] += np.where(LOANS.index % 2, " ", "")
    plain = LOANS[["age", "pay", "flat"]]
    sex = LOANS["sex"] + np.where(LOANS.index % 3 > 0, " ", "")
    fair = sf.sklearn.FairLogisticRegression(rho=1.0, bounds={" age": (0, 100)})
    fair.fit(table, LOANS["paid"], sensitive_features=sex)
    assert fair.groups_.tolist() == ["f", "m"]
    other = sf.sklearn.FairLogisticRegression(rho=1.0, bounds={"age": (0, 100)})
    other.fit(plain, LOANS["paid"], sensitive_features=LOANS["sex"])
    np.testing.assert_allclose(fair.decision_function(table), other.decision_function(plain))


def test_a_category_without_a_row_in_fit_stays_known_whatever_its_blanks():
    kind = pd.CategoricalDtype(["own", "rent ", "other"])
    table = LOANS[["age", "flat"]].replace({"rent": "rent "}).astype({"flat": kind})
    model = sf.sklearn.FairLogisticRegression(rho=0).fit(table, LOANS["paid"])
    assert model.schema_.columns["flat"].categories == ("own", "rent", "other")
    later = table.assign(flat=pd.Series(["other"] * 240, dtype=kind))
    assert np.isfinite(model.decision_function(later)).all()  # and no warning


def test_what_a_distiller_gives_has_no_shares_of_the_rows():
    public = {"categories": {"flat": ["own", "rent"]}, "bounds": {"age": (0, 99), "pay": (0, 500)}}
    distiller = sf.sklearn.Distiller(rho=1.0, n_synthetic=8, steps=2, **public)
    with pytest.warns(UserWarning, match="has not converged"):
        distiller.fit_resample(
            LOANS[["age", "pay", "flat"]], LOANS["paid"], sensitive_features=LOANS["sex"]
        )
    for schema in (distiller.schema_, distiller.release_.header.table_schema):
        assert schema.columns["flat"].shares is None


def test_sparse_rows_of_too_many_columns_are_refused_before_they_are_filled():
    wide = scipy.sparse.csr_matrix((240, 10**9))
    with pytest.raises(InputError, match="1000000000 columns; at most 10000"):
        sf.sklearn.FairLogisticRegression(rho=0).fit(wide, LOANS["paid"])


def test_texts_that_are_numbers_are_numbers_to_an_estimator():
    sklearn = pytest.importorskip("sklearn.preprocessing")
    x, y = LOANS[["age", "pay"]], LOANS["paid"]
    wanted = sf.sklearn.FairLogisticRegression(rho=0).fit(x, y)
    texts = sf.sklearn.FairLogisticRegression(rho=0).fit(x.astype(str), y)
    assert list(texts.encoded_names_) == ["age", "pay"]
    np.testing.assert_array_equal(texts.coef_, wanted.coef_)
    np.testing.assert_allclose(
        texts.decision_function(x.astype(str)), wanted.decision_function(x), atol=1e-9
    )
    for frame in frames(x)[1:]:
        found = sf.sklearn.FairLogisticRegression(rho=0).fit(frame, y)
        np.testing.assert_array_equal(found.coef_, wanted.coef_)
        assert (found.predict(frame) == wanted.predict(x)).all()
    sparse = sklearn.OneHotEncoder().fit_transform(LOANS[["flat"]])
    found = sf.sklearn.FairLogisticRegression(rho=0).fit(sparse, y)
    dense = sf.sklearn.FairLogisticRegression(rho=0).fit(sparse.toarray(), y)
    np.testing.assert_array_equal(found.coef_, dense.coef_)
    assert (found.predict(sparse) == dense.predict(sparse.toarray())).all()


def test_a_column_of_many_texts_is_warned_of():
    x = LOANS[["pay"]].assign(town=[f"t{i % 51}" for i in range(240)])
    with pytest.warns(
        UserWarning, match="'town': 51 values; those of at least 1% .*; drop it, merge"
    ):
        sf.sklearn.FairLogisticRegression(rho=0).fit(x, LOANS["paid"])
    codes = LOANS[["pay"]].assign(code=["01003", "20095"] * 120)
    model = sf.sklearn.FairLogisticRegression(rho=0).fit(codes, LOANS["paid"])
    assert list(model.encoded_names_) == ["pay", "code=20095"]

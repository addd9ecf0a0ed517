"""Named tables, and the download against a server on this machine."""

import functools
import hashlib
import http.server
import threading
import zipfile

import numpy as np
import pandas as pd
import pooch
import pytest
from builders import invented_rows

from synthfair.data import datasets
from synthfair.data.datasets import (
    DATA_VARIABLE,
    SOURCES,
    Source,
    dataset_schema,
    find_file,
    load_dataset,
    published_split,
)
from synthfair.data.encode import encode
from synthfair.data.partition import partition, write_clients
from synthfair.data.tables import read_table
from synthfair.errors import InputError

CONTENT = b"a,b\n1,2\n"


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *args):
        pass


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """The folder and the address of a server on this machine."""
    folder = tmp_path_factory.mktemp("www")
    handler = functools.partial(Quiet, directory=folder)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield folder, f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """An empty cache, and no folder in its place."""
    monkeypatch.delenv(DATA_VARIABLE, raising=False)
    folder = tmp_path / "cache"
    monkeypatch.setattr(pooch, "os_cache", lambda _: folder)
    return folder


@pytest.fixture
def put(server, cache):
    """Puts a file onto the server; a source for it."""
    folder, address = server

    def put(name, content):
        (folder / name).write_bytes(content)
        return Source(name, hashlib.sha256(content).hexdigest(), f"{address}/{name}")

    return put


@pytest.fixture
def served(put):
    return put("table.csv", CONTENT)


def test_download_is_checked_and_cached(served, server, cache):
    path = find_file(served)
    assert path.read_bytes() == CONTENT
    assert path.parent == cache
    (server[0] / "table.csv").unlink()
    assert find_file(served) == path  # the cache serves it now


def test_a_wrong_checksum_is_refused_and_nothing_stored(served, cache):
    wrong = Source("table.csv", "0" * 64, served.url)
    with pytest.raises(InputError, match="table.csv"):
        find_file(wrong)
    assert list(cache.iterdir()) == []


def test_failed_download_says_what_to_do(served):
    gone = Source("gone.csv", served.sha256, served.url.replace("table", "gone"))
    with pytest.raises(InputError, match=f"gone.csv.*{DATA_VARIABLE}"):
        find_file(gone)


def test_every_file_of_a_table_is_downloaded(put, cache, monkeypatch):
    texts = {
        "train": "39, Private, 1, 11th, 7, Divorced, ?, Wife, Black, Male, 0, 0, 40, Cuba, <=50K\n",
        "test": "|1x3\n25, ?, 1, 9th, 5, Widowed, Sales, Wife, White, Female, 0, 0, 4, ?, >50K.\n\n",
    }
    sources = tuple(put(name, text.encode()) for name, text in texts.items())
    monkeypatch.setitem(SOURCES, "adult", sources)
    table, schema = load_dataset("adult")
    assert list(encode(table, schema).y) == [-1, 1]
    assert list(table["workclass"].isna()) == [False, True]
    assert {path.name for path in cache.iterdir()} == {"train", "test"}


@pytest.fixture
def zipped(served, server):
    """A source whose url is that of an archive with the file under another name."""
    with zipfile.ZipFile(server[0] / "all.zip", "w") as archive:
        archive.writestr("inside.csv", CONTENT)
        archive.writestr("other.csv", "x")
    url = served.url.replace("table.csv", "all.zip")
    return served._replace(url=url, member="inside.csv")


def test_a_file_is_taken_out_of_an_archive(zipped, server, cache):
    path = find_file(zipped)
    assert path.read_bytes() == CONTENT
    assert list(cache.iterdir()) == [path] == [cache / "table.csv"]
    (server[0] / "all.zip").unlink()
    assert find_file(zipped) == path


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"sha256": "0" * 64}, "does not match the known hash"),
        ({"member": "gone.csv"}, "no item named 'gone.csv' in the archive"),
        ({"url": "table.csv"}, "not a zip file"),
        ({"url": "gone.zip"}, f"404 .* Put the file into a folder .*{DATA_VARIABLE}"),
    ],
)
def test_of_a_wrong_archive_nothing_is_stored(zipped, cache, change, complaint):
    if "url" in change:
        change = {"url": zipped.url.replace("all.zip", change["url"])}
    with pytest.raises(InputError, match=f"(?s)table.csv: not in {cache}.*{complaint}"):
        find_file(zipped._replace(**change))
    assert list(cache.iterdir()) == []


def test_a_file_without_an_address_must_be_at_hand(served, cache, tmp_path, monkeypatch):
    monkeypatch.setenv(DATA_VARIABLE, str(tmp_path))
    with pytest.raises(InputError, match=f"table.csv: not in {tmp_path} or {cache}, and no "):
        find_file(served._replace(url=""))


def test_a_file_of_the_named_folder_comes_first_and_is_never_replaced(
    served, cache, tmp_path, monkeypatch
):
    path = tmp_path / "named" / "table.csv"
    path.parent.mkdir()
    monkeypatch.setenv(DATA_VARIABLE, str(path.parent))
    path.write_bytes(b"changed")
    found = hashlib.sha256(b"changed").hexdigest()
    with pytest.raises(InputError, match=f"{path}: .* is {found}; it must be {served.sha256}"):
        find_file(served)
    assert path.read_bytes() == b"changed"
    path.write_bytes(CONTENT)
    assert find_file(served) == path
    assert not cache.exists()


@pytest.mark.parametrize("there", [True, False])
def test_what_is_not_in_the_named_folder_is_downloaded_to_the_cache(
    there, served, cache, tmp_path, monkeypatch
):
    folder = tmp_path / "named"
    if there:
        folder.mkdir()
    monkeypatch.setenv(DATA_VARIABLE, str(folder))
    assert find_file(served) == cache / "table.csv"
    assert folder.exists() == there
    assert not [*folder.glob("*")]
    with pytest.raises(InputError, match=f"gone.csv: not in {folder}.*Put the file"):
        find_file(served._replace(file="gone.csv", url=""))


def test_unknown_table():
    with pytest.raises(InputError, match="'nursery': must be one of loanapp, law_school, dutch"):
        load_dataset("nursery")


def test_loanapp_has_missing_values_and_no_column_that_restates_the_decision():
    table, schema = load_dataset("loanapp")
    assert len(table) == 1989
    assert table.isna().any().any()
    assert not {"action", "reject", "typur", "black", "hispan"} & set(table.columns)
    assert len(encode(table, schema).y) == 1989


ROWS = {"law_school": 20_798, "dutch": 60_420, "adult": 48_842, "bank": 45_211}


@pytest.fixture(scope="module")
def adult(public_tables):
    return load_dataset("adult")


@pytest.fixture(scope="module")
def bank(public_tables):
    return load_dataset("bank")


@pytest.mark.usefixtures("public_tables")
@pytest.mark.parametrize("name", ROWS)
def test_public_tables_fit_their_schemas(name, request):
    table, schema = (
        request.getfixturevalue(name) if name in ("adult", "bank") else load_dataset(name)
    )
    encoded = encode(table, schema)
    assert len(encoded.y) == ROWS[name]
    assert np.isfinite(encoded.x).all()
    assert list(table.index) == list(range(ROWS[name]))
    assert SOURCES[name]


def test_adult_has_the_published_parts_and_rates(adult):
    train, test, schema = published_split("adult")
    assert (len(train), len(test)) == (32_561, 16_281)
    both, _ = adult
    pd.testing.assert_frame_equal(both, pd.concat([train, test], ignore_index=True))
    assert schema.groups == ("Female", "Male")
    rates = both["income"].eq(">50K").groupby(both["sex"]).mean()
    assert both["income"].eq(">50K").mean() == pytest.approx(0.2393, abs=5e-5)  # adult.names
    assert train["income"].eq(">50K").mean() == pytest.approx(0.2408, abs=5e-5)
    assert list(rates.round(1)) == [0.1, 0.3]  # Rodriguez-Galvez et al. 2021, section 4.1


def test_adult_misses_values_in_three_columns_and_has_equal_rows(adult):
    table, schema = adult
    complete = table.dropna()
    assert len(complete) == 45_222  # adult.names
    assert (complete["income"] == ">50K").mean() == pytest.approx(0.2478, abs=5e-5)  # the same
    missing = set(table.columns[table.isna().any()])
    assert missing == {"workclass", "occupation", "native_country"}
    assert missing == {n for n, c in schema.columns.items() if c.missing == "category"}
    assert table.duplicated().sum() == 24 + 5 + 23  # within train, within test, of train in test
    assert not (table == "?").any(axis=None)


def test_adult_has_thirteen_features_and_race_as_another_sensitive_attribute():
    schema = dataset_schema("adult", "race")
    assert len(dataset_schema("adult").features) == 13
    table = invented_rows(schema, 500)
    sizes = np.bincount(encode(table, schema).s)
    assert dict(zip(schema.groups, sizes, strict=True)) == table["race"].value_counts().to_dict()


def test_few_values_of_adult_and_bank_are_clipped(adult, bank):
    shares = {}
    for table, schema in (adult, bank):
        for column, kind in schema.columns.items():
            if getattr(kind, "out_of_range", "refuse") == "clip":
                outside = ~table[column].between(kind.lower, kind.upper)
                shares[column] = outside.mean()
    assert 0 < shares["fnlwgt"] < 0.001
    assert max(shares.values()) < 0.001


def test_client_files_of_a_named_table_read_back_as_they_were(tmp_path):
    table, schema = load_dataset("loanapp")
    clients = partition(table, clients=2, seed=0)
    write_clients(clients, schema, tmp_path)
    back = encode(read_table(tmp_path / "client_1_test.csv", schema), schema)
    np.testing.assert_array_equal(back.x, encode(clients[1].test, schema).x)


def test_bank_has_two_groups_by_age_and_no_age(bank):
    table, schema = bank
    assert (table["y"] == "yes").mean() == pytest.approx(0.117, abs=5e-4)
    assert schema.groups == ("no", "yes")
    assert "age" not in table.columns
    assert table["age_25_to_60"].value_counts().to_dict() == {"yes": 43_214, "no": 1_997}


def test_bank_counts_25_and_60_as_within(tmp_path):
    path = tmp_path / "bank.csv"
    path.write_text('"age";"y"\n' + "".join(f'{age};"no"\n' for age in (24, 25, 60, 61)))
    table = datasets.read_bank(path, dataset_schema("bank"))
    assert list(table["age_25_to_60"]) == ["no", "yes", "yes", "no"]


def test_only_some_tables_have_a_published_split():
    with pytest.raises(InputError, match="'bank': has no published split; adult has one"):
        published_split("bank")
    with pytest.raises(InputError, match="'nursery': must be one of"):
        published_split("nursery")

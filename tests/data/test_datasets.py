"""Named tables, and the download of their files."""

import hashlib
import io
import zipfile
from pathlib import Path

import numpy as np
import pooch
import pytest

from synthfair.data import datasets
from synthfair.data.datasets import DATA_VARIABLE, SOURCES, Source, find_file, load_dataset
from synthfair.data.encode import Clipping, encode
from synthfair.errors import InputError

CONTENT = b"a,b\n1,2\n"


SERVED = Source("table.csv", hashlib.sha256(CONTENT).hexdigest(), "http://host/table.csv")
PACKED = SERVED._replace(url="http://host/all.zip", member="inside.csv")


@pytest.fixture
def pages(monkeypatch):
    """What is at each address: a file, and an archive with the file under another name."""
    with zipfile.ZipFile(packed := io.BytesIO(), "w") as archive:
        archive.writestr("inside.csv", CONTENT)
        archive.writestr("other.csv", "x")
    pages = {SERVED.url: CONTENT, PACKED.url: packed.getvalue()}

    def download(_, url, output, __):
        if url not in pages:
            raise OSError(f"{url}: not found")
        (output.write if hasattr(output, "write") else Path(output).write_bytes)(pages[url])

    monkeypatch.setattr(pooch.HTTPDownloader, "__call__", download)
    return pages


@pytest.fixture
def cache(pages, tmp_path, monkeypatch):
    """An empty cache, and no folder in its place."""
    monkeypatch.delenv(DATA_VARIABLE, raising=False)
    monkeypatch.setattr(pooch, "os_cache", lambda _: tmp_path / "cache")
    return tmp_path / "cache"


@pytest.mark.parametrize("source", [SERVED, PACKED])
def test_download_is_checked_and_cached(source, pages, cache):
    path = find_file(source)
    assert path.read_bytes() == CONTENT
    assert list(cache.iterdir()) == [path] == [cache / "table.csv"]
    pages.clear()
    assert find_file(source) == path
    path.write_bytes(b"changed")
    with pytest.raises(InputError, match=DATA_VARIABLE):
        find_file(source)


@pytest.mark.parametrize(("source", "match"), [
    (SERVED._replace(sha256="0" * 64), "hash"), (SERVED._replace(url=""), DATA_VARIABLE),
    (PACKED._replace(member="gone.csv"), "'gone.csv'"), (SERVED._replace(member="x"), "not a zip"),
    (PACKED._replace(url="http://host/gone.zip"), DATA_VARIABLE),
])  # fmt: skip
def test_download_that_is_wrong_is_refused_and_not_stored(source, match, cache):
    with pytest.raises(InputError, match=f"(?s)table.csv: not in {cache}.*{match}"):
        find_file(source)
    assert not [*cache.glob("*")]


def test_files_of_a_table_follow_one_another(tmp_path, monkeypatch):
    row = "9, ?, 1, 9th, 5, Widowed, Sales, Wife, White, Female, 0, 0, 4, ?, "
    texts = {"train": f"{row}<=50K\n", "test": f"|1x3\n{row}>50K.\n\n"}
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
    monkeypatch.setenv(DATA_VARIABLE, str(tmp_path))
    sources = [Source(name, hashlib.sha256(t.encode()).hexdigest()) for name, t in texts.items()]
    monkeypatch.setitem(SOURCES, "adult", tuple(sources))
    table, _ = load_dataset("adult")
    parts = (
        [*table["income"]],
        *map(list, (p["income"] for p in datasets.published_split("adult")[:2])),
    )
    assert parts == (["<=50K", ">50K"], ["<=50K"], [">50K"])
    assert table["workclass"].isna().all()


def test_folder_that_is_named_is_first_and_never_written_to(cache, tmp_path, monkeypatch):
    path = tmp_path / "named" / "table.csv"
    monkeypatch.setenv(DATA_VARIABLE, str(path.parent))
    assert find_file(SERVED) == cache / "table.csv"
    assert not path.parent.exists()
    path.parent.mkdir()
    assert find_file(SERVED) == cache / "table.csv"
    path.write_bytes(b"changed")
    with pytest.raises(InputError, match=f"{path}: .*{SERVED.sha256}"):
        find_file(SERVED)
    path.write_bytes(CONTENT)
    assert find_file(SERVED) == path


def test_table_that_is_unknown_or_has_no_split_is_refused():
    for name, match in {"nursery": "'nursery': must be one of loanapp", "bank": "'bank'"}.items():
        with pytest.raises(InputError, match=match):
            datasets.published_split(name)


def test_loanapp_has_no_column_that_restates_the_decision():
    assert not {"action", "reject", "typur", "black", "hispan"} & {*load_dataset("loanapp")[0]}


ROWS = {"law_school": 20_798, "dutch": 60_420, "adult": 48_842, "bank": 45_211}


def test_twoyear_has_four_regions_and_wages_in_dollars():
    table, schema = load_dataset("twoyear")
    assert table["region"].value_counts().to_dict() == {
        "south": 2212, "north central": 2021, "northeast": 1425, "west": 1105,
    }  # fmt: skip
    seen = Clipping()
    encoded = encode(table, schema, clipping=seen)
    assert not seen.clipped()
    assert (encoded.y > 0).sum() == (table["wage"] >= 10).sum()
    assert schema.group_names("female") == ["women", "men"]


@pytest.mark.usefixtures("public_tables")
@pytest.mark.parametrize(("name", "n"), ROWS.items())
def test_public_table_fits_its_schema_and_is_hardly_clipped(name, n):
    table, schema = load_dataset(name)
    seen = Clipping()
    encoded = encode(table, schema, clipping=seen)
    assert len(encoded.y) == n
    assert np.isfinite(encoded.x).all()
    assert list(table.index) == list(range(n))
    assert not seen.clipped(above=0.001)


def test_bank_has_two_groups_by_age_with_25_and_60_within(tmp_path):
    path, schema = tmp_path / "bank.csv", datasets.dataset_schema("bank")
    path.write_text('"age";"y"\n' + "".join(f'{age};"no"\n' for age in (24, 25, 60, 61)))
    table = datasets.read_bank(path, schema)
    assert list(table["age_25_to_60"]) == ["no", "yes", "yes", "no"]
    assert "age" not in table

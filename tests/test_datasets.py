"""Named tables, and the download against a server on this machine."""

import functools
import hashlib
import http.server
import threading

import pytest
from conftest import needs_data

from synthfair.data import datasets
from synthfair.data.datasets import DATA_VARIABLE, SOURCES, Source, find_file, load_dataset
from synthfair.data.encode import encode
from synthfair.errors import InputError

CONTENT = b"a,b\n1,2\n"


@pytest.fixture
def served(tmp_path, monkeypatch):
    """A source whose url is a local server, and an empty cache."""
    (tmp_path / "www").mkdir()
    (tmp_path / "www" / "table.csv").write_bytes(CONTENT)

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *args):
            pass

    handler = functools.partial(Quiet, directory=tmp_path / "www")
    monkeypatch.delenv(DATA_VARIABLE, raising=False)
    monkeypatch.setattr(datasets, "_cache", lambda: tmp_path / "cache")
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}/table.csv"
        yield Source("table.csv", hashlib.sha256(CONTENT).hexdigest(), url)
        server.shutdown()


def test_download_is_checked_and_cached(served, tmp_path):
    path = find_file(served)
    assert path.read_bytes() == CONTENT
    assert path.parent == tmp_path / "cache"
    (tmp_path / "www" / "table.csv").unlink()
    assert find_file(served) == path  # the cache serves it now


def test_wrong_checksum_is_refused_and_nothing_kept(served, tmp_path):
    wrong = Source("table.csv", "0" * 64, served.url)
    with pytest.raises(InputError, match="table.csv"):
        find_file(wrong)
    assert list((tmp_path / "cache").iterdir()) == []


def test_failed_download_says_what_to_do(served):
    gone = Source("gone.csv", served.sha256, served.url.replace("table", "gone"))
    with pytest.raises(InputError, match=f"gone.csv.*{DATA_VARIABLE}"):
        find_file(gone)


def test_the_named_folder_comes_first_and_is_checked(served, tmp_path, monkeypatch):
    folder = tmp_path / "named"
    folder.mkdir()
    monkeypatch.setenv(DATA_VARIABLE, str(folder))
    (folder / "table.csv").write_bytes(CONTENT)
    assert find_file(served).parent == folder
    (folder / "table.csv").write_bytes(b"tampered")
    with pytest.raises(InputError, match="sha256 is .* must be"):
        find_file(served)


def test_unknown_table():
    with pytest.raises(InputError, match="'nursery': must be one of loanapp, law_school, dutch"):
        load_dataset("nursery")


def test_loanapp_has_missing_values_and_no_column_that_restates_the_decision():
    table, schema = load_dataset("loanapp")
    assert len(table) == 1989
    assert table.isna().any().any()
    assert not {"action", "reject", "typur", "black", "hispan"} & set(table.columns)
    assert len(encode(table, schema).y) == 1989


@needs_data
@pytest.mark.parametrize(("name", "rows"), [("law_school", 20_798), ("dutch", 60_420)])
def test_public_tables_fit_their_schemas(name, rows):
    table, schema = load_dataset(name)
    encoded = encode(table, schema)
    assert len(encoded.y) == rows
    assert SOURCES[name] is not None

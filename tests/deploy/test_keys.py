"""Keys of a federation that the engine's own commands make stay where they are made."""

import re
import zipfile
from pathlib import Path

import pytest

pytest.importorskip("nvflare")

SITES, PARTIES = ("city", "suburbs"), ("hub", "localhost", "lead@hub.org", "city", "suburbs")
KEY = re.compile(rb"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?-----END", re.DOTALL)


def contents(path):
    """What a file holds; of a zip, what its members hold."""
    if zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as parts:
            return [parts.read(name) for name in parts.namelist()]
    return [path.read_bytes()]


def test_key_never_leaves_its_party_and_what_is_exchanged_is_public(tmp_path):
    import kits

    kits.prepare(tmp_path)
    holders = {}
    for path in filter(Path.is_file, tmp_path.rglob("*")):
        for key in (key for content in contents(path) for key in KEY.findall(content)):
            holders.setdefault(key, set()).add(path.relative_to(tmp_path).parts[0])
            assert path.stat().st_mode & 0o777 == 0o600
    assert sorted(party for (party,) in holders.values()) == sorted([*PARTIES, *SITES])
    for party in PARTIES[1:]:
        assert {(tmp_path / party / kit).stat().st_mode & 0o777 for kit in ("", "kit")} == {0o700}
    zips = {f"{party}.{kind}.zip" for party in PARTIES[1:] for kind in ("request", "signed")}
    assert {path.name for path in (tmp_path / "exchanged").iterdir()} == zips | {
        "project.yml", "schema.json", "city.pub", "suburbs.pub"}  # fmt: skip

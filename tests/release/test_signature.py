"""Nothing in a release file can be altered unseen, and a signature is one client's."""

import json
import stat
import struct
import sys
from dataclasses import replace
from hashlib import sha256

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from builders import SCHEMA, rewrite, set_column, some_release
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.rsa import generate_private_key

import synthfair as sf
from synthfair.errors import InputError
from synthfair.release.format import read_release, write_release
from synthfair.release.keys import (
    make_keys,
    read_keys,
    read_signing_key,
)
from synthfair.release.settings import DistillConfig
from synthfair.server import read_releases


@pytest.fixture
def keys(tmp_path):
    """Key files of two clients."""
    for name in ("ada", "bob"):
        make_keys(tmp_path / f"{name}.key")
    return tmp_path


def signed(keys, name, path, x=None):
    write_release(some_release(x), path, key=name and read_signing_key(keys / f"{name}.key"))
    return path


def resign(path, **changes):
    """The file with entries of its signature changed, None for none."""
    metadata = dict(pq.read_schema(path).metadata)
    before = json.loads(metadata[b"synthfair.release.signature"])
    metadata[b"synthfair.release.signature"] = json.dumps(before | changes).encode()
    pq.write_table(pq.read_table(path).replace_schema_metadata(metadata), path)


def test_the_digest_is_the_one_that_is_documented(tmp_path):
    """Byte by byte, from the module's first lines."""

    def sha(data):
        return sha256(data).digest()

    release = some_release()
    rows = sha(
        release.x.astype("<f8").tobytes() + struct.pack("<2i2i", *release.s, *release.y.astype(int))
    )
    ordered = replace(release, x=np.asfortranarray(release.x))
    assert release.fingerprint == ordered.fingerprint == rows
    path = tmp_path / "r.parquet"
    write_release(release, path)
    metadata = pq.read_schema(path).metadata
    expected = sha(b"synthfair-release/2\0" + sha(metadata[b"synthfair"]) + rows).hex()
    assert json.loads(metadata[b"synthfair.release.signature"])["sha256"] == expected


@pytest.mark.parametrize("column", [*SCHEMA.encoded_names, "(group)", "(label)"])
def test_no_column_can_be_altered(tmp_path, column):
    path = tmp_path / "r.parquet"
    write_release(some_release(), path)
    old = pq.read_table(path)[column]
    new = {"(group)": [0, 0], "(label)": [1, 1]}.get(column, [0.25, np.nextafter(0.25, 1)])
    rewrite(path, set_column(column, pa.array(new, old.type)))
    with pytest.raises(InputError, match="r.parquet: altered since it was written: sha256"):
        read_release(path, SCHEMA)


@pytest.mark.parametrize(
    "header",
    [
        {"version": "9"},
        {"model": "m"},
        {"penalty": "q"},
        {"config": DistillConfig(rho_o=1.0, group_input=True).model_dump(mode="json")},
    ],
)
def test_no_entry_of_the_header_can_be_altered(tmp_path, header):
    path = tmp_path / "r.parquet"
    write_release(some_release(), path)
    rewrite(path, **header)
    with pytest.raises(InputError, match="altered since it was written"):
        read_release(path, SCHEMA)


def test_two_rows_cannot_be_swapped(tmp_path):
    path = tmp_path / "r.parquet"
    write_release(
        some_release(np.random.default_rng(0).random((4, len(SCHEMA.encoded_names)))), path
    )
    rewrite(path, lambda table: table.take([2, 1, 0, 3]))
    with pytest.raises(InputError, match="altered"):
        read_release(path, SCHEMA)


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (lambda m: m.pop(b"synthfair.release.signature"), "its sha256 is missing"),
        (lambda m: m.update({b"synthfair.release.signature": b"{}"}), "sha256: missing"),
        (
            lambda m: m.update({b"synthfair.release.signature": b" " * 1001}),
            "has 1001 bytes; at most 1000",
        ),
        (lambda m: m.update({b"synthfair": b" " * (2**22 + 1)}), "at most 4194304"),
        (lambda m: m.update({b"pandas": b"{}"}), "metadata b'pandas': unknown"),
        (lambda m: m.update({b"synthfair": b"a" * 30_000_000}), "not a readable Parquet file"),
    ],
)
def test_bad_metadata(tmp_path, change, complaint):
    path = tmp_path / "r.parquet"
    write_release(some_release(), path)
    metadata = dict(pq.read_schema(path).metadata)
    change(metadata)
    pq.write_table(pq.read_table(path).replace_schema_metadata(metadata), path)
    with pytest.raises(InputError, match=f"r.parquet: .*{complaint}"):
        read_release(path, SCHEMA)


def test_the_same_release_signed_twice_is_one_file(keys):
    one, other = (signed(keys, "ada", keys / f"{i}.parquet").read_bytes() for i in range(2))
    assert one == other


def test_a_signature_is_the_clients(keys):
    trusted = read_keys([keys])
    assert sorted(trusted.values()) == ["ada", "bob"]
    release = read_release(signed(keys, "ada", keys / "r.parquet"), SCHEMA, keys=trusted)
    assert trusted[release.signature.public_key] == "ada"


def test_unsigned_and_unknown_releases_are_refused_where_keys_are_given(keys):
    unsigned = signed(keys, None, keys / "u.parquet")
    read_release(unsigned, SCHEMA)
    with pytest.raises(InputError, match="u.parquet: not signed; must be signed by 'ada', 'bob'"):
        read_release(unsigned, SCHEMA, keys=read_keys([keys]))
    by_ada = signed(keys, "ada", keys / "a.parquet")
    with pytest.raises(InputError, match="a.parquet: signed with the unknown key .* by 'bob'"):
        read_release(by_ada, SCHEMA, keys=read_keys([keys / "bob.pub"]))


def test_a_wrong_signature_is_refused_without_keys_too(keys):
    path = signed(keys, "ada", keys / "r.parquet")
    other = signed(keys, "ada", keys / "o.parquet", np.full((2, len(SCHEMA.encoded_names)), 0.5))
    stolen = read_release(other, SCHEMA).signature.signature
    for changes in (
        {"signature": stolen},
        {"signature": "0" * 128},
        {"public_key": next(k for k, name in read_keys([keys]).items() if name == "bob")},
        {"public_key": "f" * 64},
    ):
        signed(keys, "ada", path)
        resign(path, **changes)
        with pytest.raises(
            InputError, match="r.parquet: its signature with the key .* does not fit"
        ):
            read_release(path, SCHEMA)
    resign(signed(keys, "ada", path), signature=None)
    with pytest.raises(InputError, match="both, or neither"):
        read_release(path, SCHEMA)


def test_what_is_signed_is_nothing_else(keys):
    """A signature of the bare digest, as another program might ask for, does not fit."""
    path = signed(keys, "ada", keys / "r.parquet")
    digest = bytes.fromhex(read_release(path, SCHEMA).signature.sha256)
    resign(path, signature=read_signing_key(keys / "ada.key").sign(digest).hex())
    with pytest.raises(InputError, match="does not fit"):
        read_release(path, SCHEMA)


def test_one_release_a_client(keys):
    paths = [
        signed(keys, "ada", keys / f"{i}.parquet", np.full((2, len(SCHEMA.encoded_names)), i / 4))
        for i in range(2)
    ]
    with pytest.raises(InputError, match="1.parquet: signed by 'ada', as is .*0.parquet; one"):
        read_releases(paths, SCHEMA, keys=read_keys([keys]))
    assert len(read_releases(paths, SCHEMA)) == 2


def test_keys_are_private_and_not_overwritten(keys):
    assert stat.S_IMODE((keys / "ada.key").stat().st_mode) == 0o600
    before = (keys / "ada.key").read_bytes()
    with pytest.raises(InputError, match="ada.key: exists"):
        make_keys(keys / "ada.key")
    (keys / "ada.key").unlink()
    with pytest.raises(InputError, match="ada.pub: exists"):
        make_keys(keys / "ada.key")
    make_keys(keys / "ada.key", force=True)
    assert (keys / "ada.key").read_bytes() != before
    with pytest.raises(InputError, match="must end in .key"):
        make_keys(keys / "ada.pem")


def pem(key, password=None):
    s = serialization
    how = s.BestAvailableEncryption(password) if password else s.NoEncryption()
    return key.private_bytes(s.Encoding.PEM, s.PrivateFormat.PKCS8, how)


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (b"", "not a private key"),
        (b"\x00\xff" * 40, "not a private key"),
        (b"a" * 10_001, "larger than the 10000 bytes"),
        (pem(Ed25519PrivateKey.generate(), b"secret"), "unencrypted"),
        (pem(generate_private_key(65537, 2048)), "another kind; must be Ed25519"),
    ],
)
def test_private_key_files_that_are_not(tmp_path, content, complaint):
    (tmp_path / "a.key").write_bytes(content)
    with pytest.raises(InputError, match=f"a.key: .*{complaint}"):
        read_signing_key(tmp_path / "a.key")
    with pytest.raises(InputError, match="none.key: cannot read"):
        read_signing_key(tmp_path / "none.key")


def test_public_key_files_that_are_not(keys, tmp_path):
    garbage, empty = tmp_path / "x.pub", tmp_path / "empty"
    garbage.write_bytes(b"-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----\n")
    empty.mkdir()
    for path, complaint in (
        (garbage, "x.pub: not a public key"),
        (keys / "ada.key", "ada.key: not a public key"),
        (empty, "a folder without public keys"),
        (tmp_path / "none.pub", "none.pub: cannot read"),
    ):
        with pytest.raises(InputError, match=complaint):
            read_keys([path])


def test_each_client_has_a_key_and_a_name_of_its_own(keys, tmp_path):
    (tmp_path / "copy.pub").write_bytes((keys / "ada.pub").read_bytes())
    with pytest.raises(InputError, match="copy.pub: the same key as .*ada.pub"):
        read_keys([keys / "ada.pub", tmp_path / "copy.pub"])
    (tmp_path / "other").mkdir()
    make_keys(tmp_path / "other" / "ada.key")
    with pytest.raises(InputError, match="names the client 'ada', as does"):
        read_keys([keys / "ada.pub", tmp_path / "other" / "ada.pub"])
    bad = tmp_path / "a\x1b.pub"
    bad.write_bytes(b"")
    with pytest.raises(InputError, match="must be printable"):
        read_keys([bad])


def test_without_the_package_signing_names_the_extra(keys, monkeypatch):
    """And unsigned releases need it not at all."""
    signed(keys, None, keys / "u.parquet")
    signed(keys, "ada", keys / "a.parquet")
    for name in [name for name in sys.modules if name.split(".")[0] == "cryptography"]:
        monkeypatch.setitem(sys.modules, name, None)
    sf.release.read_release(keys / "u.parquet", SCHEMA)
    for attempt in (
        lambda: sf.release.read_release(keys / "a.parquet", SCHEMA),
        lambda: sf.release.read_keys([keys]),
        lambda: sf.release.read_signing_key(keys / "ada.key"),
        lambda: sf.release.make_keys(keys / "new.key"),
    ):
        with pytest.raises(sf.InputError, match=r"synthfair\[sign\]"):
            attempt()
    assert not (keys / "new.key").exists()

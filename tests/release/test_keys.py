"""A signature is one client's, and keys are private."""

import json
import re

import numpy as np
import pyarrow.parquet as pq
import pytest
from builders import SCHEMA, some_release
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.rsa import generate_private_key

from synthfair.errors import InputError
from synthfair.release.format import read_release, write_release
from synthfair.release.keys import make_keys, read_keys, read_signing_key
from synthfair.server import read_releases

OTHER_ROWS = np.full((2, len(SCHEMA.encoded_names)), 0.5)


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
    """Change entries of a file's signature, to None for none."""
    metadata = dict(pq.read_schema(path).metadata)
    before = json.loads(metadata[b"synthfair.release.signature"])
    metadata[b"synthfair.release.signature"] = json.dumps(before | changes).encode()
    pq.write_table(pq.read_table(path).replace_schema_metadata(metadata), path)


def test_signature_is_the_clients_and_the_same_each_time(keys):
    trusted = read_keys([keys])
    assert sorted(trusted.values()) == ["ada", "bob"]
    one, other = (signed(keys, "ada", keys / f"{i}.parquet") for i in range(2))
    assert one.read_bytes() == other.read_bytes()
    release = read_release(one, SCHEMA, keys=trusted)
    assert trusted[release.signature.public_key] == "ada"


def test_signer_of_two_releases_is_refused(keys):
    paths = signed(keys, "ada", keys / "0"), signed(keys, "ada", keys / "1", OTHER_ROWS)
    with pytest.raises(InputError, match="1: signed by 'ada', as is .*0"):
        read_releases(paths, SCHEMA, keys=read_keys([keys]))
    assert len(read_releases(paths, SCHEMA)) == 2


@pytest.mark.parametrize(("name", "trusted", "said"), [
    (None, "", "not signed; .*'ada', 'bob'"), ("ada", "bob.pub", "unknown key .*'bob'"),
])  # fmt: skip
def test_signature_that_no_key_knows_is_refused_where_keys_are_given(keys, name, trusted, said):
    path = signed(keys, name, keys / "r.parquet")
    assert (read_release(path, SCHEMA).signature.public_key is None) == (name is None)
    for known, named in ((read_keys([keys / trusted]), said), ({}, "nobody")):
        with pytest.raises(InputError, match=f"r.parquet: .*{named}"):
            read_release(path, SCHEMA, keys=known)


def test_keys_are_private_and_not_overwritten(keys):
    path = keys / "ada.key"
    before, mode = path.read_bytes(), path.stat().st_mode
    assert mode & 0o777 == 0o600
    for there in ("ada.key", "ada.pub"):
        with pytest.raises(InputError, match=f"{there}: exists"):
            make_keys(path)
        path.unlink(missing_ok=True)
    make_keys(path, force=True)
    assert path.read_bytes() != before
    with pytest.raises(InputError, match="ada.pem"):
        make_keys(keys / "ada.pem")


def test_signature_that_is_wrong_is_refused_without_keys_too(keys):
    """Of other rows, of no key, by another key, and of the bare digest, as for another use."""
    path, key = keys / "r.parquet", read_signing_key(keys / "ada.key")
    stolen = read_release(signed(keys, "ada", path, OTHER_ROWS), SCHEMA).signature.signature
    digest = read_release(signed(keys, "ada", path), SCHEMA).signature.sha256
    bob = next(public for public, name in read_keys([keys]).items() if name == "bob")
    signatures = stolen, "0" * 128, key.sign(bytes.fromhex(digest)).hex(), None
    wrong = [{"signature": each} for each in signatures]
    for changes in (*wrong, {"public_key": bob}, {"public_key": "f" * 64}):
        resign(signed(keys, "ada", path), **changes)
        with pytest.raises(InputError, match="r.parquet: .*signature"):
            read_release(path, SCHEMA)


def pem(key, password=None):
    s = serialization
    how = s.BestAvailableEncryption(password) if password else s.NoEncryption()
    return key.private_bytes(s.Encoding.PEM, s.PrivateFormat.PKCS8, how)


PRIVATE = {
    "garbage": (b"\x00\xff" * 40, "not a private key"),
    "long": (b"a" * 10_001, "10000 bytes"),
    "encrypted": (pem(Ed25519PrivateKey.generate(), b"secret"), "unencrypted"),
    "another kind": (pem(generate_private_key(65537, 2048)), "Ed25519"),
}


@pytest.mark.parametrize("case", PRIVATE)
def test_key_file_that_is_no_private_key_is_refused(tmp_path, case):
    content, named = PRIVATE[case]
    (tmp_path / "a.key").write_bytes(content)
    with pytest.raises(InputError, match=f"a.key: .*{named}"):
        read_signing_key(tmp_path / "a.key")


def test_key_file_that_is_no_public_key_of_its_own_is_refused(keys):
    ada, folder = (keys / "ada.pub").read_bytes(), keys / "folder"
    folder.mkdir()
    for name, content, named in (
        ("x.pub", b"-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----\n", "public key"),
        ("ada.key", (keys / "ada.key").read_bytes(), "public key"),
        ("folder", None, "without public keys"),
        ("none", None, "cannot read"),
        ("copy.pub", ada, "the same key as .*ada.pub"),
        ("folder/ada.pub", (keys / "bob.pub").read_bytes(), "'ada', as does .*ada.pub"),
        ("a\x1b.pub", ada, "printable"),
    ):
        if content:
            (keys / name).write_bytes(content)
        with pytest.raises(InputError, match=f"{re.escape(str(keys / name))}: .*{named}"):
            read_keys([keys / "ada.pub", keys / name])

"""Key files: a client's private key, and the public keys by which a server knows its clients."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING

from synthfair.errors import InputError
from synthfair.files import OWNER_ONLY, claimed, read_bytes, whole_file
from synthfair.release.signature import require_cryptography

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

PRIVATE, PUBLIC = ".key", ".pub"
"""Endings of the two files of one client."""

MAX_BYTES = 10_000
"""Of a key file that is read; one of these keys takes some 120."""


def make_keys(path: str | PathLike[str], *, force: bool = False) -> tuple[Path, str]:
    """Writes a new private key, which only its owner may read, and next to it the public key.

    Args:
        path: of the private key, NAME.key; the public one is NAME.pub, and NAME the client.
        force: whether existing files are overwritten.

    Returns:
        The public key's file, and the key in hexadecimal.

    Raises:
        InputError: another ending, a file exists or cannot be written, or cryptography is missing.

    Example:
        >>> import tempfile
        >>> from pathlib import Path
        >>> import synthfair as sf
        >>> folder = tempfile.TemporaryDirectory()
        >>> public_path, public = sf.release.make_keys(Path(folder.name) / "ada.key")
        >>> sf.release.read_keys([public_path]) == {public: "ada"}
        True
        >>> folder.cleanup()
    """
    path = Path(path)
    if path.suffix != PRIVATE:
        raise InputError(f"{path}: the name of a private key must end in {PRIVATE}")
    public_path = path.with_suffix(PUBLIC)
    require_cryptography("making a key")
    from cryptography.hazmat.primitives import serialization as s
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    key = Ed25519PrivateKey.generate()
    private = key.private_bytes(s.Encoding.PEM, s.PrivateFormat.PKCS8, s.NoEncryption())
    public = key.public_key()
    with claimed(path, public_path, force=force):
        with whole_file(path, mode=OWNER_ONLY) as temporary:
            temporary.write_bytes(private)
        with whole_file(public_path) as temporary:
            temporary.write_bytes(
                public.public_bytes(s.Encoding.PEM, s.PublicFormat.SubjectPublicKeyInfo)
            )
    return public_path, public.public_bytes_raw().hex()


def read_signing_key(path: str | PathLike[str]) -> Ed25519PrivateKey:
    """A private key as :func:`make_keys` writes it.

    Args:
        path: of the file, PEM.

    Returns:
        What :func:`write_release` signs with.

    Raises:
        InputError: unreadable, or not an Ed25519 private key without a password.
    """
    require_cryptography("signing")
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    path = Path(path)
    content = read_bytes(path, MAX_BYTES)
    try:
        key = load_pem_private_key(content, password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise InputError(
            f"{path}: not a private key; must be an Ed25519 key in PEM, without a password, as"
            " python -m synthfair keygen writes it"
        ) from error
    if not isinstance(key, Ed25519PrivateKey):
        raise InputError(f"{path}: a key of another kind; must be Ed25519")
    return key


def read_keys(paths: Sequence[str | PathLike[str]]) -> dict[str, str]:
    """The clients that may send releases.

    Args:
        paths: public key files, whose names without ending name the clients; or folders, whose
            ``*.pub`` are read.

    Returns:
        Names by public key in hexadecimal.

    Raises:
        InputError: no key, one is unreadable or not an Ed25519 public key, or a name or a key
            comes twice.
    """
    clients: dict[str, Path] = {}
    for path in _key_files([Path(path) for path in paths]):
        key = _public_key(path)
        if key in clients:
            raise InputError(f"{path}: the same key as {clients[key]}; each client has its own")
        for other in clients.values():
            if other.stem == path.stem:
                raise InputError(
                    f"{path}: names the client {path.stem!r}, as does {other}; rename one"
                )
        clients[key] = path
    return {key: path.stem for key, path in clients.items()}


def _key_files(paths: Sequence[Path]) -> Iterator[Path]:
    if not paths:
        raise InputError("no public keys given")
    for path in paths:
        inside = sorted(path.glob(f"*{PUBLIC}")) if path.is_dir() else [path]
        if not inside:
            raise InputError(f"{path}: a folder without public keys (*{PUBLIC})")
        for file in inside:
            if not file.stem.isprintable():
                raise InputError(f"{file}: the name of a key file must be printable")
            yield file


def _public_key(path: Path) -> str:
    require_cryptography("verifying signatures")
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
    from cryptography.hazmat.primitives.serialization import load_pem_public_key

    content = read_bytes(path, MAX_BYTES)
    if b"PRIVATE KEY" in content:
        raise InputError(f"{path}: a private key, which its owner keeps; give its {PUBLIC} file")
    try:
        key = load_pem_public_key(content)
    except (ValueError, UnsupportedAlgorithm) as error:
        raise InputError(f"{path}: not a public key; must be an Ed25519 key in PEM") from error
    if not isinstance(key, Ed25519PublicKey):
        raise InputError(f"{path}: a key of another kind; must be Ed25519")
    return key.public_bytes_raw().hex()

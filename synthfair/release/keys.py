"""Signatures of clients under the digest of a release (Ed25519, RFC 8032).

The content is the header, from which the columns follow, and the rows. Its digest is

    sha256(RELEASE_DOMAIN | sha256(header) | sha256(rows))

where the header is its bytes as they stand in the file, and the rows are x in C order (float64),
then s where it holds groups, y (int32), and weights (float64) if any, all little-endian. The
digests inside have one length each, so that no two contents share their bytes. What is signed is
RELEASE_DOMAIN followed by the digest: a signature made for something else never fits.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field, model_validator

from synthfair.errors import InputError, named, require
from synthfair.files import OWNER_ONLY, claimed, read_bytes, whole_file
from synthfair.settings import Checked

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

RELEASE_DOMAIN = b"synthfair-release/2\0"
"""The prefix of everything that is hashed or signed for a release."""

Keys = Mapping[str, str]
"""The clients that may send a release: their names, by public key (64 hexadecimal digits)."""

Hex32 = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
"""A text of 32 bytes in hexadecimal."""
_Hex64 = Annotated[str, Field(pattern="^[0-9a-f]{128}$")]


PRIVATE_ENDING, PUBLIC_ENDING = ".key", ".pub"
"""Endings of the two files of one client."""

MAX_KEY_BYTES = 10_000
"""The largest size of a key file that is read; one of these keys takes some 120."""


class Signature(Checked):
    """A release file's statement of its own content, with a signature if it has one.

    Attributes:
        sha256: digest of the content.
        public_key: Ed25519 key of who signed it; None where nobody has.
        signature: of the digest, with that key.
    """

    sha256: Hex32
    public_key: Hex32 | None = None
    signature: _Hex64 | None = None

    @model_validator(mode="after")
    def _signed_or_not(self) -> Signature:
        if (self.public_key is None) != (self.signature is None):
            raise ValueError("public_key and signature must be given both, or neither")
        return self


def sign(
    digest: bytes, key: Ed25519PrivateKey | None = None, *, domain: bytes = RELEASE_DOMAIN
) -> Signature:
    """Return what vouches for content, signed if there is a key: the same bytes each time."""
    if key is None:
        return Signature(sha256=digest.hex())
    public_key, signature = key.public_key().public_bytes_raw(), sign_bytes(domain, digest, key)
    return Signature(sha256=digest.hex(), public_key=public_key.hex(), signature=signature.hex())


def verify(
    signature: Signature, digest: bytes, *, source: str, domain: bytes = RELEASE_DOMAIN
) -> None:
    """Refuse content that was altered, or whose signature, if it has one, is wrong.

    Args:
        signature: as the file has it.
        digest: of the content that was read.
        source: the file, for errors.
        domain: of its use.

    Raises:
        InputError: the content is not what the file says; or the signature does not fit it, or
            cannot be verified for want of the package.
    """
    if signature.sha256 != digest.hex():
        raise InputError(
            f"{source}: altered since it was written: sha256 {digest.hex()}, not {signature.sha256}"
        )
    if signature.public_key is None or signature.signature is None:
        return
    key, value = bytes.fromhex(signature.public_key), bytes.fromhex(signature.signature)
    if not is_signed(domain, digest, value, key):
        raise InputError(
            f"{source}: its signature with the key {signature.public_key} does not fit"
        )


def sign_bytes(domain: bytes, content: bytes, key: Ed25519PrivateKey) -> bytes:
    """Return the Ed25519 signature, 64 bytes, of content for one use; all are made here.

    Each use has a domain of its own, which stands before its content, so that no signature fits
    another use.
    """
    return key.sign(domain + content)


def is_signed(domain: bytes, content: bytes, signature: bytes, key: bytes) -> bool:
    """Return whether a signature is that of :func:`sign_bytes` by whoever has this public key.

    Raises:
        InputError: the package cryptography is not installed.
    """
    require("cryptography", "verifying signatures", "sign")
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    try:
        Ed25519PublicKey.from_public_bytes(key).verify(signature, domain + content)
    except (InvalidSignature, ValueError):
        return False
    return True


def require_signer(signature: Signature, keys: Keys, *, source: str) -> str:
    """Return the client that signed a verified release.

    Raises:
        InputError: it is signed with none of the keys.
    """
    clients = named([*map(repr, sorted(keys.values()))]) or "nobody: there are no keys"
    key = signature.public_key
    if key is None or key not in keys:
        said = f"signed with the unknown key {key}" if key else "not signed"
        raise InputError(f"{source}: {said}; must be signed by {clients}")
    return keys[key]


def make_keys(path: str | PathLike[str], *, force: bool = False) -> tuple[Path, str]:
    """Write a new private key, which only its owner may read, and next to it the public key.

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
    if path.suffix != PRIVATE_ENDING:
        raise InputError(f"{path}: the name of a private key must end in {PRIVATE_ENDING}")
    public_path = path.with_suffix(PUBLIC_ENDING)
    require("cryptography", "making a key", "sign")
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
    """Return a private key as :func:`make_keys` writes it.

    Args:
        path: of the file, PEM.

    Returns:
        What :func:`write_release` signs with.

    Raises:
        InputError: unreadable, or not an Ed25519 private key without a password.
    """
    return _loaded(Path(path), private=True)


def read_keys(paths: Sequence[str | PathLike[str]]) -> dict[str, str]:
    """Return the clients that may send releases.

    Args:
        paths: public key files, whose names without ending name the clients; or folders, whose
            ``*.pub`` are read.

    Returns:
        Names by public key in hexadecimal.

    Raises:
        InputError: no key, one is unreadable or not an Ed25519 public key, or a name or a key
            comes twice.
    """
    if not paths:
        raise InputError("no public keys given")
    clients: dict[str, Path] = {}
    for path in map(Path, paths):
        files = sorted(path.glob(f"*{PUBLIC_ENDING}")) if path.is_dir() else [path]
        if not files:
            raise InputError(f"{path}: a folder without public keys (*{PUBLIC_ENDING})")
        for file in files:
            name = file.stem
            if not name.isprintable():
                raise InputError(f"{file}: the name of a key file must be printable")
            public = _loaded(file, private=False)
            key = public.public_bytes_raw().hex()
            if key in clients:
                raise InputError(f"{file}: the same key as {clients[key]}; each client has its own")
            if same := [other for other in clients.values() if other.stem == name]:
                raise InputError(
                    f"{file}: names the client {name!r}, as does {same[0]}; rename one"
                )
            clients[key] = file
    return {key: path.stem for key, path in clients.items()}


def _loaded(path: Path, *, private: bool) -> Any:
    """Return the Ed25519 key in a file, the private or the public one of a client."""
    require("cryptography", "signatures", "sign")
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives import serialization as s
    from cryptography.hazmat.primitives.asymmetric.ed25519 import (
        Ed25519PrivateKey,
        Ed25519PublicKey,
    )

    content = read_bytes(path, MAX_KEY_BYTES)
    try:
        key = s.load_pem_private_key(content, None) if private else s.load_pem_public_key(content)
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        words = f"{'private' if private else 'public'} key as keygen writes it"
        raise InputError(f"{path}: not a {words}; must be Ed25519 in PEM, unencrypted") from error
    if not isinstance(key, Ed25519PrivateKey if private else Ed25519PublicKey):
        raise InputError(f"{path}: a key of another kind; must be Ed25519")
    return key

"""What vouches for a release: the sha256 of its content, and a signature (Ed25519, RFC 8032).

The content is the header, the column names and the rows. Its digest is

    sha256(DOMAIN | sha256(header) | sha256(names) | sha256(rows))

where the header is its bytes as they stand in the file, the names are a JSON list, and the rows
are x in C order (float64), then s, then y (int32), all little-endian. The digests inside have one
length each, so that no two contents share their bytes. What is signed is DOMAIN followed by the
digest: a signature made for something else never fits.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, model_validator

from synthfair.errors import InputError

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

DOMAIN = b"synthfair-release/2\0"
"""Stands before everything that is hashed or signed for a release."""

EXTRA = "synthfair[sign]"

Keys = Mapping[str, str]
"""The clients that may send a release: their names, by public key (64 hexadecimal digits)."""

_Hex32 = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
_Hex64 = Annotated[str, Field(pattern="^[0-9a-f]{128}$")]


class Seal(BaseModel):
    """What a release file says of its own content.

    Attributes:
        sha256: digest of the content.
        public_key: Ed25519 key of who signed it; None where nobody has.
        signature: of the digest, with that key.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    sha256: _Hex32
    public_key: _Hex32 | None = None
    signature: _Hex64 | None = None

    @model_validator(mode="after")
    def _signed_or_not(self) -> Seal:
        if (self.public_key is None) != (self.signature is None):
            raise ValueError("public_key and signature must be given both, or neither")
        return self


def rows_digest(x: np.ndarray, s: np.ndarray, y: np.ndarray) -> bytes:
    """sha256 of rows x [N, d], s [N], y [N] in the layout above."""
    digest = hashlib.sha256(np.ascontiguousarray(x, "<f8").data)
    for column in (s, y):
        digest.update(np.ascontiguousarray(column, "<i4").data)
    return digest.digest()


def content_digest(header: bytes, names: Sequence[str], rows: bytes) -> bytes:
    """The digest of a release.

    Args:
        header: as it stands in the file.
        names: of the features.
        rows: see :func:`rows_digest`.
    """
    # With its non-ASCII characters escaped, a name that is no valid Unicode has bytes as well.
    parts = (header, json.dumps(list(names)).encode())
    return hashlib.sha256(
        DOMAIN + b"".join(hashlib.sha256(part).digest() for part in parts) + rows
    ).digest()


def make_seal(digest: bytes, key: Ed25519PrivateKey | None = None) -> Seal:
    """A seal for this content, signed if there is a key; the same key gives the same bytes."""
    if key is None:
        return Seal(sha256=digest.hex())
    return Seal(
        sha256=digest.hex(),
        public_key=key.public_key().public_bytes_raw().hex(),
        signature=key.sign(DOMAIN + digest).hex(),
    )


def check_seal(seal: Seal, digest: bytes, keys: Keys | None, *, source: str) -> None:
    """Refuses content that is not what was sealed, or comes from none of the clients.

    A wrong signature is refused whether or not keys are given.

    Args:
        seal: as the file has it.
        digest: of the content that was read.
        keys: of the clients; anybody may send, signed or not, if not given.
        source: the file, for errors.

    Raises:
        InputError: the content was altered; the signature does not fit it, or cannot be verified
            for want of the package; or there are keys, and this is signed with none of them.
    """
    if seal.sha256 != digest.hex():
        raise InputError(
            f"{source}: altered since it was written: its content has sha256 {digest.hex()}, and"
            f" its seal says {seal.sha256}"
        )
    if seal.public_key is not None and not _fits(seal, digest, source):
        raise InputError(
            f"{source}: its signature with the key {seal.public_key} does not fit its content;"
            " must be what that key makes of it"
        )
    if keys is None:
        return
    if seal.public_key is None:
        raise InputError(f"{source}: not signed; must be signed by {_one_of(keys)}")
    if seal.public_key not in keys:
        raise InputError(
            f"{source}: signed with the unknown key {seal.public_key}; must be signed by"
            f" {_one_of(keys)}"
        )


def _fits(seal: Seal, digest: bytes, source: str) -> bool:
    require_cryptography(f"{source}: is signed; verifying that")
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    try:
        key = Ed25519PublicKey.from_public_bytes(bytes.fromhex(seal.public_key or ""))
        key.verify(bytes.fromhex(seal.signature or ""), DOMAIN + digest)
    except (InvalidSignature, ValueError):
        return False
    return True


def _one_of(keys: Keys) -> str:
    names, shown = sorted(keys.values()), 5
    more = f" or {len(names) - shown} others" if len(names) > shown else ""
    return ", ".join(map(repr, names[:shown])) + more if names else "nobody: there are no keys"


def require_cryptography(purpose: str) -> None:
    """Refuses to go on without the package, which is an optional extra.

    Raises:
        InputError: it is not installed; the message names the extra.
    """
    try:
        import cryptography  # noqa: F401
    except ImportError as error:
        raise InputError(
            f"{purpose} needs the package cryptography: pip install '{EXTRA}'"
        ) from error

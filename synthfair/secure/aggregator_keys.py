"""Keys of aggregators: one to decrypt what clients send, one to sign partial sums."""

from __future__ import annotations

import secrets
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from pydantic import Field, ValidationError

from synthfair.errors import InputError
from synthfair.files import (
    OWNER_ONLY,
    claimed,
    parse_as,
    read_bytes,
    read_document,
    whole_file,
    write_json,
)
from synthfair.release.keys import MAX_BYTES, PRIVATE, PUBLIC, Hex32
from synthfair.settings import Checked

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey


RECORDS, OWNER, ANSWERS = ".answers", "owner.id", "synthfair-answers/1"
"""Ending of an aggregator's folder of answers; the file in it that says whose it is; its format."""


class AggregatorKeys(Checked):
    """The public keys of an aggregator.

    Attributes:
        encryption: X25519 public key, to which clients encrypt (HPKE).
        signature: Ed25519 public key, with which partial sums are verified.
    """

    format: Literal["synthfair-aggregator/1"] = "synthfair-aggregator/1"
    encryption: Hex32
    signature: Hex32


class AggregatorSecret(Checked):
    """The private keys of an aggregator.

    Attributes:
        encryption: X25519 private key.
        signature: Ed25519 private key.
        records: random, also in the folder of answers, so that one made anew is not taken for it.
    """

    format: Literal["synthfair-aggregator-secret/3"] = "synthfair-aggregator-secret/3"
    encryption: Hex32 = Field(repr=False)
    signature: Hex32 = Field(repr=False)
    records: Hex32 = Field(repr=False)

    @property
    def decryption_key(self) -> X25519PrivateKey:
        """The private key that decrypts uploads (HPKE)."""
        from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

        return X25519PrivateKey.from_private_bytes(bytes.fromhex(self.encryption))

    @property
    def signing_key(self) -> Ed25519PrivateKey:
        """The private key that signs partial sums."""
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

        return Ed25519PrivateKey.from_private_bytes(bytes.fromhex(self.signature))

    @cached_property
    def public(self) -> AggregatorKeys:
        """The public keys of both."""
        require_hpke("an aggregator's key")
        keys = self.decryption_key.public_key(), self.signing_key.public_key()
        encryption, signature = (key.public_bytes_raw().hex() for key in keys)
        return AggregatorKeys(encryption=encryption, signature=signature)


def make_aggregator_keys(path: Path, *, force: bool = False) -> tuple[Path, AggregatorKeys]:
    """Writes new private keys, which only their owner may read, and next to them the public ones.

    Their folder of answers is made, too, and no other folder is taken for it: an aggregator without
    it does not know what it has answered.

    Args:
        path: of the private keys, NAME.key; the public ones are in NAME.pub, the answers in
            NAME.answers.
        force: whether existing files are overwritten.

    Returns:
        The public file, and the keys in it.

    Raises:
        InputError: another ending, a file exists or cannot be written, or cryptography is missing.
    """
    if path.suffix != PRIVATE:
        raise InputError(f"{path}: the name of a private key must end in {PRIVATE}")
    secret, public_path = new_aggregator_secret(), path.with_suffix(PUBLIC)
    with claimed(path, public_path, path.with_suffix(RECORDS) / OWNER, force=force):
        make_records(path.with_suffix(RECORDS), secret)
        with whole_file(path, mode=OWNER_ONLY) as temporary:
            temporary.write_text(secret.model_dump_json(indent=2) + "\n", encoding="utf-8")
        write_json(public_path, secret.public.model_dump(mode="json"))
    return public_path, secret.public


def make_records(folder: Path, secret: AggregatorSecret) -> None:
    """Makes the folder of an aggregator's answers, with the id in it that its secret names."""
    folder.mkdir(parents=True, exist_ok=True)
    write_json(folder / OWNER, _owner(secret), mode=OWNER_ONLY)


def require_records(folder: Path, secret: AggregatorSecret) -> None:
    """Refuses a folder of answers that was not made with these keys.

    Raises:
        InputError: it is missing, or another aggregator's.
    """
    try:
        if read_document(folder / OWNER, MAX_BYTES) == _owner(secret):
            return
    except InputError:
        pass
    raise InputError(
        f"{folder}: not the folder of this key's answers, as keygen makes one with a key. If that"
        " is lost, nobody knows what this key has answered: make new keys"
    )


def _owner(secret: AggregatorSecret) -> dict[str, str]:
    return {"format": ANSWERS, "records": secret.records}


def new_aggregator_secret() -> AggregatorSecret:
    """New keys, by the system's entropy; without a folder of answers, see :func:`make_records`.

    Example:
        >>> from synthfair import secure
        >>> len(secure.new_aggregator_secret().public.encryption)
        64
    """
    encryption, signature, records = (secrets.token_hex(32) for _ in range(3))
    return AggregatorSecret(encryption=encryption, signature=signature, records=records)


def read_aggregator_secret(path: Path) -> AggregatorSecret:
    """The private keys that :func:`make_aggregator_keys` wrote.

    Raises:
        InputError: unreadable, or not such a file; no key is shown.
    """
    try:
        return AggregatorSecret.model_validate(read_document(path, MAX_BYTES))
    except ValidationError as error:  # whose message would show the keys
        raise InputError(
            f"{path}: not an aggregator's private keys, as python -m synthfair keygen writes them"
            " for an aggregator"
        ) from error


def read_aggregator_keys(path: Path) -> AggregatorKeys:
    """The public keys that :func:`make_aggregator_keys` wrote.

    Raises:
        InputError: unreadable, or not such a file.
    """
    content = read_bytes(path, MAX_BYTES)
    if b"synthfair-aggregator-secret/" in content:
        raise InputError(f"{path}: private keys, which stay with their owner; give the {PUBLIC}")
    return parse_as(content, AggregatorKeys, str(path))


def read_aggregator_folder(folder: Path) -> dict[str, AggregatorKeys]:
    """The public keys in a folder, by name, NAME.pub; the order of the names is that of the roles.

    Raises:
        InputError: there are not two or three, or one is unreadable, or not such a file.
    """
    keys = {path.stem: read_aggregator_keys(path) for path in sorted(folder.glob(f"*{PUBLIC}"))}
    if len(keys) not in (2, 3):
        raise InputError(f"{folder}: has {len(keys)} keys of aggregators; must have two or three")
    return keys


def require_hpke(purpose: str) -> None:
    """Refuses to go on without a version of ``cryptography`` that has HPKE.

    Raises:
        InputError: it is not installed; the message names the extra.
    """
    try:
        from cryptography.hazmat.primitives import hpke  # noqa: F401
    except ImportError as error:
        raise InputError(
            f"{purpose} needs cryptography 47 or later: pip install 'synthfair[secure]'"
        ) from error

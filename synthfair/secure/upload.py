"""An upload of a client to one aggregator: a share, encrypted to it, signed by the client.

    header | HPKE ciphertext of the share | signature

The header is of fixed length: format, task, role, the client's public key, and a nonce that all
messages of one sharing have in common. HPKE (RFC 9180, base mode: X25519, HKDF-SHA256, AES-128-GCM)
takes the header as its ``info``, so that a share under another header cannot be decrypted. The
client's Ed25519 signature covers header and ciphertext. All uploads of a task have one length.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

import numpy as np

from synthfair.errors import InputError
from synthfair.privacy.noise import RandomBytes, system_entropy
from synthfair.release.keys import is_signed, sign_bytes
from synthfair.secure.task import AggregatorSecret, SumTask, require_hpke

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.hpke import Suite

UPLOAD_FORMAT = b"synthfair-upload/1\0"
NONCE_BYTES = 16
_HEADER = struct.Struct(f"<{len(UPLOAD_FORMAT)}s32sB32s{NONCE_BYTES}s")
_HPKE_BYTES, _SIGNATURE_BYTES = 32 + 16, 64


def upload_bytes(task: SumTask) -> int:
    """Return the length of every upload of a task."""
    return _HEADER.size + task.sharing.message_bytes + _HPKE_BYTES + _SIGNATURE_BYTES


def make_uploads(
    task: SumTask, vector: np.ndarray, key: Ed25519PrivateKey, source: RandomBytes = system_entropy
) -> list[bytes]:
    """Return a client's part as one upload for each aggregator.

    Guarantee: all uploads but the one to an aggregator say nothing of the vector to it, as far as
    HPKE and SHAKE256 cannot be broken.

    Args:
        task: of which it is a part; its aggregators together can read it, so that they must be the
            agreed ones, see ``task.require_agreed``.
        vector: [k] int64; of :func:`count_table`, or ``task.what.integers``.
        key: of the client.
        source: of the nonce and the shares, which nobody else may know.

    Raises:
        InputError: the task does not know the client, the vector is none of its parts, or nothing
            can be encrypted to an aggregator's key.
    """
    require_hpke("a secure sum")
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PublicKey

    client = key.public_key().public_bytes_raw()
    if client not in task.client_keys:
        raise InputError(f"key: {client.hex()} is none of the clients that the task knows")
    task.what.require_part(vector)
    nonce, uploads = source(NONCE_BYTES), []
    for role, message in enumerate(task.sharing.split(vector, source)):
        header = _HEADER.pack(UPLOAD_FORMAT, task.id, role, client, nonce)
        public = bytes.fromhex(task.aggregators[role].encryption)
        try:
            encrypted = _suite().encrypt(message, X25519PublicKey.from_public_bytes(public), header)
        except ValueError as error:  # of low order: everybody knows the secret that is agreed on
            raise InputError(
                f"task {task.id.hex()}: the encryption key {public.hex()} of aggregator {role} is"
                " unsafe; must be one that keygen makes"
            ) from error
        content = header + encrypted
        uploads.append(
            content + sign_bytes(UPLOAD_FORMAT, content.removeprefix(UPLOAD_FORMAT), key)
        )
    return uploads


def verify_upload(
    content: bytes, task: SumTask, role: int, *, source: str = "upload"
) -> tuple[bytes, bytes]:
    """Return who sent an upload, verified without reading its share, as anybody can.

    Args:
        content: of the file.
        task: that it must be of.
        role: of the aggregator that it must be for.
        source: the file, for errors.

    Returns:
        The client's Ed25519 public key, 32 bytes, and the nonce of the sharing, 16 bytes.

    Raises:
        InputError: another length; of another task or for another aggregator; of an unknown client;
            or altered, or not signed by that client.
    """
    size = upload_bytes(task)
    if len(content) != size or not content.startswith(UPLOAD_FORMAT):
        raise InputError(
            f"{source}: not an upload of this task, whose uploads have {size} bytes; has"
            f" {len(content)}"
        )
    _, task_id, recipient, client, nonce = _HEADER.unpack(content[: _HEADER.size])
    if task_id != task.id:
        raise InputError(
            f"{source}: of another task, {task_id.hex()}; must be of {task.id.hex()}. Tasks differ"
            " where their model, schema, bins or epsilon do"
        )
    if recipient != role:
        raise InputError(f"{source}: for aggregator {recipient}; this is aggregator {role}")
    if client not in task.client_keys:
        raise InputError(f"{source}: of the client {client.hex()}, whom the task does not know")
    signed, signature = content[len(UPLOAD_FORMAT) : -_SIGNATURE_BYTES], content[-_SIGNATURE_BYTES:]
    if not is_signed(UPLOAD_FORMAT, signed, signature, client):
        raise InputError(f"{source}: altered, or not signed by the client {client.hex()} it names")
    return client, nonce


def read_upload(
    content: bytes, task: SumTask, secret: AggregatorSecret, *, source: str = "upload"
) -> tuple[bytes, bytes, np.ndarray]:
    """Return an upload's share, verified and decrypted; nothing is trusted before its signature.

    Args:
        content: of the file.
        task: that it must be of.
        secret: of the aggregator that it must be for.
        source: the file, for errors.

    Returns:
        The client's public key and the nonce, as :func:`verify_upload` returns them, and the share
        [k] uint64.

    Raises:
        InputError: as :func:`verify_upload`; or encrypted to another key.
    """
    role = task.role_of(secret.public)
    client, nonce = verify_upload(content, task, role, source=source)
    from cryptography.exceptions import InvalidTag

    header, encrypted = content[: _HEADER.size], content[_HEADER.size : -_SIGNATURE_BYTES]
    source = f"{source}: of the client {client.hex()}"
    try:
        message = _suite().decrypt(encrypted, secret.decryption_key, header)
    except (InvalidTag, ValueError) as error:
        raise InputError(f"{source}: cannot be decrypted; encrypted to another key") from error
    return client, nonce, task.sharing.share(message, role, source=source)


def _suite() -> Suite:
    from cryptography.hazmat.primitives.hpke import AEAD, KDF, KEM, Suite

    return Suite(KEM.X25519, KDF.HKDF_SHA256, AEAD.AES_128_GCM)

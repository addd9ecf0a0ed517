"""Additive shares modulo 2^64: none of them alone says anything about the vector they add up to.

Of a vector v of k integers, all aggregators but the first get a random seed s_j of 32 bytes, and
the first gets what is missing:

    share_j = XOF(s_j),    share_0 = v - sum_j XOF(s_j)    mod 2^64,

where XOF is SHAKE256 over the task, the role and the seed. A message with a seed is padded to the
length of one with a full share, so that lengths say nothing. The construction is that of Prio
(Corrigan-Gibbs and Boneh 2017) and of Prio3 in draft-irtf-cfrg-vdaf, without its proofs.
"""

from __future__ import annotations

import hashlib
from typing import NamedTuple

import numpy as np

from synthfair.errors import InputError
from synthfair.privacy.noise import RandomBytes, system_entropy

SHARE_DOMAIN = b"synthfair-share/1\0"
SHARE_SEED_BYTES = 32


class Sharing(NamedTuple):
    """The parameters by which the vectors of one task are split into shares.

    Attributes:
        task: 32 bytes, of no other task.
        length: k, of the vectors.
        roles: number of aggregators, 2 or more; they are 0, 1, ... The messages of role 0
            hold a full share, those of the others seeds.

    Example:
        >>> import numpy as np
        >>> from synthfair.secure.shares import Sharing
        >>> sharing = Sharing(bytes(32), length=5, roles=2)
        >>> messages = sharing.split(np.array([3, 0, -1, 0, 9]))
        >>> [len(message) for message in messages]
        [40, 40]
        >>> shares = [sharing.share(message, role) for role, message in enumerate(messages)]
        >>> sum(shares).view(np.int64).tolist()
        [3, 0, -1, 0, 9]
    """

    task: bytes
    length: int
    roles: int

    @property
    def message_bytes(self) -> int:
        """Length of every message, whatever its role."""
        return max(8 * self.length, SHARE_SEED_BYTES)

    def split(self, vector: np.ndarray, source: RandomBytes = system_entropy) -> list[bytes]:
        """Split a vector into one message for each role, and return these.

        Guarantee: the messages of all roles but one are independent of the vector, as far as
        SHAKE256 cannot be distinguished from a random function.

        Args:
            vector: [k] int64.
            source: of the seeds; another one than the system's is for tests alone.

        Raises:
            ValueError: another shape or type.
        """
        if vector.shape != (self.length,) or vector.dtype != np.int64:
            raise ValueError(
                f"vector: {vector.dtype} {vector.shape}; must be int64 ({self.length},)"
            )
        seeds = [source(SHARE_SEED_BYTES) for _ in range(1, self.roles)]
        full = vector.astype(np.uint64)
        for role, seed in enumerate(seeds, 1):
            full -= self._expanded(seed, role)
        messages = full.astype("<u8").tobytes(), *seeds
        return [message.ljust(self.message_bytes, b"\0") for message in messages]

    def share(self, message: bytes, role: int, *, source: str = "message") -> np.ndarray:
        """Return the share [k] uint64 that a message for this role stands for.

        Raises:
            InputError: another length, or other padding than zeros; the message names ``source``.
        """
        size = SHARE_SEED_BYTES if role else 8 * self.length
        if len(message) != self.message_bytes or any(message[size:]):
            raise InputError(
                f"{source}: {len(message)} bytes inside; must be {size}, with zeros up to"
                f" {self.message_bytes}"
            )
        content = message[:size]
        return self._expanded(content, role) if role else np.frombuffer(content, "<u8")

    def _expanded(self, seed: bytes, role: int) -> np.ndarray:
        stream = hashlib.shake_256(SHARE_DOMAIN + self.task + bytes([role]) + seed)
        return np.frombuffer(stream.digest(8 * self.length), "<u8")

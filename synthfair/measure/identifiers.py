"""Finds report ids that came before, in memory that does not grow: a blocked Bloom filter.

An id sets four bits of one word of 64 (Bloom 1970; Putze, Sanders and Singler 2009), so that it
costs one access to memory. Every repeated id is found. The price of constant memory is that some
new ones are taken for repeated: :meth:`SeenIds.lost_share`. Which ones does not depend on what they
report, so the estimates stay unbiased, and all are counted as rejected. Ids are hashed with keys
of their own each time: nobody can make ids that hide others.
"""

from __future__ import annotations

import math

import numpy as np

from synthfair.errors import InputError
from synthfair.privacy.noise import RandomBytes, system_entropy

HASHES, WORD = 4, 64
"""Bits of an id, and of the word in which they are."""

PARTS = 8
"""Of 32 bits, of an id as text."""

SMALLEST_BYTES, LARGEST_BYTES = 2**10, 2**36
DEFAULT_BYTES = 2**27
"""Takes 10^7 ids with six in 100,000 lost at the end, and 10^8 with one in fifty."""


class SeenIds:
    """The ids so far."""

    def __init__(self, size: int = DEFAULT_BYTES, source: RandomBytes = system_entropy) -> None:
        """None yet.

        Args:
            size: bytes of memory; the largest power of two of at most so many is used.
            source: of the hashes' keys.

        Raises:
            InputError: a size outside the range.
        """
        if not SMALLEST_BYTES <= size <= LARGEST_BYTES:
            raise InputError(
                f"id memory = {size} bytes: must be {SMALLEST_BYTES} to {LARGEST_BYTES}"
            )
        self._words = np.zeros(2 ** (size.bit_length() - 1) // 8, np.uint64)
        self._keys = np.frombuffer(source(16 * (PARTS + 1)), np.uint64).reshape(2, PARTS + 1)
        self.accepted = 0

    def new(self, ids: np.ndarray) -> np.ndarray:
        """Which of the ids [N, 32], bytes, were not there before; and remembers those."""
        from pandas import Index

        hashes = self._hashed(ids)
        place, bits = self._places(hashes)
        found = (self._words[place] & bits) != bits
        found &= ~Index(hashes).duplicated()
        np.bitwise_or.at(self._words, place[found], bits[found])
        self.accepted += int(found.sum())
        return found

    def lost_share(self) -> float:
        """Probability that the next new id would be taken for a repeated one.

        A word holds n ids with Poisson's probability, and n of them set a bit that another one
        needs with probability 1 - (1 - 1/64)^(4 n), each of four.
        """
        load, lost = self.accepted / len(self._words), 0.0
        for n in range(1, math.ceil(load + 10 * math.sqrt(load)) + 20):
            chance = math.exp(n * math.log(load) - load - math.lgamma(n + 1)) if load else 0.0
            lost += chance * (1 - (1 - 1 / WORD) ** (HASHES * n)) ** HASHES
        return lost

    def _hashed(self, ids: np.ndarray) -> np.ndarray:
        """[N] numbers of 64 bits, each half (k_0 + sum of k_i times part i) mod 2^64 >> 32.

        For ids that know nothing of the keys, a half is the same for two of them with probability
        2^-32: it is strongly universal (Dietzfelbinger 1996).
        """
        parts = np.ascontiguousarray(ids).view(np.uint32).T.astype(np.uint64)
        first, second = (
            keys[0] + sum(key * part for key, part in zip(keys[1:], parts, strict=True))
            for keys in self._keys
        )
        return first >> np.uint64(32) << np.uint64(32) | second >> np.uint64(32)

    def _places(self, hashes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Words [N], of the hashes' upper bits, and the bits [N] in them, of the lower ones."""
        bits = np.zeros(len(hashes), np.uint64)
        for shift in range(0, 6 * HASHES, 6):
            bits |= np.uint64(1) << (hashes >> np.uint64(shift) & np.uint64(WORD - 1))
        return hashes >> np.uint64(6 * HASHES) & np.uint64(len(self._words) - 1), bits

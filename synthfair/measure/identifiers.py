"""Finds report ids that came before, in memory that does not grow: a Bloom filter.

Every repeated id is found. The price of constant memory is that some new ones are taken for
repeated: of N ids, the last with probability (1 - e^(-4 N / bits))^4, Bloom (1970). Which ones
does not depend on what they report, so the estimates stay unbiased, and all are counted as
rejected. Ids are hashed with a key of their own each time: nobody can make ids that hide others.
"""

from __future__ import annotations

import math

import numpy as np

from synthfair.errors import InputError
from synthfair.privacy.noise import RandomBytes, system_entropy

HASHES = 4
SMALLEST_BYTES, LARGEST_BYTES = 2**10, 2**36
DEFAULT_BYTES = 2**27
"""Takes 10^7 ids with two in a million lost at the end, and 10^8 with one in a hundred."""


class SeenIds:
    """The ids so far.

    Args:
        size: bytes of memory; the largest power of two of at most so many is used.
        source: of the key.

    Raises:
        InputError: a size outside the range.
    """

    def __init__(self, size: int = DEFAULT_BYTES, source: RandomBytes = system_entropy) -> None:
        """None."""
        if not SMALLEST_BYTES <= size <= LARGEST_BYTES:
            raise InputError(f"id memory = {size}: must be {SMALLEST_BYTES} to {LARGEST_BYTES}")
        self._bits = np.zeros(2 ** (size.bit_length() - 1), np.uint8)
        self._key = source(8).hex()  # pandas takes 16 characters
        self.accepted = 0

    def new(self, ids: np.ndarray) -> np.ndarray:
        """Which of the ids [N], texts, were not there before; and remembers those."""
        from pandas import Index
        from pandas.util import hash_array

        if not len(ids):
            return np.zeros(0, bool)
        hashes = hash_array(ids.astype(object), hash_key=self._key, categorize=False)
        found = ~Index(hashes).duplicated()
        places = self._places(hashes[found])
        unseen = np.zeros(places.shape[1], bool)
        for place in places:
            unseen |= self._bits[place >> np.uint64(3)] & _bit(place) == 0
        self._set(places[:, unseen].ravel())
        found[found] = unseen
        self.accepted += int(unseen.sum())
        return found

    def lost_share(self) -> float:
        """Probability that the next new id would be taken for a repeated one."""
        filled = -math.expm1(-HASHES * self.accepted / (8 * len(self._bits)))
        return filled**HASHES

    def _set(self, places: np.ndarray) -> None:
        while len(places):  # of two bits in one byte, one assignment keeps only the last
            byte, bit = places >> np.uint64(3), _bit(places)
            self._bits[byte] |= bit
            places = places[self._bits[byte] & bit == 0]

    def _places(self, hashes: np.ndarray) -> np.ndarray:
        """[4, N] bits, by double hashing (Kirsch and Mitzenmacher 2006)."""
        second = (_mixed(hashes) | np.uint64(1))[None, :]
        steps = np.arange(HASHES, dtype=np.uint64)[:, None]
        return (hashes[None, :] + steps * second) & np.uint64(8 * len(self._bits) - 1)


def _bit(place: np.ndarray) -> np.ndarray:
    return np.uint8(1) << (place & np.uint64(7)).astype(np.uint8)


def _mixed(hashes: np.ndarray) -> np.ndarray:
    """Another hash of the hash: the finaliser of Steele, Lea and Flood's (2014) SplitMix."""
    mixed = (hashes ^ (hashes >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return mixed ^ (mixed >> np.uint64(31))

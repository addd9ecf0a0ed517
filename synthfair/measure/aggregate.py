"""Reports of any number of devices, checked and added up in constant memory."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, TYPE_CHECKING

import numpy as np

from synthfair.errors import InputError
from synthfair.measure.collection import Collection
from synthfair.measure.report_files import Batch, read_batches
from synthfair.measure.reports import COLUMNS, ID_BYTES
from synthfair.measure.tally import Tally, empty_tally, tally
from synthfair.privacy.noise import RandomBytes, system_entropy

if TYPE_CHECKING:
    import pyarrow as pa

REASONS = (
    "wrong number of columns",
    "missing",
    "another collection",
    "unknown group",
    "value not possible",
    "not a report id",
    "repeated report",
)
"""Why a report may be rejected."""

NUMBER = r"^[-+]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][-+]?[0-9]+)?$"
"""What is read as a number; Python would also accept 1_0 and the digits of other scripts."""

HASHES, WORD = 4, 64
"""Bits that an id sets, and bits of a word."""

PARTS = 8
"""Of 32 bits each, in the text of an id."""

SMALLEST_BYTES, LARGEST_BYTES = 2**10, 2**36
DEFAULT_BYTES = 2**27
"""Loses 6 in 100,000 ids at the end of 10^7, and one in 50 at the end of 10^8."""


@dataclass
class Collected:
    """The sums of the accepted reports so far, and counts of the rejected ones.

    Attributes:
        tally: of the accepted reports.
        rejected: number of rejected reports, by reason.
        examples: the first rejected report of each reason: file, row and problem.
        ids: of the accepted reports; None if repeated reports are not looked for.
    """

    tally: Tally
    rejected: dict[str, int] = field(default_factory=lambda: dict.fromkeys(REASONS, 0))
    examples: dict[str, str] = field(default_factory=dict)
    ids: SeenIds | None = None

    def reject(self, why: str, count: int, example: str) -> None:
        """Adds to the count of a reason, and stores its first example."""
        self.rejected[why] += count
        self.examples.setdefault(why, example)


def aggregate_reports(
    paths: Sequence[Path | IO[bytes]], collection: Collection, ids: SeenIds | None
) -> Collected:
    r"""Reads reports in batches and adds them up; memory does not grow with their number.

    Files are CSV or Parquet, recognised by their first bytes; a stream is CSV. Reports that are
    malformed, repeated or of another collection are rejected and counted. Blank lines of CSV are
    ignored.

    Args:
        paths: files, or open streams of bytes.
        collection: the public file.
        ids: finds repeated reports; with None nobody looks for them, and ids may be absent.

    Raises:
        InputError: a file cannot be read, or lacks a column.

    Example:
        >>> import io
        >>> import synthfair as sf
        >>> mechanism = sf.measure.RandomizedValue(2, 1.0, 1.0)
        >>> public = sf.measure.make_collection(("f", "m"), mechanism)
        >>> lines = f"{public.fingerprint},f,1\n{public.fingerprint},x,1\n"
        >>> file = io.BytesIO(("collection,group,value\n" + lines).encode())
        >>> found = sf.measure.aggregate_reports([file], public, ids=None)
        >>> found.tally.reports, found.rejected["unknown group"]
        (1, 1)
    """
    found = Collected(empty_tally(len(collection.groups)), ids=ids)
    wanted = COLUMNS if ids else COLUMNS[1:]
    for path in paths:
        for batch in read_batches(path, wanted):
            _add(found, batch, collection)
    return found


def _add(found: Collected, batch: Batch, collection: Collection) -> None:
    """Checks the reports of a batch, and adds those that pass."""
    for place, problem in batch.broken.items():
        where = f"{batch.name}: row {batch.first + place}"
        found.reject("wrong number of columns", 1, f"{where}: {problem}")
    check = _Check(found, batch)
    mark, mechanism = collection.fingerprint, collection.make_mechanism()
    own = _indices(batch.rows.column("collection"), (mark,)) == 0
    check.require(own, "another collection", "collection", f"must be {mark}, of the public file")
    group = _indices(batch.rows.column("group"), collection.groups)
    names = ", ".join(collection.groups)[:80]
    check.require(group >= 0, "unknown group", "group", f"must be one of {names}")
    value, limit = _numbers(batch.rows.column("value")), mechanism.limit
    randomized = collection.mechanism == "randomized"
    allowed = "-1 or 1" if randomized else f"a number from {-limit:g} to {limit:g}"
    check.require(mechanism.possible(value), "value not possible", "value", f"must be {allowed}")
    if found.ids is not None:
        ids, is_id = _ids(batch.rows.column("report"))
        digits = f"must be {2 * ID_BYTES} of the digits 0-9 and a-f"
        check.require(is_id, "not a report id", "report", digits)
        new = np.zeros(len(ids), bool)
        new[check.passed] = found.ids.add_new(ids[check.passed])
        check.require(new, "repeated report", "report", "each report counts once")
    passed = check.passed
    found.tally = found.tally.plus(tally(group[passed], value[passed], len(collection.groups)))


class _Check:
    """Which rows of a batch have passed all checks so far; the others are counted in ``found``."""

    def __init__(self, found: Collected, batch: Batch) -> None:
        self._found, self._batch = found, batch
        self.passed = ~batch.blank
        for name, column in zip(batch.rows.schema.names, batch.rows.columns, strict=True):
            valid = column.is_valid().to_numpy(zero_copy_only=False)
            self.require(valid, "missing", name, "every column must have a value")

    def require(self, valid: np.ndarray, why: str, column: str, allowed: str) -> None:
        """Rejects the rows that had passed and are not valid [N]; describes the first of them."""
        wrong = self.passed & ~valid
        if wrong.any():
            first = int(np.argmax(wrong))
            shown = _shown(self._batch.rows.column(column)[first])
            where = f"{self._batch.name}: row {self._batch.number(first)}: column {column!r}"
            self._found.reject(why, int(wrong.sum()), f"{where}: {shown}; {allowed}")
            self.passed &= valid


def _shown(cell: pa.Scalar) -> str:
    """As it may stand in a message; a text of Parquet need not be UTF-8."""
    try:
        return repr(cell.as_py())[:60]
    except UnicodeDecodeError:
        return repr(cell.as_buffer().to_pybytes())[:60]


def _indices(column: pa.Array, names: tuple[str, ...]) -> np.ndarray:
    """Positions of texts among the names; -1 for any other text."""
    import pyarrow as pa
    from pyarrow import compute

    places = compute.call_function(
        "index_in", [column], compute.SetLookupOptions(pa.array(names, pa.string()))
    )
    return places.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int64)


def _numbers(column: pa.Array) -> np.ndarray:
    """The cells as floats; not-a-number for a text that is no number."""
    import pyarrow as pa
    from pyarrow import compute

    try:
        found = column.cast(pa.float64())
    except pa.ArrowInvalid:  # a text is no number
        options = compute.MatchSubstringOptions(NUMBER)
        number = compute.call_function("match_substring_regex", [column], options)
        none = pa.scalar(None, column.type)
        found = compute.call_function("if_else", [number, column, none]).cast(pa.float64())
    return found.fill_null(math.nan).to_numpy(zero_copy_only=False)


def _ids(column: pa.Array) -> tuple[np.ndarray, np.ndarray]:
    """Texts [N, 32] as bytes, and which of them [N] are report ids."""
    import pyarrow as pa
    from pyarrow import compute

    digits = 2 * ID_BYTES
    length = compute.call_function("binary_length", [column])
    long = compute.call_function("equal", [length, digits]).fill_null(False)
    blank = pa.scalar("x" * digits, column.type)
    whole = compute.call_function("if_else", [long, column, blank])
    fixed = whole.cast(pa.binary()).cast(pa.binary(digits))
    text = np.frombuffer(fixed.buffers()[1], np.uint8)[: digits * len(fixed)].reshape(-1, digits)
    wrong = (text - np.uint8(ord("0")) > 9) & (text - np.uint8(ord("a")) > 5)  # below wraps around
    return text, (wrong.view(np.uint64) == 0).all(axis=1)


class SeenIds:
    """The ids of accepted reports, in a blocked Bloom filter of constant size.

    An id sets four bits of one word of 64 bits (Bloom 1970; Putze, Sanders and Singler 2009), so
    that it costs one access to memory. Every repeated id is found. The price of constant memory is
    that a few new ids are taken for repeated ones, :meth:`lost_share`, and their reports rejected;
    estimates stay unbiased, as this does not depend on what they report. The hash functions have
    random keys, so nobody can choose ids that hide those of others.

    Example:
        >>> import numpy as np
        >>> import synthfair as sf
        >>> ids = np.frombuffer(b"0" * 32 + b"1" * 32 + b"0" * 32, np.uint8).reshape(3, 32)
        >>> sf.measure.SeenIds(2**20).add_new(ids).tolist()
        [True, True, False]
    """

    def __init__(self, size: int = DEFAULT_BYTES, source: RandomBytes = system_entropy) -> None:
        """An empty filter.

        Args:
            size: bytes of memory, from 2^10 to 2^36, rounded down to a power of two.
            source: of the keys of the hash functions.

        Raises:
            InputError: a size out of range.
        """
        if not SMALLEST_BYTES <= size <= LARGEST_BYTES:
            raise InputError(
                f"id memory = {size} bytes: must be {SMALLEST_BYTES} to {LARGEST_BYTES}"
            )
        self._words = np.zeros(2 ** (size.bit_length() - 1) // 8, np.uint64)
        self._keys = np.frombuffer(source(16 * (PARTS + 1)), np.uint64).reshape(2, PARTS + 1)
        self.accepted = 0

    def add_new(self, ids: np.ndarray) -> np.ndarray:
        """Adds ids [N, 32] of bytes; returns which of them [N] are new."""
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

        The number n of ids in a word has a Poisson distribution. Each of the four bits that another
        id needs is set by n ids with probability 1 - (1 - 1/64)^(4 n).
        """
        load, lost = self.accepted / len(self._words), 0.0
        for n in range(1, math.ceil(load + 10 * math.sqrt(load)) + 20):
            chance = math.exp(n * math.log(load) - load - math.lgamma(n + 1)) if load else 0.0
            lost += chance * (1 - (1 - 1 / WORD) ** (HASHES * n)) ** HASHES
        return lost

    def _hashed(self, ids: np.ndarray) -> np.ndarray:
        """[N] hashes of 64 bits, each half (k_0 + sum of k_i times part i) mod 2^64 >> 32.

        It is strongly universal (Dietzfelbinger 1996): two ids chosen without knowledge of the keys
        have the same half with probability 2^-32.
        """
        parts = np.ascontiguousarray(ids).view(np.uint32).T.astype(np.uint64)
        first, second = (
            keys[0] + sum(key * part for key, part in zip(keys[1:], parts, strict=True))
            for keys in self._keys
        )
        return first >> np.uint64(32) << np.uint64(32) | second >> np.uint64(32)

    def _places(self, hashes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Words [N], chosen by the hashes' upper bits, and bits [N] in them, by the lower ones."""
        bits = np.zeros(len(hashes), np.uint64)
        for shift in range(0, 6 * HASHES, 6):
            bits |= np.uint64(1) << (hashes >> np.uint64(shift) & np.uint64(WORD - 1))
        return hashes >> np.uint64(6 * HASHES) & np.uint64(len(self._words) - 1), bits

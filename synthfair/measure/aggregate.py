"""The sums of any number of devices' reports, read from files in constant memory.

CSV is read in blocks that end at line ends, without quoting, so that no line can affect the lines
after it.
"""

from __future__ import annotations

import io
import itertools
import math
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Literal

import numpy as np
import pyarrow as pa
from pyarrow import compute
from pyarrow.csv import ConvertOptions, InvalidRow, ParseOptions, ReadOptions, read_csv
from pyarrow.parquet import ParquetFile

from synthfair.errors import InputError, reason
from synthfair.measure.collection import COLUMNS, ID_BYTES, Collection
from synthfair.measure.estimate import Tally, tally
from synthfair.privacy.noise import RandomBytes, system_entropy

call = compute.call_function

CSV_BLOCK_BYTES = 2**20
"""Bytes of CSV that are parsed at a time."""

MAX_LINE_BYTES = 2**16
"""Bytes of a line of CSV that goes beyond its block; a longer one is read in parts."""

REPORT_BATCH_ROWS = 2**16
"""Number of rows of Parquet that are read at a time."""

NUMBER_PATTERN = r"^[-+]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][-+]?[0-9]+)?$"
"""Pattern of a number; Python would also accept 1_0 and the digits of other scripts."""

ID_PATTERN = f"^[0-9a-f]{{{2 * ID_BYTES}}}$"
"""An id, in a text of one line."""


@dataclass
class ReportSums:
    """The sums of the accepted reports so far, and counts of the rejected ones.

    Attributes:
        tally: of the accepted reports.
        rejected: number of rejected reports, by reason.
        examples: the first rejected report of each reason: file, row and problem.
        ids: of the accepted reports; None if repeated reports are not looked for.
    """

    tally: Tally
    rejected: Counter[str] = field(default_factory=Counter)
    examples: dict[str, str] = field(default_factory=dict)
    ids: SeenIds | None = None


Batch = tuple[np.ndarray, dict[str, pa.Array], Sequence[tuple[int, str]]]
"""Consecutive lines of a file: the numbers [N] of those that have all columns, of which 1 is the
first below any header; their cells [N] by column, as texts, null where there is nothing; and of
lines with too few columns, or too many, the number and what they have."""


def aggregate_reports(
    paths: Sequence[Path | IO[bytes]], collection: Collection, ids: SeenIds | None
) -> ReportSums:
    r"""Read reports in batches and return their sums; memory does not grow with their number.

    Files are CSV or Parquet, recognised by their first bytes; a stream is CSV. CSV without a header
    has the columns of a report, in their order. A pipe is read until whoever writes to it closes
    it, and waited for until somebody does. Reports that are malformed, repeated or of another
    collection are rejected and counted. Blank lines of CSV are ignored.

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
        >>> sums = sf.measure.aggregate_reports([file], public, ids=None)
        >>> sums.tally.reports, sums.rejected["unknown group"]
        (1, 1)
    """
    sums = ReportSums(Tally(0, *np.zeros((3, len(collection.groups)))), ids=ids)
    for path in paths:
        name = str(path) if isinstance(path, Path) else "standard input"
        for batch in _read(path, name, COLUMNS if ids else COLUMNS[1:]):
            _add(sums, batch, collection, name)
    return sums


def _add(sums: ReportSums, batch: Batch, collection: Collection, name: str) -> None:
    """Check the reports of a batch of a file, and add those that pass."""
    rows, columns, broken = batch
    valid = np.ones(len(rows), bool)

    def reject(cause: str, wrong: np.ndarray, column: str, detail: str) -> None:
        """Reject rows that had passed and are wrong [N]; describe the first of them."""
        wrong = valid & wrong
        if not wrong.any():
            return
        first = int(np.argmax(wrong))
        # A text of Parquet need not be UTF-8.
        text = bytes(columns[column][first].as_buffer() or b"").decode(errors="replace")[:60]
        detail = f"column {column!r}: {text!r}; {detail}"
        sums.rejected[cause] += int(wrong.sum())
        sums.examples.setdefault(cause, f"{name}: row {rows[first]}: {detail}")
        valid[wrong] = False

    for row, detail in broken[:1]:
        sums.rejected["wrong number of columns"] += len(broken)
        sums.examples.setdefault("wrong number of columns", f"{name}: row {row}: {detail}")
    # Cells must be there, of this measurement, and possible.
    for column, cells in columns.items():
        missing = cells.is_null().to_numpy(zero_copy_only=False)
        reject("missing", missing, column, "every column must have a value")

    mark, mechanism = collection.fingerprint, collection.make_mechanism()
    other = _indices(columns["collection"], (mark,)) < 0
    reject("another collection", other, "collection", f"must be {mark}, of the public file")
    group = _indices(columns["group"], collection.groups)
    names = ", ".join(collection.groups)[:80]
    reject("unknown group", group < 0, "group", f"must be one of {names}")
    value, limit = _numbers(columns["value"]), mechanism.limit
    numbers = (
        "-1 or 1" if mechanism.kind == "randomized" else f"a number from {-limit:g} to {limit:g}"
    )
    reject("value not possible", ~mechanism.possible(value), "value", f"must be {numbers}")

    # Each report counts once, by its random id.
    if sums.ids is not None:
        length = 2 * ID_BYTES
        is_id = _matches(columns["report"], ID_PATTERN).fill_null(False)
        digits = f"must be {length} of the digits 0-9 and a-f"
        reject("not a report id", ~is_id.to_numpy(zero_copy_only=False), "report", digits)
        duplicate = np.zeros(len(valid), bool)
        texts = columns["report"].filter(pa.array(valid)).to_numpy(zero_copy_only=False)
        duplicate[valid] = ~sums.ids.add_new(texts)
        reject("repeated report", duplicate, "report", "each report counts once")
    sums.tally = sums.tally.plus(tally(group[valid], value[valid], len(collection.groups)))


def _indices(column: pa.Array, names: tuple[str, ...]) -> np.ndarray:
    """Return the positions of texts among the names; -1 for any other text."""
    options = compute.SetLookupOptions(pa.array(names, pa.string()))
    places = call("index_in", [column], options)
    return places.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int64)


def _numbers(column: pa.Array) -> np.ndarray:
    """Return the texts as floats; not-a-number for one that is no number."""
    is_number = _matches(column, NUMBER_PATTERN)
    numbers = call("if_else", [is_number, column, pa.scalar(None, column.type)])
    return numbers.cast(pa.float64()).fill_null(math.nan).to_numpy(zero_copy_only=False)


def _matches(column: pa.Array, pattern: str) -> pa.Array:
    return call("match_substring_regex", [column], compute.MatchSubstringOptions(pattern))


def _read(path: Path | IO[bytes], name: str, names: Sequence[str]) -> Iterator[Batch]:
    """Yield the wanted columns of a file, CSV or Parquet by its first bytes, or of a stream of CSV.

    Raises:
        InputError: it cannot be read, or lacks a column.
    """
    is_file = isinstance(path, Path)
    if is_file and (path.is_char_device() or path.is_block_device()):  # some never end
        raise InputError(f"{path}: cannot read: it must be a file or a pipe, not a device")
    try:
        with path.open("rb") if is_file else nullcontext(path) as file:
            # A pipe cannot seek, but peek.
            start = file.peek(4) if is_file and isinstance(file, io.BufferedReader) else b""
            batches = _from_parquet if start.startswith(b"PAR1") else _from_csv
            yield from batches(file, name, names)
    except InputError:
        raise
    except (OSError, ValueError, MemoryError, pa.ArrowException) as error:
        raise InputError(f"{name}: cannot read as CSV or Parquet: {reason(error)}") from error


def _from_parquet(file: IO[bytes], name: str, required: Sequence[str]) -> Iterator[Batch]:
    # The defaults would hold the whole file, or a whole row group, in memory.
    reader = ParquetFile(file, pre_buffer=False, buffer_size=CSV_BLOCK_BYTES)
    _require(required, reader.schema_arrow.names, name)
    first = 1
    for rows in reader.iter_batches(batch_size=REPORT_BATCH_ROWS, columns=list(required)):
        # Writers may store texts as large strings, dictionaries or numbers.
        columns = {key: rows.column(key).cast(pa.string()) for key in required}
        yield np.arange(first, first + rows.num_rows), columns, ()
        first += rows.num_rows


def _from_csv(file: IO[bytes], name: str, required: Sequence[str]) -> Iterator[Batch]:
    head = file.readline(MAX_LINE_BYTES)
    first_line = head.decode("utf-8-sig", errors="replace").rstrip("\r\n")
    names = [name.strip('"') for name in first_line.split(",")]
    blocks = iter(lambda: file.read(CSV_BLOCK_BYTES) + file.readline(MAX_LINE_BYTES), b"")
    if len(names) == len(COLUMNS) and re.fullmatch(ID_PATTERN, names[0]):  # a report, and no header
        names, blocks = list(COLUMNS), itertools.chain([head], blocks)
    _require(required, names, name)

    first, wrong = 1, list[tuple[int, str]]()

    def skip(row: InvalidRow) -> Literal["skip"]:
        detail = f"{row.actual_columns} columns where {row.expected_columns} are expected"
        wrong.append((first + row.number - 1, detail))
        return "skip"

    # Cells may stand in quotation marks, as some programs write all texts.
    trim = compute.TrimOptions('"')
    convert = ConvertOptions(
        include_columns=list(required),
        column_types=dict.fromkeys(required, pa.string()),
        null_values=["", '""'],
        strings_can_be_null=True,
    )
    parse = ParseOptions(quote_char=False, ignore_empty_lines=False, invalid_row_handler=skip)
    options = ReadOptions(use_threads=False, block_size=4 * CSV_BLOCK_BYTES, column_names=names)
    for block in blocks:
        wrong.clear()
        text = pa.BufferReader(block.decode(errors="replace").encode())
        table = read_csv(text, options, parse, convert)
        count = table.num_rows + len(wrong)
        rows = np.setdiff1d(np.arange(first, first + count), [row for row, _ in wrong])
        # A line without a cell is blank.
        filled = np.any([table[key].is_valid() for key in required], axis=0)
        cells = table.filter(pa.array(filled))
        columns = {key: call("ascii_trim", [cells[key].combine_chunks()], trim) for key in required}
        yield rows[filled], columns, wrong
        first += count


def _require(required: Sequence[str], names: Sequence[str], source: str) -> None:
    for key in required:
        if (times := list(names).count(key)) != 1:
            raise InputError(
                f"{source}: column {key!r}: is there {times} times, and must be once; a file of"
                f" reports begins with the line {','.join(COLUMNS)}; this one with"
                f" {', '.join(names)[:200]!r}. From standard input only CSV can be read"
            )


ID_HASHES, WORD_BITS = 4, 64
"""Bits that an id sets, and bits of a word."""

FILTER_BYTES = 2**27
"""Memory for ids of reports; 5 in 100,000 are lost at the end of 10^7, 15 in 1,000 of 10^8."""


class SeenIds:
    """The ids of accepted reports, in a blocked Bloom filter of constant size.

    An id sets four bits of one word of 64 bits (Bloom 1970; Putze, Sanders and Singler 2009), so
    that it costs one access to memory. Every repeated id is found. The price of constant memory is
    that a few new ids are taken for repeated ones, :meth:`lost_share`, and their reports rejected;
    estimates stay unbiased, as this does not depend on what they report. The hash, SipHash, has a
    random key, so nobody can choose ids that hide those of others.

    Example:
        >>> import numpy as np
        >>> import synthfair as sf
        >>> ids = np.array(["0" * 32, "1" * 32, "0" * 32], object)
        >>> sf.measure.SeenIds(2**20).add_new(ids).tolist()
        [True, True, False]
    """

    def __init__(self, size: int = FILTER_BYTES, source: RandomBytes = system_entropy) -> None:
        """Make an empty filter.

        Args:
            size: bytes of memory, a power of two.
            source: of the key of the hash function.
        """
        self._words, self._key = np.zeros(size // 8, np.uint64), source(8).hex()
        self.accepted = 0

    def add_new(self, ids: np.ndarray) -> np.ndarray:
        """Add ids [N], texts, and return the mask [N] of those that are new."""
        from pandas import Index
        from pandas.util import hash_array

        hashes = hash_array(ids, hash_key=self._key, categorize=False)
        # Upper bits of a hash choose a word, the lower ones four bits in it.
        bits = np.zeros(len(hashes), np.uint64)
        for shift in range(0, 6 * ID_HASHES, 6):
            bits |= np.uint64(1) << (hashes >> np.uint64(shift) & np.uint64(WORD_BITS - 1))
        place = hashes >> np.uint64(6 * ID_HASHES) & np.uint64(len(self._words) - 1)

        new = (self._words[place] & bits) != bits
        new &= ~Index(hashes).duplicated()
        np.bitwise_or.at(self._words, place[new], bits[new])
        self.accepted += int(new.sum())
        return new

    def lost_share(self) -> float:
        """Return the probability that the next new id would be taken for a repeated one.

        The number n of ids in a word has a Poisson distribution of mean m. Each of the four bits
        that another id needs is set by n ids with probability 1 - q^n, q = (1 - 1/64)^4. The mean
        of (1 - q^n)^4 follows from that of q^(k n), which is exp(m (q^k - 1)).
        """
        load, q = self.accepted / len(self._words), (1 - 1 / WORD_BITS) ** ID_HASHES
        return math.fsum(
            (-1) ** k * math.comb(ID_HASHES, k) * math.exp(load * (q**k - 1))
            for k in range(ID_HASHES + 1)
        )

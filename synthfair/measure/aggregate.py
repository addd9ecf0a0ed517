"""Reports of any number of devices, judged and added up."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, TYPE_CHECKING

import numpy as np

from synthfair.measure.collection import Collection
from synthfair.measure.identifiers import SeenIds
from synthfair.measure.reading import Batch, read_batches
from synthfair.measure.reports import COLUMNS, ID_BYTES
from synthfair.measure.tally import Tally, empty_tally, tally

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

NUMBER = r"^[-+]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][-+]?[0-9]+)?$"
"""What counts as a number in a report; Python would take 1_0 and other scripts' digits, too."""


@dataclass
class Collected:
    """Reports so far: what is kept of them, and what was refused.

    Attributes:
        tally: sufficient statistics of the accepted ones.
        rejected: how many, by reason.
        examples: the first refused for each reason: file, row, and what is wrong.
        ids: those accepted, or None where reports are not looked through for repeated ones.
    """

    tally: Tally
    rejected: dict[str, int] = field(default_factory=lambda: dict.fromkeys(REASONS, 0))
    examples: dict[str, str] = field(default_factory=dict)
    ids: SeenIds | None = None

    def refuse(self, why: str, count: int, example: str) -> None:
        """Counts, and keeps the first example."""
        self.rejected[why] += count
        self.examples.setdefault(why, example)


def aggregate_reports(
    paths: Sequence[Path | IO[bytes]], collection: Collection, ids: SeenIds | None
) -> Collected:
    """Reads reports in batches and adds them up; nothing that grows with their number is kept.

    Files are CSV or Parquet, told apart by their first bytes; a stream is CSV. Malformed and
    repeated reports, and those of another collection, are refused and counted. Blank
    lines of CSV are no reports.

    Args:
        paths: files, or open streams of bytes.
        collection: by which they were made.
        ids: in which repeated ones are found; with None, nobody looks, and none need be there.

    Raises:
        InputError: a file cannot be read, or lacks a column.
    """
    found = Collected(empty_tally(len(collection.groups)), ids=ids)
    wanted = COLUMNS if ids else COLUMNS[1:]
    for path in paths:
        for batch in read_batches(path, wanted):
            _add(found, batch, collection)
    return found


def _add(found: Collected, batch: Batch, collection: Collection) -> None:
    """Judges a batch and adds what is left of it."""
    for place, said in batch.broken.items():
        where = f"{batch.name}: row {batch.first + place}"
        found.refuse("wrong number of columns", 1, f"{where}: {said}")
    judged = _Judged(found, batch)
    group = _judge_texts(judged, collection)
    value = _numbers(batch.rows.column("value"))
    judged.keep(
        collection.noise().possible(value), "value not possible", "value", _possible(collection)
    )
    if found.ids is not None:
        _judge_ids(judged, found.ids)
    good = judged.good
    found.tally = found.tally.plus(tally(group[good], value[good], len(collection.groups)))


class _Judged:
    """A batch, and which of its rows are still good; what is refused is counted in ``found``."""

    def __init__(self, found: Collected, batch: Batch) -> None:
        self._found, self._batch, self.rows = found, batch, batch.rows
        there = [column.is_valid().to_numpy(zero_copy_only=False) for column in batch.rows.columns]
        self.good = ~batch.blank
        for key, valid in zip(batch.rows.schema.names, there, strict=True):
            self.keep(valid, "missing", key, "every column must have a value")

    def keep(self, fine: np.ndarray, why: str, column: str, allowed: str) -> None:
        """Refuses the good rows that are not fine, and says what is wrong with the first."""
        wrong = self.good & ~fine
        if wrong.any():
            first = int(np.argmax(wrong))
            shown = _shown(self.rows.column(column)[first])
            where = f"{self._batch.name}: row {self._batch.number(first)}: column {column!r}"
            self._found.refuse(why, int(wrong.sum()), f"{where}: {shown}; {allowed}")
            self.good &= fine


def _shown(cell: pa.Scalar) -> str:
    """As it may stand in a message; a text of Parquet need not be UTF-8."""
    try:
        return repr(cell.as_py())[:60]
    except UnicodeDecodeError:
        return repr(cell.as_buffer().to_pybytes())[:60]


def _judge_texts(judged: _Judged, collection: Collection) -> np.ndarray:
    """Collection and group; returns the groups' indices."""
    mark = collection.fingerprint
    own = _indices(judged.rows.column("collection"), (mark,)) == 0
    judged.keep(own, "another collection", "collection", f"must be {mark}, of the public file")
    group = _indices(judged.rows.column("group"), collection.groups)
    names = ", ".join(collection.groups)[:80]
    judged.keep(group >= 0, "unknown group", "group", f"must be one of {names}")
    return group


def _judge_ids(judged: _Judged, ids: SeenIds) -> None:
    digits = 2 * ID_BYTES
    column = judged.rows.column("report")
    text, is_id = _digits(column)
    allowed = f"must be {digits} of the digits 0-9 and a-f"
    judged.keep(is_id, "not a report id", "report", allowed)
    new = np.zeros(len(column), bool)
    new[judged.good] = ids.new(text[judged.good])
    judged.keep(new, "repeated report", "report", "each report counts once")


def _digits(column: pa.Array) -> tuple[np.ndarray, np.ndarray]:
    """Ids [N, 32] as bytes, and which of them are some."""
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


def _possible(collection: Collection) -> str:
    limit = collection.noise().limit
    if collection.mechanism == "randomized":
        return "must be -1 or 1"
    return f"must be a number from {-limit:g} to {limit:g}"


def _indices(column: pa.Array, names: tuple[str, ...]) -> np.ndarray:
    """Positions of texts among the names; -1 for any other."""
    import pyarrow as pa
    from pyarrow import compute

    places = compute.call_function(
        "index_in", [column], compute.SetLookupOptions(pa.array(names, pa.string()))
    )
    return places.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int64)


def _numbers(column: pa.Array) -> np.ndarray:
    """As floats; not-a-number where a text is none."""
    import pyarrow as pa
    from pyarrow import compute

    try:
        found = column.cast(pa.float64())
    except pa.ArrowInvalid:  # one of them is no number
        options = compute.MatchSubstringOptions(NUMBER)
        number = compute.call_function("match_substring_regex", [column], options)
        none = pa.scalar(None, column.type)
        found = compute.call_function("if_else", [number, column, none]).cast(pa.float64())
    return found.fill_null(math.nan).to_numpy(zero_copy_only=False)

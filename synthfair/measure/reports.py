"""Reports: one made on a device, and any number read from files, judged and added up."""

from __future__ import annotations

import csv as lines
import math
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, TYPE_CHECKING, NamedTuple

import numpy as np

from synthfair.errors import InputError, reason
from synthfair.measure.collection import Collection
from synthfair.measure.identifiers import DEFAULT_BYTES, SeenIds
from synthfair.measure.tally import Tally, empty_tally, tally
from synthfair.privacy.noise import RandomBytes, system_entropy

if TYPE_CHECKING:
    import pyarrow as pa
    from pyarrow import csv

COLUMNS = ("report", "group", "value")
"""Of a file of reports; the first may be missing, and repeated reports are then not found."""

BATCH_ROWS = 2**16

MAX_HEADER = 2**16
"""Bytes of a CSV file's first line that are read."""

REASONS = (
    "wrong number of columns",
    "missing",
    "unknown group",
    "value not possible",
    "repeated report",
)


class Report(NamedTuple):
    """What one client sends.

    Attributes:
        report: a random id, made for this report alone; it says nothing of the client.
        group: noisy, by name.
        value: noisy, v' in the mechanism's own unit.
    """

    report: str
    group: str
    value: float


def perturb_record(
    collection: Collection, group: str, value: float, source: RandomBytes = system_entropy
) -> Report:
    """One client's report.

    Guarantee: ``collection.epsilon``-local differential privacy; by M_R or M_L, which see. Unit:
    one client's report. Relation: local, any two pairs of group and value. A client that reports
    several times spends as many epsilons. With a source that can be repeated nothing is promised:
    that is for simulation only.

    Args:
        collection: public.
        group: one of its groups.
        value: in its range.
        source: of all randomness; the operating system unless a simulation asks.

    Raises:
        InputError: another group, or a value outside the range. Only the client sees it.
    """
    if group not in collection.groups:
        raise InputError(f"group {group!r}: must be one of {', '.join(collection.groups)}")
    if not collection.lower <= value <= collection.upper:
        raise InputError(
            f"value = {value:g}: must be from {collection.lower:g} to {collection.upper:g}"
        )
    index = np.array([collection.groups.index(group)])
    scaled = collection.scaled(np.array([float(value)]))
    told, noisy = collection.noise().perturb(index, scaled, source)
    return Report(source(16).hex(), collection.groups[int(told[0])], float(noisy[0]))


@dataclass
class Collected:
    """Reports so far: what is kept of them, and what was refused.

    Attributes:
        tally: sufficient statistics of the accepted ones.
        rejected: how many, by reason.
        examples: the first refused for each reason: file, row, and what is wrong.
        ids: those accepted, or None where reports have none.
    """

    tally: Tally
    rejected: dict[str, int] = field(default_factory=lambda: dict.fromkeys(REASONS, 0))
    examples: dict[str, str] = field(default_factory=dict)
    ids: SeenIds | None = None

    def refuse(self, why: str, count: int, example: str) -> None:
        """Counts, and keeps the first example."""
        if count:
            self.rejected[why] += count
            self.examples.setdefault(why, example)


def aggregate_reports(
    paths: Sequence[Path | IO[bytes]], collection: Collection, *, id_bytes: int = DEFAULT_BYTES
) -> Collected:
    """Reads reports in batches and adds them up; nothing that grows with their number is kept.

    Files are CSV or Parquet, told apart by their first bytes; a stream is CSV. Malformed and
    repeated reports are refused and counted.

    Args:
        paths: files, or open streams of bytes.
        collection: by which they were made.
        id_bytes: memory for finding repeated ids; see :mod:`synthfair.measure.identifiers`.

    Raises:
        InputError: a file cannot be read, lacks a column, or has ids where another has none.
    """
    found = Collected(empty_tally(len(collection.groups)))
    for i, path in enumerate(paths):
        name = str(path) if isinstance(path, Path) else "standard input"
        row = 1
        for batch in _batches(path, name, found):
            if i == 0 and row == 1 and "report" in batch.schema.names:
                found.ids = SeenIds(id_bytes)
            if (found.ids is not None) != ("report" in batch.schema.names):
                raise InputError(f"{name}: column 'report': in all files or in none")
            _add(found, _Judged(found, batch, name, row), collection)
            row += batch.num_rows
    return found


def _add(found: Collected, judged: _Judged, collection: Collection) -> None:
    """Judges a batch and adds what is left of it."""
    mechanism, batch = collection.noise(), judged.batch
    group = _indices(batch.column("group"), collection.groups)
    value = _numbers(batch.column("value"))
    for key in batch.schema.names:
        there = batch.column(key).is_valid().to_numpy(zero_copy_only=False)
        judged.keep(there, "missing", key, "every column must have a value")
    names = ", ".join(collection.groups)[:80]
    judged.keep(group >= 0, "unknown group", "group", f"must be one of {names}")
    fine = mechanism.possible(value)
    judged.keep(fine, "value not possible", "value", _possible(collection))
    if found.ids is not None:
        ids = batch.column("report").to_numpy(zero_copy_only=False)
        new = np.ones(batch.num_rows, bool)
        new[judged.good] = found.ids.new(ids[judged.good])
        judged.keep(new, "repeated report", "report", "each report counts once")
    good = judged.good
    found.tally = found.tally.plus(tally(group[good], value[good], len(collection.groups)))


class _Judged:
    """A batch, and which of its rows are still good.

    Args:
        found: what is refused is counted there.
        batch: of reports.
        name: of its file.
        row: number there of the batch's first row.
    """

    def __init__(self, found: Collected, batch: pa.RecordBatch, name: str, row: int) -> None:
        self._found, self._name, self._row = found, name, row
        self.batch, self.good = batch, np.ones(batch.num_rows, bool)

    def keep(self, fine: np.ndarray, why: str, column: str, allowed: str) -> None:
        """Refuses the good rows that are not fine, and says what is wrong with the first."""
        wrong = self.good & ~fine
        if wrong.any():
            first = int(np.argmax(wrong))
            shown = repr(self.batch.column(column)[first].as_py())[:60]
            where = f"{self._name}: row {self._row + first}: column {column!r}"
            self._found.refuse(why, int(wrong.sum()), f"{where}: {shown}; {allowed}")
            self.good &= fine


def _possible(collection: Collection) -> str:
    limit = collection.noise().limit
    if collection.mechanism == "randomized":
        return "must be -1 or 1"
    return f"must be a number from {-limit:g} to {limit:g}"


def _indices(column: pa.Array, groups: tuple[str, ...]) -> np.ndarray:
    """Positions of names among the groups; -1 for any other."""
    import pyarrow as pa
    from pyarrow import compute

    places = compute.call_function(
        "index_in", [column], compute.SetLookupOptions(pa.array(groups, pa.string()))
    )
    return places.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int64)


def _numbers(column: pa.Array) -> np.ndarray:
    """As floats; not-a-number where a text is none."""
    import pyarrow as pa

    try:
        found = column.cast(pa.float64())
    except pa.ArrowInvalid:  # one of them is no number: look at each
        return np.array([_number(text) for text in column.to_pylist()])
    return found.fill_null(math.nan).to_numpy(zero_copy_only=False)


NUMBER = re.compile(r"[-+]?[0-9]+(\.[0-9]*)?([eE][-+]?[0-9]+)?", re.ASCII)
"""What counts as a number in a report; Python would take 1_0 and other scripts' digits, too."""


def _number(text: object) -> float:
    plain = text is not None and NUMBER.fullmatch(str(text))
    return float(str(text)) if plain else math.nan


def _batches(path: Path | IO[bytes], name: str, found: Collected) -> Iterator[pa.RecordBatch]:
    with _understood(name):
        if not isinstance(path, Path):
            yield from _from_csv(path, name, found)
            return
        with path.open("rb") as file:
            parquet = file.read(4) == b"PAR1"
            file.seek(0)
            yield from _from_parquet(file, name) if parquet else _from_csv(file, name, found)


def _from_parquet(file: IO[bytes], name: str) -> Iterator[pa.RecordBatch]:
    import pyarrow as pa
    from pyarrow.parquet import ParquetFile

    reader = ParquetFile(file)
    wanted = _wanted(reader.schema_arrow.names, name)
    kind = reader.schema_arrow.field("value").type
    text = pa.types.is_string(kind) or pa.types.is_large_string(kind)
    if not (text or pa.types.is_floating(kind) or pa.types.is_integer(kind)):
        raise InputError(f"{name}: column 'value': is {kind}; must be numbers, or text")
    for batch in reader.iter_batches(batch_size=BATCH_ROWS, columns=wanted):
        texts = [key for key in wanted if key != "value"]
        for key in texts:  # whatever a writer has made of them: large, encoded, or numbers
            place = batch.schema.get_field_index(key)
            batch = batch.set_column(place, key, batch.column(key).cast(pa.string()))  # noqa: PLW2901
        yield batch.select(wanted)


def _from_csv(file: IO[bytes], name: str, found: Collected) -> Iterator[pa.RecordBatch]:
    """All columns as text: what is no number must not stop the reading."""
    import pyarrow as pa
    from pyarrow import csv

    def skip(row: csv.InvalidRow) -> str:
        said = f"{row.actual_columns} columns where {row.expected_columns} are expected"
        found.refuse("wrong number of columns", 1, f"{name}: {said}")
        return "skip"

    names = next(lines.reader([file.readline(MAX_HEADER).decode("utf-8-sig")]), [])
    wanted = _wanted(names, name)
    reader = csv.open_csv(
        file,
        read_options=csv.ReadOptions(block_size=2**20, column_names=names),
        # One stray quotation mark must not swallow the reports after it.
        parse_options=csv.ParseOptions(invalid_row_handler=skip, quote_char=False),
        convert_options=csv.ConvertOptions(
            column_types=dict.fromkeys(wanted, pa.string()),
            include_columns=wanted,
            null_values=[""],
            strings_can_be_null=True,
        ),
    )
    yield from reader


def _wanted(names: Sequence[str], source: str) -> list[str]:
    for key in COLUMNS[1:]:
        if key not in names:
            raise InputError(f"{source}: column {key!r}: missing; found {', '.join(names)[:200]}")
    for key in COLUMNS:
        if list(names).count(key) > 1:
            raise InputError(f"{source}: column {key!r}: appears more than once")
    return [key for key in COLUMNS if key in names]


@contextmanager
def _understood(name: str) -> Iterator[None]:
    """Says of which file a problem is."""
    import pyarrow as pa

    try:
        yield
    except InputError:
        raise
    except (OSError, ValueError, MemoryError, pa.ArrowException) as error:
        raise InputError(f"{name}: cannot read as CSV or Parquet: {reason(error)}") from error

"""The ledger of a population: its limit, its purchases.

It is a file of JSON lines, one for each answer, written before the answer leaves, in which each
line carries the sha256 of the one before. What may leave next depends on what left before;
:meth:`Ledger.require` is the one rule, which every path asks:

    the ledger holds       exact release    exact sums                        with an epsilon
    nothing                yes              yes                               within the limit
    an exact release       with consent     yes                               within the limit
    exact sums of a job    with consent     of this job, yes; else consent    within the limit
    an epsilon             with consent     with consent                      within the limit

*Exact* is what has no epsilon, or one on a condition alone. Sums are those of refinement, of
rounds, and of shares without noise. The same release again needs no consent, as it tells nothing
new; a job goes on without, unless an epsilon was booked meanwhile.
"""

from __future__ import annotations

import hashlib
import math
import os
import re
import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, BinaryIO, Literal, NamedTuple

from pydantic import Field

from synthfair.errors import InputError, reason
from synthfair.files import OWNER_ONLY, claimed, open_file, parse_as, sync_folder, whole_file
from synthfair.privacy.accounting import Composition
from synthfair.privacy.guarantee import Guarantee
from synthfair.settings import Checked, Delta, Epsilon, Line

LEDGER_ENDING, BOUGHT_ENDING = ".ledger.jsonl", ".bought"
"""The endings that a ledger adds to its table's name, and a file of what was bought to its own."""

MAX_WAIT_SECONDS = 60.0
"""The longest wait for another process that writes."""

MAX_LEDGER_BYTES = 500_000_000
"""The largest ledger that is read, of about a million lines."""

_TOLD = {
    "epsilon": "an exact answer undoes what the epsilon protects",
    "release": (
        "two exact answers together tell of a row that only one has (two surrogates: its exact"
        " level in about a third of the columns), and the counts that only one of them hides"
    ),
    "sums": "exact sums of two jobs together tell whole rows, those in which the jobs differ",
}
"""Texts on what two answers together tell, by what left first and what is to leave."""

_Hex32 = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]


class BudgetError(InputError):
    """A purchase that a ledger does not allow."""


class Purchase(Checked):
    """An answer from rows, before it leaves: what it is, and what it costs.

    Attributes:
        kind: of answer; a training without a guarantee is exact sums, those of refinement, too.
        output: name of the file, folder or job.
        run: sha256 of the rows and all else that the answer depends on; in rounds, of the job.
        guarantee: of the answer, in rounds of all of them; None where it has no epsilon.
        round: from 0, where a job has several.
        question: sha256 of what is asked in the round; None where ``run`` says all of it.
        seen: whether the server sees the answer without noise, which it adds itself.
        submitter: who asked, where an engine says so.
        name: random name of what is bought, which costs once however often it is used; None where
            every line costs.
    """

    kind: Literal["release", "training", "secure_sum"] = "release"
    output: Line
    run: _Hex32
    guarantee: Guarantee | None
    round: int = Field(default=0, ge=0)
    question: _Hex32 | None = None
    seen: bool = False
    submitter: Line | None = None
    name: _Hex32 | None = None

    @property
    def composition(self) -> Composition | None:
        """The purchase's mechanisms; None without a guarantee, or with a conditional one."""
        if self.guarantee is None or self.guarantee.condition:
            return None
        return self.guarantee.composition


class Limit(Checked):
    """The most that all answers together may cost from now on.

    Attributes:
        kind: of line.
        epsilon: positive.
        delta: above 0, below 1.
    """

    kind: Literal["limit"] = "limit"
    epsilon: Epsilon
    delta: Delta


LINE_START = b'{"time":"'
"""The beginning of every line of the file."""


class Record(Checked):
    """A line of the file.

    Attributes:
        time: when, UTC.
        previous: sha256 of the line before, so that a line that is lost or altered shows.
        what: a purchase or a limit.
    """

    time: str = Field(max_length=40, pattern="^[0-9T:+-]*$")
    previous: _Hex32
    what: Annotated[Purchase | Limit, Field(discriminator="kind")]


class Spending(NamedTuple):
    """The total cost of the purchases in a ledger.

    Attributes:
        releases: number of releases, trainings and secure sums.
        answers: number of lines; of a training in rounds, several.
        composition: all of them together, for one row of the table, or one user; None where one
            has no guarantee.
        limit: the one that holds, if any.
    """

    releases: int
    answers: int
    composition: Composition | None
    limit: Limit | None

    def epsilon(self, delta: float) -> float | None:
        """Return the epsilon of all purchases together at this delta; None where there is none."""
        return self.composition and self.composition.epsilon(delta)


@dataclass(eq=False)
class Ledger:
    """An append-only file, locked while it is written to; its owner alone reads it.

    Neighbouring tables, and the unit, one row, are those of the guarantees booked; all of one
    ledger must have the same relation. Mechanisms compose, whatever the order, and also where a
    later answer was chosen by an earlier one. It knows only what was booked in this very file: not
    a copy of the table elsewhere, nor an older version of the file put back. Each line is read and
    verified once in the life of this object.

    Attributes:
        path: of the file; it need not exist.
        reserve: epsilon of the limit that must be left after a purchase; above 0, there must be
            one.
        again: consent for one job: an exact answer may leave although another answer did before.

    Example:
        >>> import tempfile
        >>> from pathlib import Path
        >>> import synthfair as sf
        >>> folder = tempfile.TemporaryDirectory()
        >>> ledger = sf.privacy.Ledger.for_table(Path(folder.name) / "rows.csv")
        >>> ledger.path.name
        'rows.csv.ledger.jsonl'
        >>> ledger.book(sf.privacy.Purchase(output="a.parquet", run="0" * 64, guarantee=None))
        >>> ledger.spent().releases, ledger.spent().epsilon(1e-6)
        (1, None)
        >>> folder.cleanup()
    """

    path: Path
    reserve: float = 0.0
    again: bool = False

    # What was verified: its bytes, its lines, the sha256 of the last, and whether that has its end.
    _end: int = field(default=0, init=False)
    _records: list[Record] = field(default_factory=list, init=False)
    _last: str = field(default="0" * 64, init=False)
    _ended: bool = field(default=True, init=False)

    # What it says: what costs, by the order in which it left last; questions by round; the limit.
    _costs: dict[str, Purchase] = field(default_factory=dict, init=False)
    _asked: dict[tuple[str, int], str | None] = field(default_factory=dict, init=False)
    _limit: Limit | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        """Follow links: a ledger has one lock, whatever it is called by.

        Path.resolve would raise at links that form a loop.
        """
        self.path = Path(os.path.realpath(self.path))

    @classmethod
    def for_table(cls, data: Path) -> Ledger:
        """Return the ledger next to a table, also where the table is named by a link."""
        place = Path(os.path.realpath(data))
        return cls(place.with_name(place.name + LEDGER_ENDING))

    # What it holds

    def records(self) -> list[Record]:
        """Return all lines.

        Raises:
            InputError: unreadable, a line that is not one of a ledger, or the chain is broken.
        """
        self._catch_up()
        return [*self._records]

    def spent(self) -> Spending:
        """Return what the purchases so far cost together. Raises as :meth:`records`."""
        answers = sum(isinstance(record.what, Purchase) for record in self.records())
        costs = [*self._costs.values()]
        return Spending(len(costs), answers, _together(costs), self._limit)

    def answers_seen(self, kind: str, output: str, number: int, question: str | None) -> int:
        """Return how many answers left that the server saw without noise, but for this very one.

        Raises as :meth:`records`.
        """
        return sum(
            (p.output, p.round, p.question) != (output, number, question)
            for p in (record.what for record in self.records())
            if isinstance(p, Purchase) and p.kind == kind and (p.seen or p.guarantee is None)
        )

    # What may leave, and does

    def require(self, purchase: Purchase) -> None:
        """Refuse what may not leave next, without booking it; see the head of the module.

        Raises:
            BudgetError: an exact answer after another one, without consent; the limit would be
                passed; or another relation.
            InputError: the ledger cannot be read.
        """
        # What was bought before costs nothing; what is new must be comparable with all before it.
        self._catch_up()
        key, before = self._key(purchase), [*self._costs.values()]
        if purchase.composition and purchase.name and key in self._costs:
            return
        new = purchase.guarantee
        for old in (old.guarantee for old in before if old.guarantee and new):
            if new and (old.unit, old.relation) != (new.unit, new.relation):
                raise self._refusal(
                    f"protects one {old.unit} ({old.relation}); one {new.unit} ({new.relation})"
                    " needs a ledger of its own"
                )
        # All together, this one included, must stay within the limit, less the reserve.
        # What has no epsilon is no part of the sum of those that have.
        is_exact, limit = purchase.composition is None, self._limit
        counted = [old for old in before if is_exact or old.composition]
        after = _together([*counted, purchase])
        if limit is None:
            if self.reserve > 0:
                raise self._refusal(f"has no limit, of which epsilon = {self.reserve:g} is left")
            if is_exact and not self.again:
                self._require_first(purchase, key)
            return
        if after is None:
            raise self._refusal(f"the limit of epsilon = {limit.epsilon:g} allows none without one")
        most = limit.epsilon - self.reserve
        if most <= 0 or after.delta(most) > limit.delta:
            reserved = f", of which {self.reserve:g} must be left" if self.reserve else ""
            raise self._refusal(
                f"with this release, epsilon would be {after.epsilon(limit.delta):.3g} in all at"
                f" delta = {limit.delta:g}; the limit is {limit.epsilon:g}{reserved}"
            )

    def buy(self, purchase: Purchase, compute: Callable[[], bytes], *, max_bytes: int) -> bytes:
        """Return what an epsilon buys: computed and booked once, however often it is asked for.

        First room for the content is written, at its full size and durably, with a random name.
        Then this name is booked, then the content is computed, and written into the room. So a full
        disk refuses before anything is spent, and wherever a run ends, the next run that asks the
        same finds

        - no room, or room whose name was not booked: nothing was spent, and it is booked;
        - room whose name is booked: a run ended between booking and saving. Content is used only
          once it is saved as a whole, so that none has left. What is computed now, with new noise,
          is the only content that ever leaves for this name;
        - the content: it is what is used, and no other is computed.

        Where the file is removed, its name goes with it, and the next content has another name. The
        file knows nothing of an older version of itself that is put back. It is kept next to the
        ledger, under a name that tells of the rows: who guesses them could confirm them by it.
        Where another question was answered in the same round, this is another purchase, and what
        was bought before gives way.

        Args:
            purchase: with a guarantee.
            compute: returns what is bought.
            max_bytes: of it.

        Raises:
            BudgetError: as :meth:`require`.
            InputError: the ledger or the file cannot be read, or another run buys the same.
            OSError: there is no room.
        """
        path = self.bought(purchase.run)
        with claimed(path, force=True):
            # Room, if it could be booked: a full disk refuses before anything is spent.
            state, name = _read_head(path, purchase.run)
            self._catch_up()
            before = self._costs.get(name, purchase).guarantee
            question = self._asked.get((name, purchase.round), purchase.question)
            if not state or (before, question) != (purchase.guarantee, purchase.question):
                name = secrets.token_hex(32)
                self.require(purchase.model_copy(update={"name": name}))
                state = _reserve(path, purchase.run, name, max_bytes)
            # The booking, which the next run finds if this one ends here. Of a whole content it is
            # there, unless it was lost.
            self.book(purchase.model_copy(update={"name": name}))
            return _content(path, state, compute)

    def bought(self, run: str) -> Path:
        """Return the path of what is bought for a run, 64 hexadecimal digits."""
        return self.path.with_name(f"{self.path.name}.{run[:16]}{BOUGHT_ENDING}")

    def book(self, purchase: Purchase) -> None:
        """Write down an answer that is about to leave, durably, or refuse it.

        The same answer once more, of the same name or without a guarantee, adds no line.

        Raises:
            BudgetError: as :meth:`require`.
            InputError: the ledger cannot be read or written.
        """
        with self._locked():
            self.require(purchase)
            place = self._key(purchase), purchase.round
            if place not in self._asked or self._asked[place] != purchase.question:
                self._append(purchase)

    def set_limit(self, epsilon: float, delta: float) -> None:
        """Bound what is spent in all, from now on.

        Raises:
            InputError: values out of range, or the ledger cannot be read or written.
        """
        limit = Limit(epsilon=epsilon, delta=delta)
        with self._locked():
            self._append(limit)

    def _key(self, purchase: Purchase) -> str:
        """Return what lines of one cost have in common."""
        if purchase.guarantee is None:
            return purchase.run
        return purchase.name or f"line {len(self._records) + 1}"

    def _require_first(self, purchase: Purchase, key: str) -> None:
        """Refuse an exact answer that tells more together with those before than by itself."""
        is_release = purchase.kind == "release"
        before, keys = [*self._costs.values()], [*self._costs]
        if key in self._costs:
            # A release once more tells nothing new; a round of a job does after an epsilon.
            before = [p for p in before[keys.index(key) :] if p.composition and not is_release]
        elif not is_release:
            before = [p for p in before if p.composition or p.kind != "release"]
        if before:
            old = min(before, key=lambda p: p.composition is None)  # an epsilon, if there is one
            pair = "epsilon" if old.composition else "release" if is_release else "sums"
            raise self._refusal(
                f"{old.output!r} left before {purchase.output!r}, and {_TOLD[pair]}; again = true"
                " is consent to that, for one job",
                "again",
            )

    def _refusal(self, words: str, *arguments: str) -> BudgetError:
        return BudgetError(f"{self.path}: {words}", *arguments)

    # The file

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Lock the file: only one process at a time is inside.

        Raises:
            InputError: another process is, for longer than a minute, or the folder cannot be
                written to.
        """
        from filelock import FileLock, Timeout

        lock = self.path.with_name(f".{self.path.name}.lock")
        try:
            with FileLock(lock, timeout=MAX_WAIT_SECONDS, mode=OWNER_ONLY):
                yield
        except Timeout as error:
            raise InputError(f"{self.path}: locked by another process") from error
        except OSError as error:
            message = f"{self.path}: cannot write: {reason(error)}; name another ledger"
            raise InputError(message, "ledger") from error

    def _append(self, what: Purchase | Limit) -> None:
        """Add a line, which survives a crash once this returns; the file must be locked."""
        # The line follows the last one that is whole.
        self._catch_up()
        now = datetime.now(UTC).isoformat(timespec="seconds")
        line = Record(time=now, previous=self._last, what=what).model_dump_json().encode()
        # It is on disk, and so is its folder's entry, before anything follows from it.
        handle = os.open(self.path, os.O_RDWR | os.O_APPEND | os.O_CREAT, OWNER_ONLY)
        with os.fdopen(handle, "ab") as file:
            file.truncate(self._end)  # what a crash cut off was never written
            file.write((b"" if self._ended else b"\n") + line + b"\n")  # an editor took the end
            _sync(file)
        sync_folder(self.path.parent)
        self._catch_up()

    def _catch_up(self) -> None:
        """Read the lines that have come since the last time; all, the first time.

        A last one without its end counts if it is whole; if not, a crash cut it off while it was
        written, which is before anything followed from it.

        Raises:
            InputError: unreadable, a line that is none of this file's, or the chain is broken.
        """
        try:
            size = self.path.stat().st_size if self.path.exists() else 0
            if size > MAX_LEDGER_BYTES:
                raise InputError(f"{self.path}: larger than {MAX_LEDGER_BYTES} bytes")
            if size < self._end:
                raise InputError(f"{self.path}: lines that it had are lost")
            if size == self._end and (self.path.is_file() or not self.path.exists()):
                return
            with open_file(self.path) as file:
                file.seek(self._end)
                for line in file:
                    self._take(line)
        except OSError as error:
            raise InputError(f"{self.path}: cannot read: {reason(error)}") from error

    def _take(self, line: bytes) -> None:
        """Verify a line that follows; one that a crash cut off is left for the next time."""
        whole, content = line.endswith(b"\n"), line.removesuffix(b"\n")
        if not self._ended and line == b"\n":
            self._end, self._ended = self._end + 1, True
            return
        source = f"{self.path}: line {len(self._records) + 1}"
        try:
            record = parse_as(content, Record, source)
        except InputError:
            if whole or line[: len(LINE_START)] != LINE_START[: len(line)]:  # no line of a ledger
                raise
            return
        if record.previous != self._last:
            if whole:
                raise InputError(f"{source}: a line before it is lost or altered")
            return
        entry = record.what
        if isinstance(entry, Limit):
            self._limit = entry
        else:
            key = self._key(entry)
            self._costs[key] = self._costs.pop(key, entry)  # now the last
            self._asked[key, entry.round] = entry.question
        self._records.append(record)
        self._end, self._ended = self._end + len(line), whole
        self._last = hashlib.sha256(content).hexdigest()


def _together(purchases: list[Purchase]) -> Composition | None:
    """Return the composition of purchases; None where one has no guarantee."""
    parts = [purchase.composition for purchase in purchases]
    known = [composition for composition in parts if composition]
    if len(known) < len(parts):
        return None
    sampled = tuple(sums for composition in known for sums in composition.sampled)
    return Composition(math.hypot(*(p.mu for p in known)), sampled, sum(p.pure for p in known))


_HEAD = re.compile(rb"(reserved|complete) ([0-9a-f]{64}) ([0-9a-f]{64})\n")
_HEAD_BYTES = 8 + 1 + 64 + 1 + 64 + 1


class DamagedError(ValueError):
    """An error of content that cannot be read: altered, or written by another version."""


def compute_once(path: Path, digest: str, compute: Callable[[], bytes], *, max_bytes: int) -> bytes:
    """Return the content of the file: what it holds already, or else what is computed now.

    Nothing is booked. Only the file's owner may read it.

    Args:
        path: of the file.
        digest: sha256 of all that the content depends on, in hexadecimal.
        compute: returns the content.
        max_bytes: of the content.

    Raises:
        InputError: the file is damaged, or another run holds it.
        OSError: there is no room.
    """
    with claimed(path, force=True):
        state, _ = _read_head(path, digest)
        state = state or _reserve(path, digest, secrets.token_hex(32), max_bytes)
        return _content(path, state, compute)


def _reserve(path: Path, digest: str, name: str, max_bytes: int) -> str:
    """Write room for a content, at its full size and durably; return the state of the file."""
    with whole_file(path, mode=OWNER_ONLY) as temporary:
        temporary.write_bytes(f"reserved {digest} {name}\n".encode() + bytes(max_bytes))
    return "reserved"


def _content(path: Path, state: str, compute: Callable[[], bytes]) -> bytes:
    """Return the content of a file; compute and save it first where there is only room for it."""
    if state == "complete":
        with open_file(path) as file:
            return file.read()[_HEAD_BYTES:]
    # The content, and only then the word that says that all of it is there.
    content = compute()
    with path.open("r+b") as file:
        file.seek(_HEAD_BYTES)
        file.write(content)
        file.truncate()
        _sync(file)
        file.seek(0)
        file.write(b"complete")
        _sync(file)
    return content


def is_complete(path: Path) -> bool:
    """Return whether there is a file, and it holds its content."""
    try:
        with open_file(path) as file:
            return file.read(8) == b"complete"
    except FileNotFoundError:
        return False


def damaged(path: Path) -> InputError:
    """Return the error for a file that cannot be read."""
    return InputError(
        f"{path}: damaged, or of another version of synthfair; run the version that wrote it, or"
        " delete the file to compute it again, which spends epsilon once more"
    )


def _read_head(path: Path, digest: str) -> tuple[str, str]:
    """Return the state of a file, and its name; empty texts where there is no file."""
    try:
        with open_file(path) as file:
            head = _HEAD.fullmatch(file.read(_HEAD_BYTES))
    except FileNotFoundError:
        return "", ""
    state, content, name = map(bytes.decode, head.groups()) if head else ("", "", "")
    if content != digest:
        raise damaged(path)
    return state, name


def _sync(file: BinaryIO) -> None:
    file.flush()
    os.fsync(file.fileno())

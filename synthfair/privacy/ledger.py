"""The ledger of a population: a line for each answer, with its cost, written before it leaves.

What may leave next depends on what left before; :meth:`Ledger.require_next` is the one rule, which
every path asks:

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
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal, NamedTuple

from pydantic import Field

from synthfair.errors import InputError
from synthfair.privacy.accounting import Composition, compose
from synthfair.privacy.chain import Chain, Link
from synthfair.privacy.guarantee import Guarantee
from synthfair.settings import LARGEST_EPSILON, LEAST_DELTA, LEAST_EPSILON, Checked, Line

ENDING = ".ledger.jsonl"
"""The ending that a ledger adds to its table's name."""

_TOLD = {
    "epsilon": "an exact answer undoes what the epsilon protects",
    "release": (
        "two exact answers of nearly the same rows together tell of a row that only one of them has"
        " (two surrogates: its exact level in about a third of the columns), and of two settings or"
        " schemas the counts that only one of them hides"
    ),
    "sums": (
        "exact sums of two jobs together tell whole rows: those that only one of them has, and"
        " those in which what was asked differs"
    ),
}
"""Texts on what two answers together tell, by what left first and what is to leave."""


class BudgetError(InputError):
    """A booking that a ledger does not allow."""


class Booking(Checked):
    """A release, a training, or a part of a secure sum, before it leaves.

    Attributes:
        kind: of entry; a training without a guarantee is exact sums, those of refinement, too.
        output: name of the file or folder.
        run: fingerprint of rows and settings, in rounds those of the whole job; of a secure sum,
            the task's.
        client: public key that signs the part of a secure sum, in hexadecimal; None of others.
        guarantee: of the release, training or sum; None where it has no epsilon.
        purchase: name of what it buys, which is booked once however often it is asked for; None
            where every booking with a guarantee is another one.
    """

    kind: Literal["release", "training", "secure_sum"] = "release"
    output: Line
    run: str = Field(pattern="^[0-9a-f]{64}$")
    client: str | None = Field(default=None, pattern="^[0-9a-f]{64}$")
    guarantee: Guarantee | None
    purchase: str | None = Field(default=None, pattern="^[0-9a-f]{64}$")

    @property
    def composition(self) -> Composition | None:
        """The entry's mechanisms; None without a guarantee, or with a conditional one."""
        if self.guarantee is None or self.guarantee.condition:
            return None
        return self.guarantee.composition


class Limit(Checked):
    """The most that all releases together may cost from now on.

    Attributes:
        kind: of entry.
        epsilon: positive.
        delta: above 0, below 1.
    """

    kind: Literal["limit"] = "limit"
    epsilon: float = Field(ge=LEAST_EPSILON, le=LARGEST_EPSILON)
    delta: float = Field(ge=LEAST_DELTA, lt=1)


class Entry(Link):
    """A line of the file.

    Attributes:
        what: a release or a limit.
    """

    what: Annotated[Booking | Limit, Field(discriminator="kind")]


class Spending(NamedTuple):
    """The total cost of the releases in a ledger.

    Attributes:
        releases: number of releases, trainings and secure sums.
        composition: all of them together, for one row of the table, or one user; None where one
            has no guarantee.
        limit: the one that holds, if any.
    """

    releases: int
    composition: Composition | None
    limit: Limit | None

    @property
    def mu(self) -> float | None:
        """The mu of Gaussian differential privacy of all together; None where there is none."""
        return self.composition and self.composition.mu

    def epsilon(self, delta: float) -> float | None:
        """The epsilon of all releases together at this delta; None where there is none."""
        return self.composition and self.composition.epsilon(delta)


@dataclass(frozen=True)
class Ledger:
    """An append-only file of JSON lines, locked while it is written to; its owner alone reads it.

    Neighbouring tables, and the unit, one row, are those of the guarantees booked; all of one
    ledger must have the same relation. Mechanisms compose, whatever the order, and also where a
    later release was chosen by an earlier one. It knows only what was booked in this very file: not
    a copy of the table elsewhere, nor an older version of the file put back.

    Attributes:
        path: of the file; it need not exist.
        reserve: epsilon of the limit that must be left after a booking; above 0, there must be one.
        again: consent for one job: an exact answer may leave although another answer did before.

    Example:
        >>> import tempfile
        >>> from pathlib import Path
        >>> import synthfair as sf
        >>> folder = tempfile.TemporaryDirectory()
        >>> ledger = sf.privacy.Ledger.for_table(Path(folder.name) / "rows.csv")
        >>> ledger.path.name
        'rows.csv.ledger.jsonl'
        >>> ledger.book(sf.privacy.Booking(output="a.parquet", run="0" * 64, guarantee=None))
        >>> ledger.spent().releases, ledger.spent().epsilon(1e-6)
        (1, None)
        >>> folder.cleanup()
    """

    path: Path
    reserve: float = 0.0
    again: bool = False

    def __post_init__(self) -> None:
        """Follows links: a ledger has one lock, whatever it is called by.

        Path.resolve would raise at links that form a loop.
        """
        object.__setattr__(self, "path", Path(os.path.realpath(self.path)))

    @classmethod
    def for_table(cls, data: Path) -> Ledger:
        """Returns the ledger next to a table, also where the table is named by a link."""
        place = Path(os.path.realpath(data))
        return cls(place.with_name(place.name + ENDING))

    def entries(self) -> list[Entry]:
        """Reads all entries.

        Raises:
            InputError: unreadable, a line that is not one of a ledger, or the chain is broken.
        """
        return self._chain.read()

    def spent(self) -> Spending:
        """Adds up the releases so far. Raises as :meth:`entries`."""
        return _total([entry.what for entry in self.entries()])

    def book(self, booking: Booking) -> None:
        """Writes down a release that is about to be made, durably, or refuses it.

        One without a guarantee is booked once a run, as it would only give the same file again;
        one of a purchase once, see :class:`synthfair.task.answer_store.AnswerStore`.

        Raises:
            BudgetError: as :meth:`require_next`.
            InputError: the ledger cannot be read or written.
        """
        with self._chain.locked():
            self.require_next(booking)
            before = [entry.what for entry in self.entries()]
            again = booking in before if booking.guarantee is None else _is_bought(booking, before)
            if not again:
                self._chain.append(what=booking)

    def set_limit(self, epsilon: float, delta: float) -> None:
        """Bounds what is spent in all, from now on.

        Raises:
            InputError: values out of range, or the ledger cannot be read or written.
        """
        limit = Limit(epsilon=epsilon, delta=delta)
        with self._chain.locked():
            self._chain.append(what=limit)

    def require_next(self, booking: Booking) -> None:
        """Refuse what may not leave next, without booking it; see the head of the module.

        Raises:
            BudgetError: an exact answer after another one, without consent; the limit would be
                passed; or another relation.
            InputError: the ledger cannot be read.
        """
        # What was bought before costs nothing; what is new must be comparable with all before it.
        before = [entry.what for entry in self.entries()]
        if _is_bought(booking, before):
            return
        for old in before:
            if isinstance(old, Booking) and old.guarantee and booking.guarantee:
                self._require_comparable(old.guarantee, booking.guarantee)
        # All together, this one included, must stay within the limit, less the reserve.
        # What has no epsilon is no part of the sum of those that have.
        is_exact, limit = booking.composition is None, _total(before).limit
        counted = [one for one in before if is_exact or getattr(one, "composition", True)]
        after = _total([*counted, booking]).composition
        if limit is None:
            if self.reserve > 0:
                raise BudgetError(
                    f"{self.path}: has no limit, of which epsilon = {self.reserve:g} is left"
                )
            if is_exact and not self.again:
                self._require_first(booking, before)
            return
        if after is None:
            raise BudgetError(
                f"{self.path}: the limit of epsilon = {limit.epsilon:g} allows none without one"
            )
        most = limit.epsilon - self.reserve
        if most <= 0 or after.delta(most) > limit.delta:
            raise BudgetError(
                f"{self.path}: with this release, epsilon would be {after.epsilon(limit.delta):.3g}"
                f" in all at delta = {limit.delta:g}; the limit is {limit.epsilon:g}"
                + (f", of which {self.reserve:g} must be left" if self.reserve else "")
            )

    def _require_first(self, booking: Booking, before: Sequence[Booking | Limit]) -> None:
        """Refuse an exact answer that tells more together with those before than by itself."""
        is_release = booking.kind == "release"
        others = [old for old in before if isinstance(old, Booking)]
        same = [i for i, b in enumerate(others) if b.run == booking.run and b.composition is None]
        if same:  # a release once more tells nothing new; a round of a job does after an epsilon
            others = [b for b in others[same[-1] :] if b.composition and not is_release]
        elif not is_release:
            others = [b for b in others if b.composition or b.kind != "release"]
        if others:
            old = min(others, key=lambda b: b.composition is None)  # an epsilon, if there is one
            told = "epsilon" if old.composition else "release" if is_release else "sums"
            raise BudgetError(
                f"{self.path}: {old.output!r} left before {booking.output!r}, and {_TOLD[told]};"
                " again = true is consent to that, for one job",
                "again",
            )

    def _require_comparable(self, old: Guarantee, new: Guarantee) -> None:
        if (old.unit, new.unit).count("user") == 1:
            raise BudgetError(
                f"{self.path}: protects one {old.unit}; one {new.unit} needs a ledger of its own"
            )
        if old.relation != new.relation:
            raise BudgetError(
                f"{self.path}: relation = {new.relation!r}: all releases of a ledger must have the"
                f" same, and its own is {old.relation!r}"
            )

    @property
    def _chain(self) -> Chain[Entry]:
        return Chain(self.path, Entry, elsewhere="the argument ledger")


def purchase_of(seed: int) -> str:
    """Name of a purchase whose noise follows from a secret seed of 128 bits, which it hides."""
    return hashlib.sha256(b"synthfair-purchase\0" + seed.to_bytes(16, "big")).hexdigest()


def _is_bought(booking: Booking, before: Sequence[Booking | Limit]) -> bool:
    """Whether this very purchase was booked, with the guarantee that it has now."""
    purchase = booking.purchase, booking.guarantee
    bookings = (old for old in before if isinstance(old, Booking))
    return booking.purchase is not None and any(
        (old.purchase, old.guarantee) == purchase for old in bookings
    )


def _total(entries: Sequence[Booking | Limit]) -> Spending:
    # Aggregators take one part of each client, and answer a task once: a part of a secure sum sent
    # again by the same client is in one sum, once. Two clients with the same table are in it twice.
    distinct: dict[object, Booking] = {}
    for number, booking in enumerate(entry for entry in entries if isinstance(entry, Booking)):
        key: object = number
        if booking.kind == "secure_sum" and booking.client:
            key = booking.run, booking.client, repr(booking.guarantee)
        distinct.setdefault(key, booking)
    bookings = list(distinct.values())
    # All together; unknown where one has no guarantee. The last limit holds.
    limits = [entry for entry in entries if isinstance(entry, Limit)]
    parts = [booking.composition for booking in bookings]
    compositions = [part for part in parts if part]
    together = Composition(
        compose(part.mu for part in compositions),
        tuple(one for part in compositions for one in part.sampled),
        sum(part.pure for part in compositions),
    )
    return Spending(
        releases=len(bookings),
        composition=together if len(compositions) == len(parts) else None,
        limit=limits[-1] if limits else None,
    )

"""Releases in words: what a file holds, its guarantee, checks before it leaves, and the ledger."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from synthfair.config import changed_settings
from synthfair.report.result_table import ResultTable
from synthfair.report.results import shown

if TYPE_CHECKING:
    from synthfair.privacy.chance import Comparison
    from synthfair.privacy.gate import Preview
    from synthfair.privacy.ledger import Ledger, Spent
    from synthfair.privacy.mechanism import ExponentialMechanism, GaussianMechanism
    from synthfair.privacy.rounds import TrainingGuarantee
    from synthfair.privacy.statement import Guarantee, PrivacyStatement
    from synthfair.release.format import Release
    from synthfair.release.inspection import Inspection

MOST_COLUMNS = 100
"""Columns whose range is shown by itself."""

NO_PROOF = "Passing these checks proves nothing: only an epsilon is a guarantee."


def statement_lines(statement: PrivacyStatement) -> list[tuple[str, str]]:
    """Titles and lines of a privacy statement, in full."""
    lines = _release_guarantee(statement.guarantee) if statement.guarantee else []
    lines += [("discloses", line) for line in statement.discloses]
    return lines + [("accepted", line) for line in statement.accepted_risks]


def _release_guarantee(guarantee: Guarantee) -> list[tuple[str, str]]:
    neighbours = {
        "add_or_remove": "tables with a row more or less",
        "replace": "tables with another row in place of one",
    }[guarantee.relation]
    budget = f"epsilon = {guarantee.epsilon:g}, delta = {guarantee.delta:g}"
    return [
        ("privacy", f"({budget})-differential privacy of {guarantee.unit}; {neighbours}"),
        *(("mechanism", _mechanism(mechanism)) for mechanism in guarantee.mechanisms),
        ("accountant", guarantee.accountant),
        *(("not covered", line) for line in guarantee.not_covered),
    ]


def _mechanism(m: GaussianMechanism | ExponentialMechanism) -> str:
    if m.name == "tree":
        kind, strength = "exponential, exact", f"epsilon {m.epsilon:.4g} each"
    else:
        kind, strength = (
            f"Gaussian, {'discrete' if m.grid else 'continuous'}",
            f"noise {m.noise:.4g}",
        )
    return f"{m.name}: {kind}, sensitivity {m.sensitivity:.4g}, {strength}, {m.times} times" + (
        f", on multiples of {m.grid:.4g}" if m.grid else ""
    )


def training_guarantee_lines(guarantee: TrainingGuarantee) -> tuple[str, ...]:
    """The guarantee of a training in rounds, in full."""
    neighbours = {
        "add_or_remove": "one is there or zeroed out; how many there are is public",
        "replace": "populations with another in place of one",
    }[guarantee.relation]
    budget = f"epsilon = {guarantee.epsilon:g}, delta = {guarantee.delta:g}"
    return (
        f"privacy: ({budget})-differential privacy of {guarantee.unit}; {neighbours}",
        *([f"on the condition: {guarantee.condition}"] if guarantee.condition else []),
        *(
            f"mechanism: sums of {m.name}, {m.times} times over samples of {m.sample} of"
            f" {m.population}, {m.sampling}; each clipped to {m.clip:.4g}, noise {m.noise:.4g}"
            for m in guarantee.mechanisms
        ),
        f"accountant: {guarantee.accountant}",
        f"holds against: {guarantee.holds_against}",
        *(f"not covered: {line}" for line in guarantee.not_covered),
    )


def preview_table(preview: Preview) -> ResultTable:
    """How a release compares with the real rows; what stops it is marked."""
    titles, title = ("check", "found", "expected"), "checks before the release (private)"
    table = ResultTable(*titles, text=titles, title=title, caption=NO_PROOF)
    for row in _preview_rows(preview):
        table.add_row(*row)
    return table


def _preview_rows(preview: Preview) -> Iterator[tuple[str, str, str]]:
    chance = f"{preview.copies_by_chance} at most" if preview.copies_by_chance else "none"
    yield "copies of real rows", f"{preview.copies} of {preview.n_synthetic}", chance
    yield "real groups or labels, in order", "yes" if preview.labels_copied else "no", "no"
    if found := preview.distances:
        usual = f"{found.held_out_median:.3g} of held-out rows"
        yield "distance to the closest real row, median", f"{found.median:.3g}", usual
        shares = {
            "rows nearly equal to a real one": found.close,
            "rows near a real one": found.near,
            "rows near one real one alone": found.single,
        }
        for name, share in shares.items():
            yield name, _rate(share), f"{share.expected:.1%} of held-out rows, or less"
        yield "closest row was distilled", _rate(found.linked), f"{found.linked.expected:.1%}"
    else:
        few = f"not checked: {preview.n_held_out} distinct rows held out"
        yield "distances and attacks", few, ""
    for name, attack in preview.attacks.items():
        mark = "  MORE THAN CHANCE" if attack.alarming else ""
        success = f"{attack.found:.3f} ± {attack.error:.3f}{mark}"
        yield f"attack: {name}", success, f"{attack.expected:.3f}"
    yield "largest feature", f"{preview.largest:.3g}", "real ones lie in [0, 1]"


def _rate(share: Comparison) -> str:
    return f"{share.found:.1%}" + ("  MORE THAN CHANCE" if share.alarming else "")


def ledger_table(ledger: Ledger) -> ResultTable:
    """Every release booked, and what they add up to."""
    titles = "time", "release", "epsilon", "delta", "relation"
    table = ResultTable(*titles, text=titles, title=f"releases booked in {ledger.path}")
    for entry in ledger.entries():
        what = entry.what
        if what.kind == "limit":
            row = ("(limit)", f"{what.epsilon:g}", f"{what.delta:g}", "")
        elif what.guarantee is None:
            row = (what.output, "no guarantee", "", "")
        else:
            found = what.guarantee
            condition = "" if what.composition else ", on a condition: not in all"
            relation = found.relation.replace("_", " ")
            row = (what.output, f"{found.epsilon:g}{condition}", f"{found.delta:g}", relation)
        table.add_row(entry.time, *row)
    table.caption = _in_all(ledger.spent())
    return table


def _in_all(spent: Spent) -> str:
    if spent.composition is None:
        return "One release or more has no guarantee, and so there is none for all together."
    delta = spent.limit.delta if spent.limit else 1e-6
    total = f"epsilon = {spent.epsilon(delta):.3g} at delta = {delta:g}"
    limit = f", of at most {spent.limit.epsilon:g}" if spent.limit else "; no limit is set"
    return f"In all {total}{limit}."


def inspection_table(found: Inspection) -> ResultTable:
    """All that a release file holds and claims, and what does not fit."""
    table = ResultTable.of_facts()
    for pair in _inspection_lines(found):
        table.add_row(*map(shown, pair))
    return table


def _inspection_lines(found: Inspection) -> Iterator[tuple[str, str]]:
    release, header = found.release, found.release.header
    yield "file", f"{found.path} ({found.size:,} bytes)"
    yield "sha256", found.sha256
    yield "format", f"{header.format}, written by synthfair {header.version}"
    yield "content", f"unaltered, sha256 {found.signature.sha256}"
    yield "signature", _signature(found)
    fits = {None: "", True: "; fits the schema given", False: "; DOES NOT FIT the schema given"}
    yield "schema", header.schema_hash + fits[found.fits]
    yield "kind", header.kind
    weighted = "" if release.weight is None else ", weight"
    yield "rows", f"{release.x.shape[0]} x {release.x.shape[1]} features, s, y{weighted}"
    yield from (("pairs", line) for line in _pairs(release))
    yield from (("range", line) for line in _ranges(release))
    yield "model", header.model
    yield "penalty", header.penalty
    settings = changed_settings(header.config)
    for key, value in settings.items():
        yield "setting", f"{key} = {value}"
    if not settings:
        yield "settings", "all the defaults"
    yield from statement_lines(header.privacy)
    yield from (("DOES NOT FIT", problem) for problem in found.problems)


def _signature(found: Inspection) -> str:
    key = found.signature.public_key
    if key is None:
        return "none: anybody may have written this"
    if found.client is not None:
        return f"valid, by {found.client!r}, key {key}"
    return f"valid, by somebody unknown here, key {key}"


def _pairs(release: Release) -> Iterator[str]:
    pairs, counts = np.unique(np.stack([release.s, release.y]), axis=1, return_counts=True)
    for (s, y), count in zip(pairs.T, counts, strict=True):
        stands = ""
        if release.weight is not None:
            weight = release.weight[(release.s == s) & (release.y == y)].sum()
            stands = f", for {weight:,.0f} real ones"
        yield f"s = {s:.0f}, y = {y:+.0f}: {count} rows{stands}"


def _ranges(release: Release) -> Iterator[str]:
    low, high = release.x.min(axis=0), release.x.max(axis=0)
    for i, name in enumerate(release.names[:MOST_COLUMNS]):
        yield f"{name}: {low[i]:.4g} to {high[i]:.4g}"
    rest = len(release.names) - MOST_COLUMNS
    if rest > 0:
        least, most = low[MOST_COLUMNS:].min(), high[MOST_COLUMNS:].max()
        yield f"{rest} more columns: {least:.4g} to {most:.4g}"

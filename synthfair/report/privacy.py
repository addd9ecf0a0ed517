"""What a release promises, what was found in it, and what releases have cost, in words."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from synthfair.privacy.gate import Inference, Preview
    from synthfair.privacy.ledger import Ledger, Spent
    from synthfair.privacy.rounds import TrainingGuarantee
    from synthfair.privacy.statement import Guarantee, PrivacyStatement

NO_PROOF = "Passing these checks proves nothing: only an epsilon is a guarantee."


def statement_lines(statement: PrivacyStatement) -> list[tuple[str, str]]:
    """Titles and lines of a privacy statement, in full."""
    lines = _guarantee_lines(statement.guarantee) if statement.guarantee else []
    lines += [("discloses", line) for line in statement.discloses]
    return lines + [("accepted", line) for line in statement.accepted_risks]


def _guarantee_lines(guarantee: Guarantee) -> list[tuple[str, str]]:
    neighbours = {
        "add_or_remove": "tables with a row more or less",
        "replace": "tables with another row in place of one",
    }[guarantee.relation]
    budget = f"epsilon = {guarantee.epsilon:g}, delta = {guarantee.delta:g}"
    return [
        ("privacy", f"({budget})-differential privacy of {guarantee.unit}; {neighbours}"),
        *(
            (
                "mechanism",
                f"{m.name}: Gaussian, sensitivity {m.sensitivity:.4g}, noise {m.noise:.4g},"
                f" {m.times} times",
            )
            for m in guarantee.mechanisms
        ),
        ("accountant", guarantee.accountant),
        *(("not covered", line) for line in guarantee.not_covered),
    ]


def promise_lines(promise: TrainingGuarantee) -> tuple[str, ...]:
    """What a training in rounds promises, in full."""
    neighbours = {
        "add_or_remove": "populations with one more or less",
        "replace": "populations with another in place of one",
    }[promise.relation]
    budget = f"epsilon = {promise.epsilon:g}, delta = {promise.delta:g}"
    return (
        f"privacy: ({budget})-differential privacy of {promise.unit}; {neighbours}",
        *([f"on the condition: {promise.condition}"] if promise.condition else []),
        *(
            f"mechanism: sums of {m.name}, {m.times} times over samples of {m.sample} of"
            f" {m.population}, {m.sampling}; each clipped to {m.clip:.4g}, noise {m.noise:.4g}"
            for m in promise.mechanisms
        ),
        f"accountant: {promise.accountant}",
        *(f"not covered: {line}" for line in promise.not_covered),
    )


def preview_table(preview: Preview) -> Table:
    """The checks of a release beside the real rows; what stops it is marked."""
    table = Table(title="checks before the release (private)", caption=NO_PROOF)
    for column in ("check", "found", "expected"):
        table.add_column(column, overflow="fold")
    rows = _copy_rows(preview) + _distance_rows(preview)
    rows += [_inference_row(inference) for inference in preview.inferences]
    rows.append(("largest feature", f"{preview.largest:.3g}", "real ones lie in [0, 1]"))
    for row in rows:
        table.add_row(*map(Text, row))
    return table


def _copy_rows(preview: Preview) -> list[tuple[str, str, str]]:
    copied = "yes" if preview.labels_copied else "no"
    return [
        ("copies of real rows", f"{preview.copies} of {preview.n_synthetic}", "none"),
        ("real groups and labels, in order", copied, "no"),
    ]


def _distance_rows(preview: Preview) -> list[tuple[str, str, str]]:
    found = preview.distances
    if found is None:
        return [("distances and attacks", f"not checked: {preview.n_held_out} rows held out", "")]
    rows = [
        (
            "distance to the closest real row, median",
            f"{found.median:.3g}",
            f"{found.held_out_median:.3g} of held-out rows",
        )
    ]
    shares = {
        "rows nearly equal to a real one": found.close,
        "rows near a real one": found.near,
        "rows near one real one alone": found.single,
    }
    return rows + [
        (name, f"{share.synthetic:.1%}", f"{share.held_out:.1%} of held-out rows, or less")
        for name, share in shares.items()
    ]


def _inference_row(found: Inference) -> tuple[str, str, str]:
    mark = "  MORE THAN CHANCE" if found.alarming else ""
    shown = f"{found.members:.3f} ± {found.error:.3f}{mark}"
    return f"attack: {found.name}", shown, f"{found.others:.3f}"


def ledger_table(ledger: Ledger) -> Table:
    """Every release booked, and what they add up to."""
    spent = ledger.spent()
    table = Table(title=Text(f"releases booked in {ledger.path}"))
    for column in ("time", "release", "epsilon", "delta", "relation"):
        table.add_column(column, overflow="fold")
    for entry in ledger.entries():
        what = entry.what
        if what.kind == "limit":
            row = ("(limit)", f"{what.epsilon:g}", f"{what.delta:g}", "")
        elif what.guarantee is None:
            row = (what.output, "none promised", "", "")
        else:
            promised = what.guarantee
            epsilon = f"{promised.epsilon:g}"
            epsilon += "" if what.composition else ", on a condition: not in all"
            row = (what.output, epsilon, f"{promised.delta:g}", promised.relation)
        table.add_row(entry.time, *map(Text, row))
    table.caption = _in_all(spent)
    return table


def _in_all(spent: Spent) -> str:
    if spent.composition is None:
        return "One release or more promises nothing, and so do all together."
    delta = spent.limit.delta if spent.limit else 1e-6
    total = f"epsilon = {spent.epsilon(delta):.3g} at delta = {delta:g}"
    limit = f", of at most {spent.limit.epsilon:g}" if spent.limit else "; no limit is set"
    return f"In all {total}{limit}."

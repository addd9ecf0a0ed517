"""Tables about releases: their making, their files, their ledger."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import numpy as np
import pandas as pd
from rich.console import Group

from synthfair.data.schema import RELEASE_COLUMNS, shown
from synthfair.release.settings import MIN_EXACT_ROWS, DistillConfig
from synthfair.report.privacy_words import header_facts
from synthfair.report.text_table import Table
from synthfair.report.words import render

if TYPE_CHECKING:
    from synthfair.client import Distillation, Receipt, SurrogateRelease
    from synthfair.client.quality import Quality
    from synthfair.data.encode import Clipping
    from synthfair.data.schema import Schema
    from synthfair.privacy.ledger import Ledger
    from synthfair.release.format import Inspection, Release
    from synthfair.release.settings import SurrogateConfig

MAX_SHOWN_COLUMNS = 20
"""Columns in a table or warnings of what was clipped; those that are clipped the most."""

MAX_GAP_RISE = 0.005
"""The most that a gap may rise without a warning."""

EPSILON_COSTS = {
    "fair": "up to 1.9 points of accuracy and 2.1 of SPD",
    "surrogate": "up to 1.0 points of accuracy and 1.7 of SPD",
}
"""Costs of epsilon = 1 for each kind of release, the largest over tables of alike clients; a point
is a hundredth.
``python -m benchmarks texts`` writes the same into docs/privacy.md, from the runs of
benchmarks.privacy."""


def clipping_table(clipping: Clipping) -> Table | None:
    """Return the client's columns whose values were clipped; None without any. Private."""
    rows = [
        (repr(name), f"{c.lower:g} to {c.upper:g}", f"{c.below:.1%}", f"{c.above:.1%}")
        for name, c in clipping.clipped().items()
    ]
    columns = ("column", "bounds", "below", "above")
    title = "values clipped to the schema's bounds (private)"
    return Table(columns, rows, title, max_rows=MAX_SHOWN_COLUMNS) if rows else None


def real_rows_warnings(clipping: Clipping, config: DistillConfig | SurrogateConfig) -> list[str]:
    """Return warnings of columns of which too many values were clipped, and of too few rows."""
    is_small = (
        isinstance(config, DistillConfig) and config.epsilon and clipping.rows < MIN_EXACT_ROWS
    )
    noise = [f"{clipping.rows} rows: the release is hardly more than its noise"] if is_small else []
    return noise + clipping.warnings()[:MAX_SHOWN_COLUMNS]


def no_epsilon_warning(config: DistillConfig | SurrogateConfig) -> str:
    """Return a warning of a release without an epsilon that nobody has decided to make so."""
    kind = "fair" if isinstance(config, DistillConfig) else "surrogate"
    return render("no_epsilon.txt.j2", kind=kind, cost=EPSILON_COSTS[kind])


def release_table(outcome: Distillation | SurrogateRelease, receipt: Receipt) -> Table:
    """Return a table of a client's computation and of the file that it has written."""
    release, facts = outcome.release, {"rows": _shape(outcome.release)}
    if release.weight is None:
        facts = _distillation_facts(cast("Distillation", outcome)) | facts
    else:
        error = cast("SurrogateRelease", outcome).rate_error
        rows = "rows" if release.header.config.epsilon is None else "noisy sums"
        facts["rows"] += f"; for {release.weight.sum():,.0f} real rows"
        facts["likeness"] = f"The file imitates the {rows} to {error:.2f}."
    facts |= {"file": f"{receipt.path} ({receipt.size:,} bytes)", "sha256": receipt.sha256}
    return Table.of_facts(facts | header_facts(release.header))


def _shape(release: Release) -> str:
    short = dict(zip(RELEASE_COLUMNS, ("s", "y", "weight"), strict=True))
    own_columns = ", ".join(short[name] for name in release.header.own_columns)
    return f"{release.x.shape[0]} x {release.x.shape[1]} features, {own_columns}"


def _distillation_facts(distillation: Distillation) -> dict[str, object]:
    first, end, goal = distillation.history, distillation.reached, distillation.config.max_gap
    baseline, config = distillation.baseline, distillation.config
    rows = "training rows" if config.epsilon is None else "private records"
    state, met = {True: "converged", False: "NOT CONVERGED"}, distillation.gap_met
    inner, outer = state[distillation.inner_converged], state[distillation.outer_converged]
    accuracy = plain = None
    if baseline:
        accuracy = f"{baseline.accuracy:.4f} on {rows}; the majority {baseline.majority:.4f}"
        plain = goal and f"gap {baseline.plain_gap:.4f} on {rows}"
    return {
        "objective": f"{first.objective[0]:.6f} -> {end.objective:.6f}",
        "covariance": f"{first.covariance[0]:+.5f} -> {end.covariance:+.5f}",
        "gap": f"{first.gap[0]:.4f} -> {end.gap:.4f} on {rows}",
        "gap wanted": goal and f"at most {goal:g}: {'met' if met else 'NOT MET'}",
        "penalty weight": goal and f"{distillation.rho_o:.3g}",
        "inner problem": f"{inner}; gradient norm {end.gradient_norm:.1e}",
        "outer problem": f"{outer}; above its optimum by {distillation.outer_excess:.1e}",
        "accuracy": accuracy,
        "without a penalty": plain,
        "steps": f"{len(first.objective) - 1}",
    }


def fit_warnings(outcome: Distillation | SurrogateRelease) -> list[str]:
    """Return warnings of a release that is less than its client may expect."""
    from synthfair.surrogate.records import REMEDIES

    values = {"shown": shown, "remedies": REMEDIES, "max_gap_rise": MAX_GAP_RISE}
    return render("fit_warnings.txt.j2", made=outcome, **values).splitlines()


def quality_tables(quality: Quality) -> Group:
    """Return tables of how good a release is on the rows for which it stands, and a sentence."""
    fits = {"the file": quality.released, "these rows, without a penalty": quality.real}
    models = Table(
        ("a model of", "loss", "accuracy", "gap"),
        [(name, *fit) for name, fit in fits.items()],
        caption=f"On these rows. Their share of labels, as a model, has a loss of"
        f" {quality.constant:.3f}.",
        form=".3f",
    )
    worst = sorted(quality.distances.items(), key=lambda item: -item[1])
    lines = [(name, f"{share:.1%}") for name, share in worst]
    columns = [Table(("column", "records that lie elsewhere than rows"), lines)] if lines else []
    learned = f"{100 * quality.learned:.0f} % of what" if quality.learned <= 1 else "more than"
    learned = f"{learned} a model of these rows learns" if quality.learned > 0 else "nothing"
    return Group(*columns, models, f"A model of the file learns {learned}.")


def ledger_table(ledger: Ledger) -> Table:
    """Return every release booked, and what they add up to."""
    rows = []
    for record in ledger.records():
        entry = record.what
        if entry.kind == "limit":
            row = ("(limit)", entry.epsilon, entry.delta, "")
        elif (guarantee := entry.guarantee) is None:
            row = (entry.output, "no guarantee", "", "")
        else:
            counted = "" if entry.composition else ", on a condition: not in all"
            relation = guarantee.relation.replace("_", " ")
            row = (entry.output, f"{guarantee.epsilon:g}{counted}", guarantee.delta, relation)
        rows.append((record.time, *row))
    total = render("spent.txt.j2", costs=ledger.spent())
    columns = ("time", "release", "epsilon", "delta", "relation")
    return Table(columns, rows, f"releases booked in {ledger.path}", total, "g")


def inspection_table(inspection: Inspection, schema: Schema | None = None) -> Table:
    """Return a table of all that a release file holds and claims, and of what does not fit.

    Groups and labels are called as in the schema, where one is given that fits; otherwise as in the
    schema that the file holds.
    """
    from synthfair.release.format import fitted

    release, header = inspection.release, inspection.release.header
    groups = release.s
    if schema and inspection.fits:
        groups = fitted(release, schema).s
    else:
        schema = header.table_schema
    key = inspection.signature.public_key
    fits = {None: "", True: "; fits the schema given", False: "; DOES NOT FIT the schema given"}
    # Rows of each pair of group and label, and the real ones for which they stand.
    weight, counts = release.weight, []
    rows = pd.DataFrame({"s": groups, "y": release.y, "weight": 1 if weight is None else weight})
    pairs: Any = rows.groupby(["s", "y"])["weight"]
    for (s, y), weights in pairs:
        name = f"{schema.label}={schema.decisions[int(y > 0)]}"
        if RELEASE_COLUMNS[0] in header.own_columns:
            name = schema.pair(s, y)
        stands = "" if weight is None else f", for {weights.sum():,.0f} real ones"
        counts.append(f"{name}: {len(weights)} rows{stands}")
    model = header.model
    if isinstance(header.config, DistillConfig):
        reads = "reads" if header.config.group_input else "does not read"
        model += f"; it {reads} {schema.sensitive_name}"
    ranges = pd.DataFrame(release.x, columns=header.names).agg(["min", "max"])
    settings = header.config.model_dump(exclude_defaults=True)
    facts = {
        "file": f"{inspection.path} ({inspection.size:,} bytes)",
        "sha256": inspection.sha256,
        "format": f"{header.format}, written by synthfair {header.version}",
        "content": f"unaltered, sha256 {inspection.signature.sha256}",
        "signature": render("signature.txt.j2", key=key, client=inspection.client),
        "schema": header.table_schema.hash + fits[inspection.fits],
        "kind": header.kind,
        "rows": _shape(release),
        "pairs": counts,
        "range": [
            f"{name}: {'all missing' if np.isnan(low) else f'{low:.4g} to {high:.4g}'}"
            for name, (low, high) in ranges.items()
        ],
        "model": model,
        "penalty": header.penalty or "chosen by the server",
        "setting": [f"{name} = {value}" for name, value in settings.items()] or "all the defaults",
    }
    facts |= header_facts(header) | {"DOES NOT FIT": inspection.problems}
    return Table.of_facts(facts)

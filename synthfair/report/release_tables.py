"""Tables about releases: their making, their files, their ledger."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, cast

import numpy as np

from synthfair.data.schema import RELEASE_COLUMNS
from synthfair.release.settings import MIN_EXACT_ROWS, DistillConfig
from synthfair.report.privacy_words import header_facts
from synthfair.report.text_table import Table

if TYPE_CHECKING:
    from synthfair.client import Distillation, Receipt, SurrogateRelease
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
    columns = list(clipping.clipped().items())
    rows = [
        (repr(name), f"{c.lower:g} to {c.upper:g}", f"{c.below:.1%}", f"{c.above:.1%}")
        for name, c in columns[:MAX_SHOWN_COLUMNS]
    ]
    more = len(columns) > MAX_SHOWN_COLUMNS
    title = "values clipped to the schema's bounds (private)"
    caption = f"The {MAX_SHOWN_COLUMNS} most clipped of {len(columns)}." if more else ""
    return Table(("column", "bounds", "below", "above"), rows, title, caption) if rows else None


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
    disclosed = {
        "fair": "at least as much as a model trained on the rows",
        "surrogate": "nearly how many rows each group and label has, and how their columns are"
        " distributed",
    }
    return (
        f"without epsilon no row is protected, and the file discloses {disclosed[kind]}."
        f" --epsilon 1 --delta 1e-6 protects each row, at a cost of {EPSILON_COSTS[kind]} on public"
        " tables among alike clients, and more to clients with few rows. From version 1.0 on,"
        " --epsilon or --without-epsilon must be given"
    )


def release_table(outcome: Distillation | SurrogateRelease, receipt: Receipt) -> Table:
    """Return a table of a client's computation and of the file that it has written."""
    release, facts = outcome.release, {"rows": _shape(outcome.release)}
    if release.weight is None:
        facts = _distillation_facts(cast("Distillation", outcome)) | facts
    else:
        error = cast("SurrogateRelease", outcome).rate_error
        kind = "real" if release.header.config.epsilon is None else "noisy"
        facts["rows"] += f"; for {release.weight.sum():,.0f} real rows"
        facts["smooth rates"] = f"within {error:.4f} of the {kind} ones"
    facts |= {"file": f"{receipt.path} ({receipt.size:,} bytes)", "sha256": receipt.sha256}
    return Table.of_facts(facts | header_facts(release.header))


def _shape(release: Release) -> str:
    short = dict(zip(RELEASE_COLUMNS, ("s", "y", "weight"), strict=True))
    own_columns = ", ".join(short[name] for name in release.header.own_columns)
    return f"{release.x.shape[0]} x {release.x.shape[1]} features, {own_columns}"


def _distillation_facts(distillation: Distillation) -> dict[str, str | None]:
    history, end, goal = distillation.history, distillation.reached, distillation.config.max_gap
    baseline, rows, accuracy = distillation.baseline, _distilled(distillation.config), None
    if baseline:
        accuracy = f"{baseline.accuracy:.4f} on {rows}; the majority {baseline.majority:.4f}"
    gap = f"{history.gap[0]:.4f} -> {end.gap:.4f} on {rows}"
    if goal is not None:
        verdict = "met" if distillation.gap_met else "NOT MET"
        gap += f"; at most {goal:g} wanted: {verdict}, with penalty weight {distillation.rho_o:.3g}"
        if baseline and baseline.plain_gap <= goal:
            gap += f"; no penalty was needed: without one it is {baseline.plain_gap:.4f}"
    state = {True: "converged", False: "NOT CONVERGED"}
    inner, outer = state[distillation.inner_converged], state[distillation.outer_converged]
    return {
        "objective": f"{history.objective[0]:.6f} -> {end.objective:.6f}",
        "covariance": f"{history.covariance[0]:+.5f} -> {end.covariance:+.5f}",
        "gap": gap,
        "inner problem": f"{inner}; gradient norm {end.gradient_norm:.1e}",
        "outer problem": f"{outer}; above its optimum by {distillation.outer_excess:.1e}",
        "accuracy": accuracy,
        "steps": f"{len(history.objective) - 1}",
    }


def _distilled(config: DistillConfig) -> str:
    """Return what a release is distilled from, in words."""
    return "training rows" if config.epsilon is None else "private records"


def fit_warnings(outcome: Distillation | SurrogateRelease) -> list[str]:
    """Return warnings of a release that is less than its client may expect."""
    if outcome.release.weight is None:
        return list(_distillation_warnings(cast("Distillation", outcome)))
    outcome = cast("SurrogateRelease", outcome)
    if not outcome.hidden and not outcome.left_out:
        return []
    from synthfair.data.schema import shown
    from synthfair.surrogate.records import REMEDIES

    config, hidden = cast("SurrogateConfig", outcome.release.header.config), shown(outcome.hidden)
    few, lines = f"fewer than {config.k_min} rows (k_min)", []
    if config.epsilon is not None:
        lines = [
            f"{few}, or noise hides how many: {hidden}. Records of these are as many, and like, as"
            " those of their label and their group suggest"
        ]
    elif outcome.hidden:
        lines = [
            f"{few}: {hidden}. The release has sums by label and by group in their place, and"
            " cannot serve equal opportunity or equalized odds"
        ]
    if outcome.left_out and config.epsilon is None:
        lines.append(
            f"left out, so that a model will not know of them: {shown(outcome.left_out)}; each has"
            f" {few}, or would tell how many such a pair has"
        )
    return [*lines[:-1], f"{lines[-1]}. {REMEDIES}"]


def _distillation_warnings(distillation: Distillation) -> Iterator[str]:
    """Yield warnings of unsolved problems, a gap that is not reached, and a model without gain."""
    config, weights, baseline = distillation.config, distillation.tried, distillation.baseline
    rows = _distilled(config)
    # Problems that are not solved.
    if not distillation.inner_converged:
        yield (
            "the inner problem did not converge: the release may be worse than it could be. Raise"
            " lambda_theta, or lower learning_rate (keys of the configuration)"
        )
    elif not distillation.outer_converged:
        far = distillation.outer_excess
        above = f"by about {far:.1%} of the untrained model's objective" if far < 1 else "by far"
        steps = "" if config.max_gap else " Raise --steps."
        yield f"the outer problem did not converge: it ends above the optimum {above}.{steps}"

    # A search for a gap that did not reach it.
    smallest = f"the smallest is {distillation.reached.gap:.4f}, and the release has that"
    if distillation.gap_met is False and not distillation.search_ended:
        yield (
            f"the steps ended before a gap of {config.max_gap:g} on the {rows} was found;"
            f" {smallest}. Raise --steps: each weight of the penalty takes 50"
        )
    elif distillation.gap_met is False:
        smooth = config.penalty == "selection_rate"
        yield (
            f"none of the {len(weights)} weights tried, from {min(weights):g} to {max(weights):g},"
            f" brought the gap on the {rows} to {config.max_gap:g}; {smallest}. Try"
            f" {'another temperature' if smooth else '--penalty selection_rate'}"
        )

    # A model that is no gain over one without a penalty, or over one decision.
    if baseline and baseline.gap > baseline.plain_gap + MAX_GAP_RISE:
        yield (
            f"the gap on the {rows} is {baseline.gap:.3f}, and without a penalty it would be"
            f" {baseline.plain_gap:.3f}. Try --penalty selection_rate, or --release surrogate"
        )
    if baseline and baseline.accuracy <= baseline.majority:
        yield (
            f"the accuracy on the {rows} is {baseline.accuracy:.3f}, not above the"
            f" {baseline.majority:.3f} of the more frequent label for everybody. Lower --rho-o, or"
            " try --release surrogate"
        )


def ledger_table(ledger: Ledger) -> Table:
    """Return every release booked, and what they add up to."""
    rows = []
    for record in ledger.records():
        entry = record.what
        if entry.kind == "limit":
            row = ("(limit)", f"{entry.epsilon:g}", f"{entry.delta:g}", "")
        elif (guarantee := entry.guarantee) is None:
            row = (entry.output, "no guarantee", "", "")
        else:
            counted = "" if entry.composition else ", on a condition: not in all"
            relation = guarantee.relation.replace("_", " ")
            epsilon, delta = f"{guarantee.epsilon:g}{counted}", f"{guarantee.delta:g}"
            row = (entry.output, epsilon, delta, relation)
        rows.append((record.time, *row))
    costs = ledger.spent()
    if costs.composition is None:
        total = "One release or more has no guarantee, and so there is none for all together."
    else:
        delta = costs.limit.delta if costs.limit else 1e-6
        limit = f", of at most {costs.limit.epsilon:g}" if costs.limit else "; no limit is set"
        total = f"In all epsilon = {costs.epsilon(delta):.3g} at delta = {delta:g}{limit}."
    columns = ("time", "release", "epsilon", "delta", "relation")
    return Table(columns, rows, f"releases booked in {ledger.path}", total)


def inspection_table(inspection: Inspection, schema: Schema | None = None) -> Table:
    """Return a table of all that a release file holds and claims, and of what does not fit.

    Groups and labels are called as in the schema, where one is given that fits; otherwise as in the
    schema that the file holds.
    """
    release, header = inspection.release, inspection.release.header
    signature = "none: anybody may have written this"
    if key := inspection.signature.public_key:
        client = inspection.client
        signer = "somebody unknown here" if client is None else repr(client)
        signature = f"valid, by {signer}, key {key}"
    fits = {None: "", True: "; fits the schema given", False: "; DOES NOT FIT the schema given"}

    from synthfair.release.format import fitted

    # Rows of each pair of group and label, and the real ones for which they stand.
    counts, names = [], header.table_schema
    if schema and inspection.fits:
        names, release = schema, fitted(release, schema)
    pairs, numbers = np.unique(np.stack([release.s, release.y]), axis=1, return_counts=True)
    for (s, y), n in zip(pairs.T, numbers, strict=True):
        name = f"{names.label}={names.decisions[int(y > 0)]}"
        if RELEASE_COLUMNS[0] in header.own_columns:
            name = names.pair(int(s), y)
        stands = ""
        if release.weight is not None:
            weight = release.weight[(release.s == s) & (release.y == y)].sum()
            stands = f", for {weight:,.0f} real ones"
        counts.append(f"{name}: {n} rows{stands}")
    model = header.model
    if isinstance(header.config, DistillConfig):
        reads = "reads" if header.config.group_input else "does not read"
        model += f"; it {reads} {names.sensitive_name}"
    ranges = [
        f"{name}: {f'{column.min():.4g} to {column.max():.4g}' if column.size else 'all missing'}"
        for name, values in zip(header.names, release.x.T, strict=True)
        for column in [values[~np.isnan(values)]]
    ]
    settings = header.config.model_dump(exclude_defaults=True)
    facts = {
        "file": f"{inspection.path} ({inspection.size:,} bytes)",
        "sha256": inspection.sha256,
        "format": f"{header.format}, written by synthfair {header.version}",
        "content": f"unaltered, sha256 {inspection.signature.sha256}",
        "signature": signature,
        "schema": header.schema_hash + fits[inspection.fits],
        "kind": header.kind,
        "rows": _shape(release),
        "pairs": counts,
        "range": ranges,
        "model": model,
        "penalty": header.penalty or "chosen by the server",
        "setting": [f"{name} = {value}" for name, value in settings.items()] or "all the defaults",
    }
    facts |= header_facts(header) | {"DOES NOT FIT": inspection.problems}
    return Table.of_facts(facts)

"""What a page says of accuracy, gaps and epsilon."""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.blocks.reading import Read, Runs, both
from benchmarks.papers.finding import NO, NOTHING, YES, nothing_learned, of_learned, verdict_of
from benchmarks.papers.padala import whole_wide
from benchmarks.showing import (
    WORSE_NOTE,
    Mean,
    by,
    mark,
    means,
    n_seeds,
    page,
    paired,
    select,
    table,
)


def table2(read: Read) -> str:
    """Our small releases next to the published ones and central training; and what is beaten."""
    from benchmarks.table2.beaten import beaten, published_cells
    from benchmarks.table2.cells import TASKS

    runs, rows = read("table2", "table2"), []
    for task, weight in zip(TASKS, (100.0, 100.0, 10.0), strict=True):
        constants = select(runs, method="constant", task=task)
        shown = [
            select(runs, task=task, rho_o=weight, **which)
            for which in (
                {"method": "single_shot", "recipe": "ours", "size": "small"},
                {"method": "surrogate"},
                {"method": "central"},
            )
        ]
        if not all([*shown, constants]):
            return ""
        theirs = next(
            values
            for cell, values in published_cells().items()
            if (cell.task, cell.size, cell.rho_o) == (task, "small", 1000.0)
        )
        worse = mark(theirs[0], means(constants, "accuracy"))
        rows.append(
            (
                task.replace("_", " "), f"{theirs[0]:.3f}{worse} / {theirs[1]:.3f}", f"{weight:g}",
                *(both(own, constants=constants, digits=4, error=True) for own in shown),
                f"{means(constants, 'accuracy').text(error=True)} / 0",
            )
        )  # fmt: skip
    counts = [(how, sum(count), *count) for how, count in beaten(runs).items()]
    seeds = f"Accuracy / SPD, mean ± standard error of {n_seeds(runs)} seeds. {WORSE_NOTE}"
    header = (
        "task | published, rho_o = 1000 | at rho_o | fair releases | surrogates | central"
        " | constant classifier"
    )
    return page(
        seeds,
        table(header, rows),
        "Published cells that are beaten, in accuracy and in the size of the SPD:",
        table("beaten | of 30 | Law School, of 20 | Dutch, of 10", counts),
    ).rstrip()


def covariance(read: Read) -> str:
    """What the paper's penalty reaches on Dutch with all rows in one place."""
    from benchmarks.table2.choices import covariance_table

    runs = read("table2", "covariance")
    return covariance_table(runs) if runs else ""


def epsilon(read: Read) -> str:
    """Private fair releases."""
    runs, rows, nothing = read("privacy"), [], []
    for task, own in by(runs, lambda setting: setting.task).items():
        constants = select(own, method="constant")
        cells = [
            select(own, method="plain"),
            *(select(own, method="private", epsilon=value) for value in (1.0, 0.5, 0.1)),
            constants,
        ]
        texts = (both(some, constants=constants, error=True) for some in cells)
        rows.append((task.replace("_", " "), *texts))
        nothing += [
            f"{task.replace('_', ' ')} at ε = {some[0].setting.epsilon:g}"
            for some in cells[1:4]
            if some and nothing_learned(some, constants)
        ]
    if not rows:
        return ""
    seeds = f"Mean ± standard error of {n_seeds(runs)} seeds on all clients' test rows."
    header = "table | not private | ε = 1 | ε = 0.5 | ε = 0.1 | constant classifier"
    after = "Not more accurate than the constant classifier by two standard errors, so that"
    after += f" gaps say nothing: {', '.join(nothing)}."
    before = f"{seeds} {WORSE_NOTE}"
    return page(before, table(header, rows), *[after] * bool(nothing)).rstrip()


def disclosure(read: Read) -> str:
    """What an attacker computes from files."""
    from benchmarks.disclosure import disclosure_table

    runs = read("disclosure")
    before = f"loanapp among 4 alike clients, all files together; means of {n_seeds(runs)} seeds."
    return page(before, disclosure_table(runs)).rstrip() if runs else ""


def trainers(read: Read) -> str:
    """Trainers that know nothing of fairness."""
    from benchmarks.trainers import trainers_table

    runs = read("trainers")
    before = (
        "Dutch, 4 alike clients, covariance penalty of weight 10: accuracy / SPD on test rows, mean"
        f" ± standard deviation of {n_seeds(runs)} seeds."
    )
    return page(before, trainers_table(runs)).rstrip() if runs else ""


def any_learner(read: Read) -> str:
    """What learners cost that are trained on the records of one upload."""
    from benchmarks.records import any_learner_table

    runs = read("records")
    before = (
        "Four unlike clients, Dirichlet(0.3): accuracy / SPD on all clients' test rows, mean ±"
        f" standard deviation of {n_seeds(runs)} seeds. {WORSE_NOTE}"
    )
    return page(before, any_learner_table(runs)).rstrip() if runs else ""


METHOD_TABLES = {"law_school": "Law School", "dutch": "Dutch", "adult": "Adult"}


def methods(read: Read) -> str:
    """One upload and many rounds, at rho_o = 10; and the constant classifier."""
    from benchmarks.methods import CONSTANT

    every: Runs = read("methods")
    constants = select(every, method=CONSTANT)
    runs = [*select(every, weight=10.0), *constants]
    if not runs:
        return ""
    rows, spreads = [], []
    for method, own in by(runs, lambda setting: setting.method).items():
        tables, cells = by(own, lambda setting: setting.table), []
        for name in METHOD_TABLES:
            some = tables.get(name, [])
            cells.append(_means_of(some, select(constants, table=name)))
            spreads += [[means(some, field).spread for field in ("accuracy", "spd")]] * bool(some)
        sent = means(tables["adult"], "bytes_sent").mean / 1e6 if "adult" in tables else np.nan
        rows.append((method, *cells, f"{sent:.2f}"))
    most = np.max(spreads, axis=0)
    before = (
        f"Accuracy / SPD, means of {n_seeds(runs)} seeds; standard deviations are at most"
        f" {most[0]:.3f} in accuracy and {most[1]:.3f} in SPD. {WORSE_NOTE}"
    )
    header = f"method | {' | '.join(METHOD_TABLES.values())} | sent for Adult, MB"
    return page(before, table(header, rows)).rstrip()


def _means_of(runs: Runs, constants: Runs) -> str:
    """Two numbers, without their spread."""
    if not runs:
        return ""
    accuracy, itself = means(runs, "accuracy"), runs == constants
    worse = mark(accuracy, means(constants, "accuracy") if constants and not itself else None)
    return f"{accuracy.mean:.3f}{worse} / {means(runs, 'spd').mean:.3f}"


def fpfl(read: Read) -> str:
    """Adult in rounds."""
    from benchmarks.adult_fpfl.pages import constant_accuracy, published_rows
    from benchmarks.adult_fpfl.settings import SETTINGS

    runs = read("adult_fpfl")
    own, constant = by(runs, lambda row: row), constant_accuracy()
    rows = []
    for row, theirs in published_rows().items():
        ours = row._replace(settings="ours")
        if row.model == "shallow" and row.cohort != 400 and row in own and ours in own:
            published = f"{theirs.accuracy:.3f} / {theirs.fnr_gap:.3f}"
            alphas = [f"{SETTINGS[one].alpha:g}" * row.fair for one in (row, ours)]
            cells = [_with_constant(own[one], constant) for one in (row, ours)]
            rows.append((f"{row.cohort:,}", row.algorithm, published, alphas[0], cells[0],
                         alphas[1], cells[1]))  # fmt: skip
    if not rows:
        return ""
    rows.append(("", "constant classifier", "", "", f"{constant:.3f} / 0", "", ""))
    header = (
        "users a round | algorithm | published | alpha | as published, here | alpha | our settings"
    )
    seeds = f"Mean ± standard deviation of {n_seeds(runs)} seeds. {WORSE_NOTE}"
    return page(seeds, table(header, rows)).rstrip()


def _with_constant(runs: Runs, constant: float) -> str:
    accuracy = means(runs, "accuracy")
    worse = mark(accuracy, constant)
    return f"{accuracy.text('.3f')}{worse} / {means(runs, 'fnr_gap').text('.3f')}"


def sampling(read: Read) -> str:
    """How many times the noise cohorts of a fixed size take."""
    rows = [
        (f"{setting.cohort:,}", f"{setting.rounds:,}", f"{noise.added:.2f}",
         f"{noise.replaced:.2f}", f"{noise.ratio:.1f}")
        for setting, _, noise, _ in read("adult_fpfl", "accounts")
    ]  # fmt: skip
    header = "users a round | rounds | `poisson` | `fixed` | times"
    return table(header, rows) if rows else ""


def two_phase(read: Read) -> str:
    """Gap and accuracy at epsilon = 2; with networks as wide as published, if they were run."""
    found = _two_phase(read("two_phase"), "")
    wide = whole_wide(read("two_phase", "wide"))
    if not (found and wide):
        return found
    link = "[Networks as wide as published](../benchmarks/results/two_phase/wide_two_phase.md). "
    return f"{found}\n\n{_two_phase(wide, link)}"


def _two_phase(runs: Runs, before: str) -> str:
    rows = []
    for (name, notion), own in by(runs, lambda one: (one.table, one.notion)).items():
        constants = select(own, method="constant")
        cells = [
            select(own, method="B1"),
            select(own, method="B2"),
            select(own, method="two_phase", epsilon=2.0),
            select(own, method="end_to_end", epsilon=2.0),
            constants,
        ]
        if cells[0]:
            texts = (both(some, "gap", constants=constants) for some in cells)
            rows.append((name, notion.replace("_", " "), *texts))
    if not rows:
        return ""
    count, after = n_seeds(runs), _wider_end_to_end(runs)
    spread = f"Mean ± standard deviation of {count} seeds." if count > 1 else "One seed."
    header = (
        "table | notion | accuracy alone | fair, not private | two-phase, ε = 2"
        " | end to end, ε = 2 | constant classifier"
    )
    return page(f"{before}{spread} {WORSE_NOTE}", table(header, rows), *after).rstrip()


def _wider_end_to_end(runs: Runs) -> list[str]:
    """Gaps at epsilon = 2 of both variants; a model that learned nothing has none to compare."""
    excesses = []
    for own in by(runs, lambda one: (one.table, one.notion)).values():
        private, end = (
            select(own, method=name, epsilon=2.0) for name in ("two_phase", "end_to_end")
        )
        wider = paired(end, private, "gap")
        excesses.append(of_learned(wider, select(own, method="constant"), private, end))
    found = [verdict_of(one) for one in excesses if one.n]
    if not found:
        return []
    nothing = len(excesses) - len(found)
    return [
        f"End to end the gap is wider on {found.count(YES)} and narrower on {found.count(NO)} of"
        f" {len(found)}, beyond two standard errors" + f"; {NOTHING} on {nothing}" * bool(nothing)
        + "."
    ]  # fmt: skip


def unlike(read: Read) -> str:
    """What each kind of release costs where clients are unlike, with the covariance."""
    runs = select(read("unlike"), penalty="covariance")
    rows = []
    for (task, clients, split), own in by(runs, lambda one: one[:3]).items():
        if split not in ("0.3", "occupation", "region") and (clients, split) != (20, "alike"):
            continue
        constants = select(own, method="constant")
        cells = [
            both(select(own, method=name), constants=constants)
            for name in ("central", "surrogate", "private", "fair", "alone", "constant")
        ]
        cut = split if not split.startswith("0") else f"Dirichlet({split})"
        rows.append((task.replace("_", " "), f"{clients}, {cut}", *cells))
    header = (
        "table | clients | central | surrogates | private surrogates, ε = 1 | fair releases"
        " | each alone | constant classifier"
    )
    return page(WORSE_NOTE, table(header, rows)).rstrip() if rows else ""


def proxy(read: Read) -> str:
    """What each penalty leaves of SPD on Dutch, with all rows in one place."""
    here: Any = select(read("unlike"), task="dutch", clients=4, split="alike")
    runs, constants = (select(here, method=name) for name in ("central", "constant"))
    rows = [
        (penalty.replace("_", " "), f"{rho:g}", *_two(own))
        for (penalty, rho), own in by(runs, lambda one: (one.penalty, one.rho)).items()
    ]
    if not (rows and constants):
        return ""
    rows.append(("constant classifier", "", *_two(constants)))
    seeds = f"Central training on Dutch: mean ± standard deviation of {n_seeds(runs)} seeds."
    return page(seeds, table("penalty | weight | accuracy | SPD", rows)).rstrip()


def _two(runs: Runs) -> tuple[str, str]:
    found: list[Mean] = [means(runs, name) for name in ("accuracy", "spd")]
    return found[0].text(".3f"), found[1].text(".3f")


def one_noise(read: Read) -> str:
    """Private surrogates by secure sums."""
    from benchmarks.unlike.one_noise import table_of

    runs = read("unlike", "one_noise")
    return table_of(runs) if runs else ""


def devices(read: Read) -> str:
    """Measured and true gaps of a model's rates over devices, at epsilon = 4."""
    rows = [
        (
            setting.table.replace("_", " "),
            setting.rate.replace("_", " "),
            f"{found.measured:.3f} [{found.low:.3f}, {found.high:.3f}]",
            f"{found.true:.3f}",
        )
        for setting, _, found, _ in read("gap", "devices")
        if setting.epsilon == 4.0
    ]
    return table("table | rate | measured | true", rows) if rows else ""

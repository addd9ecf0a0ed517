"""Numbers in the pages of docs/, read from the committed runs.

A page has blocks, which ``python -m benchmarks texts`` writes anew. A test fails where a block and
the runs disagree:

    <!-- results: table2 -->
    ...
    <!-- end of results -->

Each is filled into a template of ``benchmarks/pages/blocks``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from typing import Any

import numpy as np

from benchmarks import additive as additive_models
from benchmarks import adult_fpfl as adult
from benchmarks import methods as rounds
from benchmarks import unreliable as clients_at_fault
from benchmarks.harness import ROOT, committed, written
from benchmarks.records import CENTRAL, EXACT, LEARNERS, PRIVATE
from benchmarks.runs import NO_RUNS, Runs
from benchmarks.showing import mark, page
from benchmarks.table2.beaten import published_cells
from benchmarks.table2.cells import TASKS, TableCell
from benchmarks.unlike.training import MAIN
from synthfair.files import write_text

BLOCK = re.compile(r"(<!-- results: (\w+) -->\n).*?(<!-- end of results -->)", re.DOTALL)

NOT_RUN = "*Not run with the code of today.*"

EARLIER = "*Runs of an earlier version of the code.*"

Read = Callable[..., Runs]
"""Benchmark and experiment to runs."""

Parts = dict[str, Any]


def write_texts() -> None:
    """All pages of docs/."""
    for path in sorted((ROOT.parent / "docs").glob("*.md")):
        text = path.read_text(encoding="utf-8")
        if (new := with_results(text)) != text:
            write_text(path, new)
            print(f"{path.name}: written")


def with_results(text: str) -> str:
    """Return a page with its blocks as they should be.

    Raises:
        KeyError: a block of an unknown name.
    """
    return BLOCK.sub(lambda match: f"{match[1]}{block(match[2])}\n{match[3]}", text)


@cache
def block(name: str) -> str:
    """Return what is to stand in a block: today's runs or, where there are none, earlier ones."""
    if today := block_of(name, committed):
        return today
    earlier = block_of(name, written)
    return f"{EARLIER}\n\n{earlier}" if earlier else NOT_RUN


def block_of(name: str, read: Read) -> str:
    """Return the text of a block from some runs; empty where runs are missing."""
    content, *experiments = BLOCKS[name]
    runs = [read(*experiment.split()) for experiment in experiments]
    if not any(runs):
        return ""
    parts: Any = content(*runs)
    if not isinstance(parts, dict):
        parts = {"rows": list(parts)}
    return page(f"blocks/{name}", runs[0], **parts).rstrip() if parts.get("rows") else ""


# Accuracy, gaps and epsilon: lines of a table, or all parts of a template


def means(runs: Runs, constants: Runs | float = NO_RUNS, gap: str = "spd") -> str:
    """Return mean accuracy / mean gap to three digits, marked; empty without runs.

    Args:
        runs: of one method.
        constants: runs of the constant classifier, or its accuracy.
        gap: the name of the gap among their values.
    """
    if not runs:
        return ""
    accuracy = runs.mean("accuracy")
    if not isinstance(constants, Runs):
        worse = mark(accuracy, constants)
    else:
        itself = not constants or runs[0].setting == constants[0].setting
        worse = "" if itself else mark(accuracy, constants.mean("accuracy"))
    return f"{accuracy.mean:.3f}{worse} / {runs.mean(gap).mean:.3f}"


def spreads(every: Iterable[Runs], gap: str = "spd") -> Parts:
    """Return the largest standard deviation of accuracy, and of the gap, among a block's cells."""
    each = [(own.mean("accuracy").spread, own.mean(gap).spread) for own in every if own]
    accuracy, gaps = np.max(each, axis=0) if each else (0.0, 0.0)
    return {"accuracy": accuracy, "gap": gaps}


def table2(runs: Runs) -> Parts:
    """Return our small releases next to the published ones and central training."""
    lines, every = [], []
    for task, weight in zip(TASKS, (100.0, 100.0, 10.0), strict=True):
        here = runs.select(task=task)
        constants, at = here.select(method="constant"), here.select(rho_o=weight)
        shown = [
            at.select(method="single_shot", recipe="ours", size="small"),
            at.select(method="surrogate"),
            at.select(method="central"),
        ]
        if not all([*shown, constants]):
            return {}
        accuracy, spd = published_cells()[TableCell("faithful", "single_shot", task, "small", 1e3)]
        constant, name = constants.mean("accuracy"), task.replace("_", " ")
        theirs = f"{accuracy:.3f}{mark(accuracy, constant)} / {spd:.3f}"
        ours = (means(own, constants) for own in shown)
        lines.append((name, theirs, *ours, f"{constant.mean:.3f}"))
        every += shown
    seeds = runs.select(recipe="ours", method="single_shot").n_seeds
    return {"rows": lines, "release_seeds": seeds} | spreads(every)


def epsilon(runs: Runs) -> Parts:
    """Return both kinds of releases against epsilon, with central training and the constant."""
    lines = []
    for (name, clients), own in runs.by("table", "clients").items():
        if name == "law_school_race":  # 89 % have one label: nothing shows
            continue
        constants = own.select(method="constant")
        central = own.select(method="central")
        for method, word in {"surrogate": "surrogates", "fair": "fair releases"}.items():
            of = own.select(method=method)
            each = [of.select(epsilon=one) for one in (np.inf, 2.0, 1.0)]
            cells = (means(some, constants) for some in (*each, central))
            label = f"{constants.mean('accuracy').mean:.3f}"
            lines.append((f"{name.replace('_', ' ')}, {clients}", word, *cells, label))
    return {"rows": lines, "rho": MAIN.rho}


def covariance(runs: Runs) -> Parts:
    """Return central training on Dutch at each weight, next to a published cell."""
    theirs = {
        cell.rho_o: f"{accuracy:.3f} / {spd:.3f}"
        for cell, (accuracy, spd) in published_cells().items()
        if (cell.task, cell.size) == ("dutch_gender", "train")
    }
    own = runs.by("rho_o").items()
    lines = [
        (rho, theirs[rho], *(means(here.select(intercept=one)) for one in (False, True)))
        for rho, here in own
    ]
    return {"rows": lines} | spreads(runs.by().values())


def decision(runs: Runs) -> list[object]:
    """Return what epsilon = 1 costs each kind of release, next to the same release without it.

    It is the most over tables of alike clients, of means over seeds: of the accuracy that is lost,
    and of the size of the SPD's change. ``EPSILON_COSTS`` of the package has the same words.
    """
    lines = []
    for kind in ("fair", "surrogate"):
        own = runs.select(method=kind, clients="alike")
        each = [
            (some.select(epsilon=np.inf), some.select(epsilon=1.0))
            for some in own.by("table").values()
        ]
        if pairs := [(exact, private) for exact, private in each if exact and private]:
            lost = [100 * exact.less(private, "accuracy").mean for exact, private in pairs]
            moved = [100 * np.abs(np.diff(exact.pairs(private, "spd"))).mean()
                     for exact, private in pairs]  # fmt: skip
            cost = f"up to {max(lost):.1f} points of accuracy and {max(moved):.1f} of SPD"
            lines.append((kind, cost, len(pairs)))
    return lines


def audit(members: Runs) -> Iterator[object]:
    """Yield what attacks by the sums of a surrogate find, on clients of each table."""
    for setting, own in members.by().items():
        yield (
            f"{setting.table}, {own[0].values.rows:,} rows",
            "none" if setting.epsilon == np.inf else f"{setting.epsilon:g}",
            f"{own.mean('auc').text('.2f')} ({setting.most:.2f})",
            own.mean("found").text(".3f"),
            f"{own.mean('before').mean:.3f} → {own.mean('after').mean:.3f}",
        )


def methods(every: Runs) -> Parts:
    """One upload and many rounds, at rho_o = 10; and the constant classifier."""
    constants = every.select(method=rounds.CONSTANT)
    runs, lines = Runs((*every.select(weight=10.0), *constants)), []
    for method, own in runs.by("method").items():
        if "phase" in method:
            continue  # the table of two phases has them
        cells = [
            means(own.select(table=one), constants.select(table=one)) for one in ("dutch", "adult")
        ]
        sent = own.select(table="adult").mean("bytes_sent").mean / 1e6
        lines.append((method, *cells, f"{sent:.2f}"))
    shown = Runs(run for run in runs if run.setting.table != "law_school")
    return {"seeds": runs.n_seeds, "rows": lines} | spreads(shown.by().values())


def fpfl(runs: Runs) -> Parts:
    """Adult in rounds."""
    own, lines, every = runs.by(), [], []
    for row, theirs in adult.published_rows().items():
        ours = row._replace(settings="ours")
        if row.model != "shallow" or row.cohort == 400 or row not in own or ours not in own:
            continue
        if row.algorithm in ("FL", "FFL", "PFL", "FPFL"):
            here = [own[one] for one in (row, ours)]
            cells = (means(one, adult.CONSTANT, "fnr_gap") for one in here)
            published = f"{theirs.accuracy:.3f} / {theirs.fnr_gap:.3f}"
            lines.append((f"{row.cohort:,}", row.algorithm, published, *cells))
            every += here
    return {"rows": lines, "constant": adult.CONSTANT} | spreads(every, "fnr_gap")


def two_phase(runs: Runs) -> Parts:
    """Return gap and accuracy at epsilon = 2."""
    lines, every = [], []
    for name, own in runs.select(notion="statistical_parity").by("table").items():
        constants, accurate, fair = (own.select(method=m) for m in ("constant", "B1", "B2"))
        private, end = (own.select(method=m, epsilon=2.0) for m in ("two_phase", "end_to_end"))
        cells = (accurate, fair, private, end)
        label = f"{constants.mean('accuracy').mean:.3f}"
        lines += [(name, *(means(some, constants, "gap") for some in cells), label)] * bool(
            accurate
        )
        every += cells
    return {"rows": lines} | spreads(every, "gap")


def unlike(every: Runs) -> Parts:
    """Return what each kind of release costs where clients are unlike."""
    kinds, lines, shown = ("central", "surrogate", "private", "fair"), [], []
    runs = every.select(penalty="covariance")
    for (task, clients, split), own in runs.by("task", "clients", "split").items():
        if task not in ("dutch", "adult"):  # one label is too frequent elsewhere
            continue
        if split in ("0.3", "occupation", "region") or (clients, split) == (20, "alike"):
            constants = own.select(method="constant")
            cells = [own.select(method=one) for one in kinds]
            cut = split if not split.startswith("0") else f"Dirichlet({split})"
            label = f"{constants.mean('accuracy').mean:.3f}"
            texts = (means(one, constants) for one in cells)
            lines.append((task, f"{clients}, {cut}", *texts, label))
            shown += cells[:3]
    return {"rows": lines} | spreads(shown)


def unlike_bias(every: Runs) -> Parts:
    """Return accuracy and gaps on Adult, with and without a limit on each client."""
    runs = every.select(table="adult", asked="sex")
    constants = runs.select(method="constant classifier").by("bias")
    lines = [
        (method, *(means(own.select(bias=one), gap="client_gap") for one in constants))
        for method, own in runs.by("method").items()
    ]
    return {"rows": lines} | spreads(runs.by().values(), "client_gap")


def any_learner(runs: Runs) -> Parts:
    """Return each learner on all rows and on the records of one upload."""
    lines, every = [], []
    for name in ("dutch", "adult"):
        here = runs.select(encoding="linear", table=name)
        for learner in ("linear", "trees", "reductions"):
            cells = [here.select(learner=learner, rows=one) for one in (CENTRAL, EXACT, PRIVATE)]
            constants = here.select(learner="constant")
            lines.append((name, LEARNERS[learner], *(means(own, constants) for own in cells)))
            every += cells
    return {"rows": lines} | spreads(every)


def additive(every: Runs) -> Parts:
    """Additive models next to linear ones and to boosted trees, with and without a gap."""
    constants = every.select(learner="constant").by("table")
    runs, lines = Runs((*every.select(asked="nothing"), *every.select(asked="gap"))), []
    for own in runs.by("asked", "learner", "rows").values():
        setting = own[0].setting
        if setting.learner == "ebm":
            continue  # about as good as boosted trees
        cells = [
            means(own.select(table=name), constants.get(name, NO_RUNS))
            for name in additive_models.TABLES
        ]
        asked = f"{additive_models.GAP:g}" * (setting.asked == "gap")
        lines.append((additive_models.label_of(setting), asked, *cells))
    return {"rows": lines} | spreads(runs.by().values())


def alternatives(every: Runs) -> Parts:
    """Accuracy / mean size of the SPD of what people would use instead; seconds on Adult."""
    lines = []
    for method, own in every.by("method").items():
        cells = []
        for here in own.by("table").values():
            accuracy, gap = here.mean("accuracy"), np.abs(here.values("spd")).mean()
            cells.append(f"{accuracy.mean:.3f}{mark(accuracy, here.mean('constant'))} / {gap:.3f}")
        lines.append((method, *cells, f"{own.select(table='adult').mean('warm').mean:.1f}"))
    return {"rows": lines} | spreads(every.by().values())


def unreliable(every: Runs) -> Parts:
    """Return accuracy / SPD on Dutch with false rows, with and without trusted rows."""
    runs, lines, shown = every.select(table="dutch", kind="surrogates"), [], []
    for setting, here in clients_at_fault.federations(runs):
        if setting.attack == "denied40" or (
            setting.bad == 2 and setting.attack not in ("swapped", "heavier")
        ):
            continue  # the benchmark's own page has them
        cells = [here[one] for one in ("none", "trusted", "alone")]
        texts = (means(one, here["constant"]) for one in cells)
        lines.append((clients_at_fault.words_of(setting), *texts))
        shown += cells
    return {"rows": lines} | spreads(shown)


def proxy(every: Runs) -> Parts:
    """Return a block's parts: accuracy and SPD of each penalty on Dutch, in central training."""
    here = every.select(task="dutch", clients=4, split="alike")
    runs, constants = (here.select(method=name) for name in ("central", "constant"))
    groups = [(f"{p.replace('_', ' ')} | {rho:g}", own)
              for (p, rho), own in runs.by("penalty", "rho").items()]  # fmt: skip
    lines = [
        (name, *(own.mean(value).text(".3f") for value in ("accuracy", "spd")))
        for name, own in [*groups, ("constant classifier | ", constants)]
    ]
    return {"seeds": runs.n_seeds, "rows": lines if runs and constants else []}


def devices(runs: Runs) -> list[str]:
    """Measured and true gaps of a model's rates over devices, at epsilon = 4."""
    return [
        f"{name} | {rate} | {v.measured:.3f} [{v.low:.3f}, {v.high:.3f}] | {v.true:.3f}".replace(
            "_", " "
        )
        for (name, _, rate), _, v, _ in runs.select(epsilon=4.0)
    ]


# Time, memory and what is sent


def commands(runs: Runs) -> Iterator[str]:
    """Seconds and memory of commands."""
    for command, own in runs.by("command").items():
        seconds, megabytes = (np.median(own.values(name)) for name in ("seconds", "megabytes"))
        yield f"{command} | {seconds:.{1 if seconds >= 1 else 2}f} | {megabytes:.0f}"


def scale(many_rows: Runs, releases: Runs) -> Iterator[str]:
    """Many rows and releases."""
    for (n, kind), _, v, _ in many_rows:
        yield f"a client of {n:,} rows, {kind} | {v.seconds:.0f} | {v.megabytes:,.0f}"
    for (n, each), _, v, _ in releases:
        what = f"a server of {n:,} releases, {each:,} rows each"
        yield f"{what} | {v.seconds:.0f} | {v.megabytes:,.0f}"


def deploy(runs: Runs) -> Iterator[str]:
    """Jobs of a federation on one machine."""
    for (job, sites), _, v, _ in runs:
        name = "one upload" if job == "single_shot" else f"{v.rounds} rounds of FedAvg"
        yield (
            f"{name} | {sites} | {v.start:.0f} | {v.whole:.0f} | {1 - v.site / v.whole:.0%}"
            f" | {v.megabytes / sites:.2f}"
        )


BLOCKS: dict[str, tuple[Any, ...]] = {
    "table2": (table2, "table2 table2"), "covariance": (covariance, "table2 covariance"),
    "epsilon": (epsilon, "privacy"), "decision": (decision, "privacy"),
    "audit": (audit, "audit membership"),
    "any_learner": (any_learner, "records"),
    "additive": (additive, "additive"), "alternatives": (alternatives, "alternatives"),
    "unreliable": (unreliable, "unreliable"),
    "methods": (methods, "methods"), "fpfl": (fpfl, "adult_fpfl"),
    "two_phase": (two_phase, "two_phase"),
    "unlike": (unlike, "unlike"), "proxy": (proxy, "unlike"),
    "unlike_bias": (unlike_bias, "unlike_bias"),
    "devices": (devices, "gap devices"),
    "commands": (commands, "fit commands"),
    "scale": (scale, "scale rows", "scale releases"),
    "deploy": (deploy, "deploy deploy"),
}  # fmt: skip
"""Lines, or all parts, and of which benchmarks and experiments."""

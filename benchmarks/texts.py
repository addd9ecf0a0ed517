"""Numbers in the pages of docs/, read from the committed runs.

A page has blocks, which ``python -m benchmarks texts`` writes anew. A test fails where a block and
the runs disagree:

    <!-- results: table2 -->
    ...
    <!-- end of results -->
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np

from benchmarks.harness import ROOT, Run
from benchmarks.registry import committed, written
from benchmarks.reproduction import reproduction_table
from benchmarks.showing import Mean, by, means, n_seeds, page, select, table
from synthfair.files import write_text

BLOCK = re.compile(r"(<!-- results: (\w+) -->\n).*?(<!-- end of results -->)", re.DOTALL)

NOT_RUN = "*Not run with the code of today.*"

EARLIER = "*Runs of an earlier version of the code.*"

Runs = Sequence[Run[Any, Any]]
Read = Callable[..., Runs]


def write_texts() -> None:
    """All pages of docs/."""
    for path in sorted((ROOT.parent / "docs").glob("*.md")):
        text = path.read_text(encoding="utf-8")
        if (new := with_results(text)) != text:
            write_text(path, new)
            print(f"{path.name}: written")


def with_results(text: str) -> str:
    """A page with its blocks as they should be.

    Raises:
        KeyError: a block of an unknown name.
    """
    return BLOCK.sub(lambda found: f"{found[1]}{block(found[2])}\n{found[3]}", text)


@cache
def block(name: str) -> str:
    """What is to stand in a block: today's runs or, where there are none, earlier ones."""
    if today := BLOCKS[name](committed):
        return today
    earlier = BLOCKS[name](written)
    return f"{EARLIER}\n\n{earlier}" if earlier else NOT_RUN


def _pair(accuracy: Mean, gap: Mean, digits: int = 3) -> str:
    """Accuracy / gap."""
    form = f".{digits}f"
    return f"{accuracy.text(form)} / {gap.text(form)}"


def _both(runs: Runs, gap: str = "spd", digits: int = 3) -> str:
    return _pair(means(runs, "accuracy"), means(runs, gap), digits) if runs else ""


def table2(read: Read) -> str:
    """Our small releases next to the published ones and central training."""
    from benchmarks.table2.beaten import beaten, curve, published_cells
    from benchmarks.table2.cells import TASKS

    runs = read("table2", "table2")
    rows = []
    for task, weight in zip(TASKS, (100.0, 100.0, 10.0), strict=True):
        curves = (
            {"method": "single_shot", "recipe": "ours", "size": "small"},
            {"method": "surrogate"},
            {"method": "central"},
        )
        shown = [select(runs, task=task, rho_o=weight, **which) for which in curves]
        if not (shown[0] and shown[2]):
            return ""
        theirs = next(
            values
            for cell, values in published_cells().items()
            if (cell.task, cell.size, cell.rho_o) == (task, "small", 1000.0)
        )
        constant = select(runs, method="constant", task=task)
        (point,) = curve(shown[0])
        rows.append(
            (
                task.replace("_", " "), f"{theirs[0]:.3f} / {theirs[1]:.3f}", f"{weight:g}",
                f"{point.accuracy.text(error=True)} / {point.spd.text(error=True)}",
                *(_both(own, digits=4).replace(" ± ", "±") for own in shown[1:]),
                f"{means(constant, 'accuracy').mean:.4f}" if constant else "",
            )
        )  # fmt: skip
    has_constant = bool(select(runs, method="constant"))
    known = {how: n for how, n in beaten(runs).items() if has_constant or "constant" not in how}
    counts = [f"- {count} of 30 {how}" for how, count in known.items()]
    return page(
        table(
            "task | published, rho_o = 1000 | at rho_o | fair releases | surrogates | central"
            " | constant: accuracy",
            rows,
        ),
        "Published cells that are beaten, in accuracy and in the size of the SPD:",
        "\n".join(counts),
    ).rstrip()


def epsilon(read: Read) -> str:
    """Private fair releases."""
    runs, rows = read("privacy"), []
    for task, own in by(runs, lambda setting: setting.task).items():
        cells = [
            select(own, method="plain"),
            *(select(own, method="private", epsilon=value) for value in (1.0, 0.5, 0.1)),
        ]
        rows.append((task.replace("_", " "), *(_error_pair(some) for some in cells)))
    if not rows:
        return ""
    seeds = f"Mean ± standard error of {n_seeds(runs)} seeds on all clients' test rows."
    return page(seeds, table("table | not private | ε = 1 | ε = 0.5 | ε = 0.1", rows)).rstrip()


def _error_pair(runs: Runs) -> str:
    texts = (means(runs, name).text(".3f", error=True) for name in ("accuracy", "spd"))
    return " / ".join(texts) if runs else ""


def methods(read: Read) -> str:
    """One upload and many rounds, at rho_o = 10."""
    runs, rows = select(read("methods"), weight=10.0), []
    for method, own in by(runs, lambda setting: setting.method).items():
        tables = by(own, lambda setting: setting.table)
        cells = [_both(tables[name]) if name in tables else "" for name in METHOD_TABLES]
        sent = means(tables["adult"], "bytes_sent").mean / 1e6 if "adult" in tables else np.nan
        rows.append((method, *cells, f"{sent:.2f}"))
    header = f"method | {' | '.join(METHOD_TABLES.values())} | sent for Adult, MB"
    return table(header, rows) if rows else ""


METHOD_TABLES = {"law_school": "Law School", "dutch": "Dutch", "adult": "Adult"}


def fpfl(read: Read) -> str:
    """The claims about Adult in rounds."""
    from benchmarks.adult_fpfl.pages import published_rows

    own, rows = by(read("adult_fpfl"), lambda row: row), []
    for row, theirs in published_rows().items():
        ours = row._replace(settings="ours")
        if row.model == "shallow" and row.cohort != 400 and row in own and ours in own:
            published = f"{theirs.accuracy:.3f} / {theirs.fnr_gap:.3f}"
            cells = (_both(own[one], "fnr_gap") for one in (row, ours))
            rows.append((row.cohort, row.algorithm, published, *cells))
    header = "users a round | algorithm | published | as published, here | our settings"
    return table(header, rows) if rows else ""


def two_phase(read: Read) -> str:
    """Gap and accuracy at epsilon = 2."""
    runs, rows = read("two_phase"), []
    for (name, notion), own in by(runs, lambda one: (one.table, one.notion)).items():
        cells = [
            select(own, method="B1"),
            select(own, method="B2"),
            select(own, method="two_phase", epsilon=2.0),
            select(own, method="end_to_end", epsilon=2.0),
        ]
        rows.append((name, notion.replace("_", " "), *(_both(some, "gap") for some in cells)))
    header = (
        "table | notion | accuracy alone | fair, not private | two-phase, ε = 2 | end to end, ε = 2"
    )
    return table(header, rows) if rows else ""


def unlike(read: Read) -> str:
    """What each kind of release costs where clients are unlike, with the covariance."""
    runs = select(read("unlike"), penalty="covariance")
    rows = []
    for (task, clients, split), own in by(runs, lambda one: one[:3]).items():
        if split not in ("0.3", "occupation", "region") and (clients, split) != (20, "alike"):
            continue
        cells = [
            select(own, method=name)
            for name in ("central", "surrogate", "private_moments", "fair", "alone", "constant")
        ]
        cut = split if not split.startswith("0") else f"Dirichlet({split})"
        rows.append((task.replace("_", " "), f"{clients}, {cut}", *(_both(some) for some in cells)))
    header = (
        "table | clients | central | surrogates | private surrogates, ε = 1 | fair releases"
        " | each alone | constant"
    )
    return table(header, rows) if rows else ""


def proxy(read: Read) -> str:
    """What each penalty leaves of SPD on Dutch, with all rows in one place."""
    runs = select(read("unlike"), task="dutch", clients=4, split="alike", method="central")
    rows = [
        (penalty.replace("_", " "), f"{rho:g}", means(own, "accuracy").text(".3f"),
         means(own, "spd").text(".3f"))
        for (penalty, rho), own in by(runs, lambda one: (one.penalty, one.rho)).items()
    ]  # fmt: skip
    if not rows:
        return ""
    seeds = f"Central training on Dutch: mean ± standard deviation of {n_seeds(runs)} seeds."
    return page(seeds, table("penalty | weight | accuracy | SPD", rows)).rstrip()


def cold(read: Read) -> str:
    """Seconds and memory of a client."""
    cases = by(read("cold"), lambda setting: setting.case)
    rows = [
        (case, *(f"{_median(own, name):{form}}" for name, form in
                 (("seconds", ".1f"), ("megabytes", ".0f"))))
        for case, own in cases.items()
    ]  # fmt: skip
    return table("case | median, s | peak memory, MB", rows) if rows else ""


def _median(runs: Runs, name: str) -> float:
    return float(np.median([getattr(run.values, name) for run in runs]))


def speed(read: Read) -> str:
    """A thousand outer steps, next to PyTorch."""
    rows = []
    for size, own in by(read("speed"), lambda setting: setting.n_synthetic).items():
        of = {run.setting.package: run.values for run in own}
        if {"synthfair", "torch"} <= of.keys():
            ours, peer = of["synthfair"], of["torch"]
            rows.append((f"{size:,}", f"{ours.seconds:.1f}", f"{peer.ratio:.0f} times"))
    return table("synthetic rows | synthfair, s | PyTorch", rows) if rows else ""


def scale(read: Read) -> str:
    """Many rows, releases and clients."""
    rows = [
        (f"a client of {rows:,} rows, {kind}", f"{values.seconds:.0f}", f"{values.megabytes:,.0f}")
        for (rows, kind), _, values, _ in read("scale", "rows")
    ]
    rows += [
        (f"a server of {n:,} releases, {each:,} rows each", f"{values.seconds:.0f}",
         f"{values.megabytes:,.0f}")
        for (n, each), _, values, _ in read("scale", "releases")
    ]  # fmt: skip
    rows += [
        (f"{one.clients:,} clients of {one.rows:,} rows, in one process", f"{values.seconds:.0f}",
         "")
        for one, _, values, _ in read("scale", "clients")
    ]  # fmt: skip
    return table("what | s | peak memory, MB", rows) if rows else ""


def one_noise(read: Read) -> str:
    """Private surrogates by secure sums."""
    from benchmarks.unlike.one_noise import table_of

    runs = read("unlike", "one_noise")
    return table_of(runs) if runs else ""


def gap_speed(read: Read) -> str:
    """Ten million clients."""
    rows = [
        (setting.mechanism, f"{values.reports:,}", setting.how, f"{values.seconds:.1f}",
         f"{values.gigabytes:.2f}")
        for setting, _, values, _ in read("gap", "speed")
    ]  # fmt: skip
    return table("mechanism | clients | from | s | peak memory, GB", rows) if rows else ""


def secure(read: Read) -> str:
    """An aggregator's time."""
    rows = [
        (f"{clients:,}", 4 * bins, f"{values.add:.1f}", f"{values.megabytes:.0f}")
        for (clients, bins), _, values, _ in read("secure", "secure")
    ]
    return table("clients | counts | an aggregator, s | peak memory, MB", rows) if rows else ""


def deploy(read: Read) -> str:
    """Jobs of a federation on one machine."""
    rows = [
        (
            "one upload" if job == "single_shot" else f"{values.rounds} rounds of FPFL", sites,
            f"{values.load:.0f} on {values.cores} cores", f"{values.start:.0f}",
            f"{values.whole:.0f}", f"{values.median_round:.2f}", f"{values.site:.1f}",
            f"{values.megabytes / sites:.2f}",
        )
        for (job, sites), _, values, _ in read("deploy", "deploy")
    ]  # fmt: skip
    header = (
        "job | sites | load before | start, s | job, s | median round, s | slowest site works, s"
        " | MB from a site"
    )
    return table(header, rows) if rows else ""


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


BLOCKS: Mapping[str, Callable[[Read], str]] = {
    "table2": table2,
    "epsilon": epsilon,
    "methods": methods,
    "fpfl": fpfl,
    "two_phase": two_phase,
    "unlike": unlike,
    "proxy": proxy,
    "cold": cold,
    "speed": speed,
    "scale": scale,
    "one_noise": one_noise,
    "gap_speed": gap_speed,
    "devices": devices,
    "secure": secure,
    "deploy": deploy,
    "reproduction": lambda _: reproduction_table(),
}
"""By name."""

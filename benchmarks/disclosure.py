"""What a release file gives away: exact counts, and rows that are singled out.

    python -m benchmarks.disclosure                 # 3 seeds; goes on where it stopped

loanapp among 4 alike clients. An attacker treats each file as a weighted table, a fair release as
one whose rows have equal weights and together stand for all real rows, a number that the file does
not hold. What the attacker computes from weights counts as given exactly where it is within 0.01
of a whole number and this is right. Private runs differ by their noise.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

import synthfair as sf
from benchmarks.harness import Experiment, main, surrogates_version
from benchmarks.runs import Runs
from benchmarks.showing import page
from synthfair.data.batches import in_memory
from synthfair.data.datasets import SOURCES
from synthfair.data.encode import encode_records
from synthfair.data.schema import Numeric, encoded_as
from synthfair.release.settings import ReleaseConfig
from synthfair.surrogate import WeightedTable

NEAR, STEP = 0.01, 2.0**-16
"""Of a whole number; and of the grid on which features are summed: to so much a value is read."""

CONFIGS: dict[str, ReleaseConfig] = {
    "fair": sf.DistillConfig(group_input=True),
    "fair labels = copy": sf.DistillConfig(labels="copy", group_input=True),
    "surrogate": sf.SurrogateConfig(),
    "surrogate --k-min 10": sf.SurrogateConfig(k_min=10),
    "fair --epsilon 1": sf.DistillConfig(epsilon=1.0, delta=1e-6, start="middle", group_input=True),
    "surrogate --epsilon 1 --k-min 10": sf.SurrogateConfig(epsilon=1.0, delta=1e-6, k_min=10),
}
"""By kind of file, and flags or keys of the client; delta is 1e-6."""

SMALL = ({"steps": 5}, {})
"""In a smoke run."""


class FileKind(NamedTuple):
    """One of :data:`CONFIGS`."""

    kind: str


class Disclosed(NamedTuple):
    """What the files of all clients give.

    Attributes:
        cells: pairs of group and label that have rows.
        cells_given: those whose number of rows is given exactly.
        counts: rows of a group and label with two 0/1 features, of different columns, which both
            occur there: how many such counts there are.
        counts_given: those that are given exactly.
        counts_wrong: those that seem to be, within 0.01 of a whole number that is wrong.
        rows: of all clients.
        singled_out: those that two 0/1 features tell from all others of their group and label, by a
            count of 1 that is given exactly.
        numbers: values of single persons that can be solved for, see :func:`read_out` and
            :func:`read_records`.
    """

    cells: int = 0
    cells_given: int = 0
    counts: int = 0
    counts_given: int = 0
    counts_wrong: int = 0
    rows: int = 0
    singled_out: int = 0
    numbers: int = 0


def run_files(setting: FileKind, seed: int, *, smoke: bool) -> Disclosed:
    """Make each client's file, in a smoke run one; attack it, and return what all of them give."""
    rows, schema = sf.load_dataset("loanapp")
    clients = [sf.encode(part.train, schema) for part in sf.partition(rows, clients=4, seed=seed)]
    config = CONFIGS[setting.kind].model_copy(update={"seed": seed})
    if smoke:
        clients = clients[:1]
        config = config.model_copy(update=SMALL[isinstance(config, sf.SurrogateConfig)])
    found = [
        disclosed(file, real, schema)
        for file, real in zip(files(clients, schema, config), clients, strict=True)
    ]
    return Disclosed(*(sum(numbers) for numbers in zip(*found, strict=True)))


def files(
    clients: Sequence[sf.Encoded], schema: sf.Schema, config: ReleaseConfig
) -> Iterator[WeightedTable]:
    """Each client's file, as the attacker reads it."""
    if isinstance(config, sf.SurrogateConfig):
        for real in clients:
            made = sf.distill_table(in_memory(real), schema, config).release
            x = encode_records(made.x, schema)
            yield WeightedTable(x, made.s, made.y, np.asarray(made.weight))
        return
    for real in clients:
        sent = sf.distill_table(real, schema, config).release
        yield WeightedTable(sent.x, sent.s, sent.y, np.full(len(sent.y), len(real.y) / len(sent.y)))


def numeric_features(schema: sf.Schema) -> np.ndarray:
    """[m] positions of the numbers among the encoded features; the others are 0 or 1."""
    numbers = {name for name, column in schema.features.items() if isinstance(column, Numeric)}
    names = schema.encoded_names
    return np.array([j for j, name in enumerate(names) if name in numbers], dtype=int)


def disclosed(file: WeightedTable, real: sf.Encoded, schema: sf.Schema) -> Disclosed:
    """Return what one client's file gives, summed over its cells: pairs of group and label."""
    numeric = numeric_features(schema)
    column = np.repeat(
        np.arange(len(schema.features)), [len(encoded_as(*one)) for one in schema.features.items()]
    )
    binary, total = np.setdiff1d(np.arange(len(column)), numeric), Disclosed()
    for s, y in sorted({*zip(real.s.tolist(), real.y.tolist(), strict=True)}):
        cell, sent = ((part.s == s) & (part.y == y) for part in (real, file))
        x, sent_x, weight = real.x[cell], file.x[sent], file.weight[sent]
        counts = counts_given(sent_x[:, binary], weight, x[:, binary], column[binary])
        numbers = 0
        if len(sent_x):
            numbers = read_out(sent_x[:, numeric], weight, x[:, numeric])
            numbers += read_records(sent_x, weight, x, numeric, column)
        found = Disclosed(1, int(_right(weight.sum(), len(x))), *counts, numbers)
        total = Disclosed(*map(sum, zip(total, found, strict=True)))
    return total


def _right(estimate: np.ndarray, truth: np.ndarray | int) -> np.ndarray:
    return np.abs(estimate - truth) < NEAR


def counts_given(
    sent: np.ndarray, weight: np.ndarray, real: np.ndarray, column: np.ndarray
) -> tuple[int, int, int, int, int]:
    """Return a cell's counts of feature pairs: all, given, wrong; its rows, and rows singled out.

    Args:
        sent: [R, m] 0/1 features of the file's rows in this cell; none if it is left out.
        weight: [R] of these.
        real: [N, m] those of the real rows.
        column: [m] the column that each comes from: two categories of one never meet.
    """
    m, both = len(column), np.hstack([real, 1 - real])  # a feature that is 0 is told by it, too
    guess = np.hstack([sent, 1 - sent])
    truth, estimate = both.T @ both, (guess * weight[:, None]).T @ guess
    whole = (np.abs(estimate - np.rint(estimate)) < NEAR) & bool(len(sent))
    given = whole & _right(estimate, truth)
    apart = np.triu(np.tile(column, 2)[:, None] != np.tile(column, 2))
    occurs = np.diag(truth)[:m] > 0
    asked = apart[:m, :m] & occurs & occurs[:, None]
    single = (both @ (apart & given & (truth == 1)) * both).any(axis=1)
    parts = asked, asked & given[:m, :m], asked & (whole & ~given)[:m, :m]
    return *(int(part.sum()) for part in parts), len(real), int(single.sum())  # type: ignore[return-value]


def read_records(
    sent: np.ndarray,
    weight: np.ndarray,
    real: np.ndarray,
    numeric: np.ndarray,
    column: np.ndarray,
) -> int:
    """How many numbers are read of persons who alone have a category of a column, in a cell.

    Sums over the rows of that category are that person. They are given as they are, or as what is
    left of all rows by those of the column's other categories, as all of them add up to one.

    Args:
        sent: [R, d] features of the file's rows in a cell.
        weight: [R] of these.
        real: [N, d] those of the real rows.
        numeric: positions of the numbers.
        column: [d] the column that each feature comes from.
    """
    n, found = weight.sum(), 0
    mean, products = weight @ sent / n, (sent * weight[:, None]).T @ sent / n
    for c in np.flatnonzero(real.sum(axis=0) == 1):
        block = np.flatnonzero(column == column[c])
        if c in numeric or not (real[:, block].sum(axis=1) == 1).all():
            continue
        others = block[block != c]
        direct = n * products[c, numeric]
        rest = n * (mean[numeric] - products[np.ix_(others, numeric)].sum(axis=0))
        person = real[real[:, c] == 1][0, numeric]
        read = np.minimum(np.abs(direct - person), np.abs(rest - person)) < NEAR**2
        found += int((read & (person > NEAR)).sum())  # a 0 is also what a file gives of nobody
    return found


def read_out(sent: np.ndarray, weight: np.ndarray, real: np.ndarray) -> int:
    """How many numbers an attacker reads who knows which features are nearly constant, and at what.

    Whoever must guess that reads fewer.

    Args:
        sent: [R, d] numbers of the file's rows in a cell.
        weight: [R] of these.
        real: [N, d] those of the real rows.
    """
    found = 0
    for mine, column in zip(sent.T, real.T, strict=True):
        if single := singled_out(np.rint(column / STEP) * STEP):
            constant, others = single
            mean = np.average(mine, weights=weight)
            variance = np.average((mine - mean) ** 2, weights=weight)
            guesses = solved(len(real), mean, variance, constant)
            found += np.allclose(guesses[len(others) - 1], others, rtol=0, atol=4 * STEP)
    return found


def solved(n: int, mean: float, variance: float, constant: float) -> tuple[list, list]:
    """Return the value of one row, and of two, if the n - 1 or n - 2 others are at a constant."""
    first = n * (mean - constant)
    second = n * (variance + (mean - constant) ** 2)
    root = np.sqrt(np.maximum(2 * second - first**2, 0.0))
    return [constant + first], [constant + (first - root) / 2, constant + (first + root) / 2]


def singled_out(column: np.ndarray) -> tuple[float, np.ndarray] | None:
    """Return the constant and the one or two values that differ; None if more or none do."""
    values, counts = np.unique(column, return_counts=True)
    constant = values[counts.argmax()]
    others = np.sort(column[column != constant])
    return (constant, others) if len(others) in (1, 2) else None


def disclosure_lines(runs: Runs) -> list[str]:
    """Means over seeds, of all clients together."""
    kinds: dict[str, list[str]] = {}
    for kind, own in runs.by("kind").items():
        value = {name: own.mean(name).mean for name in Disclosed._fields}
        pairs = ("cells_given", "cells"), ("counts_given", "counts"), ("singled_out", "rows")
        cells, counts, single = (f"{value[a]:,.0f} of {value[b]:,.0f}" for a, b in pairs)
        wrong, numbers = f"{value['counts_wrong']:,.0f}", f"{value['numbers']:.0f}"
        line = f"{cells} | {counts} | {wrong} | {single} | {numbers}"
        kinds.setdefault(line, []).append(f"`{kind}`")  # equal rows are one
    return [f"{', '.join(names)} | {line}" for line, names in kinds.items()]


def behind(setting: FileKind) -> tuple[object, ...]:
    """Return what a run depends on: the settings of a release, and the version of surrogates."""
    config = CONFIGS[setting.kind]
    version = [surrogates_version(config.epsilon)] if "surrogate" in setting.kind else []
    return *version, config, getattr(config, "k_min", None)


DISCLOSURE = Experiment(
    name="runs", settings=tuple(map(FileKind, CONFIGS)), run=run_files,
    summary=lambda runs: {
        "disclosure.md": page("disclosure/disclosure", rows=disclosure_lines(runs))
    },
    smoke=(FileKind("fair"), FileKind("surrogate --k-min 10")), seeds=3,
    sources=lambda _: SOURCES["loanapp"], behind=behind,
)  # fmt: skip

EXPERIMENTS = (DISCLOSURE,)

if __name__ == "__main__":
    main(__doc__, "disclosure", *EXPERIMENTS)

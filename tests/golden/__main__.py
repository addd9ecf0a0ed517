"""Results of fixed seeds, written once and compared after every change of the code behind them.

python -m tests.golden                     computes all of them, and writes tests/golden/*.json
python -m tests.golden --check             computes, compares, and says what differs
python -m tests.golden --check gaps sums   some of the sections
python -m tests.golden --check deploy      a job of real processes; else only with --slow

Only the command line is used, an example, and files that they document; noise is seeded in Python. A float may differ by 1e-6 of its size,
or by 1e-8, and more where it says so below; texts and integers must be equal. What differs from
run to run (times, paths, keys, hashes of content) is left out. Where a change is wanted, write the
files anew, and review what ``git diff`` shows.
"""

from __future__ import annotations

import argparse
import io
import json
import math
import os
import re
import shlex
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import chdir, redirect_stderr, redirect_stdout
from functools import cache
from itertools import repeat
from pathlib import Path
from typing import Any

# Most of the time is compilation. Tables of the terminal have room for every cell on one line.
os.environ.setdefault("JAX_DISABLE_MOST_OPTIMIZATIONS", "1")
os.environ["COLUMNS"] = "200"

import numpy as np
import pandas as pd
import pyarrow.parquet as pq

from examples.deployment import demonstrate
from synthfair.cli import main as synthfair
from synthfair.client import distill_file
from synthfair.release.settings import load_release_config

FOLDER = Path(__file__).parent
DIGITS = 10

FINE, ROUGH = {"rel_tol": 1e-6, "abs_tol": 1e-8}, {"rel_tol": 1e-2, "abs_tol": 5e-3}
IS_ROUGH = re.compile(r"\[(surrogate(?!_private|_guaranteed)|least|model\.|metrics\.)")
"""Without noise, the search for a surrogate's weights ends before they are determined: another
processor finds others, by up to a thousandth, other models of them, and as many records or one more."""

MOST_LINES = 30
"""Differences of a section that are shown; all are counted."""

NOT_KEPT = {"version", "packages", "seconds", "schema"}
"""Keys of files that differ from run to run, or repeat what is kept elsewhere."""

LONG = {"per_client", "rows", "inputs", "coefficients", "config"}
"""Entries of metrics and models that are kept of a server, and not of other runs."""

SMALL, ROUNDS = (
    "n_synthetic = 16; steps = 5; lambda_theta = 0.1; inner_tolerance = 1e-12",
    "rounds = 5",
)

PASSES = "rounds = 2; local_epochs = 0.5"
METHODS = {
    "fedavg": f"--clients 3; {ROUNDS}; momentum = 0.9; local_steps = 3",
    "fedsgd": f"--rows-per-user 2; {ROUNDS}; cohort = 50; clip = 1.0; epsilon = 8.0; delta = 1e-4",
    "fpfl": f"--rows-per-user 2; {ROUNDS}; cohort = 200; sampling = 'fixed'; hidden = [3];"
    "notion = 'equal_opportunity'",
    "mmdm": f"--clients 3; {ROUNDS}; alpha = 0.0; notion = 'equalized_odds'",
    "dp_sgd": f"--clients 4; {PASSES}; batch = 397; clip = 1.0; epsilon = 8.0; delta = 1e-4",
    "fair_sgd": f"--clients 3; {PASSES}; batch = 100; kappa_rate = 0.1",
    "two_phase": f"--clients 3; {PASSES}; batch = 100; clip = 1.0; end_to_end = true; teacher_epochs = 1.0",
    "privfairfl_pre": f"--clients 3; {PASSES}; batch = 100; counts_epsilon = 2.0",
    "privfairfl_post": f"--clients 3; {PASSES}; batch = 100; counts_epsilon = 5.0; bins = 11; alpha = 0.1;"
    "randomized = true; counts_share = 0.3",
    "fpfl, secure": f"--rows-per-user 20; {ROUNDS}; secure = true; clip = 1.0; epsilon = 8.0;"
    "delta = 1e-3; alpha = 0.0",
}
"""Users, and settings of each method."""


def run(command: str, code: int = 0) -> list[str]:
    """What a command prints, as lines of words, without what differs from run to run."""
    said = io.StringIO()
    with redirect_stdout(said), redirect_stderr(said):
        try:
            found = synthfair(shlex.split(command))
        except SystemExit as end:
            found = end.code
    if found != code:
        sys.exit(f"{command}: exit code {found}, not {code}\n{said.getvalue()}")
    return [line for line in map(plain, said.getvalue().splitlines()) if line]


def plain(text: str) -> str:
    """One line without borders of tables, folders, sizes of files, times and hashes."""
    text = re.sub(r"[─-╿]", " ", text).replace(f"{Path.cwd()}/", "")
    text = re.sub(r"\d{4}-\d\d-\d\dT[\d:+]+", "TIME", text)
    text = re.sub(r"\b(?!86793da6)[0-9a-f]{32,}\b", "HASH", text)  # the schema's must not change
    return " ".join(re.sub(r"[\d,]+ bytes\)", "N bytes)", text).split())


def step(command: str, *files: str) -> dict[str, Any]:
    """What a command prints, and the files that it writes, as far as they are kept."""
    return {"said": run(command)} | {Path(file).name: read(Path(file)) for file in files}


def read(file: Path) -> Any:
    """A file of JSON, or what is kept of a table."""
    if file.suffix == ".json":
        return json.loads(file.read_text())
    if file.suffix == ".jsonl":
        return [json.loads(line) for line in file.read_text().splitlines()]
    if file.suffix == ".csv":
        return summary(pd.read_csv(file))
    header = (pq.read_schema(file).metadata or {}).get(b"synthfair", b"{}")
    return {"header": json.loads(header), "table": summary(pd.read_parquet(file))}


def summary(table: pd.DataFrame) -> dict[str, list[Any]]:
    """All rows of a short table; of a long one some, sums, and sums weighted by row number."""
    head = len(table) if len(table) < 50 else 3
    kept = {name: table[name].head(head).tolist() for name in table}
    if len(table) > head:
        numbers = table.select_dtypes("number").astype(float).fillna(-1.0)
        kept["(rows)"] = [len(table)]
        kept["(sums)"] = numbers.sum().tolist()
        kept["(sums by row)"] = (np.arange(1, len(table) + 1) @ numbers).tolist()
    return kept


def toml(name: str, settings: str) -> str:
    """Writes settings to a file; its name."""
    Path(name).write_text(settings.replace(";", "\n"))
    return name


# Each section returns what is kept by name, and calls those whose files it needs.

CLIENT = "client --again --schema split/schema.json --data split/client_{}_train.csv"
PRIVATE, SEEDED = "--epsilon 20 --delta 1e-5", "--insecure-noise-seed 1"
TESTS = "split/client_0_test.csv split/client_1_test.csv"


@cache
def release() -> dict[str, Any]:
    """Files of two unlike clients, and their releases of both kinds, with and without epsilon."""
    run("split loanapp --by suffolk --output split")
    run("split loanapp --clients 3 --skew 0.3 --seed 1 --output skewed")
    kept: dict[str, Any] = {str(f): read(f) for f in sorted(Path().glob("split/*_train.csv"))}
    kept["skewed"] = [len(pd.read_csv(file)) for file in sorted(Path().glob("skewed/*.csv"))]
    kept["codebook"] = read(Path("split/schema.json"))
    toml("fair.toml", SMALL)
    toml("surrogate.toml", "release = 'surrogate'; k_min = 30")
    for kind in ("fair", "surrogate"):
        asked = f"--config {kind}.toml"
        for client in range(2):
            name = f"{kind}_{client}"
            command = f"{CLIENT.format(client)} {asked} --output {name}.parquet"
            kept[name] = step(command, f"{name}.parquet")
            # The same with noise of a seed.
            config = load_release_config(Path(f"{kind}.toml"), epsilon=20.0, delta=1e-5)
            files = (
                f"split/client_{client}_train.csv",
                "split/schema.json",
                f"{kind}_private_{client}.parquet",
            )
            options = {"noise_seed": 1, "ledger": Path("seeded.jsonl"), "again": True}
            distill_file(*map(Path, files), config, **options)
            kept[f"{kind}_private_{client}"] = read(Path(files[-1]))
        for name in (f"{kind}_1", f"{kind}_private_1"):
            kept[f"{name}/inspected"] = run(f"inspect {name}.parquet --schema split/schema.json")
        # Noise that protects: what is guaranteed and booked does not depend on it.
        name, again = f"{kind}_guaranteed", f"{CLIENT.format(0)} {asked} --ledger book.jsonl"
        kept[name] = step(f"{again} {PRIVATE} --output {name}.parquet", f"{name}.parquet")
        kept[name] = kept[name][f"{name}.parquet"]["header"]
    kept["ledger"] = step("ledger book.jsonl", "book.jsonl")
    kept["limit"] = run("ledger book.jsonl --limit-epsilon 45 --limit-delta 1e-4")
    kept["refused"] = run(f"{again} --epsilon 60 --delta 1e-5 --output no.parquet", code=2)
    return kept


@cache
def server() -> dict[str, Any]:
    """Models of the pooled releases, the frontier, and what is done with models."""
    release()
    kept: dict[str, Any] = {}
    pool = f"--schema split/schema.json --test {TESTS}"
    for name, asked in {
        "fair": "",
        "fair_private": "",
        "surrogate": "--penalty selection_rate --rho 1 --records surrogate/records.parquet",
        "surrogate_private": "--notion equal_opportunity --rho 3 --frontier",
    }.items():
        said = run(f"server {name}_0.parquet {name}_1.parquet {pool} {asked} --output {name}")
        files = sorted(Path(name).glob("*.[cjp]*"))  # CSV, JSON, Parquet
        kept[name] = {"said": said} | {file.name: read(file) for file in files}
    # Without the larger client the problem has several minima, and its influence is not determined.
    del kept["surrogate"]["said"], kept["surrogate"]["metrics.json"]["influence"]
    least = f"server surrogate_0.parquet surrogate_1.parquet {pool} --output least"
    kept["least"] = step(f"{least} --max-gap 0.1 --penalty covariance", "least/model.json")
    mixed = f"server fair_0.parquet surrogate_1.parquet {pool} --output mixed"
    kept["refused"] = run(mixed, code=2)
    model = "--model surrogate_private/model.json --data split/client_1_test.csv"
    kept["evaluated"] = step(f"evaluate {model} --output e.json", "e.json")
    kept["predicted"] = step(f"predict {model} --explain --output scored.csv", "scored.csv")
    return kept


@cache
def rounds() -> dict[str, Any]:
    """A few rounds of each method, and what is guaranteed and booked where noise protects."""
    kept: dict[str, Any] = {}
    for name, given in METHODS.items():
        method, out = name.partition(",")[0], name.replace(", ", "_")
        users, settings = given.split(";", 1)
        config = toml(f"{out}.toml", f"method = '{method}'; {settings}")
        train = f"train loanapp --config {config} {users}"
        files = [f"{out}/{file}" for file in ("model.json", "metrics.json", "rounds.csv")]
        kept[name] = step(f"{train} {SEEDED} --output {out}", *files)
        if name in ("fedsgd", "dp_sgd"):
            run(f"{train} --output {out}_safe")
            metrics = read(Path(f"{out}_safe/metrics.json"))
            ledger = read(Path(f"{out}_safe/loanapp.ledger.jsonl"))
            kept[name] |= {"guarantee": metrics["guarantee"], "booked": ledger}
    return kept


@cache
def sums() -> dict[str, Any]:
    """Secure sums by files; thresholds and weights of their totals.

    Epsilon is so large that the noise is 0, but for one of 10^40 such sums.
    """
    server()
    for name in ("one", "two"):
        run(f"keygen --output {name}.key")
        run(f"keygen --aggregator --output {name}_adds.key")
    aggregators, most = "--aggregators one_adds.pub two_adds.pub", "--most-epsilon 100"
    model, kept = "--model surrogate_private/model.json", {}
    for name, of, bins in (
        ("counts", "--schema split/schema.json", ""),
        ("histogram", model, "--bins 8"),
    ):
        parties = f"{aggregators} --clients one.pub two.pub --rows-per-client 2000"
        run(f"secure plan {of} {bins} --epsilon 100 {parties} --output {name}_task.json")
        for client, key in enumerate(("one", "two")):
            data = f"--data split/client_{client}_train.csv --sign {key}.key --ledger sums.jsonl"
            share = f"answer {name}_task.json {of} {aggregators} {most} {data}"
            run(f"{share} --output {name}")
        for key in ("one", "two"):
            add = f"secure add --task {name}_task.json --key {key}_adds.key {name} {most}"
            run(f"{add} --output {name}_{key}.json")
        files = f"{name}_one.json {name}_two.json --output {name}.json"
        kept[name] = step(f"secure open --task {name}_task.json {files}", f"{name}.json")
    kept["booked"] = step("ledger sums.jsonl", "sums.jsonl")
    for method in ("published", "kamiran_calders"):
        kept[method] = step(
            f"thresholds counts.json --weights {method} --output w.json --force", "w.json"
        )
    for notion, asked in {
        "statistical_parity": "",
        "equal_opportunity": "--alpha 0.05",
        "equalized_odds": "--alpha 0.1 --randomized",
    }.items():
        command = f"thresholds histogram.json --notion {notion} {asked} {model}"
        kept[notion] = step(f"{command} --output {notion}.json", f"{notion}.json")
    ids = pd.read_csv("split/client_1_test.csv").assign(who=lambda t: [f"w{i}" for i in t.index])
    ids.to_csv("ids.csv", index=False)
    coins = "predict --model equalized_odds.json --data ids.csv --id who --output coins.csv"
    kept["coins"] = step(coins, "coins.csv")
    return kept


@cache
def gaps() -> dict[str, Any]:
    """Plans, reports of so large an epsilon that they are certain, estimates and simulations."""
    server()
    kept: dict[str, Any] = {}
    for name, asked in {
        "clients": "--epsilon 1 --precision 0.1",
        "precision": "--epsilon 4 --clients 5000 --shares 0.5 0.3 0.2",
        "epsilon": "--precision 0.1 --clients 5000 --mechanism laplace",
        "certain": "--epsilon 30 --clients 1000 --range 0 10",
    }.items():
        plan = f"gap plan --groups f m '(no value)' {asked} --output {name}.json"
        kept[name] = step(plan, f"{name}.json")
    header, first = run("gap perturb certain.json --group f --value 10 --header")
    kept["reports"] = [header, first, *run("gap perturb certain.json --group m --value 0")]
    # Two thirds of 400 values of f and half of 600 of m are the largest; four lines are wrong.
    mark, largest = first.split(",")[1], [i % 3 > 0 if i < 400 else i % 2 for i in range(1000)]
    lines = [f"{i:032x},{mark},{'fm'[i >= 400]},{2 * v - 1}" for i, v in enumerate(largest)]
    wrong = [lines[0], f"{9999:032x},{mark},x,1", f"{9998:032x},00000000,f,1", "nothing"]
    Path("reports.csv").write_text("\n".join([header, *lines, *wrong, ""]))
    kept["estimated"] = step("gap aggregate certain.json reports.csv --output g.json", "g.json")
    return kept


@cache
def compare() -> dict[str, Any]:
    """Methods on the same clients."""
    configs = f"--config {toml('c.toml', SMALL)}"
    methods = "--methods single_shot surrogate central local fedavg constant --seeds 1 --weights 10"
    run(f"compare loanapp --by suffolk {methods} {configs} --output compared")
    return {file.parent.name: read(file) for file in sorted(Path().glob("compared/*/*.json"))}


@cache
def deploy() -> dict[str, Any]:
    """One upload of two sites to a server, as processes."""
    demonstrate(Path("federation"), lambda _: None, lambda *_: None)
    names = "model.json", "metrics.json"
    kept = {name: read(Path("federation/results", name)) for name in names}
    del kept["metrics.json"]["influence"]  # of other models, which differ more
    return kept


SECTIONS = {each.__name__: each for each in (release, server, rounds, sums, gaps, compare, deploy)}


def leaves(value: Any, without: set[str], path: str = "") -> Iterator[tuple[str, Any]]:
    """Numbers, texts, and lists and mappings of them, each with the path of its keys."""
    pairs = list(value.items() if isinstance(value, dict) else enumerate(value))
    pairs = [(str(key), inner) for key, inner in pairs if key not in without]
    if any(isinstance(inner, (dict, list, tuple)) for _, inner in pairs):
        for key, inner in pairs:
            nested = isinstance(inner, (dict, list, tuple))
            place = f"{path}/{key}" if path else key
            yield from leaves(inner, without, place) if nested else [(place, short(inner))]
    else:
        kept = {key: short(inner) for key, inner in pairs}
        yield path, kept if isinstance(value, dict) else list(kept.values())


def short(value: Any) -> Any:
    """What JSON can hold, with few digits."""
    if isinstance(value, float):
        return float(f"{value:.{DIGITS}g}") if math.isfinite(value) else str(value)
    return plain(value) if isinstance(value, str) else value


def differences(old: Any, new: Any, path: str, exact: bool) -> Iterator[tuple[str, float]]:
    """What differs, in words, and by which share of its size where it is a float."""
    if isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        old, new = dict(enumerate(old)), dict(enumerate(new))
    if isinstance(old, dict) and isinstance(new, dict):
        for key in {**old, **new}:
            one, other = old.get(key, "(nothing)"), new.get(key, "(nothing)")
            yield from differences(one, other, f"{path}[{key}]", exact)
    elif isinstance(old, str) and isinstance(new, str) and not exact:
        words, others = old.split(), new.split()
        if len(words) != len(others) or not all(map(near, words, others, repeat(path))):
            yield f"{path}: {old!r} -> {new!r}", 0.0
    elif (isinstance(old, float) and isinstance(new, float)) or is_count(old, new, path):
        if old != new and (exact or not near(old, new, path)):
            yield f"{path}: {old!r} -> {new!r}", abs(new - old) / max(abs(old), abs(new))
    elif old != new or type(old) is not type(new):
        yield f"{path}: {old!r} -> {new!r}", 0.0


def is_count(old: Any, new: Any, path: str) -> bool:
    """Whether they are bytes of records, of which another processor may find one more."""
    is_sent = IS_ROUGH.match(path) and path.endswith("[bytes_sent]")
    return bool(is_sent) and {type(old), type(new)} == {int}


def near(one: float | str, other: float | str, path: str) -> bool:
    """Whether numbers, or words that may be numbers, are equal but for rounding."""
    tolerances = ROUGH if IS_ROUGH.match(path) else FINE
    try:
        numbers = [float(str(word).strip("[](),;%").replace(",", "")) for word in (one, other)]
    except ValueError:
        return one == other
    return one == other or math.isclose(*numbers, **tolerances)


def main() -> None:
    """Writes or checks the sections that are asked for."""
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser("python -m tests.golden", None, __doc__, formatter_class=form)
    parser.add_argument("sections", nargs="*", help=f"Of {', '.join(SECTIONS)}.")
    parser.add_argument("--check", action="store_true", help="Compare; write nothing.")
    parser.add_argument("--exact", action="store_true", help=f"All {DIGITS} digits must be equal.")
    parser.add_argument("--slow", action="store_true", help="With the section deploy.")
    args = parser.parse_args()
    bad = 0
    with tempfile.TemporaryDirectory() as folder, chdir(folder):
        for name in args.sections or [*SECTIONS][: None if args.slow else -1]:
            file, start = FOLDER / f"{name}.json", time.perf_counter()
            without = NOT_KEPT | (LONG if name in ("rounds", "compare", "deploy") else set())
            new = dict(leaves(SECTIONS[name](), without))
            seconds = f"{time.perf_counter() - start:.0f} s"
            if args.check:
                found = list(differences(json.loads(file.read_text()), new, "", args.exact))
                largest = max((size for _, size in found), default=0.0)
                print(f"{name}: {len(found)} differences, floats by up to {largest:.1e}; {seconds}")
                print(*(f"  {words}"[:400] for words, _ in found[:MOST_LINES]), sep="\n")
                bad += len(found)
            else:
                lines = (
                    f"{json.dumps(key)}: {json.dumps(value, allow_nan=False)}"
                    for key, value in new.items()
                )
                file.write_text("{\n" + ",\n".join(lines) + "\n}\n")
                print(f"{name}: {len(new)} entries; {seconds}")
    sys.exit(1 if bad else 0)


if __name__ == "__main__":
    main()

"""``python -m synthfair compare``: several methods on one table, with a report."""

from __future__ import annotations

import argparse
import hashlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

from synthfair.cli.options import add_config_flags, advanced, config_flags
from synthfair.cli.tables import SPLITS, TABLES, add_table_arguments, given_split, given_table
from synthfair.errors import InputError, refusal
from synthfair.files import open_file

if TYPE_CHECKING:
    from synthfair.compare import GridPoint, RoundOptions, SurrogateCache

HELP = "compare several methods on one table, over seeds"

DESCRIPTION = f"""\
Run several methods on the same clients, splits and seeds, and write the results and a
report with a table and a plot. Central training, on all rows in one place, shows what
can be had; each client alone, and the same label for all, what must be beaten. What is
done already is not done again: after Ctrl-C, the same command goes on. The report is
written anew each time. Nothing here is a release: it needs all rows in one place.

  python -m synthfair compare loans.csv --schema schema.json --by region --output comparison
  python -m synthfair compare loanapp --methods single_shot central fedavg \\
      --weights 0 10 100 --seeds 3 --output comparison

{SPLITS}
{TABLES}"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the command's arguments."""
    from synthfair.config import DistillConfig

    add_table_arguments(parser)
    parser.add_argument(
        "--methods",
        nargs="+",
        default=["single_shot", "surrogate", "central", "local", "fedavg", "constant"],
        help="Of single_shot, surrogate, central, local, fedavg, constant, fpfl, fedsgd, mmdm,"
        " dp_sgd, fair_sgd, two_phase, privfairfl_pre, privfairfl_post, exponentiated_gradient"
        " (needs fairlearn). Default: the first six.",
    )
    parser.add_argument(
        "--weights",
        type=float,
        nargs="+",
        default=[0.0, 10.0, 100.0],
        help="Values of rho_o to run; methods in rounds take alpha = 1 / rho_o, and no constraint"
        " up to 1. Default: 0 10 100.",
    )
    parser.add_argument("--seeds", type=int, default=3, help="Number of seeds. Default: 3.")
    parser.add_argument(
        "--config",
        type=Path,
        help="Settings, TOML; defaults where not given. Its rho_o and seed give way to --weights"
        " and --seeds.",
    )
    parser.add_argument("--output", type=Path, required=True, help="Folder to write to.")
    parser.add_argument(
        "--min-group-rows",
        type=int,
        default=0,
        metavar="INT",
        help="Gaps leave out groups with fewer test rows. Default: 0.",
    )
    rounds = advanced(parser, "options of methods in rounds (fpfl, fedsgd, mmdm, ...)")
    rounds.add_argument(
        "--train-config",
        type=Path,
        help="Settings, TOML, keys as in python -m synthfair train -h; defaults where not given."
        " Its method, notion, alpha and seed give way to the comparison's.",
    )
    rounds.add_argument(
        "--rows-per-user",
        type=float,
        metavar="MEAN",
        help="Users have so many rows on average. Default: the clients are the users.",
    )
    rounds.add_argument("--each-row", action="store_true", help="Every row is a user by itself.")
    leave_out = "rho_o", "max_gap", "seed"
    add_config_flags(parser, DistillConfig, common=("notion", "steps"), leave_out=leave_out)


def run(args: argparse.Namespace) -> None:
    """Executes the command."""
    from synthfair.config import DistillConfig, load_distill_config, load_server_config

    config = load_distill_config(args.config, **config_flags(args, DistillConfig))
    split = given_split(args)
    least = load_server_config(min_group_rows=args.min_group_rows).min_group_rows
    if config.max_gap is not None:
        raise InputError(f"{args.config}: max_gap: compare runs the weights that --weights gives")

    from synthfair.cli.show import say, terminal, warn
    from synthfair.jax_setup import start_jax

    table, schema = given_table(args)
    start_jax()
    train_settings = _train_settings(args)
    from rich.progress import track

    from synthfair.compare import ComparedTable, is_done, make_grid, run_point
    from synthfair.fairness.intervals import FEW_ROWS
    from synthfair.report.overview import overviews
    from synthfair.report.page import write_report
    from synthfair.report.results import read_results
    from synthfair.report.tables import overview_tables

    sha256 = _sha256(Path(args.table)) if args.schema else None
    compared = ComparedTable(table, schema, args.table, split, sha256, least)
    clients = split.apply(table, schema, seed=0)  # refuses what cannot be, before any work
    if warning := split.left_out_warning(table, clients):
        warn(f"{warning} (of seed 0)")
    rounds = _rounds(args, train_settings)
    points = make_grid(args.methods, args.weights, args.seeds, args.output)
    todo = [point for point in points if not is_done(point, compared, config, rounds=rounds)]
    refused: dict[GridPoint, str] = {}
    shared: SurrogateCache = {}
    for point in track(todo, description="comparing", console=terminal()):
        try:
            run_point(point, compared, config, rounds=rounds, shared=shared)
        except InputError as error:  # the others can be compared without it
            refused[point] = str(error)
    if len(refused) == len(points):
        raise InputError(f"no run can be compared: {refused[points[0]]}")
    for why in dict.fromkeys(refused.values()):
        names = [point.folder.name for point, other in refused.items() if other == why]
        warn(f"left out: {', '.join(names)}: {why}")
    results = read_results([point.folder for point in points if point not in refused])
    write_report(results, args.output / "report.html", force=True)
    for overview in overviews(results):
        say(overview_tables(overview))
    if failed := [result.name for result in results if result.metrics.converged is False]:
        warn(f"{len(failed)} of {len(results)} runs did not converge: {', '.join(failed)}")
    small = dict.fromkeys(name for result in results for name in result.metrics.small_groups)
    if small:
        warn(
            f"in some runs {', '.join(small)}: fewer than {FEW_ROWS} test rows, overall or of one"
            " label, so that rates are hardly known; raise --test-fraction, or read the intervals"
        )
    say(f"Wrote {len(results)} runs and {args.output / 'report.html'}.")


def _train_settings(args: argparse.Namespace) -> dict[str, Any] | None:
    """Settings of methods in rounds, as given; each must be read by one of the methods at least."""
    from pydantic import ValidationError

    from synthfair.config.loading import read_toml
    from synthfair.federated import METHODS, own_settings

    if args.train_config is None:
        return None
    given = read_toml(args.train_config)
    try:
        own_settings(given)
    except ValidationError as error:
        raise refusal(str(args.train_config), error) from error
    methods = [METHODS[name] for name in args.methods if name in METHODS]
    unread = (key for key in given if not any(method.reads(key) for method in methods))
    if names := ", ".join(sorted(unread)):
        raise InputError(f"{names}: not read by {' or '.join(args.methods)}")
    return given


def _rounds(args: argparse.Namespace, train_settings: dict[str, Any] | None) -> RoundOptions:
    """How methods in rounds train."""
    from synthfair.cli.show import warn
    from synthfair.compare import RoundOptions
    from synthfair.federated import UserAssignment

    users = {"rows_per_user": args.rows_per_user, "each_row": args.each_row or None}
    assigned = any(value is not None for value in users.values())
    if "fedavg" in args.methods and (train_settings or assigned):
        warn(
            "fedavg does not read --train-config, --rows-per-user or --each-row here: the clients"
            " are its users, and nothing is private"
        )
    return RoundOptions(train_settings, UserAssignment(**users) if assigned else None)


def _sha256(path: Path) -> str:
    with open_file(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()

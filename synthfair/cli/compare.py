"""``python -m synthfair compare``: several methods on one table, with a report."""

from __future__ import annotations

import argparse
from pathlib import Path

from synthfair.cli.options import add_config_flags, advanced, config_flags
from synthfair.errors import InputError

HELP = "compare several methods on one public table, over seeds"

DESCRIPTION = """\
Run several methods on the same clients, splits and seeds, and write the results and a
report. What is done already is not done again: after Ctrl-C, the same command goes on. The report
is written anew each time.

  python -m synthfair compare loanapp --methods single_shot central fedavg \\
      --weights 0 10 100 --seeds 3 --output comparison
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the command's arguments."""
    from synthfair.config import DistillConfig

    parser.add_argument("table", help="loanapp, law_school, dutch, adult or bank.")
    parser.add_argument("--sensitive", help="The sensitive attribute, if not the table's first.")
    parser.add_argument("--clients", type=int, default=2, help="Number of clients. Default: 2.")
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
    from synthfair.config import (
        DistillConfig,
        load_distill_config,
        load_train_config,
        require_read,
    )

    config = load_distill_config(args.config, **config_flags(args, DistillConfig))
    if config.max_gap is not None:
        raise InputError(f"{args.config}: max_gap: compare runs the weights that --weights gives")

    from synthfair.cli.show import say, terminal, warn
    from synthfair.data.datasets import load_dataset
    from synthfair.jax_setup import start_jax

    table, schema = load_dataset(args.table, args.sensitive)
    train_config = load_train_config(args.train_config) if args.train_config else None
    if train_config is not None:
        require_read(train_config, args.methods)
    start_jax()
    from rich.progress import track

    from synthfair.compare import RoundOptions, is_done, make_grid, run_point
    from synthfair.data.partition import partition
    from synthfair.federated import UserAssignment
    from synthfair.report import overview_tables, overviews, read_results, write_report

    partition(table, clients=args.clients, seed=0)  # refuses what cannot be, before any work
    users = {"rows_per_user": args.rows_per_user, "each_row": args.each_row or None}
    assigned = any(value is not None for value in users.values())
    if "fedavg" in args.methods and (train_config or assigned):
        warn(
            "fedavg does not read --train-config, --rows-per-user or --each-row here: the clients"
            " are its users, and nothing is private"
        )
    rounds = RoundOptions(train_config, UserAssignment(**users) if assigned else None)
    how = {"clients": args.clients, "rounds": rounds}
    points = make_grid(args.methods, args.weights, args.seeds, args.output)
    todo = [point for point in points if not is_done(point, schema, config, **how)]
    for point in track(todo, description="comparing", console=terminal()):
        run_point(point, table, schema, config, name=args.table, **how)
    results = read_results([point.folder for point in points])
    write_report(results, args.output / "report.html", force=True)
    for overview in overviews(results):
        say(overview_tables(overview))
    if failed := [result.name for result in results if result.metrics.converged is False]:
        warn(f"{len(failed)} of {len(results)} runs did not converge: {', '.join(failed)}")
    say(f"Wrote {len(results)} runs and {args.output / 'report.html'}.")

"""``python -m synthfair.server``: pools releases, trains once, evaluates."""

from __future__ import annotations

import argparse
from pathlib import Path

from synthfair.cli.options import add_config_flags, config_flags
from synthfair.config import ServerConfig, load_server_config

HELP = "pool release files, train one model, report accuracy and fairness"

DESCRIPTION = """\
Pool the clients' release files, train an ordinary model on them, and report accuracy
and group gaps on test tables. Writes model.json and metrics.json.

  python -m synthfair.server DIR/*.parquet --schema DIR/schema.json \\
      --test DIR/*_test.csv --output DIR/server
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the command's arguments."""
    parser.add_argument("releases", type=Path, nargs="*", help="Release files, one a client.")
    parser.add_argument("--schema", type=Path, required=True, help="The public schema, JSON.")
    parser.add_argument(
        "--test", type=Path, nargs="+", required=True, help="Test tables, one a client."
    )
    parser.add_argument("--output", type=Path, required=True, help="Folder to write to.")
    parser.add_argument(
        "--keys",
        type=Path,
        nargs="+",
        default=(),
        help="Public keys of the clients, NAME.pub each, or folders of them: then every release"
        " must be signed by another client.",
    )
    parser.add_argument("--force", action="store_true", help="Overwrite files that exist.")
    parser.add_argument(
        "--report",
        action="store_true",
        help="Write report.html and its plots to the output folder as well. Where that holds"
        " clients' *.history.csv (private; in simulations), it shows their curves.",
    )
    add_config_flags(parser, ServerConfig)


def run(args: argparse.Namespace) -> None:
    """Executes the command."""
    config = load_server_config(**config_flags(args, ServerConfig))

    from synthfair.cli.jax_setup import start_jax
    from synthfair.cli.show import say, warn

    start_jax()
    from synthfair.files import require_free
    from synthfair.report import (
        evaluation_tables,
        files_of_one,
        influence_table,
        outlier_warning,
        read_histories,
        read_results,
        run_names,
        untrained_warning,
        write_report,
    )
    from synthfair.server import serve

    page = args.output / "report.html"
    if args.report:  # all that could refuse it, before any work is done
        require_free(*files_of_one(page, *run_names([args.output])), force=args.force)
        read_histories(args.output)
    model, evaluation, influences = serve(
        args.releases,
        args.schema,
        args.test,
        args.output,
        config,
        keys=args.keys,
        force=args.force,
    )
    if args.report:
        write_report(read_results([args.output]), page, force=True)
    say(evaluation_tables(evaluation))
    if influences.releases:
        say(influence_table(influences))
    say(f"Wrote {args.output / 'model.json'} and {args.output / 'metrics.json'}.")
    for warning in (untrained_warning(model), outlier_warning(influences)):
        if warning:
            warn(warning)

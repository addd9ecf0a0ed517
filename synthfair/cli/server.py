"""``python -m synthfair.server``: pools releases, trains once, evaluates."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from synthfair.cli.options import add_config_flags, config_flags
from synthfair.errors import InputError

if TYPE_CHECKING:
    from synthfair.server import Served

HELP = "pool release files, train one model, report accuracy and fairness"

DESCRIPTION = """\
Pool the clients' release files, train one model on them, and report accuracy and group
gaps on test tables. Writes model.json and metrics.json.

  python -m synthfair.server DIR/*.parquet --schema DIR/schema.json \\
      --test DIR/*_test.csv --output DIR/server

On fair releases it trains an ordinary logistic model. On surrogates it trains one that is
fair over all clients, as often as you like, and writes fair_table.parquet, on which any ordinary
weighted logistic trainer, with the regularisation that the file names, gives the same
model; --max-gap 0.05 looks for the least weight of the penalty that reaches that gap,
--frontier shows accuracy and gap for many:

  python -m synthfair.server DIR/*.parquet --schema DIR/schema.json \\
      --test DIR/*_test.csv --max-gap 0.05 --frontier --output DIR/server

--records writes the pooled records as a table, on which any learner can be trained.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the command's arguments."""
    from synthfair.config import ServerConfig

    parser.add_argument("releases", type=Path, nargs="*", help="Release files, one a client.")
    parser.add_argument("--schema", type=Path, required=True, help="The public schema, JSON.")
    parser.add_argument(
        "--test",
        type=Path,
        nargs="+",
        default=(),
        help="Test tables, one a client. For surrogates they may be missing; then there is no"
        " metrics.json.",
    )
    parser.add_argument("--output", type=Path, required=True, help="Folder to write to.")
    parser.add_argument("--force", action="store_true", help="Overwrite files that exist.")
    parser.add_argument(
        "--keys",
        type=Path,
        nargs="+",
        default=(),
        help="Public keys of the clients, NAME.pub each, or folders of them: then every release"
        " must be signed by another client.",
    )
    parser.add_argument(
        "--frontier",
        action="store_true",
        help="Surrogates: write accuracy and gap over rho as well, on the pooled rows and on the"
        " test rows, to frontier.csv and, by matplotlib, frontier.svg.",
    )
    parser.add_argument(
        "--records",
        type=Path,
        metavar="FILE.parquet",
        help="Surrogates: write the records of all clients to this file, in the columns of the"
        " schema and a last one, weight: the real rows that each stands for, which learners take"
        " as sample_weight.",
    )
    parser.add_argument(
        "--report",
        action="store_true",
        help="Write report.html and its plots to the output folder as well. Where that holds"
        " clients' *.history.csv (private; in simulations), it shows their curves.",
    )
    common = "max_gap", "rho", "notion", "seed"
    add_config_flags(parser, ServerConfig, common=common, what="settings")


def run(args: argparse.Namespace) -> None:
    """Executes the command."""
    from synthfair.config import ServerConfig, load_server_config

    config = load_server_config(**config_flags(args, ServerConfig))

    from synthfair.cli.inputs import check_inputs
    from synthfair.jax_setup import start_jax

    if args.report and not args.test:
        raise InputError("--report: needs --test")
    check_inputs(args.schema, *args.releases, *args.test, *args.keys)
    start_jax()
    from synthfair.files import require_distinct, require_free, write_text
    from synthfair.report.figures import can_draw, frontier_figure
    from synthfair.report.page import report_files, write_report
    from synthfair.report.results import read_histories, read_results
    from synthfair.server import serve

    page, plot = args.output / "report.html", args.output / "frontier.svg"
    if args.report:  # all that could refuse it, before any work is done
        pages = report_files(page, args.output)
        require_free(*pages, force=args.force)
        if args.records:
            require_distinct(args.records, *pages)
        read_histories(args.output)
    served = serve(
        args.releases,
        args.schema,
        args.test,
        args.output,
        config,
        keys=args.keys,
        frontier=args.frontier,
        records=args.records,
        force=args.force,
    )
    if args.frontier and can_draw():
        write_text(plot, frontier_figure(served.frontier).svg())
    if args.report:
        write_report(read_results([args.output]), page, force=True)
    _tell(served, args)


def _tell(served: Served, args: argparse.Namespace) -> None:
    from synthfair.cli.show import say, warn
    from synthfair.report.figures import MISSING, can_draw
    from synthfair.report.tables import (
        evaluation_tables,
        influence_table,
        outlier_warning,
        pooled_table,
        untrained_warning,
    )

    if served.evaluation:
        say(evaluation_tables(served.evaluation, served.model.schema_))
    if served.point:
        say(pooled_table(served.point, args.max_gap))
    if served.influences.releases:
        say(influence_table(served.influences))
    written = ["model.json"]
    written += ["metrics.json"] if served.evaluation else []
    written += ["fair_table.parquet"] if served.point else []
    written += ["frontier.csv"] if args.frontier else []
    written += ["frontier.svg"] if args.frontier and can_draw() else []
    paths = [*(args.output / name for name in written), *([args.records] if args.records else [])]
    say(f"Wrote {', '.join(map(str, paths))}.")
    warnings = [untrained_warning(served.model), outlier_warning(served.influences)]
    warnings += [] if can_draw() or not (args.frontier or args.report) else [MISSING]
    for warning in (*warnings, *served.warnings):
        if warning:
            warn(warning)

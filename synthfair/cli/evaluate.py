"""``python -m synthfair evaluate``: accuracy and group gaps of a model on tables."""

from __future__ import annotations

import argparse
from pathlib import Path

from synthfair.cli.options import add_config_flags, config_flags

HELP = "measure a trained model's accuracy and group gaps on test tables"

DESCRIPTION = """\
Measure accuracy and group gaps of a model that the server trained, over all rows of
the tables given and for each table by itself. Tables without the label's column give
selection rates and SPD; accuracy and the other gaps need labels.

  python -m synthfair evaluate --model DIR/server/model.json --data DIR/*_test.csv

Of a model whose decisions are drawn by coins, metrics are means over the coins. With
thresholds by group, report shows the folder of --output fair/metrics.json.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the command's arguments."""
    from synthfair.config import ServerConfig

    parser.add_argument("--model", type=Path, required=True, help="model.json of a server.")
    parser.add_argument(
        "--data", type=Path, nargs="+", required=True, help="Test tables, CSV or Parquet."
    )
    parser.add_argument(
        "--id", metavar="COLUMN", help="Ids, as predict takes them; no metric depends on them."
    )
    parser.add_argument("--output", type=Path, help="JSON file to write the metrics to as well.")
    parser.add_argument("--force", action="store_true", help="Overwrite the output if it exists.")
    add_config_flags(parser, ServerConfig, leave_out=("max_influence",))


def run(args: argparse.Namespace) -> None:
    """Executes the command."""
    from synthfair.config import ServerConfig, load_server_config

    config = load_server_config(**config_flags(args, ServerConfig))

    from synthfair.cli.show import say, warn
    from synthfair.evaluation import (
        decision_document,
        evaluate,
        evaluation_document,
        read_tests,
        small_group_warnings,
    )
    from synthfair.fairness.intervals import missed_gap, near_constant
    from synthfair.fairness.metrics import METRIC_OF
    from synthfair.files import require_distinct, require_free, write_json
    from synthfair.report.tables import evaluation_tables, untrained_warning
    from synthfair.scoring import take_ids
    from synthfair.trained import read_model

    if args.output:
        require_distinct(args.output, args.model, *args.data)
        require_free(args.output, force=args.force)
    model = read_model(args.model)
    tables = read_tests(args.data, model.schema_)
    if args.id:
        named = zip(tables.items(), args.data, strict=True)
        tables = {
            name: take_ids(table, args.id, model.schema_, source=str(path))[1]
            for (name, table), path in named
        }
    evaluation = evaluate(model, tables, config, sources=args.data)
    if args.output:
        document = evaluation_document(evaluation, model.schema_, config)
        write_json(args.output, document | decision_document(model))
    say(evaluation_tables(evaluation, model.schema_))
    for warning in small_group_warnings(evaluation, model.schema_, config):
        warn(warning)
    if missed := missed_gap(evaluation.overall[METRIC_OF[config.notion]], config.max_gap):
        warn(missed)
    if near := near_constant(evaluation.overall["accuracy"], evaluation.constant_accuracy):
        warn(near)
    if warning := untrained_warning(model):
        warn(warning)

"""``python -m synthfair evaluate``: accuracy and group gaps of a model on tables."""

from __future__ import annotations

import argparse
from pathlib import Path

from synthfair.cli.options import add_config_flags, config_flags
from synthfair.config import ServerConfig, load_server_config

HELP = "measure a trained model's accuracy and group gaps on test tables"

DESCRIPTION = """\
Measure accuracy and group gaps of a model that the server trained, over all rows of
the tables given and for each table by itself.

  python -m synthfair evaluate --model DIR/server/model.json --data DIR/*_test.csv
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the command's arguments."""
    parser.add_argument("--model", type=Path, required=True, help="model.json of a server.")
    parser.add_argument(
        "--data", type=Path, nargs="+", required=True, help="Tables with labels, CSV or Parquet."
    )
    add_config_flags(parser, ServerConfig)


def run(args: argparse.Namespace) -> None:
    """Executes the command."""
    config = load_server_config(**config_flags(args, ServerConfig))

    from synthfair.cli.show import say
    from synthfair.evaluation import evaluate, read_tests
    from synthfair.report import evaluation_tables
    from synthfair.trained import read_model

    model = read_model(args.model)
    say(evaluation_tables(evaluate(model, read_tests(args.data, model.schema_), config)))

"""``python -m synthfair.client``: distils a private table into one release file."""

from __future__ import annotations

import argparse
from pathlib import Path

from synthfair.cli.options import add_config_flags, config_flags
from synthfair.config import DistillConfig, load_distill_config

HELP = "distil a private table into one release file"

DESCRIPTION = """\
Distil a private table into a small synthetic one, such that a model trained on the
synthetic rows is accurate and fair on the real ones. The file written to --output is
the only thing to send. It is not anonymous: see what it discloses at the end.

  python -m synthfair.client --data DIR/client_0_train.csv --schema DIR/schema.json \\
      --config configs/law_school/race.toml --output DIR/client_0.parquet

Ctrl-C keeps a checkpoint beside the output; the same command then goes on from there.
Flags override the configuration file and are named after its keys.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the command's arguments."""
    files = parser.add_argument_group("files")
    files.add_argument(
        "--data", type=Path, required=True, help="The private table, CSV or Parquet."
    )
    files.add_argument("--schema", type=Path, required=True, help="The public schema, JSON.")
    files.add_argument("--config", type=Path, help="Settings, TOML; defaults where not given.")
    files.add_argument("--output", type=Path, required=True, help="The release file to write.")
    files.add_argument("--force", action="store_true", help="Overwrite the output if it exists.")
    files.add_argument(
        "--history",
        type=Path,
        help="CSV to write every step to, for the curves of a report made in house; its name must"
        " end in .history.csv. Private: do not send it.",
    )
    files.add_argument(
        "--sign", type=Path, help="Private key to sign with; python -m synthfair keygen makes one."
    )
    settings = parser.add_argument_group("settings (keys of the configuration)")
    add_config_flags(settings, DistillConfig)  # type: ignore[arg-type]


def run(args: argparse.Namespace) -> None:
    """Executes the command."""
    config = load_distill_config(args.config, **config_flags(args, DistillConfig))

    from synthfair.cli.show import progress_bar, say, warn
    from synthfair.cli.start import start_jax
    from synthfair.client.history import require_history_name
    from synthfair.files import require_distinct, require_free
    from synthfair.keys import read_signing_key
    from synthfair.report import distillation_table, gap_warning, unconverged_warning

    inputs = [path for path in (args.data, args.schema, args.config, args.sign) if path]
    require_distinct(args.output, *inputs)
    require_free(args.output, force=args.force)
    if args.history:
        require_distinct(args.history, *inputs, args.output)
        require_history_name(args.history)
        require_free(args.history, force=args.force)
    key = read_signing_key(args.sign) if args.sign else None
    start_jax()
    from synthfair.client import distill_file
    from synthfair.client.history import write_history

    with progress_bar("distilling") as progress:
        distillation, receipt = distill_file(
            args.data,
            args.schema,
            args.output,
            config,
            key=key,
            force=args.force,
            progress=progress,
        )
    if args.history:
        write_history(distillation.history, args.history)
    if distillation.resumed_at:
        say(f"Taken up at step {distillation.resumed_at} of an interrupted run.")
    say(distillation_table(distillation, receipt))
    if args.sign:
        say(f"Signed with {args.sign}.")
    for warning in (unconverged_warning(distillation), gap_warning(distillation)):
        if warning:
            warn(warning)

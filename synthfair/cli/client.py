"""``python -m synthfair.client``: distils a private table into one release file."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from synthfair.cli.options import add_config_flags, advanced, config_flags
from synthfair.errors import InputError

if TYPE_CHECKING:
    from synthfair.client import Distillation, Receipt, SurrogateRelease
    from synthfair.config import DistillConfig, SurrogateConfig
    from synthfair.data.encode import Clipping

HELP = "distil a private table into one release file"

DESCRIPTION = """\
Distil a private table into a small synthetic one, such that a model trained on the
synthetic rows is accurate and fair on the real ones. The file written to --output is
the only thing to send. Without --epsilon it is not anonymous: see what it discloses at
the end. Every release is booked in a ledger next to the table. A fair release is checked
before it is written: copies of real rows, in it or in a trial without some of the rows,
stop it. A surrogate is drawn from rounded sums, and no record of it is made from a row.

  python -m synthfair.client --data DIR/client_0_train.csv --schema DIR/schema.json \\
      --config configs/law_school/race.toml --output DIR/client_0.parquet

For unlike clients: weighted records that stand in for the table; fairness over all clients
is then chosen at the server, and settings of fairness are not given here:

  python -m synthfair.client --data DIR/client_0_train.csv --schema DIR/schema.json \\
      --release surrogate --output DIR/client_0.parquet

With --epsilon 1 --delta 1e-6 a release of either kind is differentially private.

Ctrl-C saves a checkpoint next to the output; the same command then goes on from there.
Flags override the configuration file and are named after its keys.
"""


COMMON = ("max_gap", "rho_o", "notion", "epsilon", "delta", "seed", "k_min")
"""Settings that -h shows; --help shows them all."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the command's arguments."""
    from synthfair.config import HOLD_OUT, DistillConfig, SurrogateConfig

    parser.add_argument(
        "--data",
        type=Path,
        required=True,
        help="The private table, CSV or Parquet; for a surrogate also a folder of such files.",
    )
    parser.add_argument("--schema", type=Path, required=True, help="The public schema, JSON.")
    parser.add_argument("--output", type=Path, required=True, help="The release file to write.")
    parser.add_argument("--force", action="store_true", help="Overwrite the output if it exists.")
    parser.add_argument("--config", type=Path, help="Settings, TOML; defaults where not given.")
    parser.add_argument(
        "--release",
        choices=("fair", "surrogate"),
        help="fair: an ordinary logistic model trained on it is fair on this table. surrogate: it"
        " stands in for this table, and the server trains a model that is fair over all clients,"
        " also where they are unlike. Default: fair, or the configuration's.",
    )
    parser.add_argument(
        "--sign", type=Path, help="Private key to sign with; python -m synthfair keygen makes one."
    )
    fair, surrogate = "settings (keys of the configuration)", "settings of surrogates"
    ours, theirs = {"release", *DistillConfig.model_fields}, {*SurrogateConfig.model_fields}
    marks = dict.fromkeys(ours - theirs, "Fair") | dict.fromkeys(theirs - ours, "Surrogates")
    add_config_flags(parser, DistillConfig, common=COMMON, marks=marks, what=fair)
    add_config_flags(
        parser, SurrogateConfig, common=COMMON, leave_out=ours, marks=marks, what=surrogate
    )
    checks = advanced(parser, "checks before the release")
    checks.add_argument(
        "--hold-out",
        type=float,
        default=HOLD_OUT,
        metavar="SHARE",
        help="Share of the rows that are held out of a trial of a fair release, up to 1,000 of"
        " which are compared with it; the release that is written is then made of all rows. With"
        f" 0, or with epsilon, there is no trial. Default: {HOLD_OUT:g}.",
    )
    checks.add_argument(
        "--accept-risk",
        action="store_true",
        help="Write the release even if it holds copies of real rows; the file says so.",
    )
    checks.add_argument(
        "--insecure-noise-seed",
        type=int,
        metavar="INT",
        help="For tests: noise that anybody can repeat. Then there is no guarantee, and the release"
        " says so.",
    )
    files = advanced(parser, "files")
    files.add_argument(
        "--history",
        type=Path,
        help="CSV to write every step to, for the curves of a report made in house; its name must"
        " end in .history.csv. Private: do not send it.",
    )
    files.add_argument(
        "--ledger",
        type=Path,
        help="File in which the release is booked. Default: the table's name with .ledger.jsonl"
        " added. See: python -m synthfair ledger -h.",
    )


def run(args: argparse.Namespace) -> None:
    """Executes the command."""
    from synthfair.config import DistillConfig, SurrogateConfig, load_release_config

    given = config_flags(args, DistillConfig) | config_flags(args, SurrogateConfig)
    config = load_release_config(args.config, **given)

    from synthfair.cli.inputs import check_inputs

    check_inputs(args.schema, args.data, *filter(None, [args.sign]))
    from synthfair.cli.show import distilling_bar, say, stage_bar
    from synthfair.jax_setup import start_jax
    from synthfair.release.keys import read_signing_key
    from synthfair.report.releases import preview_table

    if args.history and isinstance(config, SurrogateConfig):
        raise InputError("--history: a surrogate is not made in steps; leave it out")
    _require_room(args)
    key = read_signing_key(args.sign) if args.sign else None
    start_jax()
    from synthfair.client import Distillation, Options, RefusedReleaseError, distill_file
    from synthfair.client.history import write_history

    options = Options(
        force=args.force,
        key=key,
        hold_out=args.hold_out,
        accept_risk=args.accept_risk,
        ledger=args.ledger,
        noise_seed=args.insecure_noise_seed,
    )
    bar = stage_bar if isinstance(config, SurrogateConfig) else distilling_bar
    try:
        with ExitStack() as shown:
            show: Callable[..., None] = shown.enter_context(stage_bar())

            def on_rows(clipping: Clipping) -> None:
                nonlocal show
                shown.close()  # a bar would hide the question
                _tell_real_rows(clipping, config)
                show = shown.enter_context(bar())

            def show_now(*now: Any) -> None:
                show(*now)  # of the bar that is there now

            made, receipt = distill_file(
                args.data,
                args.schema,
                args.output,
                config,
                options,
                on_rows=on_rows,
                progress=show_now,
                on_stage=show_now,
            )
    except RefusedReleaseError as refused:
        with suppress(BrokenPipeError):  # it is refused whether or not anybody reads on
            say(preview_table(refused.preview))
        raise
    if args.history and isinstance(made, Distillation):
        write_history(made.history, args.history)
    _tell(made, receipt, signed=args.sign)


def _require_room(args: argparse.Namespace) -> None:
    """All that could refuse the outputs, before any work is done."""
    from synthfair.client.history import require_history_name
    from synthfair.files import require_distinct, require_free

    inputs = [path for path in (args.data, args.schema, args.config, args.sign) if path]
    require_distinct(args.output, *inputs)
    require_free(args.output, force=args.force)
    if args.history:
        require_distinct(args.history, *inputs, args.output)
        require_history_name(args.history)
        require_free(args.history, force=args.force)


def _tell(made: Distillation | SurrogateRelease, receipt: Receipt, *, signed: Path | None) -> None:
    from synthfair.cli.show import say, warn
    from synthfair.client import Distillation
    from synthfair.report.releases import fit_warnings, preview_table, release_table

    if isinstance(made, Distillation) and made.resumed_at:
        say(f"Continued at step {made.resumed_at} of an interrupted run.")
    say(release_table(made, receipt))
    if receipt.preview:
        say(preview_table(receipt.preview))
    if receipt.no_trial:
        warn(receipt.no_trial)
    if signed:
        say(f"Signed with {signed}.")
    for warning in fit_warnings(made):
        warn(warning)


def _tell_real_rows(clipping: Clipping, config: DistillConfig | SurrogateConfig) -> None:
    """What is wrong with the rows. Where an epsilon is to be spent on them, a person may stop."""
    import sys

    from rich.prompt import Confirm

    from synthfair.cli.show import say, terminal, warn
    from synthfair.report.releases import clipping_table, real_rows_warnings

    if table := clipping_table(clipping):
        say(table)
    warnings = real_rows_warnings(clipping, config)
    for warning in warnings:
        warn(warning)
    console = terminal()
    if not (warnings and config.epsilon is not None):
        return
    if sys.stdin is None or not sys.stdin.isatty() or console.quiet:
        return  # a script has nobody who answers
    question = f"Make a release with epsilon = {config.epsilon:g} nevertheless?"
    if not Confirm.ask(question, console=console, default=False):
        raise InputError("no release is made")

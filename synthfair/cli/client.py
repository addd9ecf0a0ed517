"""``python -m synthfair.client``: distils a private table into one release file."""

from __future__ import annotations

import sys
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from synthfair.cli.parameters import Again, Config, Force, LedgerFile, SchemaFile, with_settings
from synthfair.cli.show import distilling, say, stage_bar, terminal, warn
from synthfair.errors import InputError
from synthfair.files import require_free
from synthfair.release.settings import DistillConfig, SurrogateConfig, load_release_config

if TYPE_CHECKING:
    from synthfair.data.encode import Clipping

_FAIR = ("rho_o", "max_gap", "penalty", "steps")


@with_settings(
    ("Settings", DistillConfig, ("epsilon", "delta", "k_min")),
    ("Settings of fair releases", DistillConfig, _FAIR),
)
def client(
    *,
    data: Path,
    schema: SchemaFile,
    output: Path,
    force: Force = False,
    config: Config | None = None,
    release: Literal["fair", "surrogate"] | None = None,
    sign: Path | None = None,
    ledger: LedgerFile | None = None,
    again: Again = False,
    without_epsilon: bool = False,
    **settings: Any,
) -> None:
    r"""Distil a private table into one release file.

    A model trained on the few synthetic rows in it is accurate and fair on the real ones. The file
    written to --output is the only thing to send. Without --epsilon it is not anonymous: see what
    it discloses at the end; and copies of real rows in a fair release stop it. Every release is
    booked in a ledger next to the table. A surrogate is drawn from rounded sums, and no record of
    it is made from a row.

        python -m synthfair.client --data DIR/client_0_train.csv \
            --schema DIR/schema.json --output DIR/client_0.parquet

    For unlike clients: weighted records that stand in for the table; fairness over all clients is
    then chosen at the server, and settings of fairness are not given here:

        python -m synthfair.client --data DIR/client_0_train.csv \
            --schema DIR/schema.json --release surrogate \
            --without-epsilon --output DIR/client_0.parquet

    With --epsilon 1 --delta 1e-6 a release of either kind is differentially private. What the
    epsilon buys is private records of the table, which are kept next to the ledger: a surrogate is
    these records, a fair release is distilled from them, and another of either, with the same
    epsilon, delta and k_min, costs nothing. From version 1.0 on, --epsilon or --without-epsilon
    must be given; until then a warning says what that means.

    Settings are keys of the configuration file, which flags override; the file can have further
    keys, which docs/method.md lists.

    Args:
        data: The private table, CSV or Parquet; for a surrogate also a folder of such files.
        output: The release file to write.
        release: fair: an ordinary logistic model trained on it is fair on this table. surrogate: it
            stands in for this table, and the server trains a model that is fair over all clients,
            also where they are unlike. Default: fair, or the configuration's.
        sign: Private key to sign with; python -m synthfair keygen makes one.
        without_epsilon: Makes a release without epsilon on purpose: nothing about a single row is
            guaranteed, and nothing warns of it. Also a key of the configuration, which --epsilon
            overrides.
    """
    settings |= {"release": release, "without_epsilon": without_epsilon or None}
    given = load_release_config(config, **settings)

    # All that could refuse the outputs, before any work is done.
    require_free(output, inputs=(data, schema, config, sign), force=force)
    from synthfair.release.keys import read_signing_key

    key = read_signing_key(sign) if sign else None
    from synthfair.report import release_tables as make

    if given.epsilon is None and not given.without_epsilon:
        warn(make.no_epsilon_warning(given))
    if isinstance(given, DistillConfig):
        from synthfair.data.schema import read_schema
        from synthfair.data.tables import read_chunks
        from synthfair.jax_setup import start_jax

        next(read_chunks(data, read_schema(schema)), None)  # refused before JAX, which takes longer
        start_jax()
    from synthfair.client import distill_file
    from synthfair.task.protocol import Run

    # Before an epsilon is spent, a person sees what is wrong with the rows; the bar makes room.
    with ExitStack() as bars:
        show = bars.enter_context(stage_bar())

        def on_rows(clipping: Clipping) -> None:
            nonlocal show
            bars.close()
            _show_rows(clipping, given)
            show = bars.enter_context(stage_bar())

        run = Run(
            progress=lambda *now: show(distilling(*now)),
            on_stage=lambda stage: show(stage),  # noqa: PLW0108 - of the bar that is there now
            on_rows=on_rows,
        )
        booked: Any = {"force": force, "key": key, "ledger": ledger, "again": again, "run": run}
        outcome, receipt = distill_file(data, schema, output, given, **booked)
    say(make.release_table(outcome, receipt))
    if sign:
        say(f"Signed with {sign}.")
    warn(*make.fit_warnings(outcome))


def _show_rows(clipping: Clipping, config: DistillConfig | SurrogateConfig) -> None:
    """Warn of what is wrong with the rows. Before an epsilon is spent, a person may stop."""
    from rich.prompt import Confirm

    from synthfair.report.release_tables import clipping_table, real_rows_warnings

    if table := clipping_table(clipping):
        say(table)
    warnings = real_rows_warnings(clipping, config)
    warn(*warnings)
    console = terminal()
    if not (warnings and config.epsilon is not None):
        return
    if sys.stdin is None or not sys.stdin.isatty() or console.quiet:
        return  # a script has nobody who answers
    question = f"Make a release with epsilon = {config.epsilon:g} nevertheless?"
    if not Confirm.ask(question, console=console, default=False):
        raise InputError("no release is made")

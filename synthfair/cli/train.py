"""``python -m synthfair train``: a method that trains in rounds, on simulated users."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from functools import wraps
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

from cyclopts import Parameter

from synthfair.cli.first_steps import Sensitive, Table, labelled_table
from synthfair.cli.parameters import (
    Again,
    Config,
    Force,
    LedgerFile,
    NoiseSeed,
    SchemaFile,
    with_settings,
)
from synthfair.errors import InputError
from synthfair.settings import load_settings

Method = Literal[
    "fedavg", "fedsgd", "fpfl", "mmdm", "dp_sgd", "fair_sgd", "two_phase",
    "privfairfl_pre", "privfairfl_post", "refine",
]  # fmt: skip


def command(argv: Sequence[str]) -> Callable[..., None]:
    """Return the command with flags for settings; for help with a method, its settings alone."""
    is_help, word = bool({"-h", "--help"} & {*argv}), "--method"
    method = argv[argv.index(word) + 1] if word in argv[:-1] else None
    if is_help and method not in get_args(Method):
        return train
    from synthfair.federated.methods import METHODS

    groups: list[tuple[str, Any, list[str]]] = []
    seen = {"method", "start"}
    for name, kind in METHODS.items():
        if not is_help or name == method:
            keys = [key for key in kind.model_fields if kind.reads(key) and key not in seen]
            groups.append((f"Settings of {name}", kind, keys))
            seen |= {*keys}
    if is_help:

        def page(**settings: Any) -> None:
            del settings

        page.__doc__ = (inspect.getdoc(groups[0][1]) or "").split("\n\n")[0]
        return with_settings(*groups)(page)

    @with_settings(*groups)
    @wraps(train)
    def run(*args: Any, **given: Any) -> None:
        train(*args, **given)

    return run


def train(
    table: Table,
    /,
    *,
    method: Method | None = None,
    schema: SchemaFile | None = None,
    sensitive: Sensitive | None = None,
    config: Config | None = None,
    output: Path,
    force: Force = False,
    clients: int | None = None,
    rows_per_user: float | None = None,
    user_column: str | None = None,
    test: tuple[Path, ...] = (),
    published_split: bool = False,
    ledger: LedgerFile | None = None,
    again: Again = False,
    insecure_noise_seed: NoiseSeed | None = None,
    weights: Path | None = None,
    start: Path | None = None,
    **settings: Annotated[Any, Parameter(show=False)],
) -> None:
    r"""Train in many rounds between a server and its users, in this process.

    Methods are federated averaging, or gradient steps under fairness constraints by differential
    multipliers (FPFL), with or without differential privacy of every user, and others. Rows are
    assigned to users at random, unless a column says whose they are: give one of --clients,
    --rows-per-user and --user-column, or there are 2 clients.

        python -m synthfair train adult --rows-per-user 2 --method fpfl \
            --rounds 1000 --cohort 200 --output fpfl

        python -m synthfair train people.csv --schema schema.json --user-column id \
            --config configs/adult/fpfl_private.toml --output private

    Writes model.json, metrics.json and rounds.csv, which holds what the server saw in each round.
    Ctrl-C saves a checkpoint; the same command then continues from there. With --epsilon a user
    with all its rows is protected, as long as whoever sums the users' reports up shows the server
    nothing but the noisy sum; with --secure, nobody sees a report: sums are by shares between two
    aggregators that do not collude, simulated here in one process. With dp_sgd and two_phase, one
    row of a client is protected, and with two_phase, unless --end-to-end, only if the teacher gives
    nothing away. The metrics of rows held out for testing are not protected. Nor does that epsilon
    cover the counts behind --weights, which have one of their own; those of privfairfl_pre and
    privfairfl_post have --counts-epsilon, which is added.

    Each method has settings of its own, which are flags and keys of the configuration file; flags
    override the file's. They are shown with the name of a method:

        python -m synthfair train --method fpfl --help

    Args:
        method: fedavg: local steps, then averaging. fedsgd: one gradient step a round. fpfl: the
            same under fairness constraints. mmdm: that with all rows in one place. dp_sgd: noisy
            steps on each client's rows, averaged. fair_sgd: fair training on each client, averaged.
            two_phase: the same once, for a teacher, and a student of it by noisy steps, averaged.
            privfairfl_pre: dp_sgd with rows weighed by counts of group and label. privfairfl_post:
            dp_sgd, then decisions by group from a histogram of scores. refine: Newton's method on
            exact sums. Default: fpfl.
        output: Folder to write to.
        clients: Number of clients, all with equally many rows.
        rows_per_user: Many users, of this many rows on average.
        user_column: The column of the file that says whose a row is.
        test: Test tables, for a file. Default: a fifth of the rows.
        published_split: The split a named table came with: adult.
        weights: Weights of rows by group and label, of thresholds --weights; for fedavg and dp_sgd.
        start: refine: model file to start from, of a server. Default: from zeros.
    """
    from synthfair.cli.show import command, conclude, counting_bar, say, warn
    from synthfair.data.datasets import SOURCES
    from synthfair.data.datasets import published_split as split_of
    from synthfair.evaluation import read_tests, small_group_warnings
    from synthfair.jax_setup import start_jax

    # The rows and their tests.
    is_public = table in SOURCES
    if is_public and (schema or test or user_column):
        raise InputError(f"table {table}: --schema, --test and --user-column are for files")
    if published_split and not is_public:
        raise InputError("--published-split is for named tables; --test names files")
    if published_split:
        rows, held_out, table_schema = split_of(table, sensitive)
        tests = {"test": held_out}
    else:
        rows, table_schema = labelled_table(table, schema, sensitive)
        tests = read_tests(test, table_schema) if test else None
    start_jax()
    from synthfair.fairness.intervals import near_constant
    from synthfair.federated import train_table
    from synthfair.federated.method import TrainConfig
    from synthfair.federated.refine import read_start
    from synthfair.federated.training import TRAINING_FILES
    from synthfair.postprocess import RowWeights
    from synthfair.privacy.ledger import LEDGER_ENDING, Ledger
    from synthfair.report.answer import run_sentence
    from synthfair.report.result_tables import evaluation_tables, training_table

    # The settings, and whose a row is.
    if start:
        settings["start"] = read_start(start, table_schema)
    method_config = load_settings(TrainConfig, config, {"method": method} | settings)
    users = {"clients": clients, "rows_per_user": rows_per_user, "user_column": user_column}
    rule = {name: value for name, value in users.items() if value is not None} or {"clients": 2}

    # The training, with a bar.
    if ledger is None:
        ledger = (
            output / f"{table}{LEDGER_ENDING}" if is_public else Ledger.for_table(Path(table)).path
        )
    with counting_bar("training") as on_rounds:
        training, evaluation = train_table(
            rows,
            table_schema,
            method_config,
            output,
            ledger=ledger,
            users=rule,
            tests=tests,
            source=table,
            weights=RowWeights.read(weights) if weights else None,
            force=force,
            again=again or is_public,
            noise_seed=insecure_noise_seed,
            on_rounds=on_rounds,
        )

    # What came of it.
    if training.resumed_at:
        say(f"Continued at round {training.resumed_at} of an interrupted run.")
    say(training_table(training, private=insecure_noise_seed is None))
    say(evaluation_tables(evaluation))
    if training.model.converged is False:
        warn(method_config.unsettled)
    warn(
        *small_group_warnings(evaluation, table_schema),
        near_constant(evaluation.overall["accuracy"], evaluation.constant_accuracy),
    )
    conclude(
        run_sentence(output),
        [output / name for name in TRAINING_FILES],
        command("report", output, "--output", output / "report.html"),
    )

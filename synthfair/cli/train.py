"""``python -m synthfair train``: a method that trains in rounds, on simulated users."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from synthfair.cli.options import advanced
from synthfair.cli.tables import add_named_table, named_table
from synthfair.errors import InputError

if TYPE_CHECKING:
    import pandas as pd

    from synthfair.data.schema import Schema
    from synthfair.evaluation import Evaluation
    from synthfair.federated import TrainConfig, TrainFiles, Training

HELP = "train in rounds (FedAvg, FPFL, ...), to compare with one upload"

DESCRIPTION = """\
Train in many rounds between a server and its users, in this process: federated
averaging, or gradient steps under fairness constraints by differential multipliers
(FPFL), with or without differential privacy of every user. Rows are assigned to users
at random, unless a column says whose they are.

  python -m synthfair train adult --rows-per-user 2 --method fpfl --rounds 1000 \\
      --cohort 200 --output fpfl

  python -m synthfair train people.csv --schema schema.json --user-column id \\
      --config configs/adult/fpfl_private.toml --output private

Writes model.json, metrics.json and rounds.csv, which holds what the server saw in each
round. Ctrl-C saves a checkpoint; the same command then continues from there. With
--epsilon a user with all its rows is protected, as long as whoever sums the users'
reports up shows the server nothing but the noisy sum; with --secure, nobody sees a
report: sums are by shares between two aggregators that do not collude, simulated here
in one process. With dp_sgd and two_phase, one row of a client is protected, and with
two_phase, unless --end-to-end, only if the teacher gives nothing away. The metrics of
rows held out for testing are not protected. Nor does that epsilon cover the counts
behind --weights, which have one of their own; those of privfairfl_pre and
privfairfl_post have --counts-epsilon, which is added.
"""


METHODS = (
    "fedavg", "fedsgd", "fpfl", "mmdm", "dp_sgd", "fair_sgd", "two_phase", "privfairfl_pre",
    "privfairfl_post",
)  # fmt: skip
NOTIONS = ("equal_opportunity", "statistical_parity", "equalized_odds", "accuracy_parity")

# Flags that are settings, without loading JAX: values, and help. A list is of several values.
COMMON: dict[str, tuple[Any, str]] = {
    "method": (
        METHODS,
        "fedavg: local steps, then averaging. fedsgd: one gradient step a round. fpfl: the same"
        " under fairness constraints. mmdm: that with all rows in one place. dp_sgd: noisy steps on"
        " each client's rows, averaged. fair_sgd: fair training on each client, averaged."
        " two_phase: the same once, for a teacher, and a student of it by noisy steps, averaged."
        " privfairfl_pre: dp_sgd with rows weighed by counts of group and label. privfairfl_post:"
        " dp_sgd, then decisions by group from a histogram of scores. Default: fpfl.",
    ),
    "rounds": (int, "Rounds in all. Default: 500; 4 from dp_sgd on."),
    "cohort": (int, "Users of a round, or, drawn by Poisson sampling, on average. Default: all."),
    "learning_rate": (float, "Of a step. Default: 0.5; 2 from dp_sgd on; 0.01 of fair_sgd."),
    "notion": (NOTIONS, "Rates that must not differ by group. Default: statistical_parity."),
    "alpha": (float, "Most by which rates may differ. Default: 0.02; 0.01 of fair_sgd, two_phase."),
    "clip": (float, "Norm to which a user's report, or a row's gradient, is cut; with epsilon."),
    "epsilon": (float, "Differential privacy of a user with all its rows, or of a client's row."),
    "delta": (float, "With epsilon: less than 1 / (number of users, or of a client's rows)."),
    "seed": (int, "Seed of everything random; the same seed gives the same bytes. Default: 0."),
}  # fmt: skip

ADVANCED: dict[str, tuple[Any, str]] = {
    "hidden": ([int], "Widths of a network's hidden layers; none for a linear model."),
    "group_input": (bool, "Whether the model sees the sensitive attribute. Default: true."),
    "sampling": (
        ("poisson", "fixed"),
        "Cohorts user by user, which hides whether a user is there; or of a fixed number, which"
        " hides what its rows are, and takes 3 to 4 times the noise. Default: poisson.",
    ),
    "secure": (
        bool,
        "fedavg, fedsgd, fpfl: sums what users send by shares of two aggregators, so that nobody"
        " sees a user's; each adds discrete noise where epsilon asks for it. Needs clip.",
    ),
    "local_steps": (int, "fedavg: steps of a user in a round. Default: 5."),
    "momentum": (float, "fedavg: share of its last movement that the server adds. Default: 0."),
    "memory": (float, "fedsgd, fpfl, mmdm: share that earlier cohorts' sums keep. Default: 0.9."),
    "also": ([str], "fpfl, mmdm: further attributes, by column, that are constrained likewise."),
    "batch": (int, "From dp_sgd on: rows of a batch. Default: 500, or as many as a client has."),
    "local_epochs": (
        float,
        "From dp_sgd on: passes over the smallest client's rows in a round. Default: 5.",
    ),
    "kappa": (float, "fair_sgd, two_phase: initial weight of unfairness. Default: 1."),
    "kappa_rate": (
        float,
        "fair_sgd, two_phase: kappa grows in a step by this times the unfairness. Default: 0.",
    ),
    "end_to_end": (
        bool,
        "two_phase: whether the teachers are private, too. If not, epsilon is conditional on them,"
        " and nothing is guaranteed from end to end.",
    ),
    "counts_epsilon": (
        float,
        "privfairfl_*: budget of the counts over all clients, for one row, on top of epsilon;"
        " without it counts are exact.",
    ),
    "weight_method": (
        ("published", "kamiran_calders"),
        "privfairfl_pre: how weights follow from counts, see weights. Default: kamiran_calders.",
    ),
    "bins": (int, "privfairfl_post: score bins; 21 for counts_epsilon up to 0.1. Default: 101."),
    "randomized": (bool, "privfairfl_post: whether decisions may be drawn by coins."),
    "counts_share": (
        float,
        "privfairfl_post: share of a client's rows that are counted and not trained on; with 0 all"
        " are both, as published, so that estimates flatter. Default: 0.",
    ),
}  # fmt: skip


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the command's arguments."""
    add_named_table(parser)
    parser.add_argument(
        "--config",
        type=Path,
        help="Settings, TOML, named as the flags are, and damping, multiplier_rate, count_scale,"
        " rate_scale and teacher_epochs, which have none; defaults where not given.",
    )
    parser.add_argument("--output", type=Path, required=True, help="Folder to write to.")
    parser.add_argument("--force", action="store_true", help="Overwrite files that exist.")
    users = parser.add_argument_group("users (one of four; default: 2 clients)")
    users.add_argument("--clients", type=int, help="Number of clients, all with equally many rows.")
    many = "Many users, of this many rows on average."
    users.add_argument("--rows-per-user", type=float, metavar="MEAN", help=many)
    each = "Every row is a user by itself."
    users.add_argument("--each-row", action="store_true", default=None, help=each)
    users.add_argument("--user-column", help="The column of the file that says whose a row is.")
    _add_settings(parser, COMMON)
    _add_settings(advanced(parser, "settings of methods"), ADVANCED)
    tests = advanced(parser, "test rows (default: a fifth of the rows)")
    tests.add_argument("--test", type=Path, nargs="+", help="Test tables, for a file.")
    tests.add_argument(
        "--published-split", action="store_true", help="The split a named table came with: adult."
    )
    others = advanced(parser, "files and tests")
    others.add_argument(
        "--ledger",
        type=Path,
        help="File in which the training is booked. Default: the table's name with .ledger.jsonl"
        " added, or, for a named table, that of the output folder.",
    )
    others.add_argument(
        "--insecure-noise-seed",
        type=int,
        metavar="INT",
        help="For tests: noise that anybody can repeat. With it, epsilon guarantees nothing.",
    )
    others.add_argument(
        "--weights",
        type=Path,
        help="Weights of rows by group and label, of the command weights; for fedavg and dp_sgd.",
    )


def _add_settings(group: argparse._ActionsContainer, flags: dict[str, tuple[Any, str]]) -> None:
    for key, (kind, said) in flags.items():
        form: dict[str, Any] = {"type": kind}
        if isinstance(kind, tuple):
            form = {"choices": kind}
        elif kind is bool:
            form = {"action": argparse.BooleanOptionalAction}
        elif isinstance(kind, list):
            form = {"type": kind[0], "nargs": "*"}
        if "type" in form:
            form["metavar"] = form["type"].__name__.upper()
        group.add_argument("--" + key.replace("_", "-"), dest=key, help=said, **form)


def run(args: argparse.Namespace) -> None:
    """Executes the command."""
    from synthfair.cli.show import counting_bar, warn
    from synthfair.jax_setup import start_jax

    table, schema, tests = _tables(args)
    start_jax()
    from synthfair.config import ServerConfig
    from synthfair.evaluation import small_group_warnings
    from synthfair.fairness.intervals import near_constant
    from synthfair.federated import TrainFiles, UserAssignment, assign_users, train_table
    from synthfair.federated.methods import load_train_config
    from synthfair.postprocess import read_weights

    flags = {key: getattr(args, key) for key in (*COMMON, *ADVANCED)}
    config = load_train_config(args.config, **flags)
    private = all(config.get(key) is not None for key in ("epsilon", "cohort"))
    if private and config.get("sampling") == "fixed":
        warn(
            "sampling = fixed takes about three to four times the noise of poisson at equal"
            " epsilon: prefer poisson, unless everybody knows who takes part"
        )
    named = {n: getattr(args, n) for n in ("clients", "rows_per_user", "each_row", "user_column")}
    given = any(value is not None for value in named.values())
    assignment = UserAssignment(**named) if given else UserAssignment(clients=2)
    assigned = assign_users(table, assignment, seed=config.seed, tests=tests)
    weights = read_weights(args.weights) if args.weights else None
    files = TrainFiles(args.output, _ledger(args), args.force, args.insecure_noise_seed)
    with counting_bar("training") as on_rounds:
        training, evaluation = train_table(
            assigned, schema, config, files,
            source=str(args.table), weights=weights, on_rounds=on_rounds,
        )  # fmt: skip
    _report(training, evaluation, files, config)
    for warning in small_group_warnings(evaluation, schema, ServerConfig()):
        warn(warning)
    if near := near_constant(evaluation.overall["accuracy"], evaluation.constant_accuracy):
        warn(near)


def _tables(
    args: argparse.Namespace,
) -> tuple[pd.DataFrame, Schema, dict[str, pd.DataFrame] | None]:
    """The table, its schema, and test tables if there are any."""
    from synthfair.data.datasets import SOURCES, published_split
    from synthfair.evaluation import read_tests

    named = args.table in SOURCES
    if named and (args.schema or args.test or args.user_column):
        raise InputError(f"table {args.table}: --schema, --test and --user-column are for files")
    if named and args.published_split:
        table, test, schema = published_split(args.table, args.sensitive)
        return table, schema, {"test": test}
    if args.published_split:
        raise InputError("--published-split is for named tables; --test names files")
    table, schema = named_table(args)
    return table, schema, read_tests(args.test, schema) if args.test else None


def _ledger(args: argparse.Namespace) -> Path:
    from synthfair.data.datasets import SOURCES
    from synthfair.privacy.ledger import ENDING, Ledger

    if args.ledger:
        return args.ledger
    if args.table in SOURCES:
        return args.output / f"{args.table}{ENDING}"
    return Ledger.for_table(Path(args.table)).path


def _report(
    training: Training, evaluation: Evaluation, files: TrainFiles, config: TrainConfig
) -> None:
    from synthfair.cli.show import say, warn
    from synthfair.report.tables import evaluation_tables, training_table

    if training.resumed_at:
        say(f"Continued at round {training.resumed_at} of an interrupted run.")
    say(training_table(training, private=files.noise_seed is None))
    say(evaluation_tables(evaluation, training.model.schema_))
    if training.model.converged is False:
        warn(
            "fedavg did not settle: more rounds, or another learning rate"
            if config.method == "fedavg"
            else "no round met the constraint on what the server saw of its cohorts, or they had"
            " too few rows of a group: the fairest model is taken, or the most accurate. Try more"
            " rounds, larger cohorts, or a larger alpha"
        )
    say(f"Wrote {files.model}, {files.metrics} and {files.rounds}.")

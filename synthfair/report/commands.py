"""What to type to run something again, from what its results say."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import cast

from synthfair.config import (
    DistillConfig,
    ServerConfig,
    SurrogateConfig,
    TrainConfig,
    changed_settings,
)
from synthfair.postprocess.decision import RANDOMIZED
from synthfair.release.keys import PRIVATE, PUBLIC
from synthfair.run_files import DecisionSettings, MetricsFile, RoundSettings, SplitTable


def commands(metrics: MetricsFile) -> list[str]:
    """Lines that run it again.

    A server does not know the names of clients' tables: CLIENT_train.csv stands for them.
    """
    if metrics.table:
        return [_compare_command(metrics, metrics.table)]
    if metrics.train:
        return [_train_command(metrics.train, weighted=metrics.weights is not None)]
    if metrics.decision:
        return [_thresholds_command(metrics.decision, metrics.method)]
    names = {client: _stem(client) for client in metrics.config}
    signed = {client: f"{name}{PRIVATE}" for client, name in metrics.signed_by.items()}
    clients = [
        client_command(names[client], config, signed.get(client))
        for client, config in metrics.config.items()
    ]
    words = ["python", "-m", "synthfair.server", *(f"{name}.parquet" for name in names.values())]
    words += ["--schema", "schema.json", "--test"]
    words += [f"{_stem(client)}.csv" for client in metrics.per_client]
    if metrics.signed_by:
        words += ["--keys", *(f"{name}{PUBLIC}" for name in metrics.signed_by.values())]
    words += ["--output", "server"]
    if metrics.server:
        return [*clients, shlex.join([*words, *_flags(metrics.server), "--report"])]
    words += ["--resamples", str(metrics.resamples), *_least(metrics)]
    if metrics.max_influence is not None:
        words += ["--max-influence", repr(metrics.max_influence)]
    return [*clients, shlex.join([*words, "--seed", str(metrics.seed), "--report"])]


def _stem(name: str) -> str:
    """A client's name; where names repeated, the server has used whole paths instead."""
    return name.removesuffix(".parquet").removesuffix(".csv")


def _compare_command(metrics: MetricsFile, table: SplitTable) -> str:
    config = cast(DistillConfig, next(iter(metrics.config.values())))
    words = ["python", "-m", "synthfair", "compare", table.name, "--sensitive", table.sensitive]
    words += ["--schema", "schema.json"] if table.sha256 else []
    split = table.model_dump(exclude={"name", "sensitive", "sha256"}, exclude_defaults=True)
    for key, value in split.items():
        words += ["--" + key.replace("_", "-"), str(value)]
    words += _least(metrics)
    words += ["--methods", metrics.method]
    words += ["--weights", repr(config.rho_o), "--seeds", str(config.seed + 1)]
    if metrics.train:  # its settings stand in metrics.json
        words += ["--train-config", "train.toml"]
        words += _user_flags(metrics.train)
    words += ["--output", "comparison", *_flags(config, leave_out=("rho_o", "seed"))]
    return shlex.join(words)


def _least(metrics: MetricsFile) -> list[str]:
    """Which groups count, as flags."""
    least = metrics.min_group_rows
    return ["--min-group-rows", str(least)] if least else []


def _thresholds_command(decision: DecisionSettings, method: str) -> str:
    words = ["python", "-m", "synthfair", "thresholds", "histogram.json"]
    words += ["--notion", decision.notion, "--alpha", repr(decision.alpha)]
    words += ["--randomized"] if method == RANDOMIZED else []
    return shlex.join([*words, "--model", "model.json", "--output", "fair_model.json"])


def _train_command(train: RoundSettings, *, weighted: bool) -> str:
    """The name of its table is known only where it ran."""
    words = ["python", "-m", "synthfair", "train", "table.csv", "--schema", "schema.json"]
    words += _user_flags(train)
    words += ["--weights", "weights.json"] if weighted else []
    config = TrainConfig(**{key: getattr(train, key) for key in TrainConfig.model_fields})
    return shlex.join([*words, "--output", "trained", *_flags(config)])


def _user_flags(train: RoundSettings) -> list[str]:
    """How rows became users, as flags."""
    words = ["--each-row"] if train.each_row else []
    for key in ("clients", "rows_per_user", "user_column"):
        if (value := getattr(train, key)) is not None:
            words += ["--" + key.replace("_", "-"), str(value)]
    return words


def client_command(
    client: str, config: DistillConfig | SurrogateConfig, key: str | None = None
) -> str:
    """What a client types to distil with these settings."""
    words = ["python", "-m", "synthfair.client", "--data", f"{client}_train.csv"]
    words += ["--release", "surrogate"] if isinstance(config, SurrogateConfig) else []
    words += ["--schema", "schema.json", "--output", f"{client}.parquet", *_flags(config)]
    return shlex.join([*words, *(["--sign", key] if key else [])])


def _flags(
    config: DistillConfig | SurrogateConfig | ServerConfig | TrainConfig,
    leave_out: Sequence[str] = (),
) -> list[str]:
    flags = []
    for key, value in changed_settings(config).items():
        flag = "--" + key.replace("_", "-")
        if key in leave_out:
            continue
        if isinstance(value, bool):
            flags.append(flag if value else flag.replace("--", "--no-", 1))
        elif isinstance(value, tuple):
            flags += [flag, *map(str, value)]
        else:
            flags += [flag, str(value)]
    return flags

"""The commands that run a result again."""

from __future__ import annotations

import json
import math
import shlex
from collections.abc import Collection
from typing import Any, cast

from synthfair.config import DistillConfig, SurrogateConfig, changed_settings
from synthfair.config.distill import WITHOUT_FLAGS
from synthfair.postprocess.decision import RANDOMIZED
from synthfair.release.keys import PRIVATE, PUBLIC
from synthfair.run_files import MetricsFile, RoundSettings, SplitTable


def commands(metrics: MetricsFile) -> list[str]:
    """The commands that run a result again, one a line.

    What the run does not know stands for itself: table.csv for a table of rounds, CLIENT_train.csv
    for that of a server's client.
    """
    least = {"min_group_rows": metrics.min_group_rows or None}
    # A comparison, a training in rounds, or decisions by group: one command each.
    if metrics.table:
        return [_compare(metrics, metrics.table, least)]
    if train := metrics.train:
        from synthfair import federated

        flags = {"schema": "schema.json", **_users(train), "output": "trained"}
        flags |= {"weights": "weights.json" if metrics.weights else None}
        changes, without = federated.own_settings(train.own).changes, federated.WITHOUT_FLAGS
        command = "synthfair", "train", "table.csv"
        return [
            _configured(*command, **flags, settings=changes, file="train.toml", without=without)
        ]
    if decision := metrics.decision:
        flags = {"notion": decision.notion, "alpha": decision.alpha}
        flags |= {"randomized": True if metrics.method == RANDOMIZED else None}
        flags |= {"model": "model.json", "output": "fair_model.json"}
        return [_line("synthfair", "thresholds", "histogram.json", **flags)]

    # Those of all clients, and then the server's.
    lines, signers = [], metrics.signed_by
    for client, config in metrics.config.items():
        key = f"{signers[client]}{PRIVATE}" if client in signers else None
        lines.append(client_command(_stem(client), config, key))
    settings = {"resamples": metrics.resamples, **least, "max_influence": metrics.max_influence}
    settings |= {"seed": metrics.seed}
    releases = metrics.influence.releases.values() if metrics.influence else ()
    weighted = any(not math.isnan(one.weight) for one in releases)
    server = _line(
        "synthfair.server",
        *(f"{_stem(client)}.parquet" for client in metrics.config),
        schema="schema.json",
        test=[f"{_stem(client)}.csv" for client in metrics.per_client],
        keys=[f"{name}{PUBLIC}" for name in signers.values()] or None,
        trusted="trusted.csv" if weighted else None,
        output="server",
        **(changed_settings(metrics.server) if metrics.server else settings),
        report=True,
    )
    return [*lines, server]


def client_command(
    client: str, config: DistillConfig | SurrogateConfig, key: str | None = None
) -> str:
    """The command with which a client distils with these settings."""
    return _configured(
        "synthfair.client",
        data=f"{client}_train.csv",
        release="surrogate" if isinstance(config, SurrogateConfig) else None,
        schema="schema.json",
        output=f"{client}.parquet",
        sign=key,
        without_epsilon=True if config.epsilon is None else None,
        settings=changed_settings(config),
        file=f"{client}.toml",
    )


def _compare(metrics: MetricsFile, table: SplitTable, least: dict[str, int | None]) -> str:
    config = cast(DistillConfig, next(iter(metrics.config.values())))
    split = table.model_dump(exclude={"name", "sensitive", "sha256"}, exclude_defaults=True)
    flags = {"sensitive": table.sensitive, "schema": "schema.json" if table.sha256 else None}
    flags |= split | least | {"methods": metrics.method, "weights": config.rho_o}
    flags |= {"seeds": config.seed + 1}
    if metrics.train:  # its settings stand in metrics.json
        flags |= {"train_config": "train.toml", **_users(metrics.train)}
    others = {k: v for k, v in changed_settings(config).items() if k not in ("rho_o", "seed")}
    flags |= {"output": "comparison", "settings": others, "file": "comparison.toml"}
    return _configured("synthfair", "compare", table.name, **flags)


def _users(train: RoundSettings) -> dict[str, object]:
    """The flags of the assignment of rows to users."""
    flags = {key: getattr(train, key) for key in ("clients", "rows_per_user", "user_column")}
    return {"each_row": train.each_row or None, **flags}


def _stem(name: str) -> str:
    """A client's name; where names repeated, the server has used whole paths instead."""
    return name.removesuffix(".parquet").removesuffix(".csv")


def _configured(
    module: str,
    *words: str,
    settings: dict[str, Any],
    file: str,
    without: Collection[str] = WITHOUT_FLAGS,
    **flags: object,
) -> str:
    """A command with settings; a remark shows those without a flag, which the file holds."""
    keys = [key for key in settings if key in without]
    remark = "".join(f"# {file}: {key} = {json.dumps(settings[key])}\n" for key in keys)
    flag_values = {key: value for key, value in settings.items() if key not in keys}
    return remark + _line(module, *words, **flags, config=file if keys else None, **flag_values)


def _line(module: str, *words: str, **flags: object) -> str:
    """A command with its flags; those that are None are left out."""
    parts = ["python", "-m", module, *words]
    for key, value in flags.items():
        flag = key.replace("_", "-")
        if isinstance(value, bool):
            parts.append(f"--{flag}" if value else f"--no-{flag}")
        elif value is not None:
            values = value if isinstance(value, list | tuple) else [value]
            parts += [f"--{flag}", *map(str, values)]
    return shlex.join(parts)

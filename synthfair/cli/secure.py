r"""Sums over clients with noise, so that nobody sees a client's part.

Sums are counts of rows by group, label and a model's score, or those of which one private surrogate
of all clients' rows is made. Each client cuts its part into shares, one for each of two or three
aggregators, which must not collude. Each aggregator adds up its shares and adds noise; together
their answers give the noisy total, with differential privacy, and nobody sees any client's part.

    # each aggregator
    python -m synthfair keygen --aggregator --output aggregator_0.key
    # anybody; it is public
    python -m synthfair secure plan --model model.json --epsilon 1 \
        --rows-per-client 5000 --aggregators aggregator_0.pub aggregator_1.pub \
        --clients keys/ --output task.json
    # each client
    python -m synthfair answer task.json --data rows.csv --model model.json \
        --aggregators aggregator_0.pub aggregator_1.pub --most-epsilon 1 \
        --sign client_0.key --output DIR
    # each aggregator, once
    python -m synthfair secure add --task task.json --key aggregator_0.key DIR \
        --most-epsilon 1 --output sum_0.json
    # anybody
    python -m synthfair secure open --task task.json sum_0.json sum_1.json \
        --output histogram.json

Clients' keys are those of keygen without --aggregator.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import App, Parameter

from synthfair.cli.parameters import Force, SchemaFile
from synthfair.errors import InputError

if TYPE_CHECKING:
    import synthfair as sf

secure = App(name="secure", help=__doc__)

TaskFile = Annotated[Path, Parameter(help="The public file that plan wrote.")]


@secure.command
def plan(
    *,
    model: Path | None = None,
    schema: SchemaFile | None = None,
    surrogate: Path | None = None,
    opened: Path | None = None,
    bins: int | None = None,
    epsilon: float | None = None,
    rows_per_client: int | None = None,
    aggregators: tuple[Path, ...],
    clients: tuple[Path, ...],
    least_clients: int | None = None,
    output: Path,
    force: Force = False,
    unit: Literal["row", "user"] = "row",
    rows_per_user: int = 1,
) -> None:
    r"""Write the public file: what is summed, the privacy, the aggregators, the clients.

    With a model: counts of rows by group, label and bin of the model's score, from which thresholds
    are chosen. With a schema alone: counts by group and label, from which weights follow.

        python -m synthfair secure plan --model model.json --bins 101 --epsilon 1 \
            --rows-per-client 5000 --aggregators aggregator_0.pub aggregator_1.pub \
            --clients client_*.pub --output task.json

    epsilon: for tables that differ in one row (or in one user's rows, with --unit user), no result
    is more than exp(epsilon) times as likely from one as from the other. It holds against each
    single aggregator and against everyone who sees the total.

    Bins: each count has noise of its own, and more bins have more of it in all. With few rows or a
    small epsilon take fewer, such as 21.

    With a schema and the settings of a surrogate: what is summed next for one private surrogate of
    all clients' rows. Its tasks go into the folder --output, a file each. Put what open writes into
    the folder --opened, and run the same command again after each exchange; after the last, it
    writes surrogate.parquet, a release for the server.

        python -m synthfair secure plan --surrogate shared.toml \
            --schema schema.json --aggregators aggregator_0.pub aggregator_1.pub \
            --clients keys --opened opened --output tasks

    Args:
        model: model.json, whose scores are counted.
        surrogate: Settings of a surrogate with epsilon, TOML.
        opened: Of a surrogate: folder of the totals that were opened so far.
        bins: Number of score bins, with a model. Default: 101.
        epsilon: Privacy budget of counts.
        rows_per_client: Of counts: no client has more rows; larger tables, and totals that would
            need them, are refused.
        aggregators: Public keys of two or three aggregators that do not collude, by role.
        clients: Public keys of the clients, as keygen writes them, or folders of them.
        least_clients: With fewer, nothing is answered or opened; all if not given. Who is in the
            first sums of a surrogate must be in all others.
        output: The public file to write, e.g. task.json; of a surrogate a folder.
        unit: What epsilon protects: one row, or all rows of a user.
        rows_per_user: With the unit user: at most so many rows of each user count, whatever their
            order in the table; noise grows with it.
    """
    from synthfair.cli.show import say
    from synthfair.files import require_free
    from synthfair.postprocess.histogram import MIN_COUNT_ERRORS
    from synthfair.release.format import write_release
    from synthfair.release.keys import read_keys
    from synthfair.release.settings import load_release_config
    from synthfair.secure.summands import GroupCounts, OpenedSum
    from synthfair.secure.surrogate import next_tasks, surrogate_from_sums
    from synthfair.secure.task import make_task, read_aggregator_keys

    inputs = (model, schema, surrogate, *aggregators, *clients)
    trained_model, table_schema = model_and_schema(model, schema)
    if bins is not None and not model:
        raise InputError("flags: --bins is for --model, whose scores are counted")
    names, keys = read_keys(clients), [read_aggregator_keys(path) for path in aggregators]
    least = least_clients or len(names)
    if surrogate:
        if (epsilon, rows_per_client, unit, rows_per_user) != (None, None, "row", 1):
            raise InputError(
                "flags: --epsilon, --rows-per-client, --unit and --rows-per-user are of counts; a"
                " surrogate's epsilon is in its settings, and its unit is one row"
            )
        config: Any = load_release_config(surrogate, release="surrogate")
        if config.relation != "add_or_remove":  # which every answer would refuse
            raise InputError(f"{surrogate}: relation = {config.relation}; must be add_or_remove")
        totals = [OpenedSum.read(path) for path in sorted(opened.glob("*.json"))] if opened else []
        release = output / "surrogate.parquet"
        planned = next_tasks(totals, config, table_schema, keys, names, least=least)
        tasks = {output / f"{name}.json": task for name, task in planned.items()}
        if not tasks:
            require_free(release, inputs=inputs, force=force)
            write_release(surrogate_from_sums(totals, config, table_schema), release)
            say(f"Wrote {release}, the surrogate of {len(totals[0].clients)} clients.")
    elif epsilon is None or rows_per_client is None:
        raise InputError("flags: counts need --epsilon and --rows-per-client")
    else:
        counts = GroupCounts(
            schema_hash=table_schema.hash,
            groups=tuple(map(str, table_schema.groups)),
            model=trained_model and trained_model.sha256,
            bins=bins if bins is not None else 101 if trained_model else 1,
            epsilon=epsilon,
            unit=unit,
            rows_per_user=rows_per_user,
            rows_per_client=rows_per_client,
        )
        tasks = {output: make_task(counts, keys, [*names], least_clients=least)}
        deviation = (len(keys) * counts.variance) ** 0.5
        say(
            f"The noise of each count has a standard deviation of {deviation:.3g} rows. To choose"
            f" decisions or weights, each group and label needs more than"
            f" {MIN_COUNT_ERRORS * deviation * counts.bins**0.5:.3g} rows over all clients; fewer"
            " bins need fewer."
        )
    require_free(*tasks, inputs=inputs, force=force)
    for path, task in tasks.items():
        task.write(path)
        say(f"Wrote {path}: {task.what.length} numbers over {len(task.clients)} clients.")
        say(f"Task {task.id.hex()}")


def model_and_schema(
    model: Path | None, schema: Path | None
) -> tuple[sf.TrainedModel | None, sf.Schema]:
    """Return the model whose scores are counted, with its schema; or the schema alone."""
    from synthfair.data.schema import read_schema
    from synthfair.trained import read_model

    if model and not schema:
        trained_model = read_model(model)
        return trained_model, trained_model.schema_
    if schema and not model:
        return None, read_schema(schema)
    raise InputError("flags: give one of --model and --schema")


@secure.command
def add(
    uploads: tuple[Path, ...],
    /,
    *,
    task: TaskFile,
    key: Path,
    output: Path | None = None,
    most_epsilon: float,
    most_delta: float = 1e-5,
    force: Force = False,
) -> None:
    r"""At an aggregator: verify uploads, add them up, add noise, and answer once.

    The noise is of the system's entropy, and the sum is signed. Files that are refused stop it, and
    are listed, each with its reason; take them out at every aggregator. A task that costs more than
    was agreed is refused, too. A task has one answer, which is recorded in a folder next to the key
    before it is written: asked again, also after a crash, the aggregator gives the same one. The
    folder is made with the key, and no other is taken. Never put it back to an older state.

        # verifies only, shows the hash of the list
        python -m synthfair secure add --task task.json --key aggregator_0.key DIR \
            --most-epsilon 1
        python -m synthfair secure add --task task.json --key aggregator_0.key DIR \
            --most-epsilon 1 --output sum_0.json

    Aggregators must have the files of the same clients: compare what it shows without --output.
    Before any sum is published, publish the commitments to all of them, for open.

    Args:
        uploads: Files of the clients, or folders, whose files for this aggregator are read.
        key: The aggregator's private keys.
        output: The partial sum to write, e.g. sum_0.json. Without it uploads are only verified, and
            nothing is answered or spent.
        most_epsilon: Most epsilon agreed.
        most_delta: Most delta agreed; counts have none.
    """
    from synthfair.cli.show import say
    from synthfair.files import OWNER_ONLY, require_free
    from synthfair.report.privacy_words import sum_table
    from synthfair.secure.aggregator import answer, receive
    from synthfair.secure.task import RECORDS, SumTask, read_aggregator_secret

    if output:
        require_free(output, inputs=(task, key, *uploads), force=force)
    public_task, secret = SumTask.read(task), read_aggregator_secret(key)
    records = Path(os.path.realpath(key)).with_suffix(RECORDS)
    role = public_task.role_of(secret.public)
    public_task.require_within(most_epsilon, most_delta)
    say(f"Task {public_task.id.hex()}")
    say(sum_table(public_task))
    # The uploads for this aggregator; a folder holds those for others, too.
    files: list[Path] = []
    for place in uploads:
        inside = sorted(place.glob(f"*.to_{role}")) if place.is_dir() else [place]
        if not inside:
            raise InputError(f"{place}: a folder without files for aggregator {role} (*.to_{role})")
        files += inside
    total = receive(public_task, secret, files)
    clients = f"{len(total.clients)} clients; their list has the hash {total.clients_hash}"
    if not output:
        say(f"Aggregator {role}: {clients}. Nothing was answered.")
        return
    # The one answer to this task.
    partial = answer(public_task, secret, total, records)
    partial.write(output, mode=OWNER_ONLY)
    if partial.clients_hash != total.clients_hash:
        say("The task was answered before, for other uploads: this is that answer.")
        clients = f"{len(partial.clients)} clients; their list has the hash {partial.clients_hash}"
    say(f"Wrote {output}, of aggregator {role}: {clients}.")
    say(f"Commitment: {partial.commitment}")


@secure.command(name="open")
def open_sums(
    sums: tuple[Path, ...],
    /,
    *,
    task: TaskFile,
    commitments: tuple[str, ...] = (),
    output: Path,
    force: Force = False,
) -> None:
    r"""Add the aggregators' answers: the noisy total, with its guarantee.

    The shares cancel; the total over all clients remains, with the noise of every aggregator.
    Counts are written as a histogram, sums of a surrogate as plan reads them.

    With the commitments that the aggregators published before any of them published its sum, a sum
    that was chosen after another was known is refused.

        python -m synthfair secure open --task task.json sum_0.json sum_1.json \
            --output histogram.json

    Args:
        sums: The answer of each aggregator.
        commitments: What aggregators published before any sum, by role; see add.
        output: JSON to write, e.g. histogram.json.
    """
    from synthfair.cli.show import say
    from synthfair.files import require_free
    from synthfair.report.privacy_words import sum_table
    from synthfair.secure import aggregator
    from synthfair.secure.surrogate import opened_sum
    from synthfair.secure.task import SumTask

    require_free(output, inputs=(task, *sums), force=force)
    public_task = SumTask.read(task)
    summand: Any = public_task.what
    partial = [aggregator.PartialSum.read(path) for path in sums]
    total = aggregator.open_sums(
        public_task, partial, commitments=commitments or None, sources=sums
    )
    opened = opened_sum if summand.kind == "rows" else aggregator.score_histogram
    opened(summand, total).write(output)
    say(f"Task {public_task.id.hex()}")
    say(sum_table(public_task, len(total.clients)))
    say(f"Wrote {output}.")

"""``python -m synthfair answer``: what a table says to a question, other than a release."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter, validators

from synthfair.cli.parameters import Again, Force, LedgerFile, SchemaFile
from synthfair.cli.secure import model_and_schema
from synthfair.errors import InputError


def answer(
    question: Path,
    /,
    *,
    data: Path,
    output: Path,
    schema: SchemaFile | None = None,
    model: Path | None = None,
    sign: Path | None = None,
    k_min: Annotated[int | None, Parameter(validator=validators.Number(gte=5))] = None,
    aggregators: tuple[Path, ...] = (),
    most_epsilon: float | None = None,
    most_delta: float = 1e-5,
    user_column: str | None = None,
    ledger: LedgerFile | None = None,
    again: Again = False,
    force: Force = False,
) -> None:
    r"""Answer a question about a private table; the answer is booked in the table's ledger.

    A question of python -m synthfair.server --refine asks for exact sums over the table, which no
    epsilon covers: whoever asks can find out what single rows hold. A pair of group and label with
    fewer than --k-min rows, 50 if not given, stops it, a value of a column with fewer than 10, and
    a question in which one row outweighs the others.

        python -m synthfair answer DIR/refine/1/question.json \
            --data DIR/client_0_train.csv --schema DIR/schema.json \
            --output DIR/refine/1/client_0.json

    A task of python -m synthfair secure plan asks for the client's part of a sum, of which --output
    is a folder. It gets one file for each aggregator, NAME.to_0, NAME.to_1, by the name of the
    client's key, each encrypted to its aggregator and signed. A file alone says nothing of the
    part, not even to its aggregator; all of them together say everything, so send each to its own.
    Whoever could replace the task could name itself as all aggregators, and read the part. So give
    the aggregators' public keys, that came by another way, and the most epsilon. All sums of a
    surrogate cost its epsilon once, which is booked with the first.

        python -m synthfair answer task.json --data rows.csv --model model.json \
            --aggregators aggregator_0.pub aggregator_1.pub --most-epsilon 1 \
            --sign client_0.key --output DIR

    Args:
        question: The server's question, or a task of secure sums.
        data: The private table with labels; CSV or Parquet.
        output: What is written: a JSON file, or for a task a folder.
        model: A task's: model.json that it names; a task without a model needs --schema.
        sign: Private key to sign with, of keygen; a task needs it.
        k_min: A server's question: least rows of a pair of group and label, unless it has none. A
            surrogate's task: refuse a smaller k_min.
        aggregators: A task's: public keys of the aggregators, by role, handed over by a way on
            which nobody can replace them; a task with others is refused.
        most_epsilon: A task's: refuse one that costs more.
        most_delta: A task's: refuse one with a larger delta; counts have none.
        user_column: A task's: column that says whose a row is, for the unit user.
    """
    from synthfair.cli.show import say
    from synthfair.client.page import Site
    from synthfair.federated.refine_files import QUESTION_FORMAT
    from synthfair.files import read_document
    from synthfair.privacy.ledger import Ledger
    from synthfair.release.keys import read_signing_key
    from synthfair.secure.task import SumTask

    is_task = read_document(question, SumTask.max_file_bytes).get("format") != QUESTION_FORMAT
    trained_model, table_schema = model_and_schema(model, schema)
    book = Ledger(ledger or Ledger.for_table(data).path, again=again)
    site, key = Site(data, table_schema, book), read_signing_key(sign) if sign else None
    if not is_task:
        if aggregators or most_epsilon is not None or user_column:
            raise InputError(
                f"{question}: a server's question, whose answer is exact; --aggregators,"
                " --most-epsilon and --user-column are of a task"
            )
        from synthfair.federated.refine_files import answer_question

        sums = answer_question(site, question, output, k_min=k_min or 50, key=key, force=force)
        rows = f"{sums.rows[0]:,.0f} rows, which nothing makes private"
        say(f"Wrote {output}: exact sums over {rows}. Send them to the server alone.")
        return

    # A task is one that the client agrees to, with the aggregators that it knows.
    if sign is None or key is None or most_epsilon is None or not aggregators:
        raise InputError(f"{question}: a task needs --sign, --aggregators and --most-epsilon")
    from synthfair.client import page
    from synthfair.files import OWNER_ONLY, claimed, whole_file
    from synthfair.report.privacy_words import sum_table
    from synthfair.secure.part import part_task
    from synthfair.secure.summands import RowSums
    from synthfair.secure.task import read_aggregator_keys
    from synthfair.secure.upload import upload_bytes
    from synthfair.task.protocol import Run

    task = SumTask.read(question)
    task.require_agreed([read_aggregator_keys(path) for path in aggregators])
    task.require_within(most_epsilon, most_delta)
    if k_min and not (isinstance(task.what, RowSums) and task.what.config.k_min >= k_min):
        raise InputError(f"{question}: its k_min is not at least {k_min}, or it has none (--k-min)")
    job = part_task(task, key, trained_model, user_column)
    say(f"Task {task.id.hex()}")
    say(sum_table(task))

    # The part is booked, encrypted, and only then written.
    paths = [output / f"{sign.stem}.to_{role}" for role in range(len(task.aggregators))]
    with claimed(*paths, force=force):
        run = Run(str(data), on_rows=lambda clipping: clipping.warn(str(data)))
        content = page.answer(job, site, output=question.name, run=run)
        size = upload_bytes(task)
        for role, path in enumerate(paths):
            with whole_file(path, mode=OWNER_ONLY) as temporary:
                temporary.write_bytes(content[role * size :][:size])
    say(f"Wrote {', '.join(map(str, paths))}: send each to its aggregator alone.")

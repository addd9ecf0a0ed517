"""A client's part of a task of counts: its rows by group, label and bin of their score."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from synthfair.data.encode import (
    Clipping,
    Encoded,
    content_order,
    content_sha256,
    encode,
    labelled,
)
from synthfair.data.tables import read_table, take_names
from synthfair.errors import InputError
from synthfair.postprocess.histogram import count_scores, score_bins
from synthfair.secure.upload import make_uploads, upload_bytes
from synthfair.task.limits import Claim
from synthfair.task.protocol import ReadRows, Run, Task

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    from synthfair.client.page import Site
    from synthfair.data.schema import Schema
    from synthfair.secure.summands import GroupCounts
    from synthfair.secure.task import Task as SumTask
    from synthfair.trained import TrainedModel


def count_table(
    what: GroupCounts,
    table: pd.DataFrame,
    schema: Schema,
    *,
    model: TrainedModel | None = None,
    user_column: str | None = None,
    source: str = "table",
) -> np.ndarray:
    """Return [2 G B] int64, what a client adds to the sum.

    With the unit user, the first ``rows_per_user`` rows of each user count, in the table's order;
    the others are left out.

    Args:
        what: is summed.
        table: the client's rows.
        schema: of the table.
        model: whose scores are binned, where the task names one.
        user_column: of the table, that says whose each row is; needed for the unit user.
        source: name of the table, for errors.

    Raises:
        InputError: another schema, groups or model than the task's, no user column where it needs
            one, a table that does not fit the schema, or more rows than the task allows.

    Example:
        >>> import synthfair as sf
        >>> table, schema = sf.load_dataset("loanapp")
        >>> what = sf.secure.GroupCounts(
        ...     schema_hash=schema.hash, groups=tuple(map(str, schema.groups)), epsilon=1.0,
        ...     rows_per_client=5000,
        ... )
        >>> sf.secure.count_table(what, table, schema).tolist()  # groups, by label
        [90, 218, 154, 1527]
    """
    rows = _rows_that_count(
        what, table, schema, model=model, user_column=user_column, source=source
    )
    return _counts(what, rows, model, source)


def _rows_that_count(
    what: GroupCounts,
    table: pd.DataFrame,
    schema: Schema,
    *,
    model: TrainedModel | None,
    user_column: str | None,
    source: str,
    clipping: Clipping | None = None,
) -> Encoded:
    """Return the rows of a table that fits the task; of each user no more than it allows."""
    # Schema, groups, model and unit must be those of the task.
    for name, wanted, own in (
        ("schema", what.schema_hash, schema.hash),
        ("groups", what.groups, schema_groups(schema)),
        ("model", what.model, model and model.sha256),
    ):
        if own != wanted:
            none = "(none)"
            raise InputError(f"{source}: {name} {own or none}; the task's is {wanted or none}")
    if (user_column is None) != (what.unit == "row"):
        rule = "needs a user column" if what.unit == "user" else "takes no user column"
        raise InputError(f"{source}: the task's unit is one {what.unit}, which {rule}")
    # The rows that count.
    user = None
    if user_column is not None:
        user, table = take_names(labelled(table, schema), user_column, source="user column")
    rows = encode(table, schema, source=source, clipping=clipping)
    if user is not None:
        # Of each user the same rows count, whatever their order in the table.
        order = content_order([*rows.x.T, rows.s, rows.y])
        place = pd.Series(user[order]).groupby(user[order]).cumcount().to_numpy()
        rows = Encoded(*(field[order[place < what.rows_per_user]] for field in rows))
    return rows


def _counts(
    what: GroupCounts, rows: Encoded, model: TrainedModel | None, source: str
) -> np.ndarray:
    """Return the rows by group, label and bin. Raises InputError: more than the task allows."""
    x, s, y = rows
    if len(y) > what.rows_per_client:
        raise InputError(
            f"{source}: {len(y)} rows that count; the task allows {what.rows_per_client}"
        )
    bins = np.zeros(len(s), int) if model is None else score_bins(model.scores(x, s), what.bins)
    return count_scores(bins, s, y, len(what.groups), what.bins).ravel().astype(np.int64)


def schema_groups(schema: Schema) -> tuple[str, ...]:
    """Names of a schema's groups as tasks have them, in its order."""
    return tuple(map(str, schema.groups))


def counts_task(
    task: SumTask,
    what: GroupCounts,
    key: Ed25519PrivateKey,
    model: TrainedModel | None = None,
    user_column: str | None = None,
) -> Task:
    """Return the question for a client's counts, in one encrypted share for each aggregator.

    Guarantee: that of the counts, which holds once all aggregators have added their noise. Whether
    rows are too many is told by an answer, and is paid for.

    Args:
        task: of the sum; its aggregators are those that the client trusts.
        what: the counts that it sums.
        key: of the client.
        model: whose scores are binned, where the task names one.
        user_column: that says whose each row is, for the unit user.
    """
    client = key.public_key().public_bytes_raw().hex()

    def read(site: Site, clipping: Clipping) -> ReadRows:
        names: Any = {"model": model, "user_column": user_column, "source": str(site.data)}
        table = read_table(site.data, site.schema)
        rows = _rows_that_count(what, table, site.schema, clipping=clipping, **names)
        return ReadRows(rows, content_sha256([rows]))

    def uploads(rows: ReadRows, run: Run) -> bytes:
        return b"".join(make_uploads(task, _counts(what, rows.real, model, run.source), key))

    return Task(
        Claim("counts", what.epsilon),
        f"{task.id.hex()} {client}",
        guarantee=what.guarantee(len(task.aggregators)),
        measure=uploads,
        max_bytes=len(task.aggregators) * upload_bytes(task),
        read=read,
    )

"""A client's part of a task of counts: its rows by group, label and bin of their score."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from synthfair.data.encode import Clipping, content_order, encode, labelled
from synthfair.data.tables import take_names
from synthfair.errors import InputError
from synthfair.postprocess.histogram import count_scores, score_bins
from synthfair.privacy.ledger import Booking

if TYPE_CHECKING:
    from synthfair.data.schema import Schema
    from synthfair.secure.summands import GroupCounts
    from synthfair.secure.task import Task
    from synthfair.trained import TrainedModel


def count_table(
    what: GroupCounts,
    table: pd.DataFrame,
    schema: Schema,
    *,
    model: TrainedModel | None = None,
    user_column: str | None = None,
    source: str = "table",
    clipping: Clipping | None = None,
) -> np.ndarray:
    """[2 G B] int64, what a client adds to the sum.

    With the unit user, the first ``rows_per_user`` rows of each user count, in the table's order;
    the others are left out.

    Args:
        what: is summed.
        table: the client's rows.
        schema: of the table.
        model: whose scores are binned, where the task names one.
        user_column: of the table, that says whose each row is; needed for the unit user.
        source: name of the table, for errors.
        clipping: counts the values that are clipped.

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
    x, s, y = rows = encode(table, schema, source=source, clipping=clipping)
    if user is not None:
        # Of each user the same rows count, whatever their order in the table.
        order = content_order([*x.T, s, y])
        place = pd.Series(user[order]).groupby(user[order]).cumcount().to_numpy()
        x, s, y = (field[order[place < what.rows_per_user]] for field in rows)
    if len(y) > what.rows_per_client:
        raise InputError(
            f"{source}: {len(y)} rows that count; the task allows {what.rows_per_client}"
        )
    bins = np.zeros(len(s), int) if model is None else score_bins(model.scores(x, s), what.bins)
    return count_scores(bins, s, y, len(what.groups), what.bins).ravel().astype(np.int64)


def counts_booking(what: GroupCounts, task: Task, *, client: str, output: str) -> Booking:
    """The ledger entry of a client's part in a task of counts.

    Args:
        what: the task sums.
        task: its part is of.
        client: its public key, in hexadecimal.
        output: name under which it is booked.
    """
    return Booking(
        kind="secure_sum",
        output=output,
        run=task.id.hex(),
        client=client,
        guarantee=what.guarantee(len(task.aggregators)),
    )


def schema_groups(schema: Schema) -> tuple[str, ...]:
    """Names of a schema's groups as tasks have them, in its order."""
    return tuple(map(str, schema.groups))

"""A client's part of a sum, in shares: its counts, or its sums for a surrogate of all clients."""

from __future__ import annotations

import hashlib
import io
import secrets
from functools import cache
from typing import TYPE_CHECKING, Any, cast, get_args

import numpy as np
import pandas as pd

from synthfair.client.surrogate_task import read_plain
from synthfair.data.encode import Encoded, content_order, content_sha256, encode, labelled
from synthfair.data.tables import read_table, take_names
from synthfair.errors import InputError
from synthfair.postprocess.histogram import count_scores, score_bins
from synthfair.privacy.mechanism import SumName
from synthfair.secure.shares import SHARE_SEED_BYTES
from synthfair.secure.summands import surrogate_digest
from synthfair.secure.surrogate import client_sums
from synthfair.secure.upload import NONCE_BYTES, make_uploads
from synthfair.task.limits import Claim
from synthfair.task.protocol import ReadRows, Run, Task

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    from synthfair.client.page import Site
    from synthfair.data.encode import Clipping
    from synthfair.data.schema import Schema
    from synthfair.secure.summands import GroupCounts
    from synthfair.secure.task import SumTask
    from synthfair.trained import TrainedModel

SHARING_DOMAIN = b"synthfair-sharing/1\0"


def count_table(
    summand: GroupCounts,
    table: pd.DataFrame,
    schema: Schema,
    *,
    model: TrainedModel | None = None,
    user_column: str | None = None,
    source: str = "table",
) -> np.ndarray:
    """Return [2 G B] int64, what a client adds to the sum.

    With the unit user, ``rows_per_user`` rows of each user count at most, which their content
    chooses, whatever their order in the table; the others are left out.

    Args:
        summand: what is summed.
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
        >>> summand = sf.secure.GroupCounts(
        ...     schema_hash=schema.hash, groups=tuple(map(str, schema.groups)), epsilon=1.0,
        ...     rows_per_client=5000,
        ... )
        >>> sf.secure.count_table(summand, table, schema).tolist()  # groups, by label
        [90, 218, 154, 1527]
    """
    rows = _rows_that_count(summand, table, schema, source, model=model, user_column=user_column)
    return _counts(summand, rows, model, source)


def _rows_that_count(
    summand: GroupCounts,
    table: pd.DataFrame,
    schema: Schema,
    source: str,
    clipping: Clipping | None = None,
    *,
    model: TrainedModel | None,
    user_column: str | None,
) -> Encoded:
    """Return the rows of a table that fits the task; of each user no more than it allows."""
    # Schema, groups, model and unit must be those of the task.
    for name, wanted, given in (
        ("schema", summand.schema_hash, schema.hash),
        ("groups", summand.groups, tuple(map(str, schema.groups))),
        ("model", summand.model, model and model.sha256),
    ):
        if given != wanted:
            none = "(none)"
            raise InputError(f"{source}: {name} {given or none}; the task's is {wanted or none}")
    if (user_column is None) != (summand.unit == "row"):
        rule = "needs a user column" if summand.unit == "user" else "takes no user column"
        raise InputError(f"{source}: the task's unit is one {summand.unit}, which {rule}")
    # The rows that count.
    user = None
    if user_column is not None:
        user, table = take_names(labelled(table, schema), user_column, source="user column")
    rows = encode(table, schema, source=source, clipping=clipping)
    if user is not None:
        # Of each user the same rows count, whatever their order in the table.
        order = content_order([*rows.x.T, rows.s, rows.y])
        place = pd.Series(user[order]).groupby(user[order]).cumcount().to_numpy()
        rows = Encoded(*(field[order[place < summand.rows_per_user]] for field in rows))
    return rows


def _counts(
    summand: GroupCounts, rows: Encoded, model: TrainedModel | None, source: str
) -> np.ndarray:
    """Return the rows by group, label and bin. Raises InputError: more than the task allows."""
    x, s, y = rows
    if len(y) > summand.rows_per_client:
        raise InputError(
            f"{source}: {len(y)} rows that count; the task allows {summand.rows_per_client}"
        )
    bins = np.zeros(len(s), int) if model is None else score_bins(model.scores(x, s), summand.bins)
    return count_scores(bins, s, y, len(summand.groups), summand.bins).ravel().astype(np.int64)


def part_task(
    task: SumTask,
    key: Ed25519PrivateKey,
    model: TrainedModel | None = None,
    user_column: str | None = None,
) -> Task:
    """Return the question for a client's part, in one encrypted share for each aggregator.

    What is bought is a seed of shares: the same question gets the same ones, which an aggregator
    may have added already. The sums of a surrogate are rounds of one purchase, which has the
    guarantee of all of them: each is one question, and another in its place is a new purchase.

    Guarantee: that of the total, which holds once all aggregators have added their noise. It does
    not cover whether counts are refused, for more rows than ``rows_per_client``.

    Args:
        task: of the sum; its aggregators are those that the client trusts.
        key: of the client.
        model: whose scores are binned, where a task of counts names one.
        user_column: that says whose each row is, for counts of the unit user.

    Raises:
        InputError: it sums vectors; or rows, for which there is no user column.
    """
    summand: Any = task.what
    guarantee, names = task.guarantee, {"model": model, "user_column": user_column}
    sums = cache(lambda: client_sums(summand))  # takes a while: not before the limits allow it
    if summand.kind == "rows":
        if user_column is not None:
            raise InputError("user column: the unit of a surrogate's sums is one row")
        # The ledger counts the sums as SumName does; a job, the totals that were opened before.
        config, number = summand.config, get_args(SumName).index(summand.name)
        claim = Claim("surrogate", config.epsilon, config.delta, k_min=config.k_min, number=number)
        purchased = surrogate_digest(config, summand.table_schema)
    else:
        claim, purchased = Claim("counts", summand.epsilon), task.id.hex()

    def read(site: Site, clipping: Clipping) -> ReadRows:
        source = str(site.data)
        if summand.kind != "rows":
            table = read_table(site.data, site.schema)
            rows = _rows_that_count(summand, table, site.schema, source, clipping, **names)
            return ReadRows(rows, content_sha256([rows]))
        if site.schema.hash != summand.table_schema.hash:
            raise InputError(f"{source}: the task is of another schema than the one given")
        sums()  # refuses another sum than settings, schema and totals before ask for
        return read_plain(site, clipping)

    def uploads(rows: ReadRows, seed: bytes | None, run: Run) -> bytes:
        of_rows = summand.kind == "rows"
        vector = sums()(rows.real) if of_rows else _counts(summand, rows.real, model, run.source)
        # Another vector gets other shares: else the difference of both would be seen.
        content = SHARING_DOMAIN + cast(bytes, seed) + task.id + vector.tobytes()
        size = NONCE_BYTES + SHARE_SEED_BYTES * len(task.aggregators)
        random = hashlib.shake_256(content).digest(size)
        return b"".join(make_uploads(task, vector, key, io.BytesIO(random).read))

    return Task(
        claim,
        f"{purchased} {key.public_key().public_bytes_raw().hex()}",
        uploads,
        guarantee,
        lambda _rows, _run: secrets.token_bytes(SHARE_SEED_BYTES),
        SHARE_SEED_BYTES,
        read,
        question=task.id.hex(),
    )

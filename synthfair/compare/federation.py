"""Clients in memory, for comparing methods on the same rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from synthfair.data.encode import Encoded, encode
from synthfair.data.partition import ClientTable
from synthfair.data.schema import Schema


class Federation(NamedTuple):
    """The encoded rows of some clients.

    Attributes:
        schema: the same for all.
        train: of each client.
        test: of each client.
    """

    schema: Schema
    train: tuple[Encoded, ...]
    test: tuple[Encoded, ...]

    @property
    def n_groups(self) -> int:
        """Number of groups that there are."""
        return len(self.schema.groups)


def federate(clients: Sequence[ClientTable], schema: Schema) -> Federation:
    """Encodes the clients' tables.

    Raises:
        InputError: a table does not fit the schema.
    """
    train = [encode(c.train, schema, source=f"client {i}, train") for i, c in enumerate(clients)]
    test = [encode(c.test, schema, source=f"client {i}, test") for i, c in enumerate(clients)]
    return Federation(schema, tuple(train), tuple(test))


def pooled(parts: Sequence[Encoded]) -> Encoded:
    """The rows of all parts, one after the other."""
    return Encoded(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))

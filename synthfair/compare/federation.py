"""Clients in memory, for comparing methods on the same rows, and what a method makes of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from synthfair.client.fair_task import Distillation
from synthfair.data.encode import Encoded, encode, expand
from synthfair.data.partition import ClientTable, file_stems
from synthfair.data.schema import Schema
from synthfair.fairness.metrics import Scored
from synthfair.federated import Cost
from synthfair.settings import Target
from synthfair.trained import TrainedModel


class Federation(NamedTuple):
    """The encoded rows of some clients.

    Attributes:
        schema: the same for all.
        train: of each client.
        test: of each client.
        names: of the clients, fit for files: client_0, client_1, ..., or by what they were named.
        plain: the training rows of each client by ``schema.plain``, of which surrogates are made.
    """

    schema: Schema
    train: tuple[Encoded, ...]
    test: tuple[Encoded, ...]
    names: tuple[str, ...]
    plain: tuple[Encoded, ...]

    @property
    def n_groups(self) -> int:
        """Return the number of groups."""
        return len(self.schema.groups)

    def scored(self, scores: Iterable[np.ndarray]) -> tuple[Scored, ...]:
        """Return the test rows of each client with scores [N_test], whose signs decide."""
        pairs = zip(scores, self.test, strict=True)
        return tuple(Scored(part.y, score, part.s, self.n_groups) for score, part in pairs)

    @property
    def user(self) -> np.ndarray:
        """Return [N] the client of each row of the pooled training rows."""
        return np.repeat(np.arange(len(self.train)), [len(part.y) for part in self.train])


def federate(
    clients: Sequence[ClientTable] | Mapping[str, ClientTable], schema: Schema
) -> Federation:
    """Return the clients with encoded tables, named by their number or as given.

    Raises:
        InputError: a table does not fit the schema.

    Example:
        >>> import synthfair as sf
        >>> from synthfair.compare import federate
        >>> table, schema = sf.load_dataset("loanapp")
        >>> federation = federate(sf.partition(table, clients=2, seed=0), schema)
        >>> [len(part.y) for part in federation.train], federation.n_groups
        ([795, 795], 2)
    """
    named = clients if isinstance(clients, Mapping) else dict(enumerate(clients))
    plain = [encode(c.train, schema.plain, source=f"client {i}, train") for i, c in named.items()]
    train = [rows._replace(x=expand(rows.x, schema)) for rows in plain]
    test = [encode(c.test, schema, source=f"client {i}, test") for i, c in named.items()]
    names = tuple(file_stems(named))
    return Federation(schema, tuple(train), tuple(test), names, tuple(plain))


def pooled(parts: Sequence[Encoded]) -> Encoded:
    """Return the rows of all parts, one after the other."""
    return Encoded(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))


class Fitted(NamedTuple):
    """What a method makes of a federation.

    Attributes:
        tests: each client's test rows, with their scores.
        converged: whether every problem solved on the way met its tolerance; None: no test.
        cost: what the clients sent, and how often.
        asked: how much fairness the method was asked for, by the setting that it reads.
        distillations: one a client, of methods that distil.
        model: of methods that make one for all clients, and no more.
        seconds: wall time, compilation included; of a method alone, those that another weight spent
            on what both share.
    """

    tests: tuple[Scored, ...]
    converged: bool | None
    cost: Cost
    asked: Target
    distillations: tuple[Distillation, ...] = ()
    model: TrainedModel | None = None
    seconds: float = 0.0

    @property
    def scores(self) -> tuple[np.ndarray, ...]:
        """Return [N_test] scores of each client's test rows; the decision is +1 where positive."""
        return tuple(rows.score for rows in self.tests)

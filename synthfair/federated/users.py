"""The users of a federation, with the cohorts in which they take part.

Users are simulated, or those that a table names; each has as many or few rows as it has.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from synthfair.data.batches import other_inputs
from synthfair.data.encode import Encoded
from synthfair.data.partition import partition
from synthfair.data.schema import Schema
from synthfair.data.tables import take_names
from synthfair.errors import InputError
from synthfair.federated.single_rows import UserRows
from synthfair.postprocess.histogram import RowWeights
from synthfair.privacy.accounting import Sampling

if TYPE_CHECKING:
    import pandas as pd

    from synthfair.federated.method import TrainConfig

Block = tuple[np.ndarray, np.ndarray]
"""Some users of a cohort: their indices [b], padded to a length that all blocks have, and [b] False
for padding, which stands at the end."""


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Users:
    """The rows of K users, one user's after the other's; see :func:`make_users`.

    Only the cohort of a round is padded to one length, so that one user with many rows does not
    multiply the memory of all.

    Attributes:
        a: [N, ...] model inputs.
        s: [N, A] group index in each of A attributes.
        y: [N] label.
        first: [K] position of a user's first row.
        size: [K] number of a user's rows.
        largest: the largest of these numbers.
    """

    a: jax.Array
    s: jax.Array
    y: jax.Array
    first: jax.Array
    size: jax.Array
    largest: int = field(metadata={"static": True})

    def __len__(self) -> int:
        """Return the number of users K."""
        return len(self.size)

    @property
    def smallest(self) -> int:
        """Number of rows of the user who has fewest."""
        return int(np.min(self.size))

    @property
    def nbytes(self) -> int:
        """Size of all rows, as plain numbers."""
        return int(self.a.nbytes + self.s.nbytes + self.y.nbytes)

    def steps(self, batch: int, epochs: float) -> int:
        """Return the number of batches of some passes over the smallest user's rows, at least 1."""
        return max(1, round(epochs * self.smallest / batch))

    def take(self, cohort: jax.Array, present: jax.Array) -> UserRows:
        """Return the rows [m, R, ...] of some users.

        Args:
            cohort: [m] their indices.
            present: [m] whether each counts; where not, its rows have weight 0.
        """
        place = jnp.arange(self.largest)
        row = jnp.minimum(self.first[cohort][:, None] + place, len(self.y) - 1)
        weight = (place < self.size[cohort][:, None]) & present[:, None]
        return UserRows(self.a[row], self.s[row], self.y[row], weight.astype(self.a.dtype))

    @jax.jit
    def rows_of(self, user: jax.Array | int) -> UserRows:
        """Return the rows [R, ...] of one user."""
        rows = self.take(jnp.asarray(user)[None], jnp.ones(1, bool))
        return UserRows(*(leaf[0] for leaf in rows))


def make_users(a: np.ndarray, s: np.ndarray, y: np.ndarray, user: np.ndarray) -> Users:
    """Make users of rows, which are sorted by user.

    Args:
        a: [N, ...] model inputs.
        s: [N] or [N, A] group index, of one attribute or several.
        y: [N] label: -1.0 or +1.0, or the index of a class.
        user: [N] whose each row is; any values that can be sorted.

    Raises:
        InputError: no row, or parts of unlike lengths.

    Example:
        >>> import numpy as np
        >>> import synthfair as sf
        >>> a, s, y = np.eye(3), np.array([0, 1, 0]), np.array([1.0, -1.0, 1.0])
        >>> users = sf.federated.make_users(a, s, y, user=np.array(["ann", "bob", "ann"]))
        >>> len(users), users.size.tolist(), users.y.tolist()
        (2, [2, 1], [1.0, 1.0, -1.0])
    """
    if len({len(a), len(s), len(y), len(user)}) != 1 or len(y) == 0:
        raise InputError(
            f"users: {len(a)} inputs, {len(s)} groups, {len(y)} labels and {len(user)} users; must"
            " be equally many, at least one"
        )
    order = np.argsort(user, kind="stable")
    size = np.unique(user, return_counts=True)[1]
    s = s[:, None] if s.ndim == 1 else s
    return Users(
        jnp.asarray(a[order]),
        jnp.asarray(s[order], jnp.int32),
        jnp.asarray(y[order]),
        jnp.asarray(np.cumsum(size) - size, jnp.int32),
        jnp.asarray(size, jnp.int32),
        int(size.max()),
    )


class UserData(NamedTuple):
    """The users of a training, and what their rows mean.

    Attributes:
        schema: of the rows.
        users: with their rows, as a model of the configuration sees them.
        groups: number of groups of each attribute, the sensitive one first.
        row_weights: [G, 2] by which losses are multiplied, by group and label -1 or +1; or None.
        held_out: the users with rows that are not trained on, but counted; or None.
    """

    schema: Schema
    users: Users
    groups: tuple[int, ...]
    row_weights: jax.Array | None = None
    held_out: Users | None = None


@dataclass(frozen=True)
class Cohorts:
    """A rule by which cohorts are drawn from a population.

    Args:
        population: number of users K.
        size: number of users m of a cohort, or, with Poisson sampling, expected.
        sampling: how.

    Raises:
        InputError: no user, or more in a cohort than there are.

    Example:
        >>> import synthfair as sf
        >>> len(sf.federated.Cohorts(1000, 5, "fixed").draw(seed=0, t=3))
        5
    """

    population: int
    size: int
    sampling: Sampling = "fixed"

    def __post_init__(self) -> None:
        """Refuse sizes out of range."""
        if not 1 <= self.size <= self.population:
            raise InputError(
                f"cohort = {self.size}: must be 1 to {self.population}, the number of users"
            )

    @property
    def room(self) -> int:
        """The number of users for whom nearly every cohort has room: six standard deviations."""
        more = 6 * int(self.size**0.5) + 6 if self.sampling == "poisson" else 0
        return min(self.population, self.size + more)

    def draw(self, seed: int, t: int) -> np.ndarray:
        """Return the users of round t; they depend on the seed and the round alone.

        They are drawn from the third of a seed's independent keys, see ``engine.key_from``.
        """
        if self.sampling == "fixed" and self.size == self.population:
            return np.arange(self.population)
        rng = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(3, t)))
        size = self.size
        if self.sampling == "poisson":
            size = rng.binomial(self.population, self.size / self.population)
        return rng.choice(self.population, size, replace=False, shuffle=False)

    def blocks(self, seed: int, t: int, at_once: int) -> list[Block]:
        """Return the users of round t in blocks of one length; none where nobody was drawn."""
        cohort = self.draw(seed, t)
        users = np.zeros((-(-len(cohort) // at_once), at_once), np.int32)
        users.flat[: len(cohort)] = cohort
        present = np.arange(users.size).reshape(users.shape) < len(cohort)
        return list(zip(users, present, strict=True))


# Users of a table

TEST_SHARE = 0.2
"""The share of the rows that are tested, where no test table is given."""

ONE_RULE = "users: give one of clients, rows_per_user, each_row and user_column"


def draw_users(
    n_rows: int,
    *,
    seed: int,
    clients: int | None = None,
    rows_per_user: float | None = None,
    each_row: bool = False,
) -> np.ndarray:
    """Return the user [N] of each row, at random, by one of three rules.

    Args:
        n_rows: N, at least 1.
        seed: the same gives the same users.
        clients: so many users with equally many rows.
        rows_per_user: many users, the number of rows of each Poisson distributed with this mean, as
            in Rodríguez-Gálvez et al. (2021), section 4.1, with 2. Users who would get none are
            left out, so that those there are have mean / (1 - exp(-mean)) rows on average.
        each_row: every row is a user by itself.

    Raises:
        InputError: no rule or several, or numbers out of range.

    Example:
        >>> import synthfair as sf
        >>> sf.federated.draw_users(4, seed=0, clients=2).tolist()
        [0, 0, 1, 1]
    """
    if [clients is None, rows_per_user is None, not each_row].count(False) != 1:
        raise InputError(ONE_RULE)
    rng, mean = np.random.default_rng(seed), rows_per_user
    if mean is not None:
        if not 0 < mean < np.inf:
            raise InputError(f"rows_per_user = {mean}: must be positive and finite")
        sizes = np.empty(0, int)
        while sizes.sum() < n_rows:
            sizes = np.append(sizes, rng.poisson(mean, size=1 + int(n_rows / mean)))
        return rng.permutation(np.repeat(np.arange(len(sizes)), sizes)[:n_rows])
    if clients is None:
        return np.arange(n_rows)
    if not 1 <= clients <= n_rows:
        raise InputError(f"clients = {clients}: must be 1 to {n_rows}, the number of rows")
    return rng.permutation(n_rows) % clients


def assign_users(
    table: pd.DataFrame,
    *,
    seed: int,
    tests: Mapping[str, pd.DataFrame] | None = None,
    user_column: str | None = None,
    **rule: Any,
) -> tuple[pd.DataFrame, np.ndarray, Mapping[str, pd.DataFrame]]:
    """Return the rows to train on, the user [N] of each, and test tables by name.

    Without test tables, rows are held out: clients test on rows of their own; of many users, a
    fifth of the rows, or of the users where the table names them, is held out.

    Args:
        table: the rows.
        seed: of the users and of the rows held out.
        tests: test tables by name.
        user_column: the column that says whose each row is.
        rule: else, of :func:`draw_users`.

    Raises:
        InputError: there are too few rows, no such column, or numbers out of range.

    Example:
        >>> import pandas as pd
        >>> import synthfair as sf
        >>> table = pd.DataFrame({"income": range(10), "person": list("aabbccddee")})
        >>> train, user, tests = sf.federated.assign_users(table, user_column="person", seed=0)
        >>> len(set(user)), len(tests["test"]), list(train)
        (4, 2, ['income'])
    """
    if user_column and rule:
        raise InputError(ONE_RULE)
    if user_column is None:
        user, units = draw_users(len(table), seed=seed, **rule), np.arange(len(table))
    else:
        user, table = take_names(table, user_column, source="user column")
        units = user  # a user's rows are all tested, or none
    if tests is not None:
        return table, user, tests
    if "clients" in rule:
        import pandas as pd

        clients = partition(table, clients=rule["clients"], seed=seed)
        user = np.repeat(np.arange(len(clients)), [len(client.train) for client in clients])
        tables = {f"client_{i}": client.test for i, client in enumerate(clients)}
        return pd.concat([client.train for client in clients]), user, tables
    names = np.unique(units)
    held_out = np.random.default_rng(seed).permutation(names)[: int(len(names) * TEST_SHARE)]
    is_test = np.isin(units, held_out)
    if not is_test.any() or is_test.all():
        raise InputError(f"{len(table)} rows of {len(np.unique(user))} users: too few to test on")
    return table[~is_test], user[~is_test], {"test": table[is_test]}


def make_user_data(
    rows: Encoded,
    user: np.ndarray,
    schema: Schema,
    config: TrainConfig,
    *,
    also: Sequence[np.ndarray] = (),
    weights: RowWeights | None = None,
    all_groups: bool = True,
) -> UserData:
    """Return users with encoded rows, and the inputs that the model of a configuration sees.

    These are the features, the group where it reads that, and a 1 for linear models; networks have
    intercepts of their own.

    Args:
        rows: N of them.
        user: [N] whose each row is.
        schema: of the rows.
        config: settings; what the model sees follows from them.
        also: [N] group index in each attribute of ``config.also``.
        weights: of rows, by group and label.
        all_groups: whether every group that is compared must have a row; of one site's rows, other
            sites may have them.

    Raises:
        InputError: nobody has a row of some group, among the rows that are compared; a further
            attribute is the sensitive one or given twice, or its groups are not given; or weights
            are another schema's, or not read.
    """
    # What was given must fit together.
    names = schema.sensitive_name, *config.get("also", ())
    if len(rows.y) != len(user):
        raise InputError(f"{len(rows.y)} rows with a label, of {len(user)} users; leave others out")
    if len({*names}) <= len(also) or len(names) != 1 + len(also):
        raise InputError(
            f"also = {list(names[1:])}: must be attributes other than {names[0]!r}, each once, with"
            f" the groups of each; {len(also)} given"
        )
    if weights is not None:
        if not config.takes_weights:
            from synthfair.federated.methods import METHODS

            takes = ", ".join(name for name, kind in METHODS.items() if kind.takes_weights)
            raise InputError(f"weights: not read by {config.method}; take one of {takes}")
        if weights.schema_hash != schema.hash or weights.groups != tuple(map(str, schema.groups)):
            raise InputError(
                f"weights: schema_hash {weights.schema_hash}, groups {list(weights.groups)}: are of"
                f" another schema than the table's, {schema.hash}, {list(schema.groups)}"
            )
    s = np.column_stack([rows.s, *also])
    attributes = {names[0]: schema, **{name: schema.with_sensitive(name) for name in names[1:]}}
    if all_groups and config.asked.by in ("tolerance", "weight"):
        _require_all_groups(attributes, s, rows.y, config.get("notion", ""))

    # Inputs, in the user's default precision.
    n_groups = len(schema.groups) if config.group_input else 1
    more = other_inputs(rows.s, n_groups=n_groups, intercept=not config.hidden)
    a = np.column_stack([rows.x, more.T]).astype(jax.dtypes.canonicalize_dtype(float))

    # Users, from whom some rows may be held out.
    owner = np.arange(len(rows.y)) if config.one_place else user
    out = held_out_rows(owner, config.get("counts_share", 0.0), seed=config.seed)

    def of(mask: np.ndarray) -> Users:
        return make_users(a[mask], s[mask], rows.y[mask].astype(a.dtype), owner[mask])

    groups = tuple(len(attribute.groups) for attribute in attributes.values())
    by_pair = None if weights is None else jnp.asarray(weights.array(), a.dtype)
    return UserData(schema, of(~out), groups, by_pair, of(out) if out.any() else None)


def held_out_rows(user: np.ndarray, share: float, *, seed: int) -> np.ndarray:
    """Return a mask [N] of rows held out: of each user's n rows floor(share n), at random.

    Which they are follows from the seed and the numbers of rows alone, which are public.

    Args:
        user: [N] whose each row is.
        share: from 0 to below 1.
        seed: the same holds out the same.

    Example:
        >>> import numpy as np
        >>> from synthfair.federated.users import held_out_rows
        >>> out = held_out_rows(np.array(["ann", "bob", "ann", "ann", "bob"]), 0.5, seed=0)
        >>> out[[0, 2, 3]].sum().item(), out[[1, 4]].sum().item()
        (1, 1)
    """
    _, index, size = np.unique(user, return_inverse=True, return_counts=True)
    order = np.lexsort((np.random.default_rng(seed).random(len(user)), index))
    place = np.empty(len(user), int)
    place[order] = np.arange(len(user)) - np.repeat(np.cumsum(size) - size, size)
    return place < np.floor(share * size)[index]


def _require_all_groups(
    attributes: Mapping[str, Schema], s: np.ndarray, y: np.ndarray, notion: str
) -> None:
    """Refuse rows without a group among those that the notion compares."""
    labels = {"equal_opportunity": (1,), "equalized_odds": (1, -1)}.get(notion, (None,))
    for column, (name, attribute) in enumerate(attributes.items()):
        for label in labels:
            present = s[:, column] if label is None else s[y == label, column]
            if not len(missing := np.setdiff1d(np.arange(len(attribute.groups)), present)):
                continue
            group = f"{name}={attribute.groups[missing[0]]}"
            group = attribute.pair(missing[0], label) if label else group
            raise InputError(
                f"no user has a row with {group}: {notion} cannot be asked for; take another"
                " notion, or a schema without that group"
            )

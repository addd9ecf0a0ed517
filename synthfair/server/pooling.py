"""The pool of all releases, from which one logistic model is trained.

Releases are read, and put side by side: a pool. Of surrogates, weights are capped, cells that are
left out are estimated, and it is found which groups have rows enough to be compared. With trusted
rows of the server, each release counts as much as these say. Then one model is trained.

A cell is a pair of group and label. Where a group has records of one label alone, a model would be
certain of it, and a penalty would move everybody towards it. So records of the other label are
estimated, from no more than the release itself; see docs/surrogates.md for what that gains and
costs.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise, product
from os import PathLike
from pathlib import Path
from statistics import mode
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np

import synthfair
from synthfair.data.encode import Encoded, encode, encode_records, records_table
from synthfair.data.schema import Schema
from synthfair.errors import InputError, named
from synthfair.fairness.intervals import MIN_RATE_ROWS
from synthfair.fairness.penalties import (
    CovariancePenalty,
    Grouping,
    Penalty,
    SumPenalty,
    grouped,
    named_penalty,
    strata,
)
from synthfair.model import LinearModel, Rows
from synthfair.release.format import MAX_CELLS, Release, fitted, name_of, read_release, require_fit
from synthfair.release.keys import Keys
from synthfair.release.settings import DistillConfig, SurrogateConfig
from synthfair.server.settings import FOR_SURROGATES, ServerConfig
from synthfair.server.trust import MIN_TRUST, learn_weights
from synthfair.settings import Notion, PenaltyName
from synthfair.surrogate.fair import (
    FrontierPoint,
    GlobalProblem,
    Price,
    WeightedTable,
    meet_ratio,
    ridge_of,
)
from synthfair.trained import TrainedModel, input_names

if TYPE_CHECKING:
    import pandas as pd

    from synthfair.surrogate.custom import CustomProblem

Releases = Mapping[str, Any] | Sequence[Any]
"""Releases, by name or in a list: themselves, what :func:`synthfair.distill_table` returned, or
files."""

MAX_CLAIM_MEDIANS = 20.0
"""Rows that one client may have, in lower medians of all claims, where it is not set."""

MAX_ESTIMATE_RATIO = 5.0
"""The largest factor by which an estimated record counts more, or less, than others of its
group."""


def pool_and_train(
    releases: Releases,
    schema: Schema,
    config: ServerConfig | None = None,
    *,
    model: LinearModel | None = None,
    penalty: Penalty | PenaltyName | None = None,
    trusted: pd.DataFrame | Encoded | None = None,
) -> TrainedModel:
    """Return one model, trained on the rows of all releases.

    On fair releases, with N pooled rows and n parameters, an ordinary logistic model, Wu et
    al. (2024) eq. (15):

        theta = argmin (1/N) sum_i loss(theta; a_i, y_i) + lambda_theta / (2 n^2) ||theta||^2.

    Nothing there depends on fairness: that came with the rows. On surrogates, whose rows have
    weights w_i of sum W, the model that is fair over all clients:

        theta = argmin (1/W) sum_i w_i loss_i + rho penalty + 1 / (2 C W) ||theta||^2,

    without the intercept in the last term.

    Weights of a release k whose sum is above ``max_rows``, by default 20 median_k sum_i w_ki (the
    lower of two in the middle), are scaled to that sum. Where the others have R medians together,
    that client still has 20 / (20 + R) of the weight: set ``max_rows`` where there are few.

    Args:
        releases: all fair, or all surrogates; by name or in a list, as releases or as
            :func:`synthfair.distill_table` returned them; or a list of files.
        schema: the clients'.
        config: of surrogates: ``rho`` or ``max_gap`` and ``max_client_gap``, ``penalty``,
            ``notion``, ``temperature``, ``C``, ``intercept``, ``group_input`` and ``max_rows``;
            the defaults if not given.
        model: of fair releases that for which their clients distilled, where it is not the linear
            model with logistic loss; of surrogates any. Its params must be a vector [n] and its
            scores those of :class:`LinearModel`, as a trained model scores a'theta.
        penalty: of surrogates, another than that of the settings: a name, or a function of scores
            and weighted rows, see :class:`synthfair.fairness.penalties.Penalty`.
        trusted: a small table of the server's own, of each group and label, about 200 rows. It is
            used for nothing but a weight of each release, by which bad ones hardly count; see
            :mod:`synthfair.server.trust`.

    Returns:
        The model, with how well it was trained; its ``scores`` are positive for the decision +1.

    Raises:
        InputError: no release; some fair and some surrogates; made for different models, or another
            than ``model``; or that is not linear; or no surrogate has rows of some group, or, with
            ``max_client_gap``, enough of each.

    Example:
        >>> import synthfair as sf
        >>> table, schema = sf.load_dataset("loanapp")
        >>> lenders = sf.partition(table, clients=2, seed=0)
        >>> config = sf.SurrogateConfig(k_min=10)
        >>> sent = [sf.distill_table(lender.train, schema, config) for lender in lenders]
        >>> model = sf.pool_and_train(sent, schema, sf.ServerConfig(rho=10.0))
        >>> found = sf.evaluate(model, table).overall
        >>> round(found["accuracy"].value, 1)
        0.9
    """
    pooled = make_pool(releases, schema, config, penalty=penalty, trusted=trusted)
    trained, point = train_pool(pooled, schema, model=model)
    limits = pooled.config.max_gap or np.inf, pooled.config.max_client_gap or np.inf
    is_missed = point and (point.gap > limits[0] or point.client_gap > limits[1])
    if is_missed or (point and point.ratio < (pooled.config.min_ratio or 0.0)):
        warnings.warn("no model that was tried meets the limits that are asked for", stacklevel=2)
    return trained


def read_releases(
    paths: Sequence[str | PathLike[str]], schema: Schema, *, keys: Keys | None = None
) -> dict[str, Release]:
    """Return the releases of files, by path.

    Args:
        paths: of the files, one a client.
        schema: the clients'.
        keys: of the clients, see :func:`synthfair.release.read_keys`; with them, each release must
            be signed by another client.

    Returns:
        By path, as :func:`pool_and_train` takes them.

    Raises:
        InputError: none given, one is refused, all together are too large for memory, two hold
            the same rows, or, with keys, two come from one client.
    """
    if not paths:
        raise InputError("no release files: the pool is empty")
    releases: dict[str, Release] = {}
    contents: dict[bytes, Path] = {}
    senders: dict[str, Path] = {}
    cells = 0
    for path in map(Path, paths):
        release = read_release(path, schema, keys=keys, room=MAX_CELLS - cells)
        cells += len(release.y) * (len(schema.encoded_names) + 2 + (release.weight is not None))
        before = contents.setdefault(release.fingerprint, path)
        if str(path) in releases or before != path:
            raise InputError(f"{path}: the same release as {before}; give each once")
        client = signer(release, keys) if keys is not None else str(path)
        if (before := senders.setdefault(client, path)) != path:
            raise InputError(
                f"{path}: signed by {client!r}, as is {before}; one release a client is allowed"
            )
        releases[str(path)] = release
    return releases


def named_releases(releases: Releases, schema: Schema) -> dict[str, Release]:
    """Return releases by name: of a list client 0, client 1 and so on, of files their paths.

    Raises:
        InputError: there are none, one is no release or does not fit the schema, or a file is
            refused, see :func:`read_releases`.
    """
    if not isinstance(releases, Mapping | list | tuple) or hasattr(releases, "release"):
        raise InputError("releases: must be several, by name or in a list")
    if not releases:
        raise InputError("no releases: the pool is empty")
    if not isinstance(releases, Mapping):
        if all(isinstance(release, str | PathLike) for release in releases):
            return read_releases(cast("Sequence[str]", releases), schema)
        releases = {f"client {i}": release for i, release in enumerate(releases)}
    by_name = {name: getattr(release, "release", release) for name, release in releases.items()}
    for name, release in by_name.items():
        if not isinstance(release, Release):
            raise InputError(f"releases: {name}: {type(release).__name__}; must be a release")
        if release.header.table_schema.to_json() != schema.to_json():  # the order counts, too
            require_fit(release, schema, name)
            by_name[name] = fitted(release, schema)
    return by_name


def signer(release: Release, keys: Keys) -> str:
    """Return the client that signed a release, which was read with these keys."""
    return keys[(release.signature and release.signature.public_key) or ""]


def concatenated(parts: Iterable[Encoded | Release]) -> Encoded:
    """Return the rows of all parts, one after the other."""
    columns = ((each.x, each.s, each.y) for each in parts)
    return Encoded(*map(np.concatenate, zip(*columns, strict=True)))


def pool_records(
    releases: Releases, schema: Schema, *, max_rows: float | None = None
) -> tuple[pd.DataFrame, np.ndarray]:
    """Return the records of surrogates as a table, with weights, to train any learner on.

    Args:
        releases: surrogates, as :func:`pool_and_train` takes them.
        schema: the clients'.
        max_rows: that one client may have; if not given, as of :func:`pool_and_train`.

    Returns:
        A table with the columns of the schema, its label and sensitive attribute among them, and
        [N] the number of real rows that each record stands for: ``sample_weight``. Of a label with
        several positive or negative values, the first stands for them. Where a release has one
        label alone of a group, records of the other are estimated.

    Raises:
        InputError: a file is refused, see :func:`read_releases`; or a release is no surrogate.

    Example:
        >>> import synthfair as sf
        >>> table, schema = sf.load_dataset("loanapp")
        >>> lenders = sf.partition(table, clients=2, seed=0)
        >>> config = sf.SurrogateConfig(k_min=10)
        >>> releases = {
        ...     f"lender {i}": sf.distill_table(lender.train, schema, config).release
        ...     for i, lender in enumerate(lenders)
        ... }
        >>> records, weights = sf.pool_records(releases, schema)
        >>> list(records.columns) == list(schema.columns), len(records) == len(weights)
        (True, True)
    """
    releases = named_releases(releases, schema)
    for name, release in releases.items():
        if release.weight is None:
            raise InputError(f"{name}: a fair release, which has no records; ask for a surrogate")
    releases = {name: filled(release, schema)[0] for name, release in releases.items()}
    weight = np.concatenate([*_weights(releases, max_rows)[0].values()])
    return records_table(*concatenated(releases.values()), schema), weight


class Pool(NamedTuple):
    """The rows of all releases, and what is trained on them.

    Attributes:
        rows: as the model sees them; of surrogates with weights.
        parts: which of them are whose, by name of the release.
        model: name of the model.
        config: of what is trained; of fair releases as their clients have chosen, without a weight
            of a penalty.
        ridge: [n] its regularisation, an input.
        n_groups: number of groups.
        penalty: fairness over all clients, of surrogates; None for fair releases.
        compared: releases with rows enough of every group for the largest gap of a client.
        capped: releases that claim more rows than a client may have, and how many they claim; they
            count as ``max_rows``.
        max_rows: that a client may have: as set, or MAX_CLAIM_MEDIANS lower medians of the claims.
        by: groupings that are compared, of several attributes.
        left_out: names of their groups that have too few rows to be compared.
        trust: what a row of each release counts, by name; none without trusted rows.
        unpaired: surrogates whose pairs of group and label are made up, so that a penalty by label
            does not compare their rows.
        estimated: (group, label) of cells that a release leaves out, by its name: their records are
            estimated, and a penalty by label does not compare them either.
        is_known: [N] the rows that a penalty by label may compare; None for all.
    """

    rows: Rows
    parts: dict[str, slice]
    model: str
    config: ServerConfig
    ridge: np.ndarray
    n_groups: int
    penalty: Penalty | None = None
    compared: tuple[str, ...] = ()
    capped: Mapping[str, float] = {}
    max_rows: float = np.inf
    by: tuple[Grouping, ...] = ()
    left_out: tuple[str, ...] = ()
    trust: Mapping[str, float] = {}
    unpaired: tuple[str, ...] = ()
    estimated: Mapping[str, tuple[tuple[int, float], ...]] = {}
    is_known: np.ndarray | None = None

    def problem(self, model: LinearModel | None = None) -> GlobalProblem | CustomProblem:
        """Return what is solved, with the loss of a model.

        Rows that are not compared are of a group of their own.
        """
        n_groups, by, s = self.n_groups, self.by, np.array(self.rows.s)
        if self.is_known is not None:
            s[~self.is_known] = n_groups
            by = tuple((*grouping, -1) for grouping in by or [tuple(range(n_groups))])
            n_groups += 1
        # A penalty of the user's own does not say what gaps of decisions compare.
        is_named = isinstance(self.penalty, SumPenalty)
        penalty = self.penalty if is_named else CovariancePenalty(n_groups, self.config.notion)
        client = None
        if self.compared:
            client = np.full(len(s), -1)
            for i, name in enumerate(self.compared):
                client[self.parts[name]] = i
        penalty = replace(cast(Any, penalty), n_groups=n_groups, by=by)
        rows = self.rows._replace(s=s)
        problem = GlobalProblem(*rows, penalty, self.ridge, client)  # type: ignore[arg-type]
        if model in (None, LinearModel()) and (is_named or self.penalty is None):
            return problem
        from synthfair.surrogate.custom import CustomProblem  # loads JAX

        return CustomProblem(problem, model or LinearModel(), penalty if is_named else self.penalty)

    @property
    def weight(self) -> np.ndarray:
        """Return how much each row [N] counts."""
        return np.asarray(self.rows.weight)

    @property
    def owner(self) -> np.ndarray:
        """Return the index [N] of the release of each row."""
        sizes = [rows.stop - rows.start for rows in self.parts.values()]
        return np.repeat(np.arange(len(sizes)), sizes)


def make_pool(
    releases: Releases,
    schema: Schema,
    config: ServerConfig | None = None,
    *,
    penalty: Penalty | PenaltyName | None = None,
    trusted: pd.DataFrame | Encoded | None = None,
) -> Pool:
    """Return the pool of releases, all fair or all surrogates. See :func:`pool_and_train`.

    Raises:
        InputError: no release; some fair and some surrogates; fair ones that were made for
            different problems, or with settings of the server that only surrogates leave to it;
            surrogates of which a group, or a label, is nobody's; or trusted rows that do not fit
            the schema, or have no row of some group and label.
    """
    releases, config = named_releases(releases, schema), config or ServerConfig()
    if isinstance(penalty, str):
        config, penalty = config.replace(penalty=penalty), None
    kinds = {release.header.kind: name for name, release in reversed(releases.items())}
    if len(kinds) > 1:
        raise InputError(
            f"{kinds['fair']} is fair, {kinds['surrogate']} a surrogate; all must be of one kind"
        )
    if "surrogate" in kinds:
        pooled = _pool_surrogates(releases, schema, config, penalty)
    elif penalty is not None:
        raise InputError(f"{name_of(penalty)}: of fair releases, that was the clients' choice")
    else:
        pooled = _pool_fair(releases, schema, config)
    return pooled if trusted is None else _weighted(pooled, schema, trusted, releases)


def _parts(releases: Mapping[str, Release]) -> dict[str, slice]:
    """Return which of the rows of a pool are whose."""
    ends = np.cumsum([0, *(len(release.y) for release in releases.values())]).tolist()
    return dict(zip(releases, (slice(*pair) for pair in pairwise(ends)), strict=True))


def _pool_fair(releases: Mapping[str, Release], schema: Schema, config: ServerConfig) -> Pool:
    keys = config.model_fields_set - ({"penalty"} if config.searches else set())
    if given := [name for name in FOR_SURROGATES if name in keys]:
        raise InputError(f"{named(given)}: of fair releases that is the clients' choice")
    problems = {}
    for name, release in releases.items():
        wish = cast(DistillConfig, release.header.config)
        shared = wish.intercept, wish.group_input, wish.lambda_theta
        problems[name] = release.header.model, *shared
    first, problem = next(iter(problems.items()))
    for name, differing in problems.items():
        if differing != problem:
            raise InputError(
                f"{name}: made for (model, intercept, group_input, lambda_theta) = {differing}, but"
                f" {first} for {problem}; clients must agree"
            )
    model, intercept, group_input, lambda_theta = problem
    n_groups, encoded = len(schema.groups), concatenated(releases.values())
    table = WeightedTable(*encoded, np.ones(len(encoded.y)))
    rows = table.rows(n_groups=n_groups if group_input else 1, intercept=intercept)
    n = rows.a.shape[1]
    chosen = {"rho": 0.0, "intercept": intercept, "group_input": group_input}
    config, ridge = config.model_copy(update=chosen), np.full(n, lambda_theta / n**2)
    return Pool(rows, _parts(releases), model, config, ridge, n_groups)


def _pool_surrogates(
    releases: Mapping[str, Release], schema: Schema, config: ServerConfig, custom: Penalty | None
) -> Pool:
    full = {name: filled(release, schema) for name, release in releases.items()}
    releases = {name: release for name, (release, _) in full.items()}
    estimated = {name: pairs for name, (_, pairs) in full.items() if pairs}
    parts, (weights, capped, most) = _parts(releases), _weights(releases, config.max_rows)
    records, s, y = concatenated(releases.values())
    weight = np.concatenate([*weights.values()])
    table = WeightedTable(encode_records(records, schema), s, y, weight)
    notion, compared = config.notion, ()
    # Gaps by label are not of rows whose labels go with groups that are made up.
    by_label = notion != "statistical_parity" and custom is None
    unpaired = tuple(
        n for n, release in releases.items() if by_label and release.header.hides_pairs
    )
    known = np.ones(len(s), bool)
    for name in unpaired:
        known[parts[name]] = False
    for name, pairs in estimated.items():
        for group, label in pairs if by_label else ():
            known[parts[name]] &= (s[parts[name]] != group) | (y[parts[name]] != label)
    pooled = pool_table(table, schema, config, custom, known)
    if config.max_client_gap is not None:
        if custom is not None:
            raise InputError(f"{name_of(custom)}: max_client_gap takes a penalty of the settings")
        paired = {name: rows_of for name, rows_of in parts.items() if name not in unpaired}
        groupings = pooled.by or (tuple(range(pooled.n_groups)),)
        compared = _clients_with_rows(table, paired, config, groupings)
    return pooled._replace(
        parts=parts, compared=compared, capped=capped, max_rows=most, unpaired=unpaired,
        estimated=estimated, is_known=None if known.all() else known,
    )  # fmt: skip


def pool_table(
    table: WeightedTable,
    schema: Schema,
    config: ServerConfig,
    penalty: Penalty | None = None,
    known: np.ndarray | bool = True,
) -> Pool:
    """Return the pool of rows in one place, of which a penalty by label compares the known ones.

    Raises InputError: groups cannot be compared, or there is nothing to learn.
    """
    n_groups = len(schema.groups)
    by, left_out = compared_groupings(table, schema, config, known)
    n_read = n_groups if config.group_input else 1
    rows = table.rows(n_groups=n_read, intercept=config.intercept)
    ridge = ridge_of(config.C, table.weight.sum(), rows.a.shape[1], intercept=config.intercept)
    penalty = penalty or named_penalty(config, n_groups=n_groups, by=by)
    model, parts = name_of(LinearModel()), {"rows": slice(None)}
    return Pool(rows, parts, model, config, ridge, n_groups, penalty, by=by, left_out=left_out)


def filled(release: Release, schema: Schema) -> tuple[Release, tuple[tuple[int, float], ...]]:
    """Return a release with records of its missing cells, and (group, label) of these.

    For a group g whose records all have the label -m, with N_g rows and W(y) those of the groups
    with both labels,

        rows    = min((k_min - 1) / 2, N_g W(m) / W(-m))
        records = those of g with the label m, weighted by p(x | m) / p(x | -m) of the other groups

    Half of what the cell can have is a cap: the middle of what is possible. The ratio is that of
    one ridge regression. With an epsilon, no cell is missing.
    """
    config, weight = release.header.config, release.weight
    if weight is None or config.epsilon is not None:
        return release, ()
    cells = np.zeros((len(schema.groups), 2))
    np.add.at(cells, (release.s, (release.y > 0).astype(int)), weight)
    has = cells > 0
    both = np.asarray(has.all(axis=1))
    alone = np.flatnonzero(has.sum(axis=1) == 1)
    if not (both.any() and len(alone)):
        return release, ()
    a = np.column_stack([encode_records(release.x, schema), np.ones(len(release.y))])
    other, mass = both[release.s], cells[both].sum(axis=0)
    balanced = weight[other] / mass[(release.y[other] > 0).astype(int)] / 2
    problem = GlobalProblem(
        a[other], release.s[other], release.y[other], balanced,
        CovariancePenalty(max(len(schema.groups), 2)),
        ridge_of(1.0, weight[other].sum(), a.shape[1], intercept=True),
    )  # fmt: skip
    theta = problem.newton(problem.zero, Price(0.0)).theta
    estimated, parts = [], []
    for group in alone:
        y, is_member = 1.0 - 2.0 * has[group, 1], release.s == group
        ratio = np.exp(y * (a[is_member] @ theta))
        ratio = ratio.clip(1 / MAX_ESTIMATE_RATIO, MAX_ESTIMATE_RATIO)
        share, odds = weight[is_member] * ratio, mass[int(y > 0)] / mass[int(y < 0)]
        rows = min((cast(SurrogateConfig, config).k_min - 1) / 2, cells[group].sum() * odds)
        x, s, labels = release.x[is_member], release.s[is_member], np.full(is_member.sum(), y)
        parts.append((x, s, labels, share / share.sum() * rows))
        estimated.append((int(group), float(y)))
    old = release.x, release.s, release.y, weight
    x, s, y, w = (np.concatenate(fields) for fields in zip(old, *parts, strict=True))
    return replace(release, x=x, s=s, y=y, weight=w), tuple(estimated)


def _weighted(
    pooled: Pool, schema: Schema, trusted: pd.DataFrame | Encoded, releases: Mapping[str, Release]
) -> Pool:
    """Return the pool with what each release counts, given rows that the server trusts."""
    if len(pooled.parts) < 2:
        raise InputError("trusted: weighs releases against each other, and there is only one")
    if not isinstance(trusted, Encoded):
        trusted = encode(trusted, schema, source="trusted")
    # Of fair releases, what most clients asked for; of surrogates, fairness is asked for later.
    penalty: SumPenalty = CovariancePenalty(pooled.n_groups)
    rho, by, asked_of = 0.0, schema.attributes, schema.groupings_by(schema.attributes)
    if pooled.penalty is None:
        configs = [cast(DistillConfig, release.header.config) for release in releases.values()]
        wishes = [(c.penalty, c.notion, c.temperature, c.rho_o, c.groups_by) for c in configs]
        chosen = configs[wishes.index(mode(wishes))]
        by, rho, asked_of = chosen.groups_by or (schema.sensitive_name,), chosen.rho_o, ()
        asked_by = schema.groupings_by(chosen.groups_by)
        penalty = named_penalty(chosen, n_groups=pooled.n_groups, by=asked_by)
    for name in by:
        s = np.array(schema.groupings[name])[trusted.s]
        labels = zip((-1, 1), schema.decisions, strict=True)
        for (y, decision), (i, group) in product(labels, enumerate(schema.group_names(name))):
            if not ((s == i) & (trusted.y == y)).any():
                raise InputError(
                    f"trusted: has no row of {group} and {schema.label}={decision}; give some"
                )
    # Exchanged groups of surrogates show in a model that reads them, whatever the server's does.
    config, d = pooled.config, len(schema.encoded_names)
    reads = config.group_input or pooled.penalty is not None
    seen = {"n_groups": pooled.n_groups if reads else 1, "intercept": config.intercept}
    held = WeightedTable(*trusted, np.ones(len(trusted.y))).rows(**seen)
    weight, (a, s, y, _) = pooled.weight, pooled.rows
    rows = WeightedTable(a[:, :d], s, y, weight).rows(**seen)
    n = rows.a.shape[1]
    ridge = np.append(np.full(n - 1, pooled.ridge[0]), pooled.ridge[-1])
    trust = learn_weights(
        cast(Any, pooled._replace(rows=rows, ridge=ridge, penalty=None, compared=()).problem()),
        pooled.parts,
        GlobalProblem(*held, penalty, np.zeros(n)),  # type: ignore[arg-type]
        rho=rho,
        n_features=d,
        groupings=asked_of,
    )
    by_name = dict(zip(pooled.parts, trust.tolist(), strict=True))
    # Each client that is compared by itself counts alike there: not those that hardly count here.
    compared = tuple(name for name in pooled.compared if by_name[name] >= MIN_TRUST)
    if pooled.compared and not compared:
        raise InputError("max_client_gap: no client that could be compared is trusted")
    rows = pooled.rows._replace(weight=trust[pooled.owner] * weight)
    return pooled._replace(rows=rows, trust=by_name, compared=compared)


def _rows_compared(
    s: np.ndarray, y: np.ndarray, weight: np.ndarray, notion: Notion, n_groups: int
) -> np.ndarray:
    """Return how many rows [K, G] of each group a notion compares, in each stratum."""
    among = np.asarray(strata(y, notion)) * weight
    return np.stack([np.bincount(s, each, n_groups) for each in among])


def _clients_with_rows(
    table: WeightedTable, parts: dict[str, slice], config: ServerConfig, by: Sequence[Grouping]
) -> tuple[str, ...]:
    """Return the releases that stand for rows enough of every group that is compared."""
    least, enough = max(MIN_RATE_ROWS, config.min_group_rows), []
    for name, rows_of in parts.items():
        s, y, weight = (column[rows_of] for column in table[1:])
        sums = _rows_compared(s, y, weight, config.notion, len(by[0]))
        if all(np.min(grouped(sums, grouping)) >= least for grouping in by):
            enough.append(name)
    if not enough:
        raise InputError(f"max_client_gap: no release stands for {least} rows of each group")
    return tuple(enough)


def _weights(
    releases: Mapping[str, Release], max_rows: float | None
) -> tuple[dict[str, np.ndarray], dict[str, float], float]:
    """Return weights of each surrogate's records, claims above what is allowed, and that limit."""
    weights = {name: cast(np.ndarray, release.weight) for name, release in releases.items()}
    claims = {name: float(weight.sum()) for name, weight in weights.items()}
    # The lower median: of two claims the middle would be their mean, and 20 means cap neither.
    most = max_rows or MAX_CLAIM_MEDIANS * sorted(claims.values())[(len(claims) - 1) // 2]
    capped = {name: claim for name, claim in claims.items() if claim > most}
    return weights | {n: weights[n] * (most / claim) for n, claim in capped.items()}, capped, most


def compared_groupings(
    table: WeightedTable, schema: Schema, config: ServerConfig, known: np.ndarray | bool = True
) -> tuple[tuple[Grouping, ...], tuple[str, ...]]:
    """Return the groupings that are compared, and the names of groups with too few rows, left out.

    Of several attributes, small combinations are merged, see
    :meth:`synthfair.data.schema.Schema.compared`; too few rows are fewer than
    :data:`~synthfair.fairness.intervals.MIN_RATE_ROWS` or ``config.min_group_rows``, of those that
    the notion compares. Of one attribute, a group is left out that has none; where there is no such
    group, there is no grouping. Of rows [N] that are not ``known``, pairs of group and label are
    made up: they are not compared.

    Raises:
        InputError: groups cannot be compared, or there is nothing to learn.
    """
    if len(np.unique(table.y[table.weight > 0])) < 2:
        raise InputError("all rows of the releases have the same label; a model needs both")
    notion, n_groups = config.notion, len(schema.groups)
    fewest = _rows_compared(table.s, table.y, table.weight * known, notion, n_groups).min(axis=0)
    single, by, left_out = len(schema.attributes) == 1, [], []
    least = 1e-9 if single else max(MIN_RATE_ROWS, config.min_group_rows)
    for name, groups in schema.compared(config.groups_by, fewest, least).items():
        large = groups.with_rows(fewest, least)
        if len(large.names) < 2 and (config.searches or config.rho > 0):
            needed = "rows" if single else f"the {least} rows that a rate needs"
            made_up = "" if np.all(known) else " (some releases make up pairs of group and label)"
            raise InputError(
                f"groups by {name!r}: fewer than two have {needed}, of those that {notion} compares"
                f"{made_up}. A model without a penalty (rho = 0) needs none of this",
                "rho",
            )
        by.append(large.grouping)
        left_out += [name for name in groups.names if name not in large.names]
    return () if single and not left_out else tuple(by), tuple(left_out)


def train_pool(
    pooled: Pool, schema: Schema, *, model: LinearModel | None = None
) -> tuple[TrainedModel, FrontierPoint | None]:
    """Return the model, and of surrogates its point of the frontier. See pool_and_train."""
    model = model or LinearModel()
    config, n_inputs, name = pooled.config, pooled.rows.a.shape[1], name_of(model)
    if pooled.penalty is None and name != pooled.model:
        raise InputError(
            f"{next(iter(pooled.parts))}: made for the model {pooled.model!r}, not {name!r}"
        )
    if model != LinearModel():
        is_vector = getattr(model.init(n_inputs), "shape", None) == (n_inputs,)
        if not is_vector or getattr(type(model), "scores", None) is not LinearModel.scores:
            raise InputError(
                f"{name}: only linear models are trained on pooled releases: params must be a"
                f" vector of {n_inputs} numbers, and scores those of LinearModel, a'theta"
            )
        if config.max_client_gap is not None:
            raise InputError(f"{name}: max_client_gap takes the logistic loss")
    problem = pooled.problem(model)
    if config.min_ratio is not None:
        if not isinstance(problem, GlobalProblem):
            raise InputError("min_ratio: takes the logistic loss and a penalty of the package")
        point = meet_ratio(problem, config.min_ratio, config.max_gap, config.max_client_gap)
    elif config.searches:
        point = problem.meet(config.max_gap, config.max_client_gap)
    else:
        point = problem.solve(config.rho)
    if not np.isfinite(point.theta).all():
        remedy = "" if pooled.penalty is None else ": lower rho, or lower C"
        raise InputError(f"training on the pooled rows diverged{remedy}")
    trained = trained_model(point, schema, config, loss=name)
    return trained, point if pooled.penalty is not None else None


def trained_model(
    point: FrontierPoint, schema: Schema, config: ServerConfig, *, loss: str | None = None
) -> TrainedModel:
    """Return the model of a point, with all that is needed to use it."""
    read: Any = {"intercept": config.intercept, "group_input": config.group_input}
    return TrainedModel(
        schema=schema,
        version=synthfair.__version__,
        loss=loss or name_of(LinearModel()),
        inputs=input_names(schema, **read),
        theta=tuple(point.theta.tolist()),
        gradient_norm=point.gradient_norm,
        converged=point.converged,
        **read,
    )

"""From a client's real rows to the problem that is solved: where private and plain clients differ.

Everything after this stage is the same for both.
"""

from __future__ import annotations

import hashlib
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from synthfair.client.private import guaranteed, measure, require_known
from synthfair.config import DistillConfig
from synthfair.data.batches import RealRows, gather
from synthfair.data.encode import Encoded
from synthfair.data.schema import Schema
from synthfair.distill.problem import Problem, assemble, make_problem
from synthfair.distill.start import choose_start
from synthfair.errors import InputError
from synthfair.fairness.penalties import Penalty
from synthfair.model import Model
from synthfair.privacy.fit import PrivateFit
from synthfair.privacy.noise import RandomBytes, system_entropy
from synthfair.privacy.private_objective import PrivateObjective
from synthfair.release.format import Header, make_header


class Prepared(NamedTuple):
    """What is optimised, and what the release will say of itself.

    Attributes:
        problem: the bilevel problem.
        header: of the release.
        fingerprint: sha256 of all that the distillation depends on. Private: who guesses the rows
            could confirm them by it.
    """

    problem: Problem
    header: Header
    fingerprint: str


def prepare(
    real: Encoded | RealRows,
    schema: Schema,
    config: DistillConfig,
    *,
    model: Model | None = None,
    penalty: Penalty | None = None,
    noise: RandomBytes = system_entropy,
    source: str = "table",
) -> Prepared:
    """The problem of real rows: read without noise, or, with ``config.epsilon``, with noise alone.

    Args:
        real: the real rows; if gathered, then for these settings.
        schema: theirs.
        config: settings.
        model: another than the linear model with the logistic loss.
        penalty: another than that of the settings.
        noise: see :func:`synthfair.client.private.measure`.
        source: what to call the rows in errors.

    Raises:
        InputError: groups cannot be compared, or synthetic rows not chosen as the settings say; or,
            with an epsilon, a model or penalty whose sensitivity is not known.
    """
    if config.epsilon is None:
        return prepare_plain(real, schema, config, model=model, penalty=penalty, source=source)
    encoded = real if isinstance(real, Encoded) else real.encoded
    fit = measure(encoded, schema, config, model=model, penalty=penalty, noise=noise)
    return prepare_private(
        fit, schema, config, model=model, penalty=penalty, secure=noise is system_entropy
    )


def prepare_plain(
    real: Encoded | RealRows,
    schema: Schema,
    config: DistillConfig,
    *,
    model: Model | None = None,
    penalty: Penalty | None = None,
    source: str = "table",
    rows_sha256: str | None = None,
) -> Prepared:
    """The problem whose outer objective is computed from the real rows. Raises as prepare does.

    ``rows_sha256`` is :func:`sha256_of` the gathered rows, where it is known already.
    """
    n_groups = len(schema.groups)
    check_rows(real, schema, config, source=source)
    if isinstance(real, Encoded):
        real = gather([real], len(real.y), n_groups=n_groups, intercept=config.intercept)
    problem = make_problem(real, config, n_groups=n_groups, model=model, penalty=penalty)
    header = make_header(config, schema, model=problem.model, penalty=problem.penalty)
    rows_sha256 = rows_sha256 or sha256_of(real[:3])
    return Prepared(problem, header, fingerprint(rows_sha256, header.model_dump_json()))


def prepare_private(
    fit: PrivateFit,
    schema: Schema,
    config: DistillConfig,
    *,
    model: Model | None = None,
    penalty: Penalty | None = None,
    secure: bool = True,
) -> Prepared:
    """The problem whose outer objective is what was measured: no real row is known here.

    Args:
        fit: from :func:`synthfair.client.private.measure` with the same settings.
        schema: public.
        config: settings.
        model: as for the measurement.
        penalty: as for the measurement.
        secure: whether its noise came from the system; else nothing is guaranteed.
    """
    known_model, known = require_known(model, penalty, config, schema)
    problem = assemble(
        PrivateObjective(*map(jnp.asarray, fit[:3])),
        choose_start(config, fit.counts, d=len(schema.encoded_names)),
        config,
        n_groups=len(schema.groups),
        model=known_model,
        penalty=known,
    )
    guarantee = guaranteed(config, schema, model=model, penalty=penalty) if secure else None
    header = make_header(
        config, schema, model=problem.model, penalty=problem.penalty, guarantee=guarantee
    )
    return Prepared(problem, header, fingerprint(sha256_of(fit), header.model_dump_json()))


def require_feasible(schema: Schema, config: DistillConfig) -> None:
    """Refuses settings that would fail only after the budget is spent.

    Raises:
        InputError: the synthetic rows cannot be chosen as the settings say, whatever is measured.
    """
    choose_start(config, np.ones((len(schema.groups), 2)), d=len(schema.encoded_names))


def fingerprint(rows_sha256: str, settings: str) -> str:
    """sha256 of rows and settings, and of the precision that is computed with."""
    precision = np.dtype(jax.dtypes.canonicalize_dtype(float)).name
    return hashlib.sha256(f"{rows_sha256} {precision} {settings}".encode()).hexdigest()


def sha256_of(arrays: tuple[np.ndarray, ...]) -> str:
    """Of the bytes of arrays."""
    digest = hashlib.sha256()
    for array in arrays:
        digest.update(np.ascontiguousarray(array).data)  # in place: the rows may be a million
    return digest.hexdigest()


def require_rows(n_rows: int, config: DistillConfig, *, source: str) -> None:
    """Raises InputError: fewer rows than ``config.n_min``."""
    if n_rows < config.n_min:
        raise InputError(
            f"{source}: {n_rows} rows; a release needs at least {config.n_min} (n_min). Lower n_min"
            " (--n-min, at least 5; it is published), or make one release of your rows and another"
            " organisation's"
        )


def check_rows(
    real: Encoded | RealRows, schema: Schema, config: DistillConfig, *, source: str
) -> None:
    """Refuses tables in which groups cannot be compared.

    Raises:
        InputError: fewer rows than ``config.n_min`` or than groups; only one label; or, among the
            rows that the fairness notion compares, fewer groups than the penalty needs: two for the
            covariance, all for the selection rate.
    """
    groups = schema.groups
    require_rows(len(real.y), config, source=source)
    if len(real.y) < len(groups):
        raise InputError(
            f"{source}: {len(real.y)} rows are fewer than the {len(groups)} groups of"
            f" {schema.sensitive!r}; merge small groups (in the schema, by 'unlisted')"
        )
    if len(np.unique(real.y)) < 2:
        only = schema.decisions[int(real.y[0] > 0)]
        raise InputError(
            f"{source}: column {schema.label!r} holds only {only!r}; needs both labels. A surrogate"
            " (--release surrogate; in Python, release='surrogate') takes a client of one label"
        )
    needed = len(groups) if config.penalty == "selection_rate" else 2
    negative, positive = (f"rows with {schema.label}={value}" for value in schema.decisions)
    compared = {
        "statistical_parity": {},
        "equal_opportunity": {positive: real.y > 0},
        "equalized_odds": {positive: real.y > 0, negative: real.y < 0},
    }[config.notion]
    for name, rows in {"all rows": np.full(len(real.y), True), **compared}.items():
        present = np.unique(real.s[rows])
        if len(present) < needed:
            raise InputError(
                f"{source}: column {schema.sensitive!r}, among {name}, holds only"
                f" {[groups[g] for g in present]}; {config.notion} by {config.penalty} needs"
                f" {needed} of {list(groups)}. A surrogate (--release surrogate) takes a client of"
                " one group; or merge small groups (in the schema, by 'unlisted')"
            )

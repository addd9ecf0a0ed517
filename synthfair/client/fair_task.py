"""The task of a fair release: synthetic rows on which an ordinary model is fair.

Without an epsilon they are distilled from the real rows. With one, they are distilled from private
records, those of a surrogate, and nothing that follows knows a real row.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import product
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import jax
import jax.numpy as jnp
import numpy as np

from synthfair.data.batches import Batches
from synthfair.data.encode import Clipping, Encoded, content_digests
from synthfair.data.schema import Schema
from synthfair.distill import gap_search
from synthfair.distill.problem import (
    PenalizedLoss,
    Problem,
    StepRecord,
    make_problem,
    outer_excess,
)
from synthfair.distill.solvers import choose_method, train
from synthfair.errors import InputError
from synthfair.fairness.penalties import STRATA, Penalty
from synthfair.model import Model, Params
from synthfair.privacy.guarantee import FEATURE_GRID
from synthfair.privacy.noise import RandomBytes, system_entropy
from synthfair.release.format import MAX_FEATURE, Release, make_header
from synthfair.release.settings import MIN_EXACT_ROWS, DistillConfig
from synthfair.task.limits import Claim
from synthfair.task.protocol import ReadRows, Run, Task, read_rows

if TYPE_CHECKING:
    import optax

    from synthfair.client.page import Site
    from synthfair.client.surrogate_task import SurrogateTask

PAID = (
    "The private records are paid for: of them, other settings distil at no cost, and release ="
    " surrogate, with the same epsilon, delta and k_min, is these records"
)
"""The end of a refusal to distil private records."""

CHANCE = 1e-3
"""Chance at which synthetic rows that are drawn at random pass for copies of real rows."""


OUTER_TOLERANCE = 1e-3
"""The outer problem counts as solved where :func:`outer_excess` is at most this."""


class Baseline(NamedTuple):
    """A private comparison of a release's model with plain ones on the training rows.

    Attributes:
        accuracy: of the model that is trained on the release.
        gap: largest difference between its decision rates of the groups.
        majority: accuracy of the more frequent label for everybody.
        plain_gap: gap of the model that is trained on the real rows without a penalty.
    """

    accuracy: float
    gap: float
    majority: float
    plain_gap: float


class Distillation(NamedTuple):
    """A release and how well it was computed.

    Attributes:
        release: what may be sent.
        history: records [steps + 1] of every step. Private: computed from real rows.
        reached: the record of the release's own x, where P(x) was least. Private.
        outer_excess: how far P(x) is above its optimum, as a share of F of the untrained model;
            see :func:`synthfair.distill.problem.outer_excess`. Private.
        rho_o: weight of the penalty: as given, or, with ``max_gap``, as the search ended. Private,
            like the history.
        theta: of the model that anybody can train on the release.
        tried: gap on the real rows that each weight reached, with ``max_gap``. Private.
        search_ended: whether the search found nothing more to try; false where the steps were spent
            before.
        baseline: what the release's model must not fall behind, on the rows, or records, that it is
            distilled from; only of a table in a file.
    """

    release: Release
    history: StepRecord
    reached: StepRecord
    outer_excess: float
    rho_o: float
    theta: Params
    tried: Mapping[float, float]
    search_ended: bool
    baseline: Baseline | None = None

    def __repr__(self) -> str:
        """Return the release and how well it was computed, in a line."""
        solved = f"inner_converged={self.inner_converged}, outer_converged={self.outer_converged}"
        return f"Distillation({self.release!r}, {solved})"

    @property
    def config(self) -> DistillConfig:
        """The settings."""
        return cast(DistillConfig, self.release.header.config)

    @property
    def inner_converged(self) -> bool:
        """True where the inner problem at the release's x met its tolerance."""
        return bool(self.reached.inner_converged)

    @property
    def outer_converged(self) -> bool:
        """True where P(x) is near its optimum, to :data:`OUTER_TOLERANCE`."""
        return self.outer_excess <= OUTER_TOLERANCE

    @property
    def converged(self) -> bool:
        """True where both problems are solved."""
        return self.inner_converged and self.outer_converged

    @property
    def gap_met(self) -> bool | None:
        """True where the gap on the real rows is at most ``max_gap``; None where none is set."""
        wanted = self.config.max_gap
        return None if wanted is None else bool(self.reached.gap <= wanted)


@dataclass(frozen=True)
class FairTask:
    """A fair release of some client, Wu et al. (2024) algorithm 1, lines 1 to 16.

    Attributes:
        schema: of the rows, public.
        config: settings, public.
        noise: where its bytes come from; other than the system's, it protects nothing.
        model: another than the linear model with the logistic loss.
        penalty: another than that of the settings.
        optimizer: another of the synthetic rows than Adam.
    """

    schema: Schema
    config: DistillConfig
    noise: RandomBytes = field(default=system_entropy)
    model: Model | None = None
    penalty: Penalty | None = None
    optimizer: optax.GradientTransformation | None = None

    @cached_property
    def buyer(self) -> SurrogateTask | None:
        """With an epsilon, the task that buys private records, which take the place of rows."""
        if self.config.epsilon is None:
            return None
        from synthfair.client.surrogate_task import SurrogateTask  # SciPy takes a while

        return SurrogateTask(self.schema, self.config.records, self.noise)

    @property
    def task(self) -> Task:
        """The question to a site."""
        config, buyer = self.config, self.buyer and self.buyer.task
        claim = Claim("fair", config.epsilon, config.delta, k_min=config.k_min if buyer else None)
        if buyer:
            return replace(buyer, claim=claim, answer=self.answer)
        question = f"{config.model_dump_json()} {self.schema.hash}"
        return Task(claim, question, self.answer, read=self.read, check=check_copies)

    # At the site, with its rows

    def read(self, site: Site, clipping: Clipping) -> ReadRows:
        """Return the rows of a table, of which it counts what is clipped.

        Raises:
            InputError: the file cannot be read, has no rows, or does not fit the schema.
        """
        rows = read_rows(site, clipping)
        require_rows(len(rows.real.y), source=str(site.data))
        precision = jax.dtypes.canonicalize_dtype(float)  # in another, another release is made
        return rows._replace(sha256=f"{rows.sha256} {precision}")

    def measured(
        self, real: Encoded | Batches, bought: bytes | None, run: Run
    ) -> tuple[Encoded, np.ndarray | None]:
        """Return the rows themselves; or, with an epsilon, private records and their weights."""
        if self.buyer is None:
            return cast(Encoded, real), None
        records = self.buyer.records(cast(Batches, real), bought, run)
        return records.rows(self.schema), records.weight

    # From the rows, or from private records, to the release

    def answer(self, rows: ReadRows, bought: bytes | None, run: Run) -> Distillation:
        """Return the release of rows, or of private records, next to its baseline.

        Raises:
            InputError: groups cannot be compared, synthetic rows not chosen as the settings say, or
                the distillation diverges.
        """
        measured = self.measured(rows.real, bought, run)
        try:
            problem = self.problem(*measured, run)
            made = self.distill(problem, run)
        except InputError as error:
            paid = f". {PAID}" if bought else ""
            raise InputError(f"{error}{paid}", *error.arguments) from error
        plain = train(problem.objective.rows, problem.lambda_theta, model=problem.model).params
        compared = _compared(problem.objective, made.theta, plain)
        return made._replace(baseline=Baseline(*map(float, compared)))

    def problem(self, rows: Encoded, weight: np.ndarray | None, run: Run) -> Problem:
        """Return the bilevel problem of rows, or of private records.

        Raises:
            InputError: groups cannot be compared, or synthetic rows not chosen as the settings say.
        """
        config, schema = self.config, self.schema
        by = schema.groupings_by(config.groups_by)
        counted = rows if weight is None else Encoded(*(field[weight > 0] for field in rows))
        check_rows(counted, schema, config, source=run.source)
        given: Any = {"weight": weight, "by": by, "model": self.model, "penalty": self.penalty}
        return make_problem(rows, config, n_groups=len(schema.groups), **given)

    def distill(self, problem: Problem, run: Run) -> Distillation:
        """Return the release of a problem's best synthetic rows, and how well it was computed.

        Raises:
            InputError: an objective is not finite, or an entry of the best x larger than a release
                may hold.
        """
        run.on_stage("distilling")
        config, max_gap, history, taken = self.config, self.config.max_gap, [], 0
        search: Any = None
        method = choose_method(problem, config, optimizer=self.optimizer)
        for search, records in gap_search.run(problem, method, max_gap=max_gap, steps=config.steps):
            taken += len(records.objective)
            is_finite = np.isfinite(records.objective).all()
            if not (is_finite and np.abs(search.best.x).max() <= MAX_FEATURE):
                raise InputError(
                    f"{run.source}: distillation diverged, by step {taken}: lower learning_rate,"
                    " rho_o or temperature, or raise lambda_theta (the inner problem must be"
                    " strictly convex)"
                )
            history.append(records)
            if run.progress:
                run.progress(records, taken - 1, config.steps)
        best, rho_o, tried = search
        problem = gap_search.with_weight(problem, rho_o)
        kinds: Any = {"model": problem.model, "penalty": problem.objective.penalty}
        guarantee = self.buyer and self.buyer.guarantee
        header = make_header(config, self.schema, **kinds, guarantee=guarantee)
        s, y = np.asarray(problem.s), np.asarray(problem.y)
        # On the grid, as in the file, and as it is checked.
        x = np.rint(np.asarray(best.x).T / FEATURE_GRID) * FEATURE_GRID
        return Distillation(
            Release(header, x, s, y),
            StepRecord(*(np.concatenate(fields) for fields in zip(*history, strict=True))),
            jax.tree.map(np.asarray, best.record),
            float(outer_excess(problem, best)),
            rho_o,
            problem.params(best.theta),
            tried,
            max_gap is None or gap_search.next_weight(tried, max_gap) is None,
        )


def check_rows(rows: Encoded, schema: Schema, config: DistillConfig, *, source: str) -> None:
    """Refuse rows in which groups cannot be compared.

    Raises:
        InputError: only one label; or, among the rows that the fairness notion compares, fewer
            groups than the penalty needs: two for the covariance, all for the selection rate.
    """
    remedy = (
        "merge small groups (in the schema, by 'unlisted'), or make a surrogate (release ="
        " surrogate), which a client of one label or one group can make"
    )
    if config.epsilon is not None:
        remedy = (
            f"these are private records: k_min = {config.k_min}, or the noise of epsilon ="
            f" {config.epsilon:g}, may hide the others; with other values they are bought anew"
        )
    if len(np.unique(rows.y)) < 2:
        only = schema.decisions[int(rows.y[0] > 0)]
        raise InputError(
            f"{source}: column {schema.label!r} holds only {only!r}; needs both labels; {remedy}"
        )
    negative, positive = (f"rows with {schema.label}={value}" for value in schema.decisions)
    names = {(-1.0, 1.0): "all rows", (-1.0,): negative, (1.0,): positive}
    strata = dict.fromkeys([(-1.0, 1.0), *STRATA[config.notion]])
    for labels, by in product(strata, config.groups_by or (schema.sensitive_name,)):
        groups, grouping = schema.groups_of(by), np.array(schema.groupings[by])
        needed = len(groups) if config.penalty == "selection_rate" else 2
        present = np.unique(grouping[rows.s[np.isin(rows.y, labels)]])
        if len(present) < needed:
            raise InputError(
                f"{source}: column {by!r}, among {names[labels]}, holds only"
                f" {[groups[g] for g in present]}; {config.notion} by {config.penalty} needs"
                f" {needed} of {list(groups)}; {remedy}"
                + (", or compare by each attribute (groups_by)" * (len(schema.attributes) > 1))
            )


def require_rows(n_rows: int, *, source: str) -> None:
    """Raise InputError for fewer rows than :data:`MIN_EXACT_ROWS`."""
    if n_rows < MIN_EXACT_ROWS:
        raise InputError(
            f"{source}: {n_rows} rows; a release needs at least {MIN_EXACT_ROWS}. Make one release"
            " of your rows and another organisation's"
        )


def check_copies(made: Distillation, rows: ReadRows, run: Run) -> None:
    """Refuse a release that holds real rows, or their labels without being asked to.

    Raises:
        InputError: more synthetic rows equal a real one than chance explains, to the grid of a
            release; or labels are those of the real rows, in order.
    """
    release, real = made.release, rows.real
    if made.config.labels != "copy" and np.array_equal(release.y, real.y):
        raise InputError(
            f"{run.source}: not written: it holds the labels of the real rows, in order"
        )
    digests, real_digests = (
        content_digests(np.rint(column / FEATURE_GRID).astype(int) for column in columns)
        for columns in (release.x.T, real.x.T)
    )
    if not (copies := int(np.isin(digests, real_digests).sum())):
        return
    from scipy.stats import binom  # takes a while

    chance = min(1.0, len(real_digests) * FEATURE_GRID ** real.x.shape[1])
    if copies > binom.isf(CHANCE, len(digests), chance):
        raise InputError(
            f"{run.source}: not written: {copies} of {len(digests)} synthetic rows are copies of"
            " real rows. Try a lower n_synthetic, or coarser columns (rounded numbers; fewer"
            " categories in the schema)"
        )


@jax.jit
def _compared(objective: PenalizedLoss, theta: Params, plain: Params) -> tuple[jax.Array, ...]:
    """Return the numbers of a :class:`Baseline` of two models, on the rows of the objective."""
    right = (objective.model.scores(theta, objective.rows.a) > 0) == (objective.y > 0)
    share, accuracy = (
        jnp.average(each, weights=objective.weight) for each in (objective.y > 0, right)
    )
    majority = jnp.maximum(share, 1 - share)
    return accuracy, objective.gap(theta), majority, objective.gap(plain)

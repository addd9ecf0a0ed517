"""The task of a fair release: synthetic rows on which an ordinary model is accurate and fair.

Without an epsilon they are distilled from the real rows. With one, they are distilled from private
records, those of a surrogate, and nothing that follows knows a real row.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, cast

import jax
import jax.numpy as jnp
import numpy as np

from synthfair.client.comparable import check_rows
from synthfair.client.distillation import Baseline, Distillation, distill_problem
from synthfair.data.batches import Batches, RealRows, from_files, gather, in_memory
from synthfair.data.encode import Clipping, Encoded, content_digests, content_sums
from synthfair.data.schema import Schema
from synthfair.distill.problem import PenalizedLoss, Problem, make_problem
from synthfair.distill.solvers import train
from synthfair.errors import InputError
from synthfair.fairness.penalties import Penalty
from synthfair.model import Model, Params
from synthfair.privacy.guarantee import GRID
from synthfair.privacy.noise import RandomBytes, system_entropy
from synthfair.release.format import Release, make_header
from synthfair.settings import MIN_ROWS, DistillConfig
from synthfair.task.limits import Claim
from synthfair.task.protocol import ReadRows, Run, Task, sha256_of

if TYPE_CHECKING:
    import optax

    from synthfair.client.page import Site
    from synthfair.client.surrogate_task import SurrogateTask
    from synthfair.surrogate.records import Surrogate

PAID = (
    "The private records are paid for: of them, other settings distil at no cost, and release ="
    " surrogate, with the same epsilon, delta and k_min, is these records"
)
"""The end of a refusal to distil private records."""

CHANCE = 1e-3
"""Chance at which synthetic rows that are drawn at random pass for copies of real rows."""


@dataclass(frozen=True)
class FairTask:
    """A fair release of some client, Wu et al. (2024) algorithm 1, lines 1 to 16.

    Attributes:
        schema: of the rows, public.
        config: settings, public.
        model: another than the linear model with the logistic loss.
        penalty: another than that of the settings.
        noise: where its bytes come from; other than the system's, it protects nothing.
        buyer: with an epsilon, the task that buys private records, which take the place of rows.
    """

    schema: Schema
    config: DistillConfig
    model: Model | None = None
    penalty: Penalty | None = None
    noise: RandomBytes = field(default=system_entropy)
    buyer: SurrogateTask | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        """Works out what is guaranteed."""
        if self.config.epsilon is not None:
            from synthfair.client.surrogate_task import SurrogateTask  # SciPy takes a while

            surrogate = SurrogateTask(self.schema, self.config.records, self.noise)
            object.__setattr__(self, "buyer", surrogate)

    @property
    def task(self) -> Task:
        """The question to a site."""
        config, buyer = self.config, self.buyer and self.buyer.task
        claim = Claim("fair", config.epsilon, config.delta, k_min=config.k_min if buyer else None)
        if buyer is None:
            asked = f"{config.model_dump_json()} {self.schema.hash}"
            return Task(claim, asked, self.answer, read=self.read, check=_check_release)
        return replace(buyer, claim=claim, answer=self.answer)

    # At the site, with its rows

    def read(self, site: Site, clipping: Clipping) -> ReadRows:
        """Return the rows of a table, of which it counts what is clipped.

        Raises:
            InputError: the file cannot be read, has no rows, or does not fit the schema.
        """
        parts = [*from_files(site.data, site.schema, clipping=clipping).read()]
        rows = Encoded(*map(np.concatenate, zip(*parts, strict=True)))
        require_rows(len(rows.y), source=str(site.data))
        content = sum(map(content_sums, parts), np.zeros(3, np.uint64))
        precision = jax.dtypes.canonicalize_dtype(float)  # in another, another release is made
        sha256 = f"{sha256_of((content,))} {precision}"
        return ReadRows(self.gather(rows, source=str(site.data)), sha256)

    def gather(self, rows: Encoded | RealRows, *, source: str) -> RealRows | Batches:
        """Return rows that are encoded, with an epsilon by ``schema.plain``, to be read.

        Raises:
            InputError: with an epsilon, rows have weights, or are encoded otherwise.
        """
        if self.buyer is None:
            return rows if isinstance(rows, RealRows) else self._gathered(rows)
        if isinstance(rows, RealRows):
            if rows.weight is not None:
                raise InputError(f"{source}: rows have weights, of which an epsilon does not know")
            rows = rows.encoded
        if rows.x.shape[1] != (width := len(self.schema.plain.encoded_names)):
            raise InputError(
                f"{source}: rows of {rows.x.shape[1]} columns; with epsilon they must have the"
                f" {width} of schema.plain, of which bases and interactions are computed"
            )
        return in_memory(rows)

    def measured(self, real: RealRows | Batches, run: Run) -> RealRows | Surrogate:
        """Return the rows themselves; or, with an epsilon, private records of them."""
        if self.buyer:
            return self.buyer.records(cast(Batches, real), Run(run.source))
        return cast(RealRows, real)

    # From the rows, or from private records, to the release

    def answer(self, rows: ReadRows, bought: bytes | None, run: Run) -> Distillation:
        """Return the release of rows, or of private records, next to its baseline.

        Raises:
            InputError: as :meth:`problem`, or the distillation diverges.
        """
        if bought is None or self.buyer is None:
            return self._release(self.measured(rows.real, run), run)
        measured = self.buyer.unpacked(bought)
        try:
            return self._release(measured, run)
        except InputError as error:
            raise InputError(f"{error}. {PAID}", *error.arguments) from error

    def _release(self, measured: RealRows | Surrogate, run: Run) -> Distillation:
        problem = self.problem(measured, source=run.source)
        run.on_stage("distilling")
        made = self.distill(problem, run)
        return made._replace(baseline=_baseline(problem, made.theta))

    def problem(self, measured: RealRows | Surrogate, *, source: str = "table") -> Problem:
        """Return the bilevel problem of rows, or of private records.

        Raises:
            InputError: groups cannot be compared, or synthetic rows not chosen as the settings say.
        """
        config, schema = self.config, self.schema
        if not isinstance(measured, RealRows):
            measured = self._gathered(measured.rows(schema), measured.weight)
        remedy = (
            "merge small groups (in the schema, by 'unlisted'), or make a surrogate (release ="
            " surrogate), which a client of one label or one group can make"
        )
        if config.epsilon is not None:
            remedy = (
                f"these are private records: k_min = {config.k_min}, or the noise of epsilon ="
                f" {config.epsilon:g}, may hide the others; with other values they are bought anew"
            )
        check_rows(measured, schema, config, source=source, remedy=remedy)
        return make_problem(
            measured,
            config,
            n_groups=len(schema.groups),
            by=schema.groupings_by(config.groups_by),
            model=self.model,
            penalty=self.penalty,
        )

    def distill(
        self, problem: Problem, run: Run, optimizer: optax.GradientTransformation | None = None
    ) -> Distillation:
        """Return the release of a problem's best synthetic rows, and how well it was computed."""
        model, penalty = problem.model, problem.penalty
        header = make_header(
            self.config,
            self.schema,
            model=model,
            penalty=penalty,
            guarantee=self.buyer and self.buyer.guarantee,
        )
        return distill_problem(problem, header, run, optimizer)

    def _gathered(self, rows: Encoded, weight: np.ndarray | None = None) -> RealRows:
        n_groups = len(self.schema.groups) if self.config.group_input else 1
        return gather(rows, n_groups=n_groups, intercept=self.config.intercept, weight=weight)


def _check_release(made: Any, rows: ReadRows, run: Run) -> None:
    check_copies(made.release, rows.real, source=run.source)


def require_rows(n_rows: int, *, source: str) -> None:
    """Raise InputError for fewer rows than :data:`MIN_ROWS`."""
    if n_rows < MIN_ROWS:
        raise InputError(
            f"{source}: {n_rows} rows; a release needs at least {MIN_ROWS}. Make one release of"
            " your rows and another organisation's"
        )


def check_copies(release: Release, real: RealRows, *, source: str) -> None:
    """Refuse a release that holds real rows, or their labels without being asked to.

    Raises:
        InputError: more synthetic rows equal a real one than chance explains, to the grid of a
            release; or labels are those of the real rows, in order.
    """
    config = cast(DistillConfig, release.header.config)
    if config.labels != "copy" and np.array_equal(release.y, real.y):
        raise InputError(f"{source}: not written: it holds the labels of the real rows, in order")
    made, there = (
        content_digests(np.rint(column / GRID).astype(int) for column in columns)
        for columns in (release.x.T, real.columns[: real.n_features])
    )
    if not (copies := int(np.isin(made, there).sum())):
        return
    from scipy.stats import binom  # takes a while

    if copies > binom.isf(CHANCE, len(made), min(1.0, len(there) * GRID**real.n_features)):
        safer = "start = range, " * (config.start == "real")
        raise InputError(
            f"{source}: not written: {copies} of {len(made)} synthetic rows are copies of real"
            f" rows. Try {safer}a lower n_synthetic, or coarser columns (rounded numbers; fewer"
            " categories in the schema)"
        )


def _baseline(problem: Problem, theta: Params) -> Baseline:
    """Compare theta(x) on the rows, or records, that were distilled, with a plain model."""
    objective = problem.objective
    plain = train(objective.rows, problem.lambda_theta, model=problem.model).params
    return Baseline(*map(float, _compared(objective, theta, plain, model=problem.model)))


@partial(jax.jit, static_argnames="model")
def _compared(
    objective: PenalizedLoss, theta: Params, plain: Params, *, model: Model
) -> tuple[jax.Array, ...]:
    right = (model.scores(theta, objective.rows.a) > 0) == (objective.y > 0)
    share, accuracy = (
        jnp.average(each, weights=objective.weight) for each in (objective.y > 0, right)
    )
    majority = jnp.maximum(share, 1 - share)
    return accuracy, objective.gap(theta), majority, objective.gap(plain)

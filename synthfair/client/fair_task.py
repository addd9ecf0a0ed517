"""The task of a fair release: synthetic rows on which an ordinary model is accurate and fair.

Without an epsilon, the outer objective is computed from the real rows. With one, it is computed
from numbers that are measured once, with noise, and no real row is known afterwards. All that
follows is the same for both.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from functools import partial
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, cast

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd

from synthfair.client.distillation import Baseline, Distillation, distill_problem
from synthfair.client.run import Run, Trial, sha256_of
from synthfair.config.client_settings import MIN_ROWS, DistillConfig
from synthfair.data.batches import RealRows, from_files, gather, other_inputs
from synthfair.data.encode import Clipping, Encoded, content_sums, drawn_by_content
from synthfair.data.schema import Schema
from synthfair.distill.problem import PenalizedLoss, Problem, assemble, make_penalty, make_problem
from synthfair.distill.solvers import train
from synthfair.distill.start import choose_start
from synthfair.errors import InputError
from synthfair.fairness.penalties import Grouping, Penalty
from synthfair.model import LinearModel, Model, Params
from synthfair.privacy.guarantee import Guarantee
from synthfair.privacy.noise import RandomBytes, system_entropy
from synthfair.privacy.statement import make_guarantee
from synthfair.release.format import make_header, name_of

if TYPE_CHECKING:
    import optax

    from synthfair.privacy.fit import Penalties, PrivateFit
    from synthfair.privacy.gate import Preview

MEASURED = (
    "epsilon", "delta", "relation", "private_steps", "clip", "penalty", "notion", "temperature",
    "rho_o", "lambda_theta", "intercept", "group_input",
)  # fmt: skip
"""Settings that the noisy numbers depend on; other settings change for free."""

MOST_CURVED = 1000.0
"""Second derivative of a loss that private steps can handle."""

MOST_CHECKED = 1000
"""Held-out rows that the checks use, at most, drawn by content; no others are used at all."""


class FairRows(NamedTuple):
    """A client's rows, gathered for a model. Private.

    Attributes:
        real: the rows.
        held_out: different rows of the same table that are not among them; None where none were to
            be.
        sha256: the fingerprint of all rows of the table, held out or not; of a file's.
    """

    real: RealRows
    held_out: Encoded | None = None
    sha256: str = ""


@dataclass(frozen=True)
class FairTask:
    """A fair release of some client, Wu et al. (2024) algorithm 1, lines 1 to 16.

    Attributes:
        schema: of the rows, public.
        config: settings, public.
        model: another than the linear model with the logistic loss; with epsilon, a linear one with
            any convex loss of the margin.
        penalty: another than that of the settings; with epsilon, none other.
        noise: where its bytes come from; other than the system's, it protects nothing.
        guarantee: of the release, known before a row is read; None where it has none.

    Raises:
        InputError: with an epsilon, a model or penalty whose sensitivity is not known; or settings
            that would fail only after the budget is spent.
    """

    schema: Schema
    config: DistillConfig
    model: Model | None = None
    penalty: Penalty | None = None
    noise: RandomBytes = field(default=system_entropy)
    guarantee: Guarantee | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        """Refuses what cannot be had, and works out what is guaranteed."""
        if self.config.epsilon is None:
            return
        _require_known(self)
        choose_start(self.config, np.ones((self._groups, 2)), d=len(self.schema.encoded_names))
        if self.noise is system_entropy:
            object.__setattr__(self, "guarantee", make_guarantee(self.config, self.schema))

    @property
    def Measured(self) -> type[PrivateFit]:  # noqa: N802 - a type
        """What is measured with an epsilon."""
        from synthfair.privacy.fit import PrivateFit

        return PrivateFit

    @property
    def has_trial(self) -> bool:
        """Whether rows are held out of a trial; noisy numbers are bought once, and have none."""
        return self.config.epsilon is None

    # At the site, with its rows

    def read(
        self, data: Path, *, hold_out: float = 0.0, clipping: Clipping | None = None
    ) -> FairRows:
        """The rows of a table, encoded some at a time.

        Args:
            data: CSV or Parquet.
            hold_out: share of the rows that are held out, 0 to 0.5; the seed says which.
            clipping: counts the values that are clipped.

        Raises:
            InputError: the file cannot be read, has no rows, or does not fit the schema.
        """
        apart, parts, n_rows = HeldOut(hold_out, self.config.seed), [], 0
        content = np.zeros(3, np.uint64)
        for part in from_files(data, self.schema, clipping=clipping).read():
            n_rows, content = n_rows + len(part.y), content + content_sums(part)
            keep = ~apart(part) if hold_out else slice(None)
            parts.append(Encoded(*(field[keep] for field in part)))
        if self.config.epsilon is None:
            require_rows(n_rows, source=str(data))
        rows = Encoded(*map(np.concatenate, zip(*parts, strict=True)))
        real = gather(rows, n_groups=self._groups_read, intercept=self.config.intercept)
        return FairRows(real, apart.rows if hold_out else None, sha256_of((content,)))

    def gather(self, rows: Encoded | RealRows, *, source: str = "table") -> FairRows:
        """:meth:`read` for rows in memory. Raises InputError: groups cannot be compared."""
        if isinstance(rows, Encoded):
            if self.config.epsilon is None:  # before there are columns for nothing
                check_rows(rows, self.schema, self.config, source=source)
            rows = gather(rows, n_groups=self._groups_read, intercept=self.config.intercept)
        if rows.weight is not None and self.config.epsilon is not None:
            raise InputError(f"{source}: rows have weights, of which an epsilon does not know")
        return FairRows(rows)

    def measured_by(self) -> str:
        """All but the rows that :meth:`measure` depends on, as JSON."""
        stated = self.guarantee.model_dump(mode="json") if self.guarantee else None
        settings = self.config.model_dump(mode="json", include=set(MEASURED))
        known = {"schema": self.schema.hash, "guarantee": stated, **settings}
        return json.dumps(known, sort_keys=True)

    @property
    def most_numbers(self) -> int:
        """That are measured."""
        pairs, n = 2 * self._groups, len(self.schema.encoded_names) + self._groups_read
        return n * (n + 1 + pairs) + pairs

    def measure(self, rows: FairRows) -> FairRows | PrivateFit:
        """With an epsilon, all that is ever read of the rows; without one, the rows."""
        return rows if self.config.epsilon is None else self.measure_fit(rows.real.encoded)

    def measure_fit(self, real: Encoded) -> PrivateFit:
        """Reads the real rows, each time with noise, until the budget is spent.

        Nothing that is made of them later may enter a release but what this returns.

        Guarantee: (epsilon, delta)-differential privacy, as :attr:`guarantee` states. Unit: one
        row. Neighbouring relation: ``config.relation``.
        """
        from synthfair.privacy.fit import largest_curvature, private_fit
        from synthfair.privacy.queries import PrivateQueries

        model, penalty = _require_known(self)
        guarantee, config = make_guarantee(self.config, self.schema), self.config
        queries = PrivateQueries(
            real,
            self.schema,
            guarantee,
            intercept=config.intercept,
            group_input=config.group_input,
            loss=model.margin_loss,
            source=self.noise,
        )
        return private_fit(
            queries,
            guarantee,
            penalty,
            rho_o=config.rho_o,
            lambda_theta=config.lambda_theta,
            curvature=largest_curvature(model.margin_loss),
        )

    def try_out(self, rows: FairRows, run: Run) -> Trial:
        """A release without the rows that are held out, compared with them; nothing of it leaves.

        There is none where too few rows are held out, or some group or label is missing without
        them.
        """
        from synthfair.privacy.gate import LEAST_HELD_OUT  # SciPy takes a while

        if rows.held_out is None:
            return Trial()
        if len(rows.held_out.y) < LEAST_HELD_OUT:
            few = f"fewer than {LEAST_HELD_OUT} different rows are held out"
            return Trial(note=f"no trial: {few}; a larger hold_out takes more")
        changes = {"n_synthetic": None} if self.config.labels == "copy" else {}
        task = FairTask(self.schema, self.config.model_copy(update=changes))
        try:
            problem = task.problem(rows, source=run.source)
        except InputError as refused:  # a wrong setting is refused with all rows, too
            return Trial(note=f"no trial: without the held-out rows, {refused}")
        run.on_stage("trial release")
        return Trial(task.check(task.distill(problem, run), rows, Trial()))

    def check(self, answer: Distillation, rows: FairRows, trial: Trial) -> Preview:
        """What a reader of the release may do with it; see :mod:`synthfair.privacy.gate`.

        What needs held-out rows is known of the trial, if there was one.
        """
        from synthfair.privacy.gate import preview  # SciPy takes a while, and others come first

        release, theta = answer.release, np.asarray(answer.theta)

        def scores(some: Encoded) -> np.ndarray:
            intercept = self.config.intercept
            more = other_inputs(some.s, n_groups=self._groups_read, intercept=intercept)
            return theta @ np.concatenate([some.x.T, more])

        synthetic, real = Encoded(release.x, release.s, release.y), rows.real.encoded
        others = rows.held_out or Encoded(*(part[:0] for part in real))
        final = preview(synthetic, real, others, scores, seed=self.config.seed)
        if trial.preview is None:
            return final
        names = "n_held_out", "distances", "attacks"
        return final._replace(**{name: getattr(trial.preview, name) for name in names})

    # From the rows, or from noisy numbers about them, to the release

    def answer(self, measured: FairRows | PrivateFit, run: Run) -> Distillation:
        """Return the release of rows, or of what was measured of them, next to its baseline.

        Raises:
            InputError: as :meth:`problem`, or the distillation diverges.
        """
        problem = self.problem(measured, source=run.source)
        run.on_stage("distilling")
        made = self.distill(problem, run)
        return made._replace(baseline=_baseline(problem, made.theta))

    def problem(self, measured: FairRows | PrivateFit, *, source: str = "table") -> Problem:
        """Return the bilevel problem of rows, or of what was measured of them.

        Raises:
            InputError: groups cannot be compared, or synthetic rows not chosen as the settings say.
        """
        config, schema, groups = self.config, self.schema, self._groups
        if config.epsilon is None:
            real = cast(FairRows, measured).real
            check_rows(real, schema, config, source=source)
            return make_problem(
                real, config, n_groups=groups, by=self._by, model=self.model, penalty=self.penalty
            )
        from synthfair.privacy.fit import PrivateObjective

        measured = cast("PrivateFit", measured)
        model, penalty = _require_known(self)
        start = choose_start(config, measured.counts, d=len(schema.encoded_names))
        objective = PrivateObjective(*map(jnp.asarray, measured[:3]))
        return assemble(objective, start, config, n_groups=groups, model=model, penalty=penalty)

    def distill(
        self, problem: Problem, run: Run, optimizer: optax.GradientTransformation | None = None
    ) -> Distillation:
        """Return the release of a problem's best synthetic rows, and how well it was computed."""
        model, penalty = problem.model, problem.penalty
        header = make_header(
            self.config, self.schema, model=model, penalty=penalty, guarantee=self.guarantee
        )
        return distill_problem(problem, header, self.schema, run, optimizer)

    @property
    def _groups(self) -> int:
        return len(self.schema.groups)

    @property
    def _groups_read(self) -> int:
        return self._groups if self.config.group_input else 1

    @property
    def _by(self) -> tuple[Grouping, ...]:
        return self.schema.groupings_by(self.config.groups_by)


def _require_known(task: FairTask) -> tuple[LinearModel, Penalties]:
    """Model and penalty, which must be of the kinds whose sensitivities are worked out."""
    from synthfair.privacy.fit import MARGINS, largest_curvature

    model = task.model or LinearModel()
    named = make_penalty(task.config, n_groups=task._groups, by=task._by)
    loss = getattr(model, "margin_loss", None)
    if loss is None or model != LinearModel(loss):  # a subclass may compute something else
        raise InputError(
            f"epsilon: needs a LinearModel (with any loss), not {type(model).__name__}"
        )
    if task.penalty not in (None, named):
        raise InputError(
            f"epsilon: the penalty must be that of the settings, {name_of(named)!r}, not"
            f" {name_of(task.penalty)!r}: readers of the release must know its sensitivity"
        )
    steepest = largest_curvature(loss)
    if not 0 < steepest <= MOST_CURVED:
        raise InputError(
            f"epsilon: the second derivative of {name_of(model)} reaches {steepest:g} at margins up"
            f" to {MARGINS:g}; it must be above 0 and at most {MOST_CURVED:g}, for noisy steps to"
            " find the minimum"
        )
    return LinearModel(loss), named  # type: ignore[return-value]


class HeldOut:
    """Chooses the rows to hold out, each by a hash of its own content, and stores them.

    Whether a row is held out does not depend on the other rows, nor on their order. Equal rows are
    held out together or not at all.

    Args:
        share: of all rows, 0 to 0.5; what is held out is about that.
        seed: of the hash; another one holds out other rows.
    """

    def __init__(self, share: float, seed: int) -> None:
        """Nothing is held out yet."""
        self._threshold, self._seed = int(share * 2**64), seed
        self._rows: Encoded | None = None

    def __call__(self, part: Encoded) -> np.ndarray:
        """[N] whether each row of a part of the table is held out."""
        table = pd.DataFrame(np.column_stack([part.x, part.s, part.y]))
        digests = pd.util.hash_pandas_object(table.assign(seed=self._seed), index=False)
        apart = digests.to_numpy() < np.uint64(self._threshold)
        parts = [*filter(None, [self._rows]), Encoded(*(field[apart] for field in part))]
        together = Encoded(*map(np.concatenate, zip(*parts, strict=True)))
        self._rows = drawn_by_content(together, MOST_CHECKED)
        return apart

    @property
    def rows(self) -> Encoded:
        """The different rows that are held out, for the checks; see :data:`MOST_CHECKED`."""
        return self._rows or Encoded(np.empty((0, 0)), np.empty(0, int), np.empty(0))


def require_rows(n_rows: int, *, source: str) -> None:
    """Raise InputError for fewer rows than :data:`MIN_ROWS`."""
    if n_rows < MIN_ROWS:
        raise InputError(
            f"{source}: {n_rows} rows; a release needs at least {MIN_ROWS}. Make one release of"
            " your rows and another organisation's"
        )


def check_rows(
    real: Encoded | RealRows, schema: Schema, config: DistillConfig, *, source: str
) -> None:
    """Refuses tables in which groups cannot be compared.

    Raises:
        InputError: fewer rows than groups; only one label; or, among the rows that the fairness
            notion compares, fewer groups than the penalty needs: two for the covariance, all for
            the selection rate.
    """
    asked = config.groups_by or (schema.sensitive_name,)
    schema.groupings_by(asked)
    for by in asked:
        if len(real.y) < (n_groups := len(schema.groups_of(by))):
            raise InputError(
                f"{source}: {len(real.y)} rows are fewer than the {n_groups} groups of"
                f" {by!r}; merge small groups (in the schema, by 'unlisted')"
            )
    if len(np.unique(real.y)) < 2:
        only = schema.decisions[int(real.y[0] > 0)]
        raise InputError(
            f"{source}: column {schema.label!r} holds only {only!r}; needs both labels. A surrogate"
            " (release = surrogate) takes a client of one label"
        )
    negative, positive = (f"rows with {schema.label}={value}" for value in schema.decisions)
    compared = {
        "statistical_parity": {},
        "equal_opportunity": {positive: real.y > 0},
        "equalized_odds": {positive: real.y > 0, negative: real.y < 0},
    }[config.notion]
    among = {"all rows": np.full(len(real.y), True), **compared}
    for (name, rows), by in product(among.items(), asked):
        groups, grouping = schema.groups_of(by), np.array(schema.groupings[by])
        needed = len(groups) if config.penalty == "selection_rate" else 2
        present = np.unique(grouping[real.s[rows]])
        if len(present) < needed:
            raise InputError(
                f"{source}: column {by!r}, among {name}, holds only"
                f" {[groups[g] for g in present]}; {config.notion} by {config.penalty} needs"
                f" {needed} of {list(groups)}. A surrogate (release = surrogate) takes a client of"
                " one group; or merge small groups (in the schema, by 'unlisted')"
                + (", or compare by each attribute (groups_by)" * (len(schema.attributes) > 1))
            )


def _baseline(problem: Problem, theta: Params) -> Baseline | None:
    """Compare theta(x) on the real rows and return None where the objective holds none."""
    objective = problem.objective
    if not isinstance(objective, PenalizedLoss):
        return None
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

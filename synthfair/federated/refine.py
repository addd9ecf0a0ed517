"""Exact refinement: from a model nearby to the central optimum, by a few exchanges of sums.

For given params, all that the problem of :mod:`synthfair.surrogate.fair` needs adds up over rows.
From the sums over all clients (:mod:`synthfair.federated.exchange`) the server computes the
objective, its gradient and its Hessian, and asks for the sums at the ends of several damped Newton
steps at once. So an exchange is a whole step of central training: near the optimum it squares the
error.

Related: Jordan, Lee and Yang (2019), *Communication-efficient distributed statistical inference*;
Safaryan et al. (2022), *FedNL: making Newton-type methods applicable to federated learning*.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, ClassVar, Literal

import jax
import jax.numpy as jnp
from pydantic import Field

from synthfair.data.schema import Schema
from synthfair.errors import InputError
from synthfair.fairness.penalties import SumPenalty, named_penalty
from synthfair.fairness.target import Target
from synthfair.federated.exchange import ExchangeState, NewtonSteps, first_state
from synthfair.federated.method import Count, Given, InCohorts, Positive, given
from synthfair.federated.users import UserData
from synthfair.settings import Notion
from synthfair.trained import read_model


class Refine(NewtonSteps, InCohorts):
    """The method refine: Newton's method on exact sums, to the optimum of all clients' rows.

        F(theta) = 1/N sum_i l(y_i a_i'theta) + rho/2 sum_kg gap_kg^2 + 1/(2 C N) ||theta||^2

    The last input is 1, and its parameter is not in the last term. The gaps are linear in the
    groups' sums, see :mod:`synthfair.fairness.penalties`; so are their derivatives. Where no client
    has a row of a group that a selection rate compares, F is no number, and theta stays the start.

    No exchange is private: whoever chooses the params can choose them so that the exact sums, of
    each client or with ``secure`` of all together, tell what single rows hold. A ``clip`` scales a
    client's sums to a norm, so that it counts as fewer rows.

    Attributes:
        gap: the penalty, of the scores.

    Example:
        >>> import synthfair as sf
        >>> method = sf.federated.Refine(
        ...     model=sf.federated.LogisticRegression(5),
        ...     gap=sf.SelectionRatePenalty(n_groups=2),
        ...     rho=20.0,
        ... )
    """

    method: Literal["refine"] = "refine"
    start: tuple[float, ...] = Field(default=(), strict=False, max_length=10_000)
    """Params of the model to start from, one an input; zeros if not given."""

    rounds: Count = 5
    rho: Annotated[float, Field(ge=0, le=1e9)] = 10.0
    """Weight of the penalty."""

    penalty: Literal["covariance", "selection_rate"] = "covariance"
    """The penalised quantity: covariance of group and score, or the smooth selection-rate gap."""

    notion: Notion = "statistical_parity"
    """Rows in which groups are compared."""

    temperature: Positive = 4.0
    """Steepness of the smooth selection rate."""

    C: Positive = 1.0
    """Inverse strength of the ridge, as in scikit-learn; the intercept has none."""

    gap: Given[SumPenalty] = given()
    free: ClassVar[float] = 0.0  # type: ignore[misc] # no setting: all of the gap costs

    # All clients take part, nothing is noised, and Newton's steps are of a linear model.
    unread: ClassVar[frozenset[str]] = frozenset(
        {"hidden", "learning_rate", "cohort", "sampling", "epsilon", "delta"}
    )
    additive: ClassVar[bool] = True
    by_rows: ClassVar[bool] = True
    unsettled: ClassVar[str] = "refine has not come to the optimum: more rounds"

    @property
    def asked(self) -> Target:
        """Fairness is asked for by the weight of the penalty."""
        return Target(by="weight", amounts=(self.rho,))

    def plan(self, data: UserData) -> Refine:
        """Return the method. Raises InputError: the start is of another number of inputs."""
        n_inputs = data.users.a.shape[1]
        if self.start and len(self.start) != n_inputs:
            raise InputError(f"start: {len(self.start)} numbers; must be {n_inputs}, one an input")
        gap = named_penalty(self, n_groups=len(data.schema.groups))
        return self.in_cohorts(data, gap=gap)

    def init(self, key: jax.Array) -> ExchangeState:
        """Return the state that asks for the start alone."""
        return first_state(jnp.asarray(self.start) if self.start else self.model.init(key))


def read_start(path: Path, schema: Schema) -> tuple[float, ...]:
    """Return the params of a linear model's file. Raises InputError: of another schema."""
    model = read_model(path)
    if model.schema_.hash != schema.hash or model.hidden or not model.intercept:
        raise InputError(f"{path}: must be a linear model of this schema, with an intercept")
    return model.theta

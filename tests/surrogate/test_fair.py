"""The global problem against its formula written out, SciPy and scikit-learn."""

from dataclasses import dataclass, replace
from functools import cached_property, partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse as sp
from scipy.optimize import minimize

from synthfair.fairness.penalties import CovariancePenalty, SelectionRatePenalty
from synthfair.model import LinearModel
from synthfair.surrogate import GlobalProblem
from synthfair.surrogate.custom import CustomProblem
from synthfair.surrogate.fair import Price, ridge_of

LABELS = {"statistical_parity": [(-1, 1)], "equal_opportunity": [(1,)]}
LABELS |= {"equalized_odds": [(1,), (-1,)]}
BY = ((0, 0, 1, 1, 2), (0, 1, 1, -1, 0))
PRICES = (Price(0.0), Price(3.0), Price(50.0, 0.01, 0.02))


@dataclass(frozen=True)
class Case:
    """A random problem, in which the label depends on the group."""

    penalty: object
    clients: int = 0
    empty: int = -1
    n: int = 120

    @cached_property
    def problem(self):
        rng, n_groups = np.random.default_rng(0), self.penalty.n_groups
        s = rng.integers(n_groups, size=self.n)
        s[s == self.empty] = 0
        kind = rng.integers(3, size=self.n)  # one-hot: most inputs are 0
        a = np.column_stack([*(kind == k for k in range(3)), rng.random(self.n) * (s > 0)])
        a = np.column_stack([a, np.zeros((self.n, 12)), np.ones(self.n)])
        a[np.arange(self.n), 4 + rng.integers(12, size=self.n)] = 1
        y = np.where(kind + s / n_groups + rng.normal(size=self.n) > 1.5, 1.0, -1.0)
        weight = rng.choice([0.0, 0.5, 1.0, 3.0], self.n)
        client = rng.integers(-1, self.clients, self.n) if self.clients else None
        ridge = np.append(np.full(a.shape[1] - 1, 0.01), 0.0)
        return GlobalProblem(a, s, y, weight, self.penalty, ridge, client)

    def masks(self, among):
        """For each comparison the rows that are compared, and those in each group that counts."""
        for labels in LABELS[self.penalty.notion]:
            for grouping in self.penalty.by or [range(self.penalty.n_groups)]:
                group = np.array(grouping)[self.problem.s]
                mask = among & np.isin(self.problem.y, labels) & (group >= 0)
                groups = np.unique(group[mask & (self.problem.weight > 0)])
                yield mask, [group == g for g in groups][len(groups) == 1 :]

    def gaps(self, z, weight, among):
        """Gaps of smooth terms, from their definitions; of two groups that of the second."""
        for mask, groups in self.masks(among):
            for inside in groups[len(groups) == 2 :]:
                here, own, rest = weight * mask, weight * mask * inside, weight * mask * ~inside
                if isinstance(self.penalty, CovariancePenalty):
                    yield (here / here.sum() * (inside - own.sum() / here.sum())) @ z
                else:
                    rate = jax.nn.sigmoid(self.penalty.temperature * z)
                    yield own @ rate / own.sum() - rest @ rate / rest.sum()

    def value(self, theta, price, weight=None, without=-1):
        """The objective, by the formula of the module."""
        own = self.problem
        weight = own.weight if weight is None else weight
        z = own.a @ theta

        def charge(gaps, free):
            return sum(jnp.maximum(jnp.abs(gap) - free, 0) ** 2 for gap in gaps)

        paid = charge(self.gaps(z, weight, np.ones(len(z), bool)), price.free)
        for k in range(self.clients):
            gaps = self.gaps(z, weight, own.client == k)
            share = (k != without) / (self.clients - (without >= 0))
            paid = paid + share * charge(gaps, price.free_of_client)
        loss = weight @ jnp.logaddexp(0, -own.y * z) / weight.sum()
        return loss + price.rho / 2 * paid + own.ridge @ theta**2 / 2


CASES = {
    "covariance": Case(CovariancePenalty()),
    "rates": Case(SelectionRatePenalty(temperature=3.0)),
    "opportunity of five": Case(SelectionRatePenalty(5, "equal_opportunity")),
    "odds of five, one empty": Case(SelectionRatePenalty(5, "equalized_odds"), empty=2),
    "covariance, attributes": Case(CovariancePenalty(5, "equalized_odds", BY), 2),
    "rates, attributes": Case(SelectionRatePenalty(5, "equal_opportunity", 4.0, BY), 3),
    "clients": Case(SelectionRatePenalty(), 3),
}
each_case = pytest.mark.parametrize("case", CASES.values(), ids=CASES)
THETA = np.random.default_rng(1).normal(size=17)


def close(found, expected):
    np.testing.assert_allclose(found, expected, rtol=1e-10, atol=1e-12)


@each_case
def test_problem_has_the_derivatives_of_the_formula(case):
    first, second = (jax.jit(d(case.value)) for d in (jax.value_and_grad, jax.hessian))
    for price in PRICES:
        (value, gradient), hessian = first(THETA, price), second(THETA, price)
        sparse = replace(case.problem, a=sp.csr_matrix(case.problem.a))
        sparse.__dict__["products"] = None  # as of too many
        for problem in (case.problem, sparse):
            close(problem.value(THETA, price), value)
            close(problem.slope(THETA, price)[0], value)
            close(problem.slope(THETA, price)[1], gradient)
            close(problem.hessian(THETA, price)[0], gradient)
            close(problem.hessian(THETA, price)[1], hessian)


@pytest.mark.parametrize("name", ["covariance", "rates"])
def test_custom_problem_of_the_same_functions_is_the_same(name):
    problem, price, owner = CASES[name].problem, Price(3.0), np.arange(120) % 3
    custom = CustomProblem(problem, LinearModel(), CASES[name].penalty)
    close(custom.slope(THETA, price)[0], problem.value(THETA, price))
    close(custom.hessian(THETA, price)[1], problem.hessian(THETA, price)[1])
    without = custom.gradients_without(THETA, price, owner)
    expected = problem.gradients_without(THETA, price, owner)
    np.testing.assert_allclose(without, expected, rtol=1e-3, atol=1e-4)
    assert custom.solve(3.0).objective == pytest.approx(problem.solve(3.0).objective, abs=1e-7)
    kinked = LinearModel(lambda margin: jnp.abs(1 - margin))
    assert not CustomProblem(problem, kinked, None).near(problem.zero, Price(0.0)).converged


@each_case
def test_gradients_without_an_owner_are_those_of_the_formula(case):
    """To first order in its weight, with what is charged of a gap that is free with the owner."""
    own, everyone = case.problem, np.ones(case.n, bool)
    owner = np.arange(case.n) % 3 if own.client is None else own.client + 1

    def gaps(theta, weight):
        return jnp.stack([*case.gaps(own.a @ theta, weight, everyone)])

    @jax.jit
    def to_first_order(price, client, less):
        def rest(w):
            return jax.grad(case.value)(THETA, price, w, client)

        functions = rest, partial(gaps, THETA), partial(jax.jacfwd(gaps), THETA)
        return [jax.jvp(function, (own.weight,), (less,)) for function in functions]

    for price in PRICES[1:]:
        found = own.gradients_without(THETA, price, owner, [1 + k for k in range(case.clients)])
        for k in range(owner.max() + 1):
            less = np.where(owner == k, -own.weight, 0.0)
            less = less / (1 + less.sum() / own.weight.sum())
            unpaid = price._replace(free=1e9)
            (rest, change), (gap, moved), (slope, turned) = to_first_order(unpaid, k - 1, less)
            both = np.stack([gap + moved, gap])
            after, before = np.sign(both) * np.maximum(np.abs(both) - price.free, 0)
            expected = rest + change + price.rho * (after @ slope + before @ turned)
            np.testing.assert_allclose(found[k], expected, rtol=1e-6, atol=1e-7)


@each_case
def test_optimum_is_scipys_or_a_lower_one(case):
    with_gradient, start = jax.jit(jax.value_and_grad(case.value)), np.zeros(17)
    bfgs = partial(minimize, with_gradient, jac=True, method="BFGS", options={"gtol": 1e-9})
    for rho in (0.0, 3.0):
        found, start = case.problem.solve(rho), bfgs(start, (Price(rho),)).x
        np.testing.assert_allclose(found.theta, bfgs(found.theta, (Price(rho),)).x, atol=1e-5)
        assert found.converged
        assert found.objective <= with_gradient(start, Price(rho))[0] + 1e-10
        if rho == 0 or case.penalty.convex:
            np.testing.assert_allclose(found.theta, start, atol=1e-5)


@pytest.mark.parametrize("name", ["clients", "odds of five, one empty", "rates, attributes"])
def test_point_has_its_accuracy_and_its_gaps(name):
    case = CASES[name]
    own, point = case.problem, case.problem.solve(2.0)
    selected = own.a @ point.theta > 0
    assert point.accuracy == pytest.approx(np.average(selected == (own.y > 0), weights=own.weight))

    def largest(among):
        rates = []
        for mask, groups in case.masks(among):
            parts = [mask & inside for inside in groups]
            rates.append([np.average(selected[p], weights=own.weight[p]) for p in parts])
        return max(np.ptp(each) for each in rates if each)

    assert point.gap == pytest.approx(largest(np.ones(case.n, bool)))
    ratios = []
    for grouping in case.penalty.by or [range(case.penalty.n_groups)]:
        group = np.array(grouping)[own.s]
        inside = [group == g for g in np.unique(group[group >= 0])]
        rates = [np.average(selected[p], weights=own.weight[p]) for p in inside]
        ratios.append(min(rates) / max(rates))
    assert point.ratio == pytest.approx(min(ratios))
    turned = replace(case.penalty, by=case.penalty.by[::-1])
    assert own.changed(penalty=turned).selection_ratio(selected) == point.ratio
    if case.clients:
        of_clients = [largest(own.client == k) for k in range(case.clients)]
        assert point.client_gap == pytest.approx(max(of_clients))


def test_ridge_is_that_of_scikit_learns_c_and_none_of_the_intercept():
    np.testing.assert_array_equal(ridge_of(2.0, 50, 3, intercept=True), [0.01, 0.01, 0.0])

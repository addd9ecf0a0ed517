"""What exact sums tell of single rows, and that a site does not answer with such sums."""

import jax
import numpy as np
import pytest
from builders import make_schema, make_table
from site_training import FPFL, MANY

import synthfair as sf
from synthfair.data.schema import Categorical, Numeric
from synthfair.errors import InputError
from synthfair.fairness.penalties import CovariancePenalty, SelectionRatePenalty
from synthfair.federated import TrainConfig, make_user_data
from synthfair.federated.exchange import Exchange, first_state
from synthfair.federated.single_rows import SummandWeights, UserRows, require_alike

COLUMNS = {"flat": Categorical(categories=("no", "yes")), "works": Numeric(lower=0, upper=1)}
SCHEMA = make_schema().model_copy(update={"columns": make_schema().columns | COLUMNS})


def people(n=600):
    """Rows of which each value and each pair of group and label has many; nobody has home=other."""
    rng, table = np.random.default_rng(7), make_table(n)
    home, flat = rng.choice(["own", "rent"], n), rng.choice(["no", "yes"], n)
    return table.assign(home=home, flat=flat, works=rng.integers(2, size=n), age=50.0)


def only(column, value, other):
    """People of whom the first alone has a value, and all others have another."""
    return people().assign(**{column: [value] + 599 * [other]})


def asked(table, theta=0.0, gap=SelectionRatePenalty()):  # noqa: B008
    """A site's rows, how much they weigh in the sums at some params, and these sums."""
    x, s, y = sf.encode(table, SCHEMA)
    rows = UserRows(np.c_[x, np.ones(len(y))], s[:, None], y, np.ones(len(y)))
    exchange, state = Exchange(gap, 10.0, 1.0), first_state(np.zeros(rows.a.shape[1]) + theta)
    return rows, exchange.weights(state, rows), exchange.report(state, rows)


def refusal(table, *at, least=10, weights=None, **options):
    """The refusal to report a table's sums; empty where they are reported."""
    rows, own, _ = asked(table, *at, **options)
    try:
        require_alike(weights or own, rows, SCHEMA, source="table", least=(1, least))
    except InputError as error:
        return str(error)
    return ""


def hessian(table, *at):
    """Rows, and [p, p] the curvature of the losses, from what leaves a site."""
    rows, _, sums = asked(table, *at)
    half = np.zeros((rows.a.shape[1],) * 2)
    half[np.triu_indices(len(half))] = sums.curvatures[0, 0]
    return rows.a, half + np.triu(half, 1).T


# What the sums tell


def test_exact_sums_tell_the_record_of_who_alone_has_a_value():
    table = only("home", "other", "own")
    a, h = hessian(table)
    c = SCHEMA.encoded_names.index("home=other")
    np.testing.assert_allclose(h[c] / h[c, c], a[0], rtol=1e-9)
    assert "home=other: 1, must be none or 10" in refusal(table)


@pytest.mark.parametrize(("column", "values"), [("flat", ("no", "yes")), ("works", (0, 1))])
def test_exact_sums_tell_by_their_difference_who_alone_lacks_a_value(column, values):
    table, said = only(column, *values), {"flat": "flat=no", "works": "works unlike most"}
    a, h = hessian(table)
    encoded = {"flat": "flat=yes"}.get(column, column)  # the first of two categories has none
    line = h[-1] - h[SCHEMA.encoded_names.index(encoded)]  # the last input is 1 for everybody
    np.testing.assert_allclose(line / line[-1], a[0], atol=1e-9)
    assert f"{said[column]}: 1, must be none or 10" in refusal(table)


def singled_out(table):
    """Params at which one row alone has a score near 0, and its number."""
    income = table["income"].to_numpy() / 100
    order = np.argsort(income)
    gaps = np.diff(income[order])
    at = np.argmax(np.minimum(gaps[1:], gaps[:-1])) + 1  # its neighbours are farthest
    theta = np.zeros(len(SCHEMA.encoded_names) + 1)
    theta[[SCHEMA.encoded_names.index("income"), -1]] = 1.0, -income[order[at]]
    return theta * 30 / min(gaps[at - 1], gaps[at]), order[at]


def test_exact_sums_at_params_that_single_a_row_out_are_refused():
    table = people()
    theta, row = singled_out(table)
    a, h = hessian(table, theta)
    np.testing.assert_allclose(h / h[-1, -1], np.outer(a[row], a[row]), atol=1e-6)
    assert not refusal(table)
    assert "any value, one outweighs others" in refusal(table, theta)
    # Linear sums have no second derivative, but a gradient and values.
    assert not refusal(table, gap=CovariancePenalty())
    assert "one outweighs others" in refusal(table, theta, gap=CovariancePenalty())


@pytest.mark.parametrize(("place", "row", "most"), [
    ("sums", 599, 599 / 9), ("products", 599, 599 / 9), ("products", 0, 39.0),
])  # fmt: skip
def test_exact_sums_hold_a_tenth_or_of_a_value_half_of_one_row_at_most(place, row, most):
    """Of 600 rows, or of the 40, one of them row 0, with home=other."""
    table = people()
    table.loc[:39, "home"] = "other"
    for weight, said in ((most, ""), (1.001 * most, "one outweighs others")):
        heavy = {"sums": np.ones(600), "products": np.ones(600)}
        heavy[place][row] = weight
        weights = SummandWeights(np.ones((1, 600)), [heavy["sums"]], heavy["products"])
        assert said in (found := refusal(table, weights=weights))
        assert bool(said) == bool(found)


# What is counted


@pytest.mark.parametrize("notion", ["statistical_parity", "equal_opportunity", "equalized_odds"])
@pytest.mark.parametrize("label", ["no", "yes"])
def test_values_are_counted_in_each_set_that_is_summed(notion, label):
    """Also in the rows of the label that no group is compared in: all less those compared."""
    table = people()
    is_label = table["paid"] == label
    chosen = [*np.flatnonzero(~is_label)[:40], np.flatnonzero(is_label)[0]]
    table.loc[chosen, "home"] = "other"
    gap = SelectionRatePenalty(2, notion)
    advice = "home=other: 1, must be none or 10 (make one category of home=other, home=own)"
    assert (advice in refusal(table, gap=gap)) == (notion != "statistical_parity")


def test_values_of_as_many_rows_as_asked_for_or_of_none_are_reported():
    for rows, least in ((0, 10), (9, 10), (10, 10), (59, 60), (60, 60)):
        table = people()
        table.loc[np.flatnonzero(table["town"] == "a")[:rows], "home"] = "other"
        assert bool(refusal(table, least=least)) == (0 < rows < least)


def test_network_of_which_a_unit_sees_one_row_is_refused():
    """Its gradient is that row's inputs, times a number."""
    table, schema = make_table(MANY, seed=1), make_schema()
    config = TrainConfig(**FPFL | {"hidden": [3], "alpha": 0.02})
    data = make_user_data(sf.encode(table, schema), np.zeros(MANY, int), schema, config)
    rows, method = data.users.rows_of(0), config.plan(data)
    weights = jax.jit(lambda state: method.weights(state, rows))

    def require(state):
        require_alike(jax.device_get(weights(state)), rows, schema, source="t", least=(1, 10))

    state = method.init(jax.random.key(0))
    require(state)
    (weight, bias), *others = state.params
    *_, second, first = np.argsort(rows.a[:, 0])
    weight = weight.at[0].set(np.eye(weight.shape[1])[0])
    bias = bias.at[0].set(-(rows.a[first, 0] + rows.a[second, 0]) / 2)
    state = state._replace(params=[(weight, bias), *others])
    with pytest.raises(InputError, match="one outweighs others"):
        require(state)

"""What exact sums tell of single rows, and that a site does not answer with such sums."""

import json
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
from builders import NAMES, World, make_schema, make_table
from site_training import FPFL, MANY, REFINE, TRAIN, channel_of, train

import synthfair as sf
from synthfair.client.page import Site
from synthfair.data.schema import Categorical, Numeric, Schema
from synthfair.deploy.train_job import pack
from synthfair.federated import TrainConfig
from synthfair.federated.engine import run
from synthfair.federated.exchange import DAMPING
from synthfair.federated.refine import Refine
from synthfair.federated.refine_files import SumsQuestion, answer_question
from synthfair.federated.single_rows import MIN_VALUE_ROWS, UserRows, require_alike
from synthfair.federated.users import Cohorts, make_user_data
from synthfair.privacy.ledger import Ledger
from synthfair.task.job_sites import TooFewError
from synthfair.task.messages import Message

LANDS = ("here", "coast", "island")


def people_schema(categories=LANDS, unlisted=None):
    return Schema(
        ignored=(),
        missing_values=("",),
        name="people",
        label="paid",
        positive="yes",
        sensitive="sex",
        columns={
            "sex": Categorical(categories=("f", "m")),
            "age": Numeric(lower=18, upper=80),
            "pay": Numeric(lower=0, upper=200),
            "works": Numeric(lower=0, upper=1),
            "flat": Categorical(categories=("own", "rent")),
            "paid": Categorical(categories=("no", "yes")),
            "land": Categorical(categories=categories, unlisted=unlisted),
        },
    )


def people(n=600, seed=0):
    """Invented rows, of which each value and each pair of group and label has many."""
    rng = np.random.default_rng(seed)
    return pd.DataFrame(
        {
            "sex": rng.choice(["f", "m"], n),
            "age": rng.integers(18, 80, n),
            "pay": rng.uniform(1, 199, n).round(1),
            "works": rng.integers(2, size=n),
            "flat": rng.choice(["own", "rent"], n),
            "paid": rng.choice(["no", "yes"], n),
            "land": rng.choice(["here", "coast"], n),
        }
    )


def only(column, value, other):
    """People of whom the first alone has a value, and all others have another."""
    table = people()
    table[column] = other
    return table.assign(**{column: [value, *table[column][1:]]})


def of_table(
    table, schema, penalty: Any = "selection_rate", notion: Any = "statistical_parity"
) -> tuple[Any, Any, UserRows]:
    """Refinement, its state and the rows of one site."""
    config = Refine(penalty=penalty, notion=notion)
    rows = sf.encode(table, schema)
    data = make_user_data(rows, np.zeros(len(rows.y), int), schema, config, all_groups=False)
    algorithm = config.plan(data)
    return algorithm, algorithm.init(jax.random.key(0)), data.users.rows_of(0)


def weights_of(algorithm, state, rows):
    """The weights of rows in sums, compiled once for all rows of one shape, as a site has it."""
    return jax.device_get(jax.jit(type(algorithm).weights)(algorithm, state, rows))


def report_of(algorithm, state, rows):
    """What leaves a site."""
    return jax.device_get(jax.jit(type(algorithm).report)(algorithm, state, rows, None))


def hessian(algorithm, state, rows, index=0, part=0):
    """[p, p] of a sum at a candidate, from what leaves a site."""
    upper = report_of(algorithm, state, rows).curvatures[index, part]
    p = rows.a.shape[1]
    half = np.zeros((p, p))
    half[np.triu_indices(p)] = upper
    return half + np.triu(half, 1).T


def refused(table, schema, state=None, least=MIN_VALUE_ROWS, **settings):
    """The refusal to report a table's sums; empty where they are reported."""
    algorithm, start, rows = of_table(table, schema, **settings)
    state = start if state is None else state
    try:
        require_alike(
            weights_of(algorithm, state, rows), rows, schema, source="table", least=(1, least)
        )
    except sf.InputError as error:
        return str(error)
    return ""


# What the sums tell


def test_a_line_of_the_curvature_is_the_record_of_who_alone_has_a_value():
    schema = people_schema()
    algorithm, state, rows = of_table(only("land", "island", "here"), schema)
    h, c = hessian(algorithm, state, rows), schema.encoded_names.index("land=island")
    np.testing.assert_allclose(h[c] / h[c, c], rows.a[0], rtol=1e-9)
    assert "rows with land=island: 1, must be none or 10" in refused(
        only("land", "island", "here"), schema
    )


@pytest.mark.parametrize(
    ("column", "value", "other", "said"),
    [
        ("flat", "own", "rent", "flat=own: 1"),  # the first of two categories: no encoded column
        ("works", 0, 1, "works unlike most: 1"),
    ],
)
def test_who_alone_lacks_what_all_others_have_is_told_by_the_difference(column, value, other, said):
    table, schema = only(column, value, other), people_schema()
    algorithm, state, rows = of_table(table, schema)
    h = hessian(algorithm, state, rows)
    encoded = {"flat": "flat=rent", "works": "works"}[column]
    line = h[-1] - h[schema.encoded_names.index(encoded)]  # the last input is 1 for everybody
    np.testing.assert_allclose(line / line[-1], rows.a[0], atol=1e-9)
    assert f"rows with {said}, must be none or 10" in refused(table, schema)


def singled_out(table, schema, among=None):
    """A state at whose params one row alone has a score near 0, with the row's number."""
    _, state, rows = of_table(table, schema)
    pay = schema.encoded_names.index("pay")
    place = np.arange(len(table)) if among is None else np.flatnonzero(among)
    numbers = np.asarray(rows.a[:, pay])[place]
    gaps = np.diff(np.sort(numbers))
    at = np.argmax(np.minimum(gaps[1:], gaps[:-1])) + 1  # its neighbours are farthest
    row = place[np.argsort(numbers)[at]]
    theta = np.zeros(rows.a.shape[1])
    theta[[pay, -1]] = np.array([1.0, -rows.a[row, pay]]) * 30 / min(gaps[at - 1], gaps[at])
    return state._replace(candidates=jnp.tile(theta, (len(DAMPING), 1))), row


def test_params_can_single_a_row_out():
    table, schema = people(), people_schema()
    state, row = singled_out(table, schema)
    algorithm, _, rows = of_table(table, schema)
    h = hessian(algorithm, state, rows)
    np.testing.assert_allclose(h / h[-1, -1], np.outer(rows.a[row], rows.a[row]), atol=1e-6)
    assert not refused(table, schema)
    assert "one outweighs others at the params asked for" in refused(table, schema, state)
    # A seventh of a sum is too much, too.
    less = state._replace(candidates=state.candidates * 0.034)
    bends = np.asarray(weights_of(algorithm, less, rows).products)[0, 0]
    assert 0.1 < bends.max() / bends.sum() < 0.2
    assert "among rows with any value, one outweighs" in refused(table, schema, less)
    # Linear sums have no second derivative, but a gradient and values.
    assert not refused(table, schema, penalty="covariance")
    assert "one outweighs others" in refused(table, schema, state, penalty="covariance")


def test_params_can_single_out_one_of_many_with_a_value():
    """In all rows, none outweighs the others; among those of the island, one does."""
    table, schema = people(6000), people_schema()
    table.loc[:29, "land"] = "island"
    table.loc[:29, "sex"] = ["f", "m"] * 15
    state, row = singled_out(table, schema, table["land"] == "island")
    state = state._replace(candidates=state.candidates * 0.2)
    algorithm, _, rows = of_table(table, schema)
    bends = np.asarray(weights_of(algorithm, state, rows).products)[0, 0]
    assert bends.max() < 0.1 * bends.sum()
    h, c = hessian(algorithm, state, rows), schema.encoded_names.index("land=island")
    np.testing.assert_allclose(h[c] / h[c, c], rows.a[row], atol=0.3)
    assert not refused(table, schema)
    assert "one outweighs others" in refused(table, schema, state)


# What is counted


@pytest.mark.parametrize(
    ("notion", "said"),
    [("statistical_parity", False), ("equal_opportunity", True), ("equalized_odds", True)],
)
@pytest.mark.parametrize("label", ["no", "yes"])
def test_values_are_counted_in_each_set_that_is_summed(notion, said, label):
    """Also in the rows of the label that no group is compared in: all less those compared."""
    table, schema = people(), people_schema()
    other = {"no": "yes", "yes": "no"}[label]
    island = np.flatnonzero(table["paid"] == other)[:40]
    table.loc[[*island, np.flatnonzero(table["paid"] == label)[0]], "land"] = "island"
    message = refused(table, schema, notion=notion)
    assert ("rows with land=island: 1," in message) == said


def test_least_rows_may_be_more_and_none_is_allowed():
    table, schema = people(), people_schema()
    for rows, least, is_refused in ((0, 10, 0), (9, 10, 1), (40, 10, 0), (40, 60, 1), (0, 60, 0)):
        changed = table.assign(land=["island"] * rows + [*table["land"][rows:]])
        assert bool(refused(changed, schema, least=least)) == is_refused


def test_what_is_named_to_be_merged_can_be_reported():
    table, schema = people(), people_schema()
    table.loc[:0, "land"] = "island"
    table.loc[20:, "land"] = "here"
    message = refused(table, schema)
    assert "(make one category of land=island, land=coast)" in refused(
        table.assign(land=[*table["land"][:40], *people()["land"][40:]]), schema
    )
    assert "(leave it out)" in message  # all others together are too few
    table = people()
    table.loc[:0, "land"] = "island"
    merged = people_schema(categories=("here", "coast"), unlisted="coast")
    assert not refused(table, merged)


# Sites


@pytest.fixture
def question(tmp_path):
    """Asks for the sums at some params, as a server does."""

    def ask(schema, theta=0.0):
        start = np.broadcast_to(theta, len(schema.encoded_names) + 1).tolist()
        asked = SumsQuestion(
            exchange=1, answers=1, releases="0" * 64, schema_hash=schema.hash, rho=10.0,
            penalty="selection_rate", notion="statistical_parity", temperature=4.0,
            C=1.0, candidates=(start,))  # fmt: skip
        (tmp_path / "question.json").write_text(asked.model_dump_json())
        rows = tmp_path / "rows.csv"
        site, output = Site(rows, schema, Ledger.for_table(rows)), tmp_path / "answer.json"
        return answer_question(site, tmp_path / "question.json", output, k_min=10, force=True)

    return ask


def test_a_client_answers_no_question_that_tells_a_row(tmp_path, question):
    table = people()
    table.loc[0, "land"] = "island"
    table.to_csv(tmp_path / "rows.csv", index=False)
    with pytest.raises(sf.InputError, match="rows with land=island: 1") as error:
        question(people_schema())
    assert "Take part in secure sums with noise, which need none of this" in str(error.value)
    assert "make one category of land=island, land=" in str(error.value)
    merged = people_schema(categories=("here", "coast"), unlisted="coast")
    theta = np.asarray(singled_out(table, merged)[0].candidates[0])
    with pytest.raises(sf.InputError, match="one outweighs others at the params asked for"):
        question(merged, theta)
    assert not (tmp_path / "answer.json").exists()
    assert not Ledger.for_table(tmp_path / "rows.csv").records()  # nothing was booked
    question(merged)
    assert (tmp_path / "answer.json").exists()


class TestEngine:
    """Sites that are asked for their reports in rounds."""

    @pytest.fixture
    def world(self, tmp_path):
        """Sites of which the north has one row with home = other."""
        found = World(tmp_path, rows=MANY)
        for name in NAMES:
            found.limit(name, most_rounds=50)
        table = make_table(MANY, seed=0)
        table.loc[table["home"] == "other", "home"] = "own"
        table.loc[0, "home"] = "other"
        table.to_csv(tmp_path / "north" / "rows.csv", index=False)
        return found

    @pytest.mark.parametrize(
        "settings", [FPFL, FPFL | {"clip": 1.0}, REFINE, {"method": "fedsgd", "rounds": 1}]
    )
    def test_sums_of_gradients_are_refused(self, world, settings):
        with pytest.raises(TooFewError, match="north: table"):
            train(world, channel_of(world), settings, most_rows=MANY)
        assert "rows with home=other: 1, must be none or 10" in "".join(world.said)
        assert not Ledger.for_table(world.folder / "north" / "rows.csv").records()

    @pytest.mark.parametrize(
        "settings", [TRAIN | {"rounds": 1}, FPFL | {"clip": 0.5, "epsilon": 2.0, "delta": 1e-3}]
    )
    def test_a_local_model_and_what_has_an_epsilon_are_no_such_sums(self, world, settings):
        federation, _ = train(world, channel_of(world), settings, most_rows=MANY)
        assert federation.booked["north"].code == "ok"

    def test_params_that_single_a_row_out_are_refused(self, world):
        table = make_table(MANY, seed=1)
        table.to_csv(world.folder / "north" / "rows.csv", index=False)
        ask = {"train": REFINE, "sites": NAMES, "most_rows": MANY}
        text = world.ask(ask, task="train").text
        _, state, rows = of_table(table, make_schema(), notion=REFINE["notion"])
        assert world.code(Message(text, pack(state))) == "ok"
        income = np.sort(np.asarray(rows.a[:, 0]))
        gaps = np.diff(income)
        at = np.argmax(np.minimum(gaps[1:], gaps[:-1])) + 1
        theta = np.zeros(rows.a.shape[1])
        theta[[0, -1]] = np.array([1.0, -income[at]]) * 30 / min(gaps[at - 1], gaps[at])
        state = state._replace(candidates=jnp.tile(theta, (len(DAMPING), 1)))
        text = text.replace(b'"job-1"', b'"job-2"')
        assert world.code(Message(text, pack(state)), job="job-2") == "table"

    def test_a_network_of_which_a_unit_sees_one_row_is_refused(self, world):
        """Its gradient is that row's inputs, times a number."""
        table, settings = make_table(MANY, seed=1), FPFL | {"hidden": [3], "alpha": 0.02}
        table.to_csv(world.folder / "north" / "rows.csv", index=False)
        rows, config = sf.encode(table, make_schema()), TrainConfig(**settings)
        data = make_user_data(rows, np.zeros(MANY, int), make_schema(), config)
        own = data.users.rows_of(0)
        algorithm: Any = config.plan(data)
        state = algorithm.init(jax.random.key(0))
        least = (1, MIN_VALUE_ROWS)
        require_alike(
            weights_of(algorithm, state, own), own, make_schema(), source="table", least=least
        )
        (weight, bias), *others = state.params
        income = np.sort(np.asarray(own.a[:, 0]))
        weight, bias = np.array(weight), np.array(bias)
        weight[0], bias[0] = np.eye(len(weight[0]))[0], -(income[-1] + income[-2]) / 2
        state = state._replace(params=[(weight, bias), *others])
        gradient = report_of(algorithm, state, own).loss_gradient[0]
        alone = np.asarray(own.a[np.argmax(own.a[:, 0])])
        np.testing.assert_allclose(gradient[0][0] / gradient[1][0], alone, rtol=1e-6)
        with pytest.raises(sf.InputError, match="one outweighs others"):
            require_alike(
                weights_of(algorithm, state, own), own, make_schema(), source="table", least=least
            )

    def test_a_sites_limits_may_ask_for_more(self, world):
        make_table(MANY, seed=1).to_csv(world.folder / "north" / "rows.csv", index=False)
        train(world, channel_of(world), FPFL | {"rounds": 1})
        world.limit("north", most_rounds=50, value_rows=200)
        with pytest.raises(TooFewError, match="north: table"):
            train(world, channel_of(world, "job-2"), FPFL | {"rounds": 1})
        document = json.loads((world.folder / "north/local/synthfair.json").read_text())
        assert document["limits"]["value_rows"] == 200


@pytest.mark.slow
@pytest.mark.usefixtures("public_tables")
@pytest.mark.parametrize("name", ["dutch_numbers", "law_school"])
def test_honest_refinements_of_public_tables_are_answered(name):
    """As shipped, split over four clients, from zeros to the optimum: there is nothing to merge."""
    table, schema = sf.load_dataset(name)
    client = np.random.default_rng(0).permutation(len(table)) % 4
    order = np.argsort(client, kind="stable")
    rows = sf.Encoded(*(part[order] for part in sf.encode(table, schema)))
    config = Refine(penalty="selection_rate")
    data = make_user_data(rows, client[order], schema, config)
    algorithm, progress = config.plan(data), None
    assert isinstance(algorithm, Refine)
    state = algorithm.init(jax.random.key(0))
    for rounds in range(1, 7):
        for user in range(4):
            size = int(data.users.size[user])  # no padding: a site has its own rows alone
            own = UserRows(*(part[:size] for part in data.users.rows_of(user)))
            require_alike(
                weights_of(algorithm, state, own),
                own,
                schema,
                source=name,
                least=(50, MIN_VALUE_ROWS),
            )
        everyone = Cohorts(4, 4)
        progress = run(algorithm, data.users, everyone, rounds=rounds, seed=0, progress=progress)
        state = progress.state
    assert state.decrement < 1e-3

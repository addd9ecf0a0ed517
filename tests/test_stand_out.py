"""Clients whose groups, units, labels or scores are wrong, among alike and unlike honest ones."""

import json
from dataclasses import replace

import numpy as np
import pytest
from conftest import make_schema, make_table, needs_data
from scipy.stats import binom
from test_release import some_release

import synthfair as sf
from synthfair.report.result_tables import influence_table, outlier_warning
from synthfair.report.results import read_results
from synthfair.report.text_table import plain_text
from synthfair.server import measure_influence, serve
from synthfair.server.changes import Changes, Decisions, OnOwn
from synthfair.server.outliers import FALSE_ALARM, extreme, stand_out

SCHEMA = make_schema()
OWN = sf.SurrogateConfig(k_min=10)
RHO = sf.ServerConfig(rho=10.0, resamples=5)


def exchanged(table, column):
    one, other = sorted(table[column].unique())
    return table.assign(**{column: table[column].map({one: other, other: one})})


WRONG = {
    "groups": lambda table: exchanged(table, "town"),
    "labels": lambda table: exchanged(table, "paid"),
    "units": lambda table: table.assign(income=1000 * table["income"]),  # the schema clips it
}


def surrogate(table):
    return sf.distill_table(table, SCHEMA, OWN).release


def constant(release):
    """All rows alike, but for groups and labels: whatever the model, a group has one score."""
    return replace(release, x=np.tile(np.average(release.x, axis=0), (len(release.y), 1)))


def fair(table):
    """Rows as they are in a fair release's file: few, and without weights."""
    rows = sf.encode(table, SCHEMA)
    return replace(some_release(), x=rows.x, s=rows.s, y=rows.y)


@pytest.fixture(scope="module")
def tables():
    return [make_table(8000, seed=i) for i in range(4)]


def named(releases, *, config=None, tests=None):
    model = sf.pool_and_train(releases, SCHEMA, config)
    found = measure_influence(releases, model, tests or {}, config=config)
    return {name: moved.by for name, moved in found.releases.items() if moved.outlier}


TEST = {"t": make_table(3000, seed=99)}


@pytest.mark.filterwarnings("ignore:table. column 'income'")  # in another unit, as the client hears
@pytest.mark.parametrize(("made", "config", "tests"), [(surrogate, RHO, None), (fair, None, TEST)])
def test_each_wrong_client_among_four_is_named_and_no_other(tables, made, config, tests):
    honest = {f"c{i}": made(table) for i, table in enumerate(tables)}
    assert named(honest, config=config, tests=tests) == {}
    wrong = {what: made(change(tables[1])) for what, change in WRONG.items()}
    for what, release in {**wrong, "scores": constant(honest["c1"])}.items():
        found = named({**honest, "c1": release}, config=config, tests=tests)
        assert set(found) == {"c1"}, what


@needs_data
@pytest.mark.parametrize("penalty", ["covariance", "selection_rate"])
def test_who_relabels_the_groups_of_a_real_table_is_named_by_spd(penalty):
    """Law School, four clients alike; one takes White for Non-White in all its rows."""
    table, schema = sf.load_dataset("law_school", "race")
    clients = sf.partition(table, clients=4, seed=0)
    config = sf.ServerConfig(rho=10.0, penalty=penalty)
    own = sf.SurrogateConfig(k_min=10)
    tests = {f"c{i}": client.test for i, client in enumerate(clients)}

    def influences(train):
        made = [sf.distill_table(rows, schema, own).release for rows in train]
        releases = {f"c{i}": release for i, release in enumerate(made)}
        model = sf.pool_and_train(releases, schema, config)
        return measure_influence(releases, model, tests, config=config).releases

    train = [client.train for client in clients]
    assert not any(moved.outlier for moved in influences(train).values())
    train[1] = exchanged(train[1], schema.sensitive)
    found = influences(train)
    assert [name for name, moved in found.items() if moved.outlier] == ["c1"]
    assert "SPD" in found["c1"].by
    assert abs(found["c1"].spd) > 1.2 * max(abs(found[f"c{i}"].spd) for i in (0, 2, 3))


def test_changes_are_those_of_training_again(tables):
    """Accuracy, SPD and rates, straight from their definitions."""
    releases = {f"c{i}": fair(table) for i, table in enumerate(tables)}
    releases["c2"] = fair(exchanged(tables[2], "paid"))
    model = sf.pool_and_train(releases, SCHEMA)
    moved = measure_influence(releases, model, TEST).releases["c2"]
    others = {name: release for name, release in releases.items() if name != "c2"}
    without = sf.pool_and_train(others, SCHEMA)
    x, s, y = sf.encode(TEST["t"], SCHEMA)
    now, then = (one.scores(x, s) > 0 for one in (model, without))
    rates = [now[s == g].mean() - then[s == g].mean() for g in (0, 1)]
    np.testing.assert_allclose(moved.rates, rates, atol=2e-3)  # a decision or two of 1,500
    assert moved.accuracy == pytest.approx(
        np.mean(now == (y > 0)) - np.mean(then == (y > 0)), abs=2e-3
    )
    assert moved.spd == pytest.approx(moved.rates[1] - moved.rates[0])


def test_several_that_stand_out_do_not_hide_each_other():
    values = np.array([0.0, 0.01, -0.02, 0.0, 0.02, 0.01, -0.01, 0.0, 0.02, 0.5, 0.5, -0.4])
    np.testing.assert_array_equal(np.flatnonzero(extreme(values, 0.01)), [9, 10, 11])
    assert not extreme(np.zeros(5), 0.5).any()
    assert not extreme(np.array([1.0, np.nan, 9.0]), 0.5).any()


@pytest.mark.parametrize("k", [4, 8, 20])
def test_the_false_alarm_rate_is_that_of_normal_changes(k):
    """More than that of 1,000 pools, once in a million; and eight times the rate fails."""
    pools = np.random.default_rng(k).normal(size=(1000, k))
    most = binom.isf(1e-6, len(pools), 1.2 * FALSE_ALARM)  # several are removed one by one
    assert sum(extreme(pool, FALSE_ALARM).any() for pool in pools) <= most
    assert sum(extreme(pool, 8 * FALSE_ALARM).any() for pool in pools) > most


def turns(now, without, *, error=0.0, compared=True):
    """By what each of some releases is named, of SPD with all and without each."""
    k, now = len(without), np.array([now])
    none = Decisions(*(np.zeros(shape) for shape in ((k,), (k,), (2, k))))
    of = none._replace(spd=now - np.array(without))
    errors = Decisions(np.zeros(1), np.array([error]), np.zeros((2, 1)))
    own = OnOwn(none, *np.zeros((3, k)))
    every = {"compared": np.full(k, compared), "groups": ("a", "b")}
    return stand_out(np.ones(k), 9.0, Changes(of, errors, now), own, **every)


@pytest.mark.parametrize(
    ("now", "without", "by"),
    [
        (0.10, (0.10, -0.02, 0.12), "sign of SPD"),
        (0.10, (0.11, 0.05, 0.08), "size of SPD"),
        (0.05, (0.06, 0.10, 0.04), "size of SPD"),
        (-0.10, (-0.10, 0.02, -0.12), "sign of SPD"),
        (0.10, (0.18, 0.04, 0.19), "size of SPD"),
        (0.10, (0.11, 0.06, 0.08), None),
        (0.01, (0.012, -0.019, 0.01), None),
        (0.01, (0.012, 0.039, 0.01), None),
        (0.10, (-0.02, 0.10), None),
        (np.nan, (np.nan, np.nan, np.nan), None),
    ],
)
def test_who_turns_the_sign_of_spd_doubles_or_halves_it_is_named(now, without, by):
    """If the change counts: 0.03, and two standard errors; and the furthest of three or more."""
    expected = [()] * len(without)
    if by:
        expected[1] = (by,)
    assert turns(now, without) == expected
    assert (
        turns(now, without, error=0.1) == turns(now, without, compared=False) == [()] * len(without)
    )


def test_of_several_that_turn_spd_the_furthest_is_named_alone():
    """With one that weighs 0.3 the other way, leaving out any other turns the sign as well."""
    assert [by[:1] for by in turns(0.02, (-0.02, 0.12, -0.02, -0.02))] == [
        (),
        ("size of SPD",),
        (),
        (),
    ]


@pytest.mark.slow
def test_honest_unlike_clients_are_rarely_named():
    """Labels and groups by Dirichlet(0.3): about one client in ten; of 24 more than ten once in
    10,000. The rule names them and refuses nobody.
    """
    clients = 0
    for seed in range(3):
        parts = sf.partition(
            make_table(4000, seed=seed), clients=8, seed=seed, skew=0.3, schema=SCHEMA, min_rows=60
        )
        releases = {f"c{i}": surrogate(part.train) for i, part in enumerate(parts)}
        clients += len(named(releases, config=RHO, tests=TEST))
    assert clients <= 10


def test_a_thousand_releases_are_compared_in_a_moment():
    """Leaving each out by a first step, and the rule: nobody of a thousand alike is named."""
    rng, k = np.random.default_rng(0), 1000
    none = Decisions(*(0.001 * rng.normal(size=shape) for shape in ((k,), (k,), (2, k))))
    error = Decisions(*(np.zeros(shape) for shape in ((1,), (1,), (2, 1))))
    own = OnOwn(none, *(0.1 * rng.normal(size=(3, k))))
    every = {"compared": np.ones(k, bool), "groups": ("a", "b")}
    by = stand_out(np.ones(k), 9.0, Changes(none, error, np.array([-0.5])), own, **every)
    assert not any(by)
    none.spd[17] = -0.05
    assert [
        i
        for i, names in enumerate(
            stand_out(np.ones(k), 9.0, Changes(none, error, np.array([-0.5])), own, **every)
        )
        if names
    ] == [17]


def test_metrics_json_and_the_terminal_say_who_and_by_what(tables, tmp_path):
    (tmp_path / "schema.json").write_text(SCHEMA.to_json())
    TEST["t"].to_csv(tmp_path / "t.csv", index=False)
    paths = [tmp_path / f"c{i}.parquet" for i in range(4)]
    for i, path in enumerate(paths):
        sf.write_release(surrogate(exchanged(tables[i], "town") if i == 1 else tables[i]), path)
    config = RHO.model_copy(update={"max_influence": 50.0})
    served = serve(paths, tmp_path / "schema.json", [tmp_path / "t.csv"], tmp_path, config)
    said = json.loads((tmp_path / "metrics.json").read_text())["influence"]["releases"]
    assert len(said["c0"]["rates"]) == 2
    assert said["c0"]["by"] == []
    assert said["c1"]["by"] == list(served.influences.releases["c1"].by) != []
    assert said["c1"]["by"][0] in outlier_warning(served.influences)
    assert "OUTLIER" in plain_text(influence_table(served.influences), width=200)
    assert read_results([tmp_path])

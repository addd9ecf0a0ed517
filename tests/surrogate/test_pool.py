"""Surrogates at the server: rows and records, what is estimated and compared, what is written."""

import json
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from builders import SCHEMA, make_table, some_release, unlike_tables
from builders import SCHEMA_OF_3 as OF_3

import synthfair as sf
from synthfair.cli import main
from synthfair.data.encode import encode
from synthfair.errors import InputError
from synthfair.fairness.penalties import decision_gaps
from synthfair.release.format import write_release
from synthfair.server import serve
from synthfair.server.page import frontier_lines
from synthfair.server.pooling import filled, make_pool, train_pool
from synthfair.surrogate import Price


def made(table, schema=SCHEMA, **settings):
    return sf.distill_table(table, schema, sf.SurrogateConfig(**{"k_min": 5} | settings)).release


@pytest.fixture(scope="module")
def releases():
    return {name: made(table) for name, table in unlike_tables().items()}


def test_records_are_the_rows_that_the_server_trains_on(releases, tmp_path):
    """Capped alike, also where they are read from files."""
    heavy = {**releases, "c0": replace(releases["c0"], weight=1e6 * releases["c0"].weight)}
    for name, release in heavy.items():
        write_release(release, tmp_path / f"{name}.parquet")
    table, weight = sf.pool_records(sorted(tmp_path.iterdir()), SCHEMA, max_rows=300.0)
    pooled = make_pool(heavy, SCHEMA, sf.ServerConfig(max_rows=300.0))
    x, s, y = encode(table, SCHEMA)
    np.testing.assert_allclose(np.asarray(pooled.rows.a)[:, :7], x, atol=1e-12)
    for mine, field in ((s, "s"), (y, "y"), (weight, "weight")):
        np.testing.assert_array_equal(np.asarray(getattr(pooled.rows, field)), mine)
    assert weight[pooled.parts["c0"]].sum() == pytest.approx(300)
    assert list(table.columns) == list(SCHEMA.columns)
    same, _ = sf.pool_records(heavy, SCHEMA)
    pd.testing.assert_frame_equal(same, table)


def test_records_are_those_of_surrogates_alone(releases):
    with pytest.raises(InputError, match="c9: a fair release"):
        sf.pool_records({**releases, "c9": some_release()}, SCHEMA)


def test_group_that_nobody_has_is_not_compared():
    """Of two, only a model without a penalty is left."""
    table = make_table(900, n_groups=3)
    three, only = made(table[table["town"] != "c"], OF_3), {"c0": made(table[table["town"] == "a"])}
    pooled = make_pool({"c0": three}, OF_3, sf.ServerConfig(rho=10.0))
    assert (pooled.left_out, train_pool(pooled, OF_3)[1].gap < 0.1) == (("town=c",), True)
    with pytest.raises(InputError, match="'town': fewer than two") as refused:
        make_pool(only, SCHEMA)
    assert refused.value.arguments == ("rho",)
    assert make_pool(only, SCHEMA, sf.ServerConfig(rho=0.0)).left_out == ("town=b",)


# Cells that are left out are estimated; those of a block are not compared by label.

K_MIN = 50


def large_client(seed):
    """A table in which group b has few rows with "no", as many as are left out."""
    table = make_table(8000, seed=seed)
    most = {("a", "no"): 4000, ("a", "yes"): 4000, ("b", "no"): 30, ("b", "yes"): 250}
    return pd.concat([rows[: most[cell]] for cell, rows in table.groupby(["town", "paid"])])


def weight_of(release, group, label):
    return release.weight[(release.s == group) & (release.y == label)].sum()


@pytest.fixture(scope="module")
def incomplete():
    return {f"c{i}": made(large_client(i), k_min=K_MIN) for i in range(2)}


def test_cell_that_is_left_out_is_estimated_from_what_is_public(incomplete):
    release = incomplete["c0"]
    (more, pairs), n = filled(release, SCHEMA), len(release.y)
    assert (weight_of(release, 1, -1.0), pairs) == (0, ((1, -1.0),))
    odds = weight_of(release, 0, -1.0) / weight_of(release, 0, 1.0)
    expected = min((K_MIN - 1) / 2, weight_of(release, 1, 1.0) * odds)
    assert weight_of(more, 1, -1.0) == pytest.approx(expected)
    np.testing.assert_array_equal(more.x[:n], release.x)
    np.testing.assert_array_equal(more.x[n:], release.x[release.s == 1])  # with the other label
    ratio = more.weight[n:] / release.weight[release.s == 1]
    assert 1.5 < ratio.max() / ratio.min() <= 25 + 1e-9


def test_estimates_are_learned_from_and_not_compared_by_label(incomplete):
    config = sf.ServerConfig(notion="equalized_odds", rho=1.0)
    with pytest.raises(InputError, match="fewer than two have rows"):
        make_pool(incomplete, SCHEMA, config)
    pooled = make_pool({**incomplete, "c2": made(make_table(4000, seed=5))}, SCHEMA, config)
    estimated, (_, s, y, weight) = ~pooled.is_known, pooled.rows
    assert set(pooled.estimated) == {"c0", "c1"}
    assert {*zip(s[estimated].tolist(), y[estimated].tolist(), strict=True)} == {(1, -1.0)}
    rows = sum(weight_of(filled(one, SCHEMA)[0], 1, -1.0) for one in incomplete.values())
    assert weight[estimated].sum() == pytest.approx(rows)


def test_estimates_are_none_where_nothing_is_left_out_or_known():
    table = make_table(600)
    only = made(table.query("town == 'b' and paid == 'yes'"))
    for release in (made(table), made(table, epsilon=8.0, delta=1e-5), only):
        assert filled(release, SCHEMA) == (release, ())


@pytest.mark.parametrize("notion", ["equal_opportunity", "equalized_odds"])
@pytest.mark.parametrize("penalty", ["covariance", "selection_rate"])
def test_made_up_pairs_are_not_compared_by_label(releases, notion, penalty):
    table = make_table(700, seed=3)
    few = table.index[(table.town == "b") & (table.paid == "yes")][10:]
    hiding, config = (
        made(table.drop(few), k_min=20),
        sf.ServerConfig(notion=notion, penalty=penalty),
    )
    whole = {n: one for n, one in releases.items() if not one.header.hides_pairs}
    others, both = make_pool(whole, SCHEMA, config), {**whole, "hiding": hiding}
    pooled, parity = make_pool(both, SCHEMA, config), make_pool(both, SCHEMA)
    assert (pooled.unpaired, parity.unpaired) == (("hiding",), ())
    np.testing.assert_array_equal(pooled.rows.a, parity.rows.a)  # the loss has them
    problem, scores = pooled.problem(), np.random.default_rng(0).normal(size=len(pooled.rows.y))
    gaps = problem.charged(problem.penalty.term(scores), Price(1.0))
    mine = scores[: len(others.rows.y)]
    assert gaps @ gaps / 2 == pytest.approx(others.penalty(mine, others.rows))
    found = problem.solve(5.0)
    gap = decision_gaps(others.rows.a @ found.theta, others.rows, notion=notion, n_groups=2).max()
    assert found.gap == pytest.approx(gap)
    with pytest.raises(InputError, match="make up pairs"):
        make_pool({"alone": hiding}, SCHEMA, config)


# The server on their files.


@pytest.fixture
def folder(tmp_path, releases):
    (tmp_path / "schema.json").write_text(SCHEMA.to_json())
    make_table(400, seed=9).to_csv(tmp_path / "test.csv", index=False)
    return write(tmp_path, releases)


def write(folder, releases):
    for name, release in releases.items():
        write_release(release, folder / f"{name}.parquet")
    return folder


def run(folder, *, tests=("test.csv",), frontier=False, **settings):
    """Of models that read the town; clients are so unlike that the default caps refuse some."""
    caps = {"max_influence": 50.0, "max_spd_influence": 2.0, "group_input": True, "resamples": 20}
    return serve(
        sorted(folder.glob("c?.parquet")), folder / "schema.json", [folder / t for t in tests],
        folder / "server", sf.ServerConfig(**{**caps, **settings}), frontier=frontier, force=True,
    )  # fmt: skip


def test_server_trains_a_fair_model_and_one_without_a_penalty(folder):
    found = []
    for asked in ({"rho": 30.0}, {"max_gap": 0.05}, {"rho": 0.0}):
        assert run(folder, **asked).model.converged
        found.append(json.loads((folder / "server" / "metrics.json").read_text()))
    fair, searched, free = found
    for metric, value in fair["without_penalty"].items():
        assert value == pytest.approx(free[metric], abs=1e-4)
        assert searched["without_penalty"][metric] == pytest.approx(value, abs=1e-4)
        assert free["without_penalty"][metric] == free[metric]
    assert abs(fair["spd"]["value"]) < abs(free["spd"]["value"]) - 0.05


def test_frontier_is_written_with_and_without_test_rows(folder):
    gaps = [line.gap for line in run(folder, frontier=True).frontier]
    table = pd.read_csv(folder / "server" / "frontier.csv")
    assert list(table.columns)[3:] == ["test_accuracy", "test_gap", "converged"]
    np.testing.assert_allclose(table["gap"], gaps, atol=1e-6)
    assert min(gaps) < gaps[0] / 2
    assert np.isnan(run(folder, tests=(), frontier=True).frontier[0].test_gap)
    run(folder, tests=())  # an old run leaves nothing in the folder of a new one
    assert [path.name for path in (folder / "server").iterdir()] == ["model.json"]


def test_frontier_has_the_size_of_the_gap_of_test_rows(releases):
    turned = {name: replace(one, s=1 - one.s) for name, one in releases.items()}
    pooled = make_pool(turned, SCHEMA, sf.ServerConfig(group_input=True))
    model, rows = train_pool(pooled, SCHEMA)[0], encode(make_table(400, seed=9), SCHEMA)
    line = frontier_lines(pooled, model, {"test": rows})[0]
    selected = model.rows(rows.x, rows.s) @ pooled.problem().solve(line.rho).theta > 0
    spd = selected[rows.s == 1].mean() - selected[rows.s == 0].mean()
    assert spd < 0
    found = line.test_gap, line.test_accuracy
    assert found == pytest.approx((-spd, np.mean(selected == (rows.y > 0))))


def test_server_lets_clients_of_one_label_pass(folder):
    """Without one of them there is nothing to learn; that is no sign of harm."""
    (folder / "c2.parquet").unlink()
    table = make_table(600)
    write(folder, {f"c{i}": made(table[table["paid"] == y]) for i, y in enumerate(("no", "yes"))})
    served = run(folder, max_influence=1.0, max_spd_influence=0.5)
    assert all(moved.alone for moved in served.influences.releases.values())
    assert served.metrics.overall["accuracy"].value > served.metrics.constant_accuracy


def test_server_names_a_client_that_claims_many_rows(folder, releases):
    write(folder, {"c0": replace(releases["c0"], weight=1e4 * releases["c0"].weight)})
    assert any(line.startswith("c0: claims 3,200,000 rows") for line in run(folder).warnings)


def with_records(folder, path, *flags):
    (folder / "server.toml").write_text("max_influence = 5\nmax_spd_influence = 1")
    given = ["--schema", folder / "schema.json", "--output", folder / "server", "--records", path]
    given += ["--config", folder / "server.toml", *sorted(folder.glob("c?.parquet"))]
    return main(["server", *map(str, given), *flags])


def test_records_are_written_for_any_learner(folder, releases):
    path = folder / "records.parquet"
    assert with_records(folder, path) == 0
    table, weight = sf.pool_records(releases, SCHEMA)
    found = pd.read_parquet(path)
    np.testing.assert_array_equal(found.pop("weight"), weight)
    np.testing.assert_equal([*encode(found, SCHEMA)], [*encode(table, SCHEMA)])
    assert with_records(folder, path, "--force") == 0


@pytest.mark.parametrize("name", ["there.parquet", "c0.parquet", "server/model.json"])
def test_records_are_refused_before_any_work(folder, capsys, monkeypatch, name):
    """They replace nothing without --force, and no input or output with it."""
    (folder / "there.parquet").write_text("mine")
    monkeypatch.setattr("synthfair.server.pooling.train_pool", None)
    assert with_records(folder, folder / name, *["--force"] * (name != "there.parquet")) == 2
    assert name in "".join(capsys.readouterr().err.split("\n"))
    assert (folder / "there.parquet").read_text() == "mine"
    assert not (folder / "server" / "model.json").exists()

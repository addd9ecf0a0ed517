"""Surrogates from file to file: what a client writes, what a server makes of it, what each refuses."""

import json
import re
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
from builders import make_schema, make_table, rewrite, set_column, some_release, unlike_tables
from pydantic import ValidationError
from scipy.special import expit

import synthfair as sf
from synthfair.cli import main
from synthfair.data.encode import encode
from synthfair.errors import InputError
from synthfair.evaluation import encode_tests
from synthfair.fairness.intervals import size
from synthfair.fairness.penalties import decision_gaps
from synthfair.release import inspect_release, read_release
from synthfair.release.format import Header, write_release
from synthfair.report.answer import run_sentence
from synthfair.report.privacy_words import header_facts
from synthfair.report.results import read_results
from synthfair.server import measure_influence, serve
from synthfair.server.page import frontier_lines
from synthfair.server.pooling import make_pool, train_pool
from synthfair.server.review import _without, refuse_influence
from synthfair.surrogate import GlobalProblem, Price
from synthfair.surrogate.fair import ridge_of

SCHEMA, CONFIG = make_schema(), sf.SurrogateConfig(k_min=5)


@pytest.fixture(scope="module")
def tables():
    return unlike_tables()


@pytest.fixture(scope="module")
def releases(tables):
    return {k: sf.distill_table(t, SCHEMA, CONFIG).release for k, t in tables.items()}


@pytest.fixture
def folder(tmp_path, tables, releases):
    (tmp_path / "schema.json").write_text(SCHEMA.to_json())
    for name, release in releases.items():
        write_release(release, tmp_path / f"{name}.parquet")
        tables[name].to_csv(tmp_path / f"{name}_train.csv", index=False)
    make_table(400, seed=9).to_csv(tmp_path / "test.csv", index=False)
    return tmp_path


def run_server(folder, *, tests=("test.csv",), frontier=False, reads=True, **settings):
    """Of models that read the town: no other column tells of it, so a blind one has hardly a gap.

    The clients are so unlike that the default caps of influence refuse some of them.
    """
    caps = {"max_influence": 5.0, "max_spd_influence": 1.0}
    model = {"group_input": True} if reads else {}
    return serve(
        sorted(folder.glob("c?.parquet")),
        folder / "schema.json",
        [folder / name for name in tests],
        folder / "server",
        sf.ServerConfig(**{"resamples": 20, **model, **caps, **settings}),
        frontier=frontier,
        force=True,
    )


def test_a_written_surrogate_is_read_again(folder, releases):
    back = read_release(folder / "c0.parquet", SCHEMA)
    assert back.header == releases["c0"].header
    assert back.header.format == "synthfair-release/5"
    for field in ("x", "s", "y", "weight"):
        np.testing.assert_array_equal(getattr(back, field), getattr(releases["c0"], field))
    found = inspect_release(folder / "c0.parquet", schema=SCHEMA)
    assert (found.fits, found.problems) == (True, ())


def with_value(release, column, value):
    x = release.x.copy()
    x[1, release.header.names.index(column)] = value
    return replace(release, x=x)


NUMBER, AGE, HOME = "from 0 to 100", "from 18 to 90, or missing", "whole number from 0 to 3, a cat"


@pytest.mark.parametrize(
    ("column", "value", "must_be"),
    [
        *(("income", value, NUMBER) for value in (100.5, -1e-9, 1e300, np.nan, np.inf, -np.inf)),
        *(("age", value, AGE) for value in (17.9, 90.1, np.inf)),
        *(("home", value, HOME) for value in (0.5, 4.0, -1.0, 1e300, np.nan, np.inf)),
    ],
)
def test_a_value_that_no_record_of_the_schema_has_is_refused(
    tmp_path, releases, column, value, must_be
):
    write_release(with_value(releases["c0"], column, value), tmp_path / "r.parquet")
    said = f"column '{column}', row 2: {value!r} is not allowed; must be .*{must_be}"
    with pytest.raises(InputError, match=re.escape(said).replace(r"\.\*", ".*")):
        read_release(tmp_path / "r.parquet", SCHEMA)


@pytest.mark.parametrize(
    ("column", "value"), [("income", 100.0), ("age", np.nan), ("home", 0.0), ("home", 3.0)]
)
def test_bounds_and_missing_values_are_read_again(tmp_path, releases, column, value):
    release = with_value(releases["c0"], column, value)
    write_release(release, tmp_path / "r.parquet")
    np.testing.assert_array_equal(read_release(tmp_path / "r.parquet", SCHEMA).x, release.x)


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (lambda t: t.drop_columns("income"), "; must be 'income'"),
        (lambda t: t.add_column(0, "paid", t["age"]), "column 1: 'paid'"),
        (lambda t: t.add_column(0, "age", t["age"]), "column 1: 'age'"),
        (lambda t: t.select([1, 0, *range(2, 6)]), "column 1: 'age' .*; must be 'income'"),
        (
            lambda t: set_column("home", t["home"].cast("int64"))(t),
            r"'home' \(int64\); must be 'ho",
        ),
    ],
)
def test_columns_that_are_not_the_schemas_are_refused(tmp_path, releases, change, complaint):
    write_release(releases["c0"], tmp_path / "r.parquet")
    rewrite(tmp_path / "r.parquet", change)
    with pytest.raises(InputError, match=complaint):
        read_release(tmp_path / "r.parquet", SCHEMA)


def test_without_the_schema_a_surrogate_is_inspected_for_what_can_be_known(tmp_path, releases):
    path = tmp_path / "r.parquet"
    write_release(with_value(releases["c0"], "income", 99.0), path)
    found = inspect_release(path)
    assert (found.fits, found.release.header.names) == (None, ("income", "age", "home"))
    for value in (1e4, np.inf):  # not even by the schema that it names itself
        write_release(with_value(releases["c0"], "income", value), path)
        with pytest.raises(InputError, match="'income', row 2: .* must be from 0 to 100"):
            inspect_release(path)


def test_room_is_counted_in_columns_of_the_encoding(folder, releases, monkeypatch):
    """7 encoded columns, a group, a label and a weight; of the file's own 6 there would be room."""
    rows = [len(release.y) for release in releases.values()]
    monkeypatch.setattr("synthfair.server.pooling.MAX_CELLS", 10 * sum(rows))
    paths = sorted(folder.glob("c?.parquet"))
    assert len(sf.server.read_releases(paths, SCHEMA)) == 3
    monkeypatch.setattr("synthfair.server.pooling.MAX_CELLS", 10 * sum(rows) - 1)
    with pytest.raises(InputError, match=f"c2.parquet: holds {rows[2]} rows of 10 columns"):
        sf.server.read_releases(paths, SCHEMA)


def test_the_columns_of_a_file_are_named_as_no_feature_is(tmp_path, releases):
    write_release(releases["c0"], tmp_path / "r.parquet")
    own = ["(group)", "(label)", "(weight)"]
    assert pq.read_schema(tmp_path / "r.parquet").names == [*SCHEMA.features, *own]
    for name in own:
        columns = {name if old == "age" else old: c for old, c in SCHEMA.columns.items()}
        with pytest.raises(ValueError, match="names clash"):
            type(SCHEMA).model_validate(SCHEMA.model_dump() | {"columns": columns})
    write_release(replace(releases["c0"], weight=0 * releases["c0"].weight), tmp_path / "r.parquet")
    with pytest.raises(InputError, match=r"column '\(weight\)', row 1: .*not all 0"):
        read_release(tmp_path / "r.parquet", SCHEMA)


def test_pooled_records_are_the_rows_that_the_server_trains_on(folder, releases):
    table, weight = sf.pool_records(releases, SCHEMA)
    pooled = make_pool(releases, SCHEMA)
    assert list(table.columns) == list(SCHEMA.columns)
    x, s, y = encode(table, SCHEMA)
    np.testing.assert_allclose(np.asarray(pooled.rows.a)[:, :7], x, atol=1e-12)
    for mine, field in ((s, "s"), (y, "y"), (weight, "weight")):
        np.testing.assert_array_equal(np.asarray(getattr(pooled.rows, field)), mine)
    read, same = sf.pool_records(sorted(folder.glob("c?.parquet")), SCHEMA)
    pd.testing.assert_frame_equal(read, table)
    np.testing.assert_array_equal(same, weight)
    assert read["home"].isna().any()
    assert read["age"].isna().any()


def test_pooled_records_are_capped_as_those_that_are_trained_on(releases):
    heavy = {**releases, "c0": replace(releases["c0"], weight=1e6 * releases["c0"].weight)}
    for most in (None, 300.0):
        weight = sf.pool_records(heavy, SCHEMA, max_rows=most)[1]
        pooled = make_pool(heavy, SCHEMA, sf.ServerConfig(max_rows=most))
        np.testing.assert_array_equal(weight, np.asarray(pooled.rows.weight))
    assert weight[: len(heavy["c0"].y)].sum() == pytest.approx(300)


def test_rows_that_are_no_records_are_not_pooled_as_records(releases, folder):
    with pytest.raises(InputError, match="c9: a fair release, which has no records"):
        sf.pool_records({**releases, "c9": some_release()}, SCHEMA)
    for nothing in ({}, []):
        with pytest.raises(InputError, match="the pool is empty"):
            sf.pool_records(nothing, SCHEMA)


@pytest.mark.parametrize("weight", [-1.0, 1e-9, 1e10, np.nan, np.inf])
def test_an_impossible_weight_is_refused(tmp_path, releases, weight):
    wrong = releases["c0"].weight.copy()
    wrong[2] = weight
    write_release(replace(releases["c0"], weight=wrong), tmp_path / "r.parquet")
    with pytest.raises(
        InputError, match="column '.weight.', row 3: .* must be 0, or a number from 1e-06"
    ):
        read_release(tmp_path / "r.parquet", SCHEMA)


def test_altered_weights_are_noticed(tmp_path, releases):
    write_release(releases["c0"], tmp_path / "r.parquet")
    table = pq.read_table(tmp_path / "r.parquet")
    doubled = table.set_column(
        table.column_names.index("(weight)"), "(weight)", [2 * table["(weight)"].to_numpy()]
    )
    pq.write_table(doubled, tmp_path / "r.parquet")
    with pytest.raises(InputError, match="altered since it was written"):
        read_release(tmp_path / "r.parquet", SCHEMA)


def test_a_surrogate_without_weights_and_a_fair_release_with_them_are_refused(tmp_path, releases):
    write_release(releases["c0"], tmp_path / "r.parquet")
    table = pq.read_table(tmp_path / "r.parquet")
    pq.write_table(table.drop_columns("(weight)"), tmp_path / "r.parquet")
    with pytest.raises(InputError, match="column 6: missing; must be .*weight"):
        read_release(tmp_path / "r.parquet", SCHEMA)


def test_the_server_trains_one_fair_model(folder):
    served = run_server(folder, rho=10.0)
    assert served.model.converged
    plain = run_server(folder, rho=0.0)
    fair, unfair = (abs(one.metrics.overall["spd"].value) for one in (served, plain))
    assert fair < unfair - 0.05


def test_it_is_as_fair_as_central_training_where_clients_are_unlike(tables, releases):
    whole = encode(make_table(600), SCHEMA)
    weighted = sf.surrogate.WeightedTable(*whole, weight=np.ones(600))
    a = weighted.rows(n_groups=1).a
    ridge = ridge_of(1.0, 600, a.shape[1], intercept=True)
    problem = GlobalProblem(a, whole.s, whole.y, weighted.weight, sf.CovariancePenalty(), ridge)
    central = problem.solve(10.0).theta
    model = sf.pool_and_train(releases, SCHEMA, sf.ServerConfig(rho=10.0))
    # As probabilities, on average: cells have some ten rows of a category, and round by two.
    assert np.abs(expit(a @ np.array(model.theta)) - expit(a @ central)).mean() < 0.06
    gaps = [
        np.diff([((a @ t) > 0)[whole.s == g].mean() for g in (0, 1)])
        for t in (model.theta, central)
    ]
    np.testing.assert_allclose(*gaps, atol=0.03)


def test_fairness_is_chosen_after_the_upload(folder):
    wanted = run_server(folder, max_gap=0.05)
    assert wanted.point.gap <= 0.05
    (run,) = read_results([folder / "server"])  # as a report does
    assert run.metrics.server.max_gap == 0.05
    assert all(line.startswith("the gap on the test rows") for line in wanted.warnings)  # 60 rows
    odds = run_server(folder, rho=100.0, notion="equalized_odds", penalty="selection_rate")
    assert odds.point.gap < run_server(folder, rho=0.0, notion="equalized_odds").point.gap


def test_the_frontier_is_written_with_and_without_test_rows(folder):
    served = run_server(folder, frontier=True)
    text = (folder / "server" / "frontier.csv").read_text().splitlines()
    assert text[0] == "rho,accuracy,gap,test_accuracy,test_gap,converged"
    assert len(text) == 1 + len(served.frontier)
    gaps = [line.gap for line in served.frontier]
    assert min(gaps) < gaps[0] / 2
    without = run_server(folder, tests=(), frontier=True)
    assert without.metrics is None
    assert np.isnan(without.frontier[0].test_gap)
    run_server(folder, tests=())  # an old run leaves nothing in the folder of a new one
    names = {path.name for path in (folder / "server").iterdir()}
    assert names == {"model.json"}


def test_tests_without_labels_have_gaps_and_no_accuracy_on_the_frontier(releases):
    pooled = make_pool(releases, SCHEMA)
    model, _ = train_pool(pooled, SCHEMA)
    bare = {"t": make_table(300).drop(columns="paid")}
    line, *_ = frontier_lines(pooled, model, encode_tests(bare, SCHEMA))
    assert np.isnan(line.test_accuracy)
    assert 0 <= line.test_gap <= 1


def test_kinds_do_not_mix_and_settings_of_surrogates_are_not_read_for_fair_ones(
    releases, fair_release
):
    with pytest.raises(InputError, match="c9 is fair, c0 a surrogate"):
        make_pool({**releases, "c9": fair_release}, SCHEMA)
    with pytest.raises(InputError, match="max_gap: of fair releases that is the"):
        make_pool({"c9": fair_release}, SCHEMA, sf.ServerConfig(max_gap=0.1))


def test_a_group_that_nobody_has_is_left_out_of_the_comparison(tables):
    """Three groups, of which no release has records of one: the other two are compared."""
    table, three = make_table(900), make_schema()
    towns = three.columns["town"].model_copy(update={"categories": ("a", "b", "green")})
    three = three.model_copy(update={"columns": {**three.columns, "town": towns}})
    release = sf.distill_table(table, three, CONFIG).release
    pooled = make_pool({"c0": release}, three, sf.ServerConfig(rho=10.0))
    assert pooled.left_out == ("town=green",)
    model, point = train_pool(pooled, three)
    two = make_pool({"c0": sf.distill_table(table, SCHEMA, CONFIG).release}, SCHEMA)
    assert point.gap == pytest.approx(train_pool(two, SCHEMA)[1].gap, abs=0.02)
    assert np.isfinite(model.theta).all()


def test_without_a_penalty_one_group_is_enough():
    table = make_table(400)
    only = sf.distill_table(table[table["town"] == "a"], SCHEMA, CONFIG).release
    with pytest.raises(InputError, match=r"groups by 'town': fewer than two have rows") as refused:
        make_pool({"c0": only}, SCHEMA)
    assert refused.value.arguments == ("rho",)
    free = make_pool({"c0": only}, SCHEMA, sf.ServerConfig(rho=0.0))
    model, _ = train_pool(free, SCHEMA)
    assert np.isfinite(model.theta).all()
    assert free.left_out == ("town=b",)


def test_weights_that_are_all_0_are_refused_by_file_and_column(folder, releases, capsys):
    nothing = replace(releases["c1"], weight=0 * releases["c1"].weight)
    write_release(nothing, folder / "c1.parquet")
    for tests in ((), ("test.csv",)):
        with pytest.raises(
            InputError, match="c1.parquet: column '.weight.', row 1: .*, and not all 0"
        ):
            run_server(folder, tests=tests)
    assert not (folder / "server").exists()
    assert main(["inspect", f"{folder}/c1.parquet"]) == 2
    assert "column '(weight)', row 1: 0.0" in capsys.readouterr().err


@pytest.mark.filterwarnings("error")
def test_rows_that_are_all_alike_stop_nothing(folder, releases):
    """No model can be learned: that is said."""
    for name, release in releases.items():
        alike = replace(release, x=np.tile([0.0, 18.0, 1.0], (len(release.y), 1)))
        write_release(alike, folder / f"{name}.parquet")
    run_server(folder, max_influence=100.0)  # of scores that are nearly 0
    assert "of the majority label for all" in run_sentence(folder / "server")


def test_a_client_counts_for_at_most_the_cap(folder, releases):
    heavy = replace(releases["c0"], weight=1e6 * releases["c0"].weight)
    write_release(heavy, folder / "c0.parquet")
    pooled = make_pool({**releases, "c0": heavy}, SCHEMA, sf.ServerConfig(max_rows=300.0))
    part = pooled.parts["c0"]
    assert np.asarray(pooled.rows.weight)[part].sum() == pytest.approx(300)
    served = run_server(folder, max_rows=300.0, max_influence=50.0, max_spd_influence=2.0)
    assert "claims 320,000,000 rows, and counts as 300;" in served.warnings[0]


def test_a_client_counts_for_at_most_twenty_medians_of_all_claims(releases):
    claims = [release.weight.sum() for release in releases.values()]
    heavy = replace(releases["c0"], weight=1e6 * releases["c0"].weight)
    pooled = make_pool({**releases, "c0": heavy}, SCHEMA)
    most = 20 * np.median([1e6 * claims[0], *claims[1:]])
    assert np.asarray(pooled.rows.weight)[pooled.parts["c0"]].sum() == pytest.approx(most)
    assert pooled.capped == {"c0": pytest.approx(1e6 * claims[0])}
    assert make_pool(releases, SCHEMA).capped == {}


@pytest.mark.parametrize("names", [("c0", "c1"), ("c0", "c1", "c2")])
def test_the_cap_holds_among_few_and_is_the_documented_share(releases, names):
    """The middle of two claims is their mean, which the larger sets itself."""
    few = {name: releases[name] for name in names}
    few["c0"] = replace(few["c0"], weight=1e6 * few["c0"].weight)
    pooled = make_pool(few, SCHEMA)
    weight = np.asarray(pooled.rows.weight, float)
    claims = sorted(release.weight.sum() for release in few.values())
    median, rest = claims[(len(claims) - 1) // 2], sum(claims[:-1])
    assert set(pooled.capped) == {"c0"}
    assert weight[pooled.parts["c0"]].sum() / weight.sum() == pytest.approx(
        20 / (20 + rest / median), rel=1e-5
    )


def gap_of_chances(scores, rows):
    """Half the squared difference between the groups' mean chances, by the weights."""
    chance, of = jax.nn.sigmoid(scores), [rows.weight * (rows.s == g) for g in (0, 1)]
    first, second = (jnp.sum(weight * chance) / jnp.sum(weight) for weight in of)
    return (first - second) ** 2 / 2


@pytest.mark.parametrize("own", [{}, {"penalty": gap_of_chances}], ids=["covariance", "own"])
def test_influence_under_a_penalty_is_the_slope_in_the_weights_of_a_release(releases, own):
    config, epsilon = sf.ServerConfig(rho=10.0), 1e-3
    pooled = make_pool(releases, SCHEMA, config, **own)
    whole, part = np.asarray(pooled.rows.weight, float), pooled.parts["c1"]
    less = whole.copy()
    less[part] *= 1 - epsilon
    theta, near = (
        pooled._replace(
            rows=pooled.rows._replace(weight=weight),
            ridge=pooled.ridge * whole.sum() / weight.sum(),  # 1 / (C N)
        )
        .problem()
        .solve(10.0)
        .theta
        for weight in (whole, less)
    )
    slope, removed = (near - theta) / epsilon, whole[part].sum() / whole.sum()
    step = (_without(pooled, theta, Price(10.0), sf.LinearModel()) - theta)[1]
    np.testing.assert_allclose(step * (1 - removed), slope, atol=0.03 * np.abs(slope).max())


def test_a_client_that_turns_a_group_round_is_refused_by_its_influence_on_spd():
    pool = {
        f"c{i}": sf.distill_table(make_table(300, seed=i), SCHEMA, CONFIG).release for i in range(4)
    }
    config, test = sf.ServerConfig(rho=0.0, group_input=True), {"t": make_table(800, seed=9)}

    def influences(pool):
        pooled = make_pool(pool, SCHEMA, config)
        return measure_influence(pooled, train_pool(pooled, SCHEMA)[0], test)

    honest = influences(pool)
    refuse_influence(honest, 50.0, 0.1)
    c1 = pool["c1"]
    turned = replace(c1, y=np.where(c1.s == 1, -c1.y, c1.y), weight=2 * c1.weight)
    found = influences({**pool, "c1": turned})
    with pytest.raises(InputError, match="c1: changes SPD by .* at most 0.1 is"):
        refuse_influence(found, 50.0, 0.1)


def test_the_commands_go_from_unlike_clients_to_a_fair_model(folder, capsys):
    for name in ("c0", "c1", "c2"):
        (folder / f"{name}.parquet").unlink()
        words = [
            "client",
            "--data",
            f"{folder}/{name}_train.csv",
            "--schema",
            f"{folder}/schema.json",
        ]
        flags = ["--release", "surrogate", "--k-min", "5"]
        assert main([*words, *flags, "--output", f"{folder}/{name}.parquet"]) == 0
    assert "real rows" in capsys.readouterr().out
    words = ["server", *map(str, sorted(folder.glob("c?.parquet"))), "--rho", "10", "--frontier"]
    words += ["--schema", f"{folder}/schema.json", "--test", f"{folder}/test.csv", "--report"]
    (folder / "server.toml").write_text("max_influence = 5")
    config = ["--config", f"{folder}/server.toml"]
    assert main([*words, *config, "--output", f"{folder}/server"]) == 0
    assert "on the pooled rows" in capsys.readouterr().out
    assert (folder / "server" / "report.html").exists()
    assert (folder / "server" / "frontier.csv").exists()


def server_words(folder, *flags, more=""):
    paths = map(str, sorted(folder.glob("c?.parquet")))
    files = ["--schema", f"{folder}/schema.json", "--output", f"{folder}/server"]
    (folder / "server.toml").write_text(f"max_influence = 5\nmax_spd_influence = 1\n{more}")
    config = ["--config", f"{folder}/server.toml"]
    return ["server", *paths, *files, *config, *map(str, flags)]


def test_records_are_written_for_any_learner(folder, releases, capsys):
    path = folder / "records.parquet"
    assert main(server_words(folder, "--records", path, more="max_rows = 100")) == 0
    assert f"{folder}/server/model.json, {path}." in "".join(capsys.readouterr().out.split("\n"))
    table, weight = sf.pool_records(releases, SCHEMA, max_rows=100.0)
    found = pd.read_parquet(path)
    assert list(found.columns) == [*SCHEMA.columns, "weight"]
    np.testing.assert_array_equal(found.pop("weight"), weight)
    pd.testing.assert_frame_equal(found, table, check_dtype=False)
    for mine, theirs in zip(encode(found, SCHEMA), encode(table, SCHEMA), strict=True):
        np.testing.assert_array_equal(mine, theirs)
    assert main(server_words(folder, "--records", path, "--force")) == 0


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("there.parquet", "there.parquet: exists"),
        ("c0.parquet", "c0.parquet: is named twice"),
        ("schema.json", "schema.json: is named twice"),
        ("server/model.json", "model.json: is named twice"),
        ("there.parquet/records.parquet", "there.parquet"),
    ],
)
def test_records_are_refused_before_any_work(folder, capsys, monkeypatch, name, said):
    (folder / "there.parquet").write_text("mine")
    monkeypatch.setattr("synthfair.server.pooling.train_pool", None)
    forced = [] if name == "there.parquet" else ["--force"]
    assert main(server_words(folder, "--records", folder / name, *forced)) == 2
    assert said in "".join(capsys.readouterr().err.split("\n"))
    assert (folder / "there.parquet").read_text() == "mine"
    assert not (folder / "server" / "model.json").exists()


def test_of_fair_releases_there_are_no_records(folder, capsys):
    for name in ("c1", "c2"):
        (folder / f"{name}.parquet").unlink()
    write_release(some_release(), folder / "c0.parquet")
    assert main(server_words(folder, "--records", folder / "r.parquet")) == 2
    assert "which has no records; ask for a surrogate" in capsys.readouterr().err
    assert not (folder / "r.parquet").exists()


def test_a_schema_with_a_weight_has_no_records(folder, releases, capsys):
    columns = {"weight" if k == "paid" else k: c for k, c in SCHEMA.columns.items()}
    schema = SCHEMA.model_copy(update={"columns": columns, "label": "weight"})
    (folder / "schema.json").write_text(schema.to_json())
    for name, release in releases.items():
        header = release.header.model_copy(update={"table_schema": schema})
        write_release(replace(release, header=header), folder / f"{name}.parquet")
    assert main(server_words(folder, "--records", folder / "r.parquet")) == 2
    assert "records: the schema has a column 'weight'" in capsys.readouterr().err


def test_a_pool_of_fair_releases_that_misses_the_gap_and_learns_nothing_says_so(tmp_path):
    """The strictest client's gap and notion count, and labels are noise."""
    (tmp_path / "schema.json").write_text(SCHEMA.to_json())
    test, rng = make_table(400, seed=9), np.random.default_rng(0)
    test.assign(paid=rng.permutation(test["paid"])).to_csv(tmp_path / "test.csv", index=False)
    some = some_release()
    for name, asked in {"c0": {}, "c1": {"max_gap": 0.2}, "c2": {"max_gap": 0.001}}.items():
        config = sf.DistillConfig(notion="equal_opportunity", **asked)
        x, s = rng.random((40, some.x.shape[1])), rng.integers(2, size=40)
        release = replace(some, x=x, s=s, y=np.where(x[:, 0] + 0.5 * s > 0.8, 1.0, -1.0))
        header = some.header.model_copy(update={"config": config})
        write_release(replace(release, header=header), tmp_path / f"{name}.parquet")
    served = run_server(tmp_path, reads=False)
    assert served.metrics.asked.max_gap == 0.001
    said = run_sentence(tmp_path / "server")
    assert "at most 0.001 was asked" in said
    assert "of the majority label for all" in said


def total_covariance(scores, rows):
    """A penalty of one's own: the same numbers as the covariance's."""
    return sf.CovariancePenalty()(scores, rows)


def test_a_penalty_of_ones_own_is_used_over_all_clients(releases):
    config = sf.ServerConfig(rho=10.0, penalty="selection_rate")
    own = sf.pool_and_train(releases, SCHEMA, config, penalty=total_covariance)
    same = sf.pool_and_train(releases, SCHEMA, sf.ServerConfig(rho=10.0))
    np.testing.assert_allclose(own.theta, same.theta, atol=1e-6)


@pytest.mark.parametrize("config", ["3", "null", "[1]", '"x"'])
def test_settings_that_are_none_are_refused_in_a_sentence(tmp_path, releases, config):
    from synthfair.release.format import Header

    body = json.loads(releases["c0"].header.model_dump_json()) | {"config": json.loads(config)}
    with pytest.raises(ValidationError):
        Header.model_validate_json(json.dumps(body))


def test_clients_of_one_label_are_let_pass_as_nobody_else_has_theirs(folder):
    """Without one of them there is nothing to learn; that is no sign of harm."""
    for path in folder.glob("c?.parquet"):
        path.unlink()
    table = make_table(600)
    for name, label in (("c0", "no"), ("c1", "yes")):
        made = sf.distill_table(table[table["paid"] == label], SCHEMA, CONFIG)
        write_release(made.release, folder / f"{name}.parquet")
    served = run_server(folder, max_influence=1.0, max_spd_influence=0.5)
    assert all(moved.alone for moved in served.influences.releases.values())
    assert served.metrics.overall["accuracy"].value > served.metrics.constant_accuracy


def test_a_client_that_turns_its_groups_round_is_seen_without_test_rows(folder, tables):
    honest = run_server(folder, tests=(), max_spd_influence=2.0).influences.releases
    everything = make_table(600, seed=4)
    turned = everything.assign(town=everything["town"].map({"a": "b", "b": "a"}))
    for name, table in (("c0", everything[::3]), ("c1", everything[1::3]), ("c2", turned[2::3])):
        made = sf.distill_table(table, SCHEMA, CONFIG)
        write_release(made.release, folder / f"{name}.parquet")
    found = run_server(folder, tests=(), max_spd_influence=2.0, rho=0.0).influences.releases
    spd = [abs(found[name].spd) for name in ("c0", "c1", "c2")]
    assert not np.isnan([moved.spd for moved in honest.values()]).any()
    assert spd[2] > max(spd[:2])
    with pytest.raises(InputError, match="c2: changes SPD by"):
        run_server(folder, tests=(), max_spd_influence=(spd[2] + max(spd[:2])) / 2, rho=0.0)


def test_a_surrogate_that_stands_for_far_more_rows_than_the_others_is_named(folder, releases):
    huge = replace(releases["c0"], weight=1e4 * releases["c0"].weight)
    write_release(huge, folder / "c0.parquet")
    served = run_server(folder, max_influence=50.0, max_spd_influence=2.0)
    (said,) = [line for line in served.warnings if "max_rows" in line]
    assert said.startswith("c0: claims 3,200,000 rows, and counts as 3,100; ask")


def test_a_group_with_one_label_is_estimated_and_named(folder, tables):
    assert not any("estimated" in line for line in run_server(folder).warnings)
    for name, table in tables.items():
        some = table[(table["town"] == "a") | (table["paid"] == "no")]
        write_release(sf.distill_table(some, SCHEMA, CONFIG).release, folder / f"{name}.parquet")
    served = run_server(folder, max_influence=50.0, max_spd_influence=2.0)
    (said,) = [line for line in served.warnings if "estimated" in line]
    assert "not reported: town=b with paid=yes (of 2 releases); where there are no such" in said


def test_a_wanted_gap_that_test_rows_miss_is_said(folder):
    served = run_server(folder, max_gap=0.001)
    assert size(served.metrics.overall["spd"]).value > 0.001
    assert "at most 0.001 was asked: probably missed" in run_sentence(folder / "server")


def test_that_no_penalty_was_needed_is_said(folder):
    free = {"max_influence": 50.0, "max_spd_influence": 2.0}
    run_server(folder, max_gap=0.9, **free)
    assert "at most 0.9 was asked: met. No penalty was needed." in run_sentence(folder / "server")
    run_server(folder, rho=0.0, **free)  # a weight of 0 was asked for
    assert "was trained without a penalty." in run_sentence(folder / "server")


def test_the_server_trains_without_a_penalty_too(folder):
    """So that what fairness costs is known: the model is that of a weight of 0."""
    found = []
    for rho in (30.0, 0.0):
        run_server(folder, rho=rho, max_influence=50.0, max_spd_influence=2.0)
        found.append(json.loads((folder / "server" / "metrics.json").read_text()))
    for metric, free in found[0]["without_penalty"].items():
        assert free == pytest.approx(found[1][metric], abs=1e-4)
        assert found[1]["without_penalty"][metric] == found[1][metric]
    assert abs(found[0]["spd"]["value"]) < abs(found[0]["without_penalty"]["spd"]["value"])


def test_a_training_without_a_penalty_that_has_not_converged_is_a_warning(folder, monkeypatch):
    def unfinished(pooled, schema):
        model, point = train_pool(pooled, schema)
        return model.model_copy(
            update={"converged": pooled.config.rho > 0, "gradient_norm": 0.5}
        ), point

    monkeypatch.setattr("synthfair.server.pooling.train_pool", unfinished)
    said = run_server(folder, rho=30.0, max_influence=50.0, max_spd_influence=2.0).warnings
    assert any("without a penalty, which says" in line and "norm 5.0e-01" in line for line in said)


@pytest.fixture(scope="module")
def hiding():
    """Of a client with ten rows of one pair, in place of which there are sums of label and town."""
    table = make_table(700, seed=3)
    few = table.index[(table.town == "b") & (table.paid == "yes")][10:]
    return sf.distill_table(table.drop(few), SCHEMA, sf.SurrogateConfig(k_min=20)).release


def test_a_release_declares_that_pairs_are_made_up(tmp_path, releases, hiding):
    told = [name for name, release in releases.items() if release.header.hides_pairs]
    assert hiding.header.hides_pairs
    assert len(told) < len(releases)
    write_release(hiding, tmp_path / "hiding.parquet")
    found = sf.release.inspect_release(tmp_path / "hiding.parquet", schema=SCHEMA)
    assert found.fits
    assert "by label and by group" in header_facts(found.release.header)["discloses"][-1]
    said = hiding.header.model_dump()
    with pytest.raises(ValueError, match="hides_pairs: is for surrogates"):
        Header.model_validate({**said, "config": said["config"] | {"epsilon": 1.0, "delta": 1e-5}})


@pytest.mark.parametrize("notion", ["equal_opportunity", "equalized_odds"])
@pytest.mark.parametrize("penalty", ["covariance", "selection_rate"])
def test_labels_of_made_up_pairs_are_not_compared_between_groups(releases, hiding, notion, penalty):
    config = sf.ServerConfig(notion=notion, penalty=penalty)
    releases = {n: one for n, one in releases.items() if not one.header.hides_pairs}
    others = make_pool(releases, SCHEMA, config)
    pooled = make_pool({**releases, "hiding": hiding}, SCHEMA, config)
    scores = np.random.default_rng(0).normal(size=len(pooled.rows.y))
    mine = slice(len(others.rows.y))
    problem = pooled.problem()
    gaps = problem.charged(problem.penalty.term(scores), Price(1.0))
    assert gaps @ gaps / 2 == pytest.approx(others.penalty(scores[mine], others.rows))
    found = problem.solve(5.0)
    decided = others.rows.a @ found.theta
    gap = decision_gaps(decided, others.rows, notion=notion, n_groups=2).max()
    assert found.gap == pytest.approx(gap)
    parity = make_pool({**releases, "hiding": hiding}, SCHEMA)
    assert parity.unpaired == ()
    np.testing.assert_array_equal(parity.rows.s, pooled.rows.s)
    np.testing.assert_array_equal(pooled.rows.a, parity.rows.a)  # the loss has them
    with pytest.raises(InputError, match="releases make up pairs"):
        make_pool({"alone": hiding}, SCHEMA, config)


def test_the_server_says_which_releases_are_not_compared(folder, hiding):
    write_release(hiding, folder / "hiding.parquet")
    paths = sorted(path for path in folder.glob("*.parquet"))
    made = serve(paths, folder / "schema.json", [], folder / "out",
                 sf.ServerConfig(notion="equal_opportunity", max_influence=10))  # fmt: skip
    (said,) = [warning for warning in made.warnings if "made up" in warning]
    assert "hiding: some pair of group and label has fewer" in said
    config = sf.ServerConfig(max_influence=10)
    parity = serve(paths, folder / "schema.json", [], folder / "out", config, force=True)
    assert not any("made up" in warning for warning in parity.warnings)

"""A client's surrogate: from tables, files, streams and a cluster, and what stops it."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from conftest import make_schema, make_table
from weighted_rows import unlike_tables

import synthfair as sf
from synthfair.client import Options, distill_file
from synthfair.data.encode import encode
from synthfair.errors import InputError
from synthfair.privacy.ledger import Ledger
from synthfair.report import fit_warnings

GRID = 2.0**-16  # on which features are summed
NUMBER = np.isin(np.arange(7), (0, 1))  # of the features of the small schema, and two numbers
SCHEMA, CONFIG = make_schema(), sf.SurrogateConfig(k_min=5)


@pytest.fixture(scope="module")
def tables():
    return unlike_tables()


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "schema.json").write_text(SCHEMA.to_json())
    make_table(600).to_csv(tmp_path / "all.csv", index=False)
    return tmp_path


def test_a_release_stands_for_the_clients_rows():
    checked = 0
    for table in unlike_tables(3000).values():
        real, release = encode(table, SCHEMA), sf.distill_table(table, SCHEMA, CONFIG).release
        for s, y in {(int(s), float(y)) for s, y in zip(release.s, release.y, strict=True)}:
            mine, theirs = ((r.s == s) & (r.y == y) for r in (release, real))
            if theirs.sum() < real.x.shape[1] + 2:  # has the common covariance
                continue
            assert release.weight[mine].sum() == pytest.approx(theirs.sum())
            weight = release.weight[mine] / release.weight[mine].sum()
            mean, wanted = weight @ release.x[mine], real.x[theirs].mean(axis=0)
            own = often(real.x[theirs]) & NUMBER
            np.testing.assert_allclose(mean[own], wanted[own], atol=GRID)
            rows_off = np.abs(theirs.sum() * (mean - wanted))[~NUMBER]
            assert rows_off.max() <= 2.5 + 1e-6  # numbers of rows are multiples of 5
            spread = release.x[mine] - mean
            covariance = np.cov(real.x[theirs], rowvar=False, bias=True)
            found = (spread.T * weight) @ spread
            if theirs.sum() >= 200:  # else some have the correlations of other cells
                pairs = np.ix_(own | ~NUMBER, own | ~NUMBER)  # other numbers have none
                off = np.abs(found - covariance)[pairs]
                assert off.max() < 5 / theirs.sum()  # by rounding
                assert own.sum() > 1
                checked += 1
    assert checked > 2


def test_the_release_keyword_names_the_kind(tables):
    assert sf.distill_table(
        tables["c0"], SCHEMA, CONFIG, release="surrogate"
    ).release.header.kind == ("surrogate")
    with pytest.raises(InputError, match="settings are those of a surrogate release"):
        sf.distill_table(tables["c0"], SCHEMA, CONFIG, release="fair")
    with pytest.raises(InputError, match="penalty: not used for a surrogate"):
        sf.distill_table(tables["c0"], SCHEMA, CONFIG, penalty=sf.CovariancePenalty())


def test_a_stream_gives_the_release_of_a_table(folder):
    """A folder of parts, CSV and Parquet, none held out; but for rounding."""
    table = make_table(600)
    parts = folder / "parts"
    parts.mkdir()
    table[:250].to_csv(parts / "a.csv", index=False)
    table[250:].to_parquet(parts / "b.parquet")
    made, receipt = distill_file(
        parts, folder / "schema.json", folder / "s.parquet", CONFIG, Options(hold_out=0.0)
    )
    whole = sf.distill_table(table, SCHEMA, CONFIG).release
    np.testing.assert_allclose(made.release.x, whole.x, atol=1e-6)
    np.testing.assert_allclose(made.release.weight, whole.weight)
    assert receipt.preview.copies == 0


def test_copies_stop_a_surrogate(folder, monkeypatch):
    real = encode(make_table(600), SCHEMA)
    made = sf.distill_table(make_table(600), SCHEMA, CONFIG)
    planted = replace(made.release, x=made.release.x.copy())
    planted.x[3] = real.x[500]
    monkeypatch.setattr(
        "synthfair.client.surrogate_release.surrogate_release",
        lambda *_, **__: made._replace(release=planted),
    )
    with pytest.raises(InputError, match="Holds copies of real rows"):
        distill_file(folder / "all.csv", folder / "schema.json", folder / "s.parquet", CONFIG)
    assert not (folder / "s.parquet").exists()


def test_a_dask_cluster_of_two_processes_adds_up_the_same_sums(tables):
    import dask.dataframe
    from distributed import Client, LocalCluster

    table = make_table(600)
    frame = dask.dataframe.from_pandas(table, npartitions=5)
    empty = frame[frame["income"] < 5]  # some partitions may have no row then
    with (
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster,
        Client(cluster),
    ):
        made = sf.distill_table(sf.data.DaskBatches(frame, SCHEMA), SCHEMA, CONFIG)
        few = sf.data.DaskBatches(empty, SCHEMA).sum(len_of)
        with pytest.raises(InputError, match="the Dask table has no rows"):
            sf.data.DaskBatches(frame[frame["income"] < -1], SCHEMA).sum(len_of)
    whole = sf.distill_table(table, SCHEMA, CONFIG).release
    np.testing.assert_allclose(made.release.x, whole.x, atol=1e-6)
    np.testing.assert_allclose(made.release.weight, whole.weight)
    assert few == (table["income"] < 5).sum()


def len_of(rows):
    return len(rows.y)


def often(x):
    """Features in which five rows or more have another value than the most frequent one."""
    counts = [np.unique(np.rint(column * 2**16), return_counts=True)[1] for column in x.T]
    return np.array([len(x) - each.max() >= 5 for each in counts])


def covariance_of(x):
    return np.cov(x, rowvar=False, bias=True)


def test_a_small_cell_has_the_covariance_of_the_others():
    """Its own would fix the hull of its rows; an average with its own in it could be undone."""
    table, d = make_table(2400), len(SCHEMA.encoded_names)
    config = sf.SurrogateConfig(k_min=5, rows_per_cell=60, self_play=0, iterations=20)
    cell = table[(table["town"] == "a") & (table["paid"] == "no")]
    for n in (d + 1, 220):
        some = pd.concat([table[table["town"] == "b"], cell[:n]])
        made, real = sf.distill_table(some, SCHEMA, config).release, encode(cell[:n], SCHEMA)
        mine = {(s, y): (made.s == s) & (made.y == y) for s in (0, 1) for y in (-1, 1)}
        found = made.x[mine[0, -1]]
        own = often(real.x) & NUMBER
        means = found.mean(axis=0)[own], real.x.mean(axis=0)[own]
        np.testing.assert_allclose(*means, atol=GRID)
        if n == d + 1:
            weights = [made.weight[mine[1, y]].sum() for y in (-1, 1)]
            others = [covariance_of(made.x[mine[1, y]]) for y in (-1, 1)]
            average = np.average(others, axis=0, weights=weights)
            spread = found.std(axis=0)
            there = np.diag(average) > 1e-12
            scale = np.where(there, spread / np.sqrt(np.where(there, np.diag(average), 1.0)), 0.0)
            expected = average * np.outer(scale, scale)
            np.fill_diagonal(expected, spread**2)
            np.testing.assert_allclose(covariance_of(found), expected, atol=1e-7)
        else:
            pairs = np.ix_(own | ~NUMBER, own | ~NUMBER)
            off = np.abs(covariance_of(found) - covariance_of(real.x))[pairs]
            assert off.max() < 5 / n  # by rounding


def test_a_category_of_one_row_does_not_give_that_row_away():
    """Sums over the rows of a category, the second moments among them, would be that row."""
    table = make_table(1200)  # more than 200 rows in the cell, whose covariances are its own
    kind = next(n for n, c in SCHEMA.columns.items() if len(getattr(c, "categories", ())) > 2)
    common, rare = SCHEMA.columns[kind].categories[:2]
    table[kind] = common
    cell = (table["town"] == "a") & (table["paid"] == "no")
    made = []
    for one in table.index[cell][[7, 8]]:
        some = table.assign(**{kind: table[kind].where(table.index != one, rare)})
        made.append(sf.distill_table(some, SCHEMA, CONFIG).release)
    np.testing.assert_array_equal(made[0].x, made[1].x)  # whose category it is does not show
    inside = (made[0].s == 0) & (made[0].y < 0)
    column = SCHEMA.encoded_names.index(f"{kind}={rare}")
    assert made[0].x[inside, column].mean() == pytest.approx(0, abs=1e-6)  # nor that there is one


def test_what_is_refused_is_refused_before_it_is_booked(folder):
    few = sf.SurrogateConfig(epsilon=1.0, delta=1e-5, rows_per_cell=3)
    with pytest.raises(InputError, match="rows_per_cell = 3"):
        distill_file(folder / "all.csv", folder / "schema.json", folder / "p.parquet", few)
    assert not (folder / "all.csv.ledger.jsonl").exists()


def test_pairs_that_are_left_out_are_named_in_words_with_what_to_do():
    table = make_table(600)
    cell = table[(table["town"] == "a") & (table["paid"] == "no")]
    some = table.drop(index=cell.index[20:])
    config = CONFIG.model_copy(update={"k_min": 21})
    said = fit_warnings(sf.distill_table(some, SCHEMA, config))[0]
    assert "town=a with paid=no; each needs 21 rows (k_min). Lower k_min (--k-min" in said
    assert "another organisation" in said
    assert "merge small groups" in said
    private = CONFIG.model_copy(update={"epsilon": 50.0, "delta": 1e-3, "k_min": 60})
    made = sf.distill_table(some, SCHEMA, private)
    assert "town=a with paid=no; each needs 60 rows (k_min) and " in fit_warnings(made)[0]


def test_a_client_without_a_pair_is_told_the_rows_of_each_and_what_to_do():
    table = make_table(60)
    counts = table.groupby(["town", "paid"]).size()
    with pytest.raises(InputError) as caught:
        sf.distill_table(table, SCHEMA, sf.SurrogateConfig())
    said = str(caught.value)
    for (town, paid), n in counts.items():
        assert f"town={town} with paid={paid} has {n}" in said
    assert "the 50 rows that k_min asks for" in said
    assert "--k-min" in said
    assert "merge small groups" in said


def test_a_fair_release_that_is_worse_than_none_is_warned_of():
    from synthfair.client.baseline import Baseline

    made = sf.distill_table(make_table(), SCHEMA, sf.DistillConfig(n_synthetic=24, steps=400))
    worse = made._replace(baseline=Baseline(0.6, gap=0.4, majority=0.7, plain_gap=0.3))
    said = " ".join(fit_warnings(worse))
    assert "without a penalty it would be 0.300" in said
    assert "not above the 0.700 of the more frequent label" in said
    same = made._replace(baseline=Baseline(0.7, gap=0.0, majority=0.7, plain_gap=0.3))
    assert any("not above the 0.700" in warning for warning in fit_warnings(same))
    good = made._replace(baseline=Baseline(0.8, gap=0.1, majority=0.7, plain_gap=0.3))
    assert not any("label" in warning for warning in fit_warnings(good))


def test_a_penalty_under_which_all_get_one_decision_is_warned_of(folder):
    """Little but the town tells who pays. A large weight takes it away, and what is left is just
    short of the more frequent label, or that itself.
    """
    rng, table = np.random.default_rng(0), make_table(300)
    chance = np.where(table["town"] == "a", 0.95, 0.55)
    table.assign(paid=np.where(rng.random(300) < chance, "yes", "no")).to_csv(
        folder / "one.csv", index=False
    )
    config = sf.DistillConfig(n_synthetic=24, steps=200, rho_o=1e3)
    made, _ = distill_file(
        folder / "one.csv",
        folder / "schema.json",
        folder / "f.parquet",
        config,
        Options(accept_risk=True),
    )
    assert made.baseline.majority - 0.05 < made.baseline.accuracy <= made.baseline.majority
    assert any("of the more frequent label for everybody" in line for line in fit_warnings(made))


def test_noisy_sums_that_the_checks_refused_are_not_bought_again(folder, monkeypatch):
    """Their epsilon is spent: whoever accepts the risk then, or mends a setting, has them."""
    from synthfair.privacy import gate

    paths = folder / "all.csv", folder / "schema.json", folder / "s.parquet"
    config = sf.SurrogateConfig(epsilon=8.0, delta=1e-5, k_min=5, moments_only=True)
    with monkeypatch.context() as patched:
        patched.setattr(gate.Preview, "risks", ("Holds copies of real rows.",))
        said = "Holds copies.*Try a lower --rows-per-cell, or coarser columns.*--accept-risk"
        with pytest.raises(InputError, match=said):
            distill_file(*paths, config)
        bare = sf.SurrogateConfig(k_min=5, rows_per_cell=60, self_play=0, iterations=1)
        with pytest.raises(InputError, match="Try --moments-only, a lower --rows-per-cell, or"):
            distill_file(*paths, bare)
    assert len(list(folder.glob("*.fit"))) == 1
    other = config.model_copy(update={"rows_per_cell": 77})
    made, _ = distill_file(*paths, other)
    assert len(made.release.y) == 4 * 77
    assert Ledger.for_table(paths[0]).spent().releases == 1
    assert list(folder.glob("*.fit")) == []
    distill_file(folder / "all.csv", folder / "schema.json", folder / "t.parquet", config)
    assert Ledger.for_table(paths[0]).spent().releases == 2

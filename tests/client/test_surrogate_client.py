"""A client's surrogate: from tables, files, streams and a cluster, and what stops it."""

import numpy as np
import pytest
from builders import make_schema, make_table, unlike_tables

import synthfair as sf
from synthfair.client import distill_file, surrogate_task
from synthfair.data import batches
from synthfair.data.encode import encode, encode_records
from synthfair.errors import InputError
from synthfair.report.release_tables import fit_warnings

SCHEMA, CONFIG = make_schema(), sf.SurrogateConfig(k_min=5)


@pytest.fixture(scope="module")
def tables():
    return unlike_tables()


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "schema.json").write_text(SCHEMA.to_json())
    make_table(600).to_csv(tmp_path / "all.csv", index=False)
    return tmp_path


def cells(rows):
    """Which rows each pair of group and label has."""
    pairs = {(int(s), float(y)) for s, y in zip(rows.s, rows.y, strict=True)}
    return {pair: (rows.s == pair[0]) & (rows.y == pair[1]) for pair in sorted(pairs)}


def test_a_release_stands_for_the_clients_rows():
    """Numbers of rows and other sums are rounded to multiples of five, and nearly met."""
    for table in unlike_tables(3000).values():
        real, release = encode(table, SCHEMA), sf.distill_table(table, SCHEMA, CONFIG).release
        assert release.header.names == ("income", "age", "home")
        mine, theirs = cells(release), cells(real)
        assert set(mine) == {pair for pair, here in theirs.items() if here.sum() >= 5}
        x = encode_records(release.x, SCHEMA)
        for pair, here in mine.items():
            n, of = theirs[pair].sum(), theirs[pair]
            assert release.weight[here].sum() == pytest.approx(5 * np.rint(n / 5), rel=1e-3)
            off = release.weight[here] @ x[here] - real.x[of].sum(axis=0)
            assert np.abs(off).max() < 5 + 0.02 * n


def test_a_surrogate_takes_no_settings_of_training(tables):
    with pytest.raises(InputError, match="penalty, .*: not used for a surrogate"):
        sf.distill_table(tables["c0"], SCHEMA, CONFIG, penalty=sf.CovariancePenalty())


@pytest.mark.parametrize(("kept", "readings"), [(10_000, 1), (2000, 4)])
def test_a_stream_gives_the_release_of_a_table(folder, monkeypatch, kept, readings):
    """A folder of parts, CSV and Parquet; to the last bit. A small one is encoded once."""
    encoded, table = [], make_table(600)

    def noted(*args, **kwargs):
        encoded.append(1)
        return encode(*args, **kwargs)

    monkeypatch.setattr(surrogate_task, "MAX_KEPT_NUMBERS", kept)
    monkeypatch.setattr(batches, "encode", noted)
    parts = folder / "parts"
    parts.mkdir()
    table[:250].to_csv(parts / "a.csv", index=False)
    table[250:].to_parquet(parts / "b.parquet")
    made, _ = distill_file(parts, folder / "schema.json", folder / "s.parquet", CONFIG)
    assert len(encoded) == 2 * readings
    whole = sf.distill_table(table, SCHEMA, CONFIG).release
    np.testing.assert_array_equal(made.release.x, whole.x)
    np.testing.assert_array_equal(made.release.weight, whole.weight)


def dask_adds_up_the_same_sums():
    """Partitions' sums, by whatever scheduler is active, are those of the whole table."""
    import dask.dataframe

    table = make_table(600)
    frame = dask.dataframe.from_pandas(table, npartitions=5)
    empty = frame[frame["income"] < 5]  # some partitions may have no row then
    made = sf.distill_table(sf.data.DaskBatches(frame, SCHEMA), SCHEMA, CONFIG)
    few = sf.data.DaskBatches(empty, SCHEMA).sum(len_of)
    with pytest.raises(InputError, match="the Dask table has no rows"):
        sf.data.DaskBatches(frame[frame["income"] < -1], SCHEMA).sum(len_of)
    whole = sf.distill_table(table, SCHEMA, CONFIG).release
    np.testing.assert_array_equal(made.release.x, whole.x)
    np.testing.assert_array_equal(made.release.weight, whole.weight)
    assert few == (table["income"] < 5).sum()


def test_partitions_in_one_process_add_up_the_same_sums():
    import dask

    with dask.config.set(scheduler="synchronous"):
        dask_adds_up_the_same_sums()


@pytest.mark.slow
def test_a_dask_cluster_of_two_processes_adds_up_the_same_sums():
    from distributed import Client, LocalCluster

    with (
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster,
        Client(cluster),
    ):
        dask_adds_up_the_same_sums()


def len_of(rows):
    return len(rows.y)


def test_a_category_of_one_row_does_not_give_that_row_away():
    """Counts are multiples of five: neither whose category it is shows, nor that there is one.

    Weights may differ: averages over all rows may be another multiple of five.
    """
    table = make_table(1200).assign(home="own")
    cell = table.index[(table["town"] == "a") & (table["paid"] == "no")]
    made = []
    for changed in ([], [cell[7]], [cell[8]], [cell[7], cell[8]]):
        some = table.assign(home=table["home"].where(~table.index.isin(changed), "rent"))
        made.append(sf.distill_table(some, SCHEMA, CONFIG).release)
    for other in made[1:]:
        np.testing.assert_array_equal(other.x, made[0].x)
        assert not (other.x[:, 2] == 1).any()


def test_pairs_with_few_rows_are_named_in_words_with_what_to_do():
    table = make_table(600)
    cell = table[(table["town"] == "a") & (table["paid"] == "no")]
    some = table.drop(index=cell.index[20:])
    config = CONFIG.model_copy(update={"k_min": 21})
    said = fit_warnings(sf.distill_table(some, SCHEMA, config))[0]
    assert said.startswith("fewer than 21 rows (k_min): town=a with paid=no. The release has sums")
    assert "Lower k_min (at least 5" in said
    assert "another organisation" in said
    assert "merge small groups" in said
    private = sf.SurrogateConfig(epsilon=50.0, delta=1e-3, k_min=60)
    made = sf.distill_table(some, SCHEMA, private)
    said = fit_warnings(made)[0]
    assert said.startswith(
        "fewer than 60 rows (k_min), or noise hides how many: town=a with paid=no"
    )


def test_groups_that_are_left_out_are_named_in_words():
    table = make_table(600)
    few = table.drop(index=table.index[table["town"] == "a"][20:])
    (said,) = fit_warnings(sf.distill_table(few, SCHEMA, CONFIG.model_copy(update={"k_min": 21})))
    assert said.startswith("left out, so that a model will not know of them: town=a with paid=no")
    assert "each has fewer than 21 rows (k_min), or would tell" in said
    assert "Lower k_min (at least 5" in said


def test_a_client_without_a_pair_is_told_the_rows_of_each_and_what_to_do():
    table = make_table(60)
    counts = table.groupby(["town", "paid"]).size()
    with pytest.raises(InputError) as caught:
        sf.distill_table(table, SCHEMA, sf.SurrogateConfig())
    said = str(caught.value)
    for (town, paid), n in counts.items():
        assert f"town={town} with paid={paid} has {n}" in said
    assert "the 50 rows that k_min asks for" in said
    assert "k_min" in said
    assert "merge small groups" in said


def test_a_fair_release_that_is_worse_than_none_is_warned_of():
    from synthfair.client.fair_task import Baseline

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
    )
    assert made.baseline.majority - 0.05 < made.baseline.accuracy <= made.baseline.majority
    assert any("of the more frequent label for everybody" in line for line in fit_warnings(made))

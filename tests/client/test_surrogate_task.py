"""A client's surrogate: from tables, files, streams and a cluster, and what stops it."""

import numpy as np
import pytest
from builders import SCHEMA, make_table, unlike_tables

import synthfair as sf
from synthfair.client import distill_file, surrogate_task
from synthfair.client.page import Site
from synthfair.data import batches
from synthfair.data.encode import Clipping, encode, encode_records
from synthfair.errors import InputError
from synthfair.privacy.ledger import Ledger
from synthfair.report.release_tables import fit_warnings

CONFIG, TABLE = sf.SurrogateConfig(k_min=5), make_table(600)


def cells(rows):
    """Which rows each pair of group and label has."""
    pairs = {(int(s), float(y)) for s, y in zip(rows.s, rows.y, strict=True)}
    return {pair: (rows.s == pair[0]) & (rows.y == pair[1]) for pair in sorted(pairs)}


def require_same(one, other):
    np.testing.assert_array_equal([*one.x.T, one.weight], [*other.x.T, other.weight])


def test_surrogate_stands_for_the_clients_rows():
    """Numbers of rows and other sums are rounded to multiples of five, and nearly met."""
    for table in unlike_tables(3000).values():
        real, release = encode(table, SCHEMA), sf.distill_table(table, SCHEMA, CONFIG).release
        mine, theirs = cells(release), cells(real)
        assert set(mine) == {pair for pair, here in theirs.items() if here.sum() >= 5}
        x = encode_records(release.x, SCHEMA)
        for pair, here in mine.items():
            n, of = theirs[pair].sum(), theirs[pair]
            assert release.weight[here].sum() == pytest.approx(5 * np.rint(n / 5), rel=1e-3)
            off = release.weight[here] @ x[here] - real.x[of].sum(axis=0)
            assert np.abs(off).max() < 5 + 0.02 * n


@pytest.mark.parametrize(("kept", "readings"), [(10_000, 1), (2000, 4)])
def test_surrogate_of_a_stream_is_that_of_a_table(tmp_path, monkeypatch, kept, readings):
    """A folder of parts, CSV and Parquet; to the last bit. A small one is encoded once."""
    encoded, parts = [], tmp_path / "parts"

    def noted(*args, **kwargs):
        encoded.append(1)
        return encode(*args, **kwargs)

    monkeypatch.setattr(surrogate_task, "MAX_KEPT_NUMBERS", kept)
    monkeypatch.setattr(batches, "encode", noted)
    parts.mkdir()
    TABLE[:250].to_csv(parts / "a.csv", index=False)
    TABLE[250:].to_parquet(parts / "b.parquet")
    (tmp_path / "schema.json").write_text(SCHEMA.to_json())
    made, _ = distill_file(parts, tmp_path / "schema.json", tmp_path / "s.parquet", CONFIG)
    assert len(encoded) == 2 * readings
    require_same(made.release, sf.distill_table(TABLE, SCHEMA, CONFIG).release)
    TABLE.to_parquet(tmp_path / "whole.parquet")  # which is the same purchase
    sites = (Site(path, SCHEMA, Ledger(tmp_path)) for path in (parts, tmp_path / "whole.parquet"))
    one, other = (surrogate_task.read_plain(site, Clipping()).sha256 for site in sites)
    assert one == other


def len_of(rows):
    return len(rows.y)


SCHEDULERS = "synchronous", pytest.param("processes", marks=pytest.mark.slow)


@pytest.mark.parametrize("scheduler", SCHEDULERS)
def test_surrogate_of_dask_partitions_is_that_of_a_table(scheduler):
    import dask.dataframe

    frame = dask.dataframe.from_pandas(TABLE, npartitions=5)
    with dask.config.set(scheduler=scheduler):
        made = sf.distill_table(sf.data.DaskBatches(frame, SCHEMA), SCHEMA, CONFIG)
        require_same(made.release, sf.distill_table(TABLE, SCHEMA, CONFIG).release)
        few = sf.data.DaskBatches(frame[frame["income"] < 5], SCHEMA)  # some partitions: no row
        assert few.sum(len_of) == (TABLE["income"] < 5).sum()
        with pytest.raises(InputError, match="no rows"):
            sf.data.DaskBatches(frame[frame["income"] < -1], SCHEMA).sum(len_of)


def test_surrogate_does_not_give_away_a_category_of_one_row():
    """Counts are multiples of five: neither whose category it is shows, nor that there is one.

    Weights may differ: averages over all rows may be another multiple of five.
    """
    table = make_table(1200).assign(home="own")
    cell = table.index[(table["town"] == "a") & (table["paid"] == "no")]
    whole = sf.distill_table(table, SCHEMA, CONFIG).release
    for changed in ([cell[7]], [cell[8]], [cell[7], cell[8]]):
        some = table.assign(home=table["home"].where(~table.index.isin(changed), "rent"))
        np.testing.assert_array_equal(sf.distill_table(some, SCHEMA, CONFIG).release.x, whole.x)
    assert not (whole.x[:, 2] == 1).any()


PAIRS = "town=a with paid=no", "town=a with paid=yes"


@pytest.mark.parametrize(("labels", "k_min", "hidden", "left_out"), [
    (["no"], 20, (), ()), (["no"], 21, PAIRS[:1], ()),
    (["no", "yes"], 20, (), ()), (["no", "yes"], 21, (), PAIRS),
])  # fmt: skip
def test_surrogate_hides_a_pair_and_leaves_out_a_group_below_k_min(labels, k_min, hidden, left_out):
    """Of twenty rows; and says so, as no model of it can know them."""
    cells = TABLE[(TABLE["town"] == "a") & TABLE["paid"].isin(labels)].groupby("paid")
    some = TABLE.drop(index=np.concatenate([rows.index[20:] for _, rows in cells]))
    made = sf.distill_table(some, SCHEMA, sf.SurrogateConfig(k_min=k_min))
    assert (made.hidden, made.left_out) == (hidden, left_out)
    assert made.release.header.hides_pairs == bool(hidden)
    assert (0 in made.release.s) == (not left_out)
    said = fit_warnings(made)
    assert len(said) == bool(hidden or left_out)
    assert all(pair in each for each in said for pair in hidden + left_out)


def test_surrogate_of_too_few_rows_is_refused_with_the_rows_of_each_pair():
    table = make_table(60)
    with pytest.raises(InputError) as refused:
        sf.distill_table(table, SCHEMA, sf.SurrogateConfig())
    for (town, paid), n in table.groupby(["town", "paid"]).size().items():
        assert f"town={town} with paid={paid} has {n}" in str(refused.value)
    assert "k_min" in refused.value.arguments
    with pytest.raises(InputError, match="penalty"):
        sf.distill_table(TABLE, SCHEMA, CONFIG, penalty=sf.CovariancePenalty())

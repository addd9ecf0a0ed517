"""A cell that a large surrogate leaves out is estimated by its reader."""

import numpy as np
import pytest
from builders import make_schema, make_table

import synthfair as sf
from synthfair.data.encode import encode, encode_records
from synthfair.server.pooling import filled, make_pool, train_pool

SCHEMA, K_MIN = make_schema(), 50


def client(seed, lost=30, n=4000):
    """A table in which group b has few rows with "no", as many as would be left out."""
    table = make_table(2 * n, seed=seed)
    small, no = table["town"] == "b", table["paid"] == "no"
    keep = np.flatnonzero(~small)[: n - 280].tolist()
    keep += np.flatnonzero(small & no)[:lost].tolist() + np.flatnonzero(small & ~no)[:250].tolist()
    return table.iloc[keep].sample(frac=1, random_state=seed)


@pytest.fixture(scope="module")
def releases():
    config = sf.SurrogateConfig(k_min=K_MIN)
    return {f"c{i}": sf.distill_table(client(i), SCHEMA, config).release for i in range(2)}


def weight_of(release, group, label):
    return release.weight[(release.s == group) & (release.y == label)].sum()


def test_what_is_left_out_is_estimated_from_what_is_public(releases):
    release = releases["c0"]
    assert weight_of(release, 1, -1.0) == 0  # else there is nothing to estimate
    more, pairs = filled(release, SCHEMA)
    assert pairs == ((1, -1.0),)
    odds = weight_of(release, 0, -1.0) / weight_of(release, 0, 1.0)
    expected = min((K_MIN - 1) / 2, weight_of(release, 1, 1.0) * odds)
    assert weight_of(more, 1, -1.0) == pytest.approx(expected)
    # What was there stays; the new records are the group's own, with the other label.
    n = len(release.y)
    np.testing.assert_array_equal(more.x[:n], release.x)
    own = {row.tobytes() for row in release.x[release.s == 1]}
    assert {row.tobytes() for row in more.x[n:]} <= own
    assert (more.s[n:] == 1).all()
    # Those more like the other groups' "no" count more, up to 25 times as much as others.
    ratio = more.weight[n:] / release.weight[release.s == 1]
    assert 1.5 < ratio.max() / ratio.min() <= 25 + 1e-9


def test_the_records_are_more_like_those_who_are_missing(releases):
    """Nearer to the means of the 30 real rows than the group's own records are."""
    table, more = client(0), filled(releases["c0"], SCHEMA)[0]
    real = encode(table, SCHEMA)
    few = real.x[(real.s == 1) & (real.y < 0)].mean(axis=0)
    n, wide = len(releases["c0"].y), encode_records(more.x, SCHEMA)
    own = more.s[:n] == 1
    estimated = np.average(wide[n:], axis=0, weights=more.weight[n:])
    before = np.average(wide[:n][own], axis=0, weights=more.weight[:n][own])
    assert np.linalg.norm(estimated - few) < np.linalg.norm(before - few)


def test_the_model_is_no_longer_certain_of_a_group(releases):
    test = encode(client(9, lost=60, n=4000), SCHEMA)
    small = test.s == 1

    def loss(pooled):
        model, _ = train_pool(pooled, SCHEMA)
        z = test.y[small] * model.scores(test.x[small], test.s[small])
        return np.logaddexp(0, -z).mean()

    config = sf.ServerConfig(rho=0.0, group_input=True)
    full = make_pool(releases, SCHEMA, config)
    assert set(full.estimated) == {"c0", "c1"}
    weight = np.array(full.rows.weight)
    for name, one in releases.items():
        weight[full.parts[name]][len(one.y) :] = 0.0  # a view: the estimates come last
    without = full._replace(rows=full.rows._replace(weight=weight))
    assert loss(full) < loss(without) - 0.1


def test_gaps_by_label_do_not_compare_what_is_estimated(releases):
    config = sf.ServerConfig(notion="equalized_odds", rho=1.0)
    with pytest.raises(sf.InputError, match="fewer than two have rows"):
        make_pool(releases, SCHEMA, config)
    whole = sf.distill_table(make_table(4000, seed=5), SCHEMA, sf.SurrogateConfig(k_min=5)).release
    pooled = make_pool({**releases, "c2": whole}, SCHEMA, config)
    made_up = ~pooled.is_known
    assert (np.asarray(pooled.rows.s)[made_up] == 1).all()
    assert (np.asarray(pooled.rows.y)[made_up] == -1).all()
    assert np.asarray(pooled.rows.weight)[made_up].sum() == pytest.approx(
        sum(weight_of(filled(one, SCHEMA)[0], 1, -1.0) for one in releases.values())
    )


def test_other_learners_have_the_estimates_too(releases):
    records, weights = sf.pool_records(releases, SCHEMA)
    few = (records["town"] == "b") & (records["paid"] == "no")
    assert weights[few].sum() > 0


def test_private_and_whole_releases_stay_as_they_are(releases):
    private = sf.SurrogateConfig(k_min=5, epsilon=8.0, delta=1e-5)
    release = sf.distill_table(make_table(600), SCHEMA, private).release
    assert filled(release, SCHEMA) == (release, ())
    whole = sf.distill_table(make_table(600), SCHEMA, sf.SurrogateConfig(k_min=5)).release
    assert filled(whole, SCHEMA) == (whole, ())
    only = sf.distill_table(
        make_table(600).query("town == 'b' and paid == 'yes'"), SCHEMA, sf.SurrogateConfig(k_min=5)
    ).release
    assert filled(only, SCHEMA) == (only, ())  # nobody says how labels go with columns

"""How good a release is on the rows for which it stands."""

from dataclasses import replace

import numpy as np
import pytest
from builders import SCHEMA, TABLE, make_table, some_release, with_column
from exported import additive
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss

import synthfair as sf
from synthfair.cli import main
from synthfair.client.quality import release_quality
from synthfair.data.encode import encode
from synthfair.errors import InputError


@pytest.fixture(scope="module")
def surrogate():
    return sf.distill_table(TABLE, SCHEMA, sf.SurrogateConfig(k_min=5)).release


def test_quality_by_column_is_the_share_of_rows_elsewhere(surrogate):
    quality = release_quality(surrogate, TABLE, SCHEMA)
    assert max(quality.distances.values()) < 0.1
    home = TABLE["home"].value_counts(dropna=False, normalize=True)
    np.testing.assert_allclose(quality.columns["home"][0], home[["own", "rent", "other", None]])
    assert all(np.allclose(shares.sum(axis=1), 1) for shares in quality.columns.values())
    grown = with_column(SCHEMA, "home", categories=("parents", "own", "rent", "other"))
    assert max(release_quality(surrogate, TABLE, grown).distances.values()) < 0.1
    moved = TABLE.assign(home="own", age=np.nan, income=TABLE["income"] / 2)
    distances = release_quality(surrogate, moved, SCHEMA).distances
    assert distances["home"] == pytest.approx(1 - home["own"], abs=0.03)
    assert distances["age"] > 0.8
    assert distances["income"] == pytest.approx(0.5, abs=0.07)


def test_quality_by_column_of_two_categories_has_both():
    table = TABLE.assign(home=TABLE["home"].replace("other", "rent"))
    schema = with_column(SCHEMA, "home", categories=("own", "rent"))
    release = sf.distill_table(table, schema, sf.SurrogateConfig(k_min=5)).release
    home = table["home"].value_counts(dropna=False, normalize=True)
    shares = release_quality(release, table, schema).columns["home"]
    np.testing.assert_allclose(shares[0], home[["own", "rent", None]])


def test_quality_counts_a_record_by_its_weight(surrogate):
    owns = surrogate.x[:, [*SCHEMA.features].index("home")] == 0
    weighted = replace(surrogate, weight=np.where(owns, surrogate.weight, 0.0))
    _, shares = release_quality(weighted, TABLE, SCHEMA).columns["home"]
    np.testing.assert_allclose(shares, [1, 0, 0, 0], atol=1e-12)


def test_quality_of_the_model_is_loss_and_gap_beside_those_of_the_rows(surrogate):
    quality = release_quality(surrogate, TABLE, SCHEMA)
    x, s, y = encode(TABLE, SCHEMA)
    scores = LogisticRegression(tol=1e-8, max_iter=1000).fit(x, y).decision_function(x)
    assert quality.real.loss == pytest.approx(np.logaddexp(0, -y * scores).mean(), rel=1e-4)
    gap = np.mean(scores[s == 1] > 0) - np.mean(scores[s == 0] > 0)
    right = np.mean((scores > 0) == (y > 0))
    assert tuple(quality.real[1:]) == pytest.approx((right, gap), abs=0.01)
    assert quality.real.loss <= quality.released.loss < 1.05 * quality.real.loss
    assert quality.constant == pytest.approx(log_loss(y, np.full(len(y), np.mean(y > 0))))
    assert 0.9 < quality.learned <= 1
    plain = sf.pool_and_train({"only": surrogate}, SCHEMA, sf.ServerConfig(rho=0.0))
    loss = np.logaddexp(0, -y * plain.scores(x, s)).mean()
    assert quality.released.loss == pytest.approx(loss, rel=1e-6)
    np.testing.assert_allclose(quality.columns["town"][0], np.bincount(s) / len(s))


def test_quality_of_a_fair_release_is_that_of_its_model_alone(fair_release):
    quality = release_quality(fair_release, TABLE, SCHEMA)
    assert quality.columns == {}
    assert abs(quality.released.gap) < abs(quality.real.gap)


def test_quality_of_another_schema_is_refused():
    with pytest.raises(InputError, match="release"):
        release_quality(some_release(), make_table(30, n_groups=3), additive())


def test_quality_by_command_is_printed_and_drawn(surrogate, paths, tmp_path, capsys):
    pytest.importorskip("matplotlib")
    sf.write_release(surrogate, paths[2])
    argv = ["inspect", str(paths[2]), "--data", str(paths[0])]
    assert main(argv) == 2
    assert main([*argv, "--schema", str(paths[1]), "--plot", f"{tmp_path}/plot.svg"]) == 0
    quality = release_quality(surrogate, TABLE, SCHEMA)
    assert f"learns {100 * quality.learned:.0f} %" in " ".join(capsys.readouterr().out.split())
    assert "income" in (tmp_path / "plot.svg").read_text()

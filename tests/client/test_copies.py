"""A fair release without epsilon holds no real row, and real labels only where they are asked for."""

from types import SimpleNamespace

import numpy as np
import pytest
from builders import make_schema, make_table
from scipy.spatial import KDTree
from small_problem import start_at_rows

import synthfair as sf
from synthfair.cli import main
from synthfair.client.fair_task import check_copies
from synthfair.data.encode import Encoded, encode, in_content_order
from synthfair.errors import InputError
from synthfair.privacy.guarantee import FEATURE_GRID
from synthfair.privacy.ledger import Ledger
from synthfair.release.format import Release, make_header
from synthfair.task.protocol import ReadRows, Run

SCHEMA = make_schema()
ROWS = encode(make_table(700), SCHEMA)


def checked(x, y=None, *, rows=ROWS, **settings):
    """Check a release of these features on the grid, as the client makes them."""
    config = sf.DistillConfig(**settings)
    header = make_header(config, SCHEMA, model=sf.LinearModel(), penalty=sf.CovariancePenalty())
    y = np.random.default_rng(1).choice([-1.0, 1.0], len(x)) if y is None else y
    release = Release(header, np.rint(x / FEATURE_GRID) * FEATURE_GRID, np.zeros(len(x), int), y)
    made = SimpleNamespace(release=release, config=config)
    check_copies(made, ReadRows(in_content_order(rows), ""), Run("out.parquet"))


def uniform(n=200, seed=0, d=ROWS.x.shape[1]):
    return np.random.default_rng(seed).uniform(size=(n, d))


def test_each_copy_is_counted_wherever_it_is():
    x = uniform()
    checked(x)
    x[[0, 199]] = ROWS.x[[699, 3]]
    with pytest.raises(InputError, match="out.parquet: not written: 2 of 200 .* a lower n_synth"):
        checked(x)
    x[0, 0] += 1e-3
    with pytest.raises(InputError, match="1 of 200 .* Try a lower"):
        checked(x)


def test_with_one_feature_equal_rows_are_chance():
    """2^12 values on the grid, and 700 real ones: noise meets them, and that is no copy."""
    one = Encoded(uniform(700, d=1), ROWS.s, ROWS.y)
    checked(uniform(200, 1, d=1), rows=one)
    with pytest.raises(InputError, match="150 of 150"):
        checked(one.x[:150], rows=one)


def test_real_labels_in_order_are_refused_unless_they_are_asked_for():
    real = in_content_order(ROWS)
    with pytest.raises(InputError, match="it holds the labels of the real rows, in order"):
        checked(uniform(700), real.y)
    checked(uniform(700), real.y, labels="copy")


def test_rows_drawn_at_random_are_as_far_away_as_distilled_ones():
    """A distance to the closest real row says nothing of what a release gives away."""
    far = KDTree(ROWS.x).query(uniform())[0].min()
    config = sf.DistillConfig(n_synthetic=200, steps=20)
    made = sf.distill_table(make_table(700), SCHEMA, config).release
    assert far > 0.8 * KDTree(ROWS.x).query(made.x)[0].min()


def test_a_release_with_copies_is_not_written_nor_booked(tmp_path, capsys, monkeypatch):
    make_table(300).to_csv(tmp_path / "rows.csv", index=False)
    (tmp_path / "schema.json").write_text(SCHEMA.to_json())
    (tmp_path / "still.toml").write_text("n_synthetic = 24\nlearning_rate = 1e-9")
    argv = ["client", "--data", f"{tmp_path}/rows.csv", "--schema", f"{tmp_path}/schema.json"]
    argv += ["--output", f"{tmp_path}/out.parquet", "--steps", "20", "--without-epsilon"]
    argv += ["--config", f"{tmp_path}/still.toml"]
    with monkeypatch.context() as patch:
        start_at_rows(patch)
        assert main(argv) == 2
    assert "24 of 24 synthetic rows are copies" in " ".join(capsys.readouterr().err.split())
    ledger = Ledger.for_table(tmp_path / "rows.csv")
    assert not (tmp_path / "out.parquet").exists()
    assert not ledger.path.exists()
    assert main(argv) == 0
    assert (ledger.spent().releases, ledger.spent().composition) == (1, None)

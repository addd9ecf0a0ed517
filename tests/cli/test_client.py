"""``client`` on fair releases: what it says of convergence and gaps."""

import pytest
from builders import SCHEMA, make_table

from synthfair.cli import main


@pytest.fixture
def release(tmp_path, monkeypatch):
    """A function that makes a fair release with these settings."""
    monkeypatch.chdir(tmp_path)
    make_table().to_csv("rows.csv", index=False)
    (tmp_path / "schema.json").write_text(SCHEMA.to_json())

    def make(*flags, **settings):
        settings = {"n_synthetic": 24, "steps": 60} | settings
        lines = (f"{key} = {value}" for key, value in settings.items())
        (tmp_path / "settings.toml").write_text("\n".join(lines))
        words = "client --data rows.csv --schema schema.json --config settings.toml --again --force"
        return main([*words.split(), "--output", "r.parquet", *flags])

    return make


@pytest.mark.parametrize(("settings", "warned"), [
    ({"steps": 600}, None),
    ({"inner_tolerance": 1e-30}, "inner problem did not converge"),
    ({"rho_o": 1000}, "outer problem did not converge"),
])  # fmt: skip
def test_release_that_did_not_converge_is_warned_of(release, capsys, settings, warned):
    assert release(**settings) == 0
    said = capsys.readouterr()
    assert ("NOT CONVERGED" in said.out) is (warned is not None)
    assert (warned or "") in " ".join(said.err.split())
    assert ("did not converge" in said.err) is (warned is not None)


@pytest.mark.parametrize(("gap", "met"), [("0.2", True), ("1e-6", False)])
def test_release_with_max_gap_says_whether_it_was_met(release, capsys, gap, met):
    assert release("--penalty", "covariance", "--steps", "300", "--max-gap", gap) == 0
    said = capsys.readouterr()
    assert ("NOT MET" in said.out) is not met
    assert ("before a gap of" in " ".join(said.err.split())) is not met

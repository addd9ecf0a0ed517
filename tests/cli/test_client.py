"""``client`` on fair releases: what it says of convergence and gaps."""

import pytest
from builders import SCHEMA, make_table

from synthfair.cli import main


@pytest.fixture
def said(tmp_path, monkeypatch, capsys):
    """A function that makes a fair release, and returns output and errors."""
    monkeypatch.chdir(tmp_path)
    make_table().to_csv("rows.csv", index=False)
    (tmp_path / "schema.json").write_text(SCHEMA.to_json())

    def make(flags, settings=""):
        (tmp_path / "c.toml").write_text(f"n_synthetic = 24\n{settings}")
        words = f"client --data rows.csv --schema schema.json --config c.toml --output r {flags}"
        assert main(words.split()) == 0
        return (" ".join(text.split()) for text in capsys.readouterr())

    return make


@pytest.mark.parametrize(("flags", "settings", "warned"), [
    ("--steps 600", "", ""), ("--steps 60", "inner_tolerance = 1e-30", "inner problem "),
    ("--steps 60 --rho-o 1000", "", "outer problem "),
])  # fmt: skip
def test_release_that_did_not_converge_is_warned_of(said, flags, settings, warned):
    out, error = said(flags, settings)
    assert (
        (f"{warned}NOT CONVERGED" in out)
        is (f"{warned}did not converge" in error)
        is (warned != "")
    )


@pytest.mark.parametrize(("gap", "met"), [("0.2", True), ("1e-6", False)])
def test_release_with_max_gap_says_whether_it_was_met(said, gap, met):
    out, error = said(f"--penalty covariance --steps 300 --max-gap {gap}")
    assert ("NOT MET" in out) is ("before a gap of" in error) is not met

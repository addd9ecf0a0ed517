"""python -m synthfair train."""

import numpy as np
import pandas as pd
import pytest
from builders import make_schema, make_table

from synthfair.cli import main
from synthfair.privacy.ledger import Ledger
from synthfair.trained import read_model, write_model


class TestCommand:
    @pytest.fixture
    def there(self, tmp_path):
        table = make_table(200).assign(who=np.arange(200) // 3)
        schema = make_schema().model_copy(update={"ignored": ("who",)})
        table.to_csv(tmp_path / "t.csv", index=False)
        (tmp_path / "schema.json").write_text(schema.to_json())
        return tmp_path

    def args(self, there, *more):
        return ["train", str(there / "t.csv"), "--schema", str(there / "schema.json"),
                "--rounds", "12", "--output", str(there / "out"), *more]  # fmt: skip

    def test_a_condition_is_shown_with_the_epsilon(self, there, capsys):
        more = ["--method", "two_phase", "--batch", "80", "--rounds", "2", "--clip", "1",
                "--epsilon", "2", "--delta", "1e-3"]  # fmt: skip
        assert main(self.args(there, *more)) == 0
        assert "Conditional on the phase-1 teacher" in capsys.readouterr().out

    def test_from_a_file_with_named_users_and_nothing_is_overwritten(self, there, capsys):
        args = self.args(there, "--user-column", "who", "--hidden", "3")
        assert main(args) == 0
        said = " ".join(capsys.readouterr().out.split())
        assert "rounds 12" in said
        assert "rates of town=a and town=b differ by 0." in said
        following = f"Next: python -m synthfair report {there}/out --output {there}/out/report.html"
        assert said.endswith(f"rounds.csv. {following}")
        assert len(read_model(there / "out" / "model.json").hidden) == 1
        assert Ledger(there / "t.csv.ledger.jsonl").spent().releases == 1
        assert main(args) == 2
        assert "exists" in capsys.readouterr().err

    def test_refine_goes_on_from_a_model(self, there, capsys):
        more = ["--method", "refine", "--rounds", "2", "--clients", "3", "--test"]
        more += [str(there / "t.csv"), "--rho", "5"]
        assert main(self.args(there, *more)) == 0
        said = capsys.readouterr()
        assert "refine has not come to the optimum" in said.err
        first = read_model(there / "out" / "model.json")
        start = ["--start", str(there / "out" / "model.json"), "--force", "--again"]
        assert main(self.args(there, *more, *start, "--rounds", "8")) == 0
        assert "refine has not come" not in capsys.readouterr().err
        assert read_model(there / "out" / "model.json").converged
        record = pd.read_csv(there / "out" / "rounds.csv")
        assert record["step"][0] == 0  # the first exchange is at the start
        assert record["objective"].is_monotonic_decreasing
        # It reads no file of another schema.
        other = make_schema().model_copy(update={"ignored": ("who",), "name": "other"})
        write_model(first.model_copy(update={"schema_": other}), there / "other.json")
        assert main(self.args(there, *more, "--start", str(there / "other.json"), "--force")) == 2
        assert "must be a linear model of this schema" in " ".join(capsys.readouterr().err.split())

    @pytest.mark.parametrize(
        ("more", "complaint"),
        [
            (["--clients", "2", "--rows-per-user", "3"], "give one of"),
            (["--published-split"], "for named tables"),
            (["--alpha", "-1"], "alpha"),
            (["--cohort", "5"], "cohort = 5: must be 1 to 2"),
            (["--insecure-noise-seed", "-1"], "noise seed = -1: must be 0 to"),
            (["--also", "age"], "sensitive attribute 'age'"),
            (
                ["--method", "fedavg", "--alpha", "0.1", "--kappa", "2"],
                "alpha, kappa: not read by fedavg",
            ),
            (["--method", "fair_sgd", "--clip", "1"], "clip: not read by fair_sgd"),
            (["--method", "dp_sgd", "--secure"], "secure: not read by dp_sgd"),
            (
                ["--rows-per-user", "2", "--clip", "1", "--epsilon", "2", "--delta", "0.5"],
                "delta = 0.5: must be below 1 /",
            ),
        ],
    )
    def test_what_cannot_be_is_refused(self, there, more, complaint, capsys):
        assert main(self.args(there, *more)) == 2
        assert complaint in capsys.readouterr().err
        assert not (there / "out" / "model.json").exists()

    def test_unknown_tables_are_refused(self, tmp_path, capsys):
        assert main(["train", "nowhere", "--output", str(tmp_path / "o")]) == 2
        assert "must be one of loanapp" in capsys.readouterr().err

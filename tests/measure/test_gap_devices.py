"""Reports of persons from a model, the commands that measure gaps, and the report page."""

import html
import json
import shutil

import numpy as np
import pandas as pd
import pytest
from builders import make_schema, make_table
from report_runs import write_run

from synthfair.cli import main
from synthfair.errors import InputError
from synthfair.evaluation import pooled_scores, read_tests
from synthfair.fairness.metrics import Scored, group_rates
from synthfair.measure.collection import (
    NO_VALUE,
    Collection,
    make_collection,
    perturb_rates,
    perturb_records,
)
from synthfair.measure.mechanisms import RandomizedValue
from synthfair.privacy.noise import seeded
from synthfair.report.page import write_report
from synthfair.report.results import read_results
from synthfair.trained import TrainedModel, input_names, read_model, write_model

ALMOST_OPEN = make_collection(("a", "b", NO_VALUE), RandomizedValue(3, 28.0, 28.0))
"""So large an epsilon that no report is noisy, but for one in a million million."""


def three_rows():
    """A hit, a miss, and a row with the other label."""
    return Scored(np.array([1.0, 1.0, -1.0]), np.array([2.0, -2.0, 2.0]), np.array([0, 1, 1]))


def sent(reports):
    """Group and value of each report; they come in random order."""
    return sorted((report.group, report.value) for report in reports)


def test_a_row_is_a_person_whose_rate_is_reported():
    found = sent(perturb_rates(ALMOST_OPEN, three_rows(), ("a", "b"), "true_positive_rate"))
    assert found[0][0] == NO_VALUE
    assert found[1:] == [("a", 1.0), ("b", -1.0)]
    other = sent(perturb_rates(ALMOST_OPEN, three_rows(), ("a", "b"), "false_positive_rate"))
    assert [group for group, _ in other] == [NO_VALUE, NO_VALUE, "b"]
    assert other[2][1] == 1.0


def test_rows_of_one_person_are_reported_as_their_rate():
    rows = Scored(np.ones(4), np.array([1.0, -1.0, 1.0, 1.0]), np.ones(4, int))
    reports = [
        perturb_rates(ALMOST_OPEN, rows, ("a", "b"), "true_positive_rate", together=True,
                      source=seeded(seed))
        for seed in range(1000)
    ]  # fmt: skip
    assert {len(one) for one in reports} == {1}
    assert {one[0].group for one in reports} == {"b"}
    # 0.75 of the range: v = 0.5; 4.5 standard errors.
    assert np.mean([one[0].value for one in reports]) == pytest.approx(0.5, abs=4.5 * 0.87 / 31.6)


def test_no_rows_and_several_groups_together_are_refused():
    nobody = Scored(*(part[:0] for part in three_rows()[:3]))
    for rows, said in ((nobody, "rows: none"), (three_rows(), "row 2: another group than row 1")):
        with pytest.raises(InputError, match=said):
            perturb_rates(ALMOST_OPEN, rows, ("a", "b"), "true_positive_rate", together=True)


@pytest.fixture
def run_folder(tmp_path):
    return write_run(tmp_path / "run")


@pytest.fixture
def aggregated(tmp_path):
    """A gaps.json of gap aggregate."""
    flags = [str(tmp_path / name) for name in ("g.json", "r.csv", "gaps.json")]
    plan = ["--groups", "a", "b", "--epsilon", "6", "--clients", "99", "--output"]
    assert main(["gap", "plan", *plan, flags[0]]) == 0
    values = [0.9] * 500 + [0.4] * 500
    reports = perturb_records(Collection.read(tmp_path / "g.json"), ["a", "b"] * 500, values)
    pd.DataFrame(reports).to_csv(flags[1], index=False)
    assert main(["gap", "aggregate", *flags[:2], "--output", flags[2]]) == 0
    return tmp_path / "gaps.json"


def shown_on_the_page(gaps, folder):
    shutil.copy(gaps, folder / "gaps.json")
    write_report(folder, folder / "r.html")
    return html.unescape((folder / "r.html").read_text())


def test_the_page_shows_gaps_of_reports(aggregated, run_folder):
    page = shown_on_the_page(aggregated, run_folder)
    (gap,) = json.loads(aggregated.read_text())["gaps"]
    assert "1,000 reports, epsilon = 6 each" in page
    assert "Each client has sent one report" in page
    for key in ("value", "low", "high"):
        assert f"{gap[key]:z.4f}" in page


def test_gaps_alone_have_a_page(aggregated, tmp_path):
    (tmp_path / "measured").mkdir()
    shutil.copy(aggregated, tmp_path / "measured")
    page = tmp_path / "r.html"
    assert main(["report", str(tmp_path / "measured"), "--output", str(page)]) == 0
    text = html.unescape(page.read_text())
    for words in ("Measurement measured", "1,000 reports, epsilon = 6 each"):
        assert words in text
    for words in ("This run", "fair enough", "None"):
        assert words not in text


def test_gaps_alone_stand_beside_runs(aggregated, run_folder, tmp_path):
    (tmp_path / "measured").mkdir()
    shutil.copy(aggregated, tmp_path / "measured")
    write_report([run_folder, tmp_path / "measured"], tmp_path / "r.html")
    text = (tmp_path / "r.html").read_text()
    assert "This run" in text
    assert text.count("Gaps measured in private</h3>") == 1


def test_the_page_warns_of_reports_that_contradict_their_plan(aggregated, run_folder):
    document = json.loads(aggregated.read_text()) | {"warnings": ["a: the reports imply a share"]}
    aggregated.write_text(json.dumps(document))
    page = shown_on_the_page(aggregated, run_folder)
    assert "a: the reports imply a share. The reports contradict the public file" in page


def test_the_page_without_them_has_no_such_section(run_folder, tmp_path):
    write_report(run_folder, tmp_path / "r.html")
    assert "measured in private" not in (tmp_path / "r.html").read_text()


@pytest.mark.parametrize("changes", [{"epsilon": -1}, {"gaps": []}, {"mystery": 1}])
def test_gaps_that_no_measurement_writes_are_refused(aggregated, run_folder, changes):
    document = json.loads(aggregated.read_text()) | changes
    (run_folder / "gaps.json").write_text(json.dumps(document))
    with pytest.raises(InputError, match="gaps.json"):
        read_results([run_folder])


def test_the_page_does_not_overwrite_them(aggregated, run_folder):
    shutil.copy(aggregated, run_folder)
    with pytest.raises(InputError, match="named twice"):
        write_report(run_folder, run_folder / "gaps.json", force=True)


class TestCommands:
    @pytest.fixture
    def gap_file(self, tmp_path):
        path = tmp_path / "gap.json"
        flags = ["--groups", "f", "m", "--epsilon", "2", "--clients", "1000"]
        assert main(["gap", "plan", *flags, "--output", str(path)]) == 0
        return path

    @pytest.mark.parametrize("header", [["--header"], []])
    def test_from_plan_to_gap(self, gap_file, header, tmp_path, capsys):
        capsys.readouterr()
        for i in range(12):
            flags = ["--group", "fm"[i % 2], "--value", "0.5"] + (header if i == 0 else [])
            assert main(["gap", "perturb", str(gap_file), *flags]) == 0
        mark = Collection.read(gap_file).fingerprint
        (tmp_path / "r.csv").write_text(f"{capsys.readouterr().out}{'0' * 32},{mark},f,3\n")
        out = tmp_path / "found.json"
        flags = [str(gap_file), str(tmp_path / "r.csv"), "--output", str(out)]
        assert main(["gap", "aggregate", *flags]) == 0
        said = capsys.readouterr()
        assert "row 13" in " ".join(said.err.split())
        assert "groups with fewer than 100 reports: f (" in said.err
        document = json.loads(out.read_text())
        assert [group["name"] for group in document["groups"]] == ["f", "m"]
        for group in document["groups"]:
            # Of so few, the estimated number of a group's reports may be 0: then there is no mean.
            mean = group["low"] if group["mean"] is None else group["mean"]
            assert group["low"] <= min(max(mean, 0), 1) <= group["high"]
        assert document["reports"] == 12
        assert document["rejected"]["value not possible"] == 1
        assert [gap["first"] + gap["second"] for gap in document["gaps"]] == ["fm"]

    def test_flags_are_checked_before_reports_are_read(self, gap_file, capsys):
        assert main(["gap", "aggregate", str(gap_file), "nowhere.csv", "--confidence", "1"]) == 2
        assert "confidence = 1" in capsys.readouterr().err

    def test_of_hundreds_of_groups_not_every_gap_is_printed(self, tmp_path, capsys):
        path, names = tmp_path / "g.json", [f"g{i}" for i in range(30)]
        flags = ["--epsilon", "8", "--clients", "1000", "--output", str(path)]
        assert main(["gap", "plan", "--groups", *names, *flags]) == 0
        reports = perturb_records(Collection.read(path), names * 10, [0.5] * 300)
        pd.DataFrame(reports).to_csv(tmp_path / "r.csv", index=False)
        capsys.readouterr()
        out = tmp_path / "out.json"
        flags = [str(tmp_path / "r.csv"), "--output", str(out)]
        assert main(["gap", "aggregate", str(path), *flags]) == 0
        said = capsys.readouterr().out
        assert "The first 300 of 435." in " ".join(said.split())
        assert len(said.splitlines()) < 500
        assert len(json.loads(out.read_text())["gaps"]) == 435

    @pytest.fixture
    def model(self, tmp_path):
        """A folder with a model and a table."""
        schema = make_schema()
        names = input_names(schema, intercept=True)
        theta = (*(1.0 if name == "income" else 0.0 for name in names[:-1]), -0.5)
        model = TrainedModel(
            schema=schema, version="0", loss="logistic", intercept=True, inputs=names, theta=theta,
            gradient_norm=0.0, converged=True,
        )  # fmt: skip
        write_model(model, tmp_path / "model.json")
        table = pd.concat([make_table(2000, seed) for seed in range(2)])
        table.to_csv(tmp_path / "t.csv", index=False)
        return tmp_path

    def perturb_table(self, folder, *flags):
        own = ["--model", folder / "model.json", "--table", folder / "t.csv"]
        own += ["--rate", "true_positive_rate", *flags]
        return main(["gap", "perturb", *map(str, [folder / "rates.json", *own])])

    def plan_rates(self, folder):
        groups = [*map(str, make_schema().groups), NO_VALUE]
        flags = ["--epsilon", "8", "--clients", "4000", "--output", str(folder / "rates.json")]
        assert main(["gap", "plan", "--groups", *groups, *flags]) == 0

    def test_a_table_of_persons_is_one_report_each_and_gives_the_gap(self, model, capsys):
        self.plan_rates(model)
        capsys.readouterr()
        assert self.perturb_table(model, "--header") == 0
        (model / "r.csv").write_text(capsys.readouterr().out)
        flags = [str(model / name) for name in ("rates.json", "r.csv")]
        assert main(["gap", "aggregate", *flags, "--output", str(model / "o.json")]) == 0
        document = json.loads((model / "o.json").read_text())
        assert document["reports"] == 4000
        # What persons without a rate report in its place is no rate, and nothing is compared to it.
        assert [gap["second"] for gap in document["gaps"]] == [str(make_schema().groups[1])]
        assert document["groups"][2]["name"] == NO_VALUE
        assert document["groups"][2]["mean"] is None
        trained = read_model(model / "model.json")
        tests = read_tests([model / "t.csv"], trained.schema_)
        rates = [r.true_positive_rate for r in group_rates(pooled_scores(trained, tests))]
        for group, rate in zip(document["groups"][:2], rates, strict=True):
            width = group["high"] - group["low"]
            assert group["low"] - width < rate < group["high"] + width
            assert width < 0.3

    def test_rows_of_one_person_are_one_report(self, model, capsys):
        self.plan_rates(model)
        table = make_table(50, 0)
        column = make_schema().sensitive
        table[table[column] == table[column].iloc[0]].to_csv(model / "t.csv", index=False)
        capsys.readouterr()
        assert self.perturb_table(model, "--one-person") == 0
        assert len(capsys.readouterr().out.splitlines()) == 1

    def test_one_person_has_one_group(self, model, capsys):
        self.plan_rates(model)
        capsys.readouterr()
        assert self.perturb_table(model, "--one-person") == 2
        said = capsys.readouterr()
        assert "another group than row 1" in said.err
        assert not said.out

    def test_rates_need_a_group_for_persons_without_one(self, model, gap_file, capsys):
        gap_file.rename(model / "rates.json")
        assert self.perturb_table(model) == 2
        assert "(no value)" in capsys.readouterr().err

    def test_a_record_with_laplace_noise(self, tmp_path, capsys):
        path = str(tmp_path / "l.json")
        flags = ["--groups", "f", "m", "--epsilon", "2", "--clients", "1000", "--output", path]
        assert main(["gap", "plan", *flags, "--mechanism", "laplace"]) == 0
        assert main(["gap", "perturb", path, "--group", "f", "--value", "0.5"]) == 0
        assert not capsys.readouterr().err

    @pytest.mark.parametrize(
        ("flags", "said"),
        [
            (["plan", "--groups", "f", "m", "--epsilon", "1"], "give two of"),
            (["plan", "--groups", "f", "--epsilon", "1", "--clients", "9"], "groups"),
            (["perturb", "nowhere.json", "--group", "f"], "belong together"),
            (
                ["perturb", "nowhere.json", "--model", "m.json"],
                "model, table and rate belong together",
            ),
            (["perturb", "nowhere.json", "--one-person"], "one-person needs them"),
            (["aggregate", "nowhere.json", "r.csv"], "nowhere.json: cannot read"),
        ],
    )
    def test_wrong_use_is_explained(self, flags, said, capsys):
        assert main(["gap", *flags]) == 2
        assert said in capsys.readouterr().err

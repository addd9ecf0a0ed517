"""A model over many small clients: rates as stated, gaps near the true ones, and the report page."""

import html
import json
import shutil
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
from conftest import make_schema, make_table

from synthfair.cli import main
from synthfair.compare.grid import ComparedTable, run_point
from synthfair.compare.grid import make_grid as cells_of
from synthfair.config import DistillConfig
from synthfair.errors import InputError
from synthfair.evaluation import pooled_scores, read_tests
from synthfair.fairness.metrics import Scored, group_rates
from synthfair.measure.collection import NO_VALUE, make_collection, read_collection
from synthfair.measure.mechanisms import RandomizedValue
from synthfair.measure.reports import perturb_rates, perturb_records
from synthfair.measure.simulate import assign_to_devices, measure_model
from synthfair.privacy.noise import seeded
from synthfair.report.gaps import gaps_document
from synthfair.report.page import write_report
from synthfair.report.results import read_results
from synthfair.trained import TrainedModel, input_names, read_model, write_model


def scored(n=40_000, seed=0):
    """Group 1 is selected less often: true positive rates 0.9 and 0.6, false ones 0.4 and 0.1."""
    rng = np.random.default_rng(seed)
    s, y = rng.integers(2, size=n), rng.choice([-1.0, 1.0], n)
    chance = 0.65 + 0.25 * y - 0.3 * s
    return Scored(y, np.where(rng.random(n) < chance, 1.0, -1.0), s)


def test_devices_hold_every_row_once_and_one_group_each():
    rows = scored(3000)
    everyone = Scored(np.ones(3000), np.where(np.arange(3000) % 7, 1.0, -1.0), rows.s)
    assigned = assign_to_devices(everyone, 700, seed=1)
    assert abs(len(assigned.group) - 700) <= 1
    assert not np.isnan(assigned.rates["true_positive_rate"]).any()
    assert np.isnan(assigned.rates["false_positive_rate"]).all()


def test_one_device_a_group_has_the_groups_own_rates():
    rows = scored(2000)
    assigned = assign_to_devices(rows, 2, seed=0)
    for group, rates in enumerate(group_rates(rows)):
        assert assigned.rates["true_positive_rate"][group] == pytest.approx(
            rates.true_positive_rate
        )
        assert assigned.rates["false_positive_rate"][group] == pytest.approx(
            rates.false_positive_rate
        )


def test_measured_gaps_hold_the_true_ones():
    found = measure_model(
        scored(),
        ("a", "b"),
        devices=10_000,
        epsilon=6.0,
        seed=0,
        source=seeded(3),
        confidence=0.999,
    )
    assert found.epsilon <= 6.0
    assert found.collection.groups == ("a", "b", NO_VALUE)
    assert [gap.groups for gap in found.gaps] == [("a", "b"), ("a", "b")]
    for gap in found.gaps:
        assert gap.true == pytest.approx(-0.3, abs=0.03)
        assert gap.pooled == pytest.approx(-0.3, abs=0.03)
        low, high = gap.measured.interval
        assert low <= gap.true <= high
        assert high - low < 0.3


def test_devices_without_a_rate_do_not_pull_it():
    """A quarter of the devices have no positive row. At 4.5 standard errors of the mean of 10."""
    rows = [scored(20_000, seed) for seed in range(10)]
    settings = {"devices": 10_000, "epsilon": 20.0}
    gaps = [
        measure_model(r, ("a", "b"), seed=i, source=seeded(100 + i), **settings).gaps[0]
        for i, r in enumerate(rows)
    ]
    off = np.array([(gap.measured.value - gap.true) / gap.measured.error for gap in gaps])
    assert abs(off.mean()) < 4.5 / np.sqrt(10)


@pytest.mark.parametrize("devices", [1, 10**9])
def test_rows_that_cannot_be_assigned_are_refused(devices):
    with pytest.raises(InputError, match="devices"):
        assign_to_devices(scored(100), devices, seed=0)


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


@pytest.fixture(scope="module")
def finished_run(tmp_path_factory):
    (cell,) = cells_of(["central"], [0.0], 1, tmp_path_factory.mktemp("runs"))
    config = DistillConfig(n_synthetic=24, steps=5)
    run_point(cell, ComparedTable(make_table(n=120), make_schema(), "small"), config)
    return cell.folder


@pytest.fixture
def run_folder(finished_run, tmp_path):
    return shutil.copytree(finished_run, tmp_path / "run")


def write_gaps(folder, **changes):
    found = measure_model(
        scored(4000), ("a", "b"), devices=1000, epsilon=6.0, seed=0, source=seeded(3)
    )
    document = gaps_document(found, seed=0) | changes
    (folder / "gaps.json").write_text(json.dumps(document))
    return document


def test_the_page_shows_measured_gaps(run_folder, tmp_path):
    document = write_gaps(run_folder)
    write_report(read_results([run_folder]), tmp_path / "r.html")
    page = html.unescape((tmp_path / "r.html").read_text())
    assert "Gaps measured over devices" in page
    for gap in document["gaps"]:
        for key in ("value", "low", "high", "magnitude", "chebyshev", "true", "pooled"):
            assert f"{gap[key]:z.4f}" in page
    assert document["few"] == []
    assert "devices have a rate in" not in page


def test_few_devices_are_warned_of_on_the_page(run_folder, tmp_path):
    found = measure_model(
        scored(4000), ("a", "b"), devices=150, epsilon=6.0, seed=0, source=seeded(3)
    )
    assert set(found.few) == {"a", "b"}
    write_gaps(run_folder, few=list(found.few))
    write_report(read_results([run_folder]), tmp_path / "r.html")
    assert "have a rate in a, b: too few" in html.unescape((tmp_path / "r.html").read_text())


def test_the_page_without_them_has_no_such_section(run_folder, tmp_path):
    write_report(read_results([run_folder]), tmp_path / "r.html")
    assert "over devices" not in (tmp_path / "r.html").read_text()


@pytest.mark.parametrize("changes", [{"epsilon": -1}, {"gaps": []}, {"mystery": 1}])
def test_gaps_that_no_measurement_writes_are_refused(run_folder, changes):
    write_gaps(run_folder, **changes)
    with pytest.raises(InputError, match="gaps.json"):
        read_results([run_folder])


def test_the_page_does_not_overwrite_them(run_folder):
    write_gaps(run_folder)
    with pytest.raises(InputError, match="named twice"):
        write_report(read_results([run_folder]), run_folder / "gaps.json", force=True)


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
        mark = read_collection(gap_file).fingerprint
        (tmp_path / "r.csv").write_text(f"{capsys.readouterr().out}{'0' * 32},{mark},f,3\n")
        out = tmp_path / "found.json"
        flags = [str(gap_file), str(tmp_path / "r.csv"), "--output", str(out)]
        assert main(["gap", "aggregate", *flags]) == 0
        said = capsys.readouterr()
        assert "row 13" in said.err.replace("\n", " ")
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

    @pytest.mark.parametrize(
        ("flags", "said"),
        [(["--confidence", "1"], "confidence = 1"), (["--shares", "0.5", "0.6"], "shares")],
    )
    def test_flags_are_checked_before_reports_are_read(self, gap_file, flags, said, capsys):
        assert main(["gap", "aggregate", str(gap_file), "nowhere.csv", *flags]) == 2
        assert said in capsys.readouterr().err

    def test_simulated_population(self, gap_file, capsys):
        flags = ["--clients", "3000", "--means", "0.9", "0.5", "--repeats", "5"]
        assert main(["gap", "simulate", str(gap_file), *flags]) == 0
        assert "-0.4000" in capsys.readouterr().out

    def test_means_outside_the_range_are_refused_in_their_unit(self, gap_file, capsys):
        flags = ["--clients", "3000", "--means", "0.9", "1.5"]
        assert main(["gap", "simulate", str(gap_file), *flags]) == 2
        said = " ".join(capsys.readouterr().err.split())
        assert "means: [0.9, 1.5]: each must be from 0 to 1" in said

    def test_as_many_means_as_groups_are_wanted(self, gap_file, capsys):
        flags = ["--clients", "3000", "--means", "0.9", "0.5", "0.1"]
        assert main(["gap", "simulate", str(gap_file), *flags]) == 2
        assert "means: 3 given, for 2 groups" in capsys.readouterr().err

    def test_of_hundreds_of_groups_not_every_gap_is_printed(self, tmp_path, capsys):
        path, names = tmp_path / "g.json", [f"g{i}" for i in range(30)]
        flags = ["--epsilon", "8", "--clients", "1000", "--output", str(path)]
        assert main(["gap", "plan", "--groups", *names, *flags]) == 0
        reports = perturb_records(read_collection(path), names * 10, [0.5] * 300)
        pd.DataFrame(reports).to_csv(tmp_path / "r.csv", index=False)
        capsys.readouterr()
        out = tmp_path / "out.json"
        flags = [str(tmp_path / "r.csv"), "--output", str(out)]
        assert main(["gap", "aggregate", str(path), *flags]) == 0
        said = capsys.readouterr().out
        assert "the first 300 of 435" in " ".join(said.split())
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

    def test_simulated_devices(self, model, capsys):
        tmp_path = model
        flags = ["--model", str(tmp_path / "model.json"), "--data", str(tmp_path / "t.csv")]
        flags += ["--devices", "1000", "--epsilon", "8", "--output", str(tmp_path / "gaps.json")]
        assert main(["gap", "simulate", *flags]) == 0
        assert "1,000 devices, epsilon = 8" in " ".join(capsys.readouterr().out.split())
        assert json.loads((tmp_path / "gaps.json").read_text())["devices"] == 1000

    @pytest.mark.parametrize(
        ("flags", "said"),
        [
            (["plan", "--groups", "f", "m", "--epsilon", "1"], "give two of"),
            (["plan", "--groups", "f", "--epsilon", "1", "--clients", "9"], "groups"),
            (["simulate"], "collection is missing"),
            (["simulate", "--model", "m.json", "--data", "t.csv"], "epsilon is missing"),
            (
                ["simulate", "g.json", "--clients", "9", "--means", "0", "1", "--output", "o.json"],
                "output belongs to the other form",
            ),
            (
                ["simulate", "g.json", "--model", "m.json", "--data", "t.csv", "--epsilon", "1"],
                "collection belongs to the other form",
            ),
            (["perturb", "nowhere.json", "--group", "f"], "belong together"),
            (
                ["perturb", "nowhere.json", "--model", "m.json"],
                "model, table, rate belong together",
            ),
            (["perturb", "nowhere.json", "--one-person"], "needs model"),
            (["aggregate", "nowhere.json", "r.csv"], "nowhere.json: cannot read"),
        ],
    )
    def test_wrong_use_is_explained(self, flags, said, capsys):
        assert main(["gap", *flags]) == 2
        assert said in capsys.readouterr().err

    def test_help_and_measuring_need_no_jax(self):
        code = (
            "import sys; from synthfair.cli import main\n"
            "try: main(['gap', 'aggregate', '-h'])\nexcept SystemExit: pass\n"
            "assert not {'numpy', 'jax', 'pyarrow'} & set(sys.modules), 'help'\n"
            "import synthfair.measure.reports, synthfair.measure.plan, synthfair.measure.aggregate\n"
            "assert 'jax' not in sys.modules, 'measure'"
        )
        subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)

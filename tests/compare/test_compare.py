import json
import re
import shutil

import numpy as np
import pandas as pd
import pytest
from builders import make_schema, make_table
from comparison import EXAMPLE, same_text
from printed import plain_text
from report_runs import write_run
from sklearn.linear_model import LogisticRegression

import synthfair as sf
from synthfair.cli import main
from synthfair.cli.first_steps import demo
from synthfair.compare import (
    ComparedTable,
    compared_methods,
    demonstrate,
    federate,
    make_grid,
    round_settings,
    run_method,
    run_point,
)
from synthfair.data.bases import Steps
from synthfair.data.datasets import configs_folder, dataset_schema
from synthfair.data.encode import Encoded
from synthfair.data.partition import partition
from synthfair.report.result_tables import outcomes_table
from synthfair.server.pooling import concatenated

REPORT = sf.ServerConfig(resamples=10)
FEW = {"n_synthetic": 24, "steps": 100}

TABLE = make_table(n=2000)
TABLE["income"] += np.where(TABLE["town"] == "b", 20, 0)  # by which a blind model has a gap
TABLE["income"] = TABLE["income"].clip(upper=100)


@pytest.fixture(scope="module")
def federation():
    return federate(partition(TABLE, clients=2, seed=0), make_schema())


@pytest.fixture(scope="module")
def surrogate_of():
    """A function that makes a surrogate of the same rows with the same seed once."""
    made = {}

    def make(real, schema, seed):
        key = seed, schema.hash, *(part.tobytes() for part in real)
        if key not in made:
            config = sf.SurrogateConfig(k_min=20, seed=seed)
            made[key] = sf.distill_table(sf.data.in_memory(real), schema, config).release
        return made[key]

    return make


@pytest.fixture
def quick_surrogates(monkeypatch, surrogate_of):
    """Surrogates in place of others; the seeds of those that were asked for."""
    made = []

    def make(federation, settings):
        made.append(settings.seed)
        return {
            name: surrogate_of(real, federation.schema, settings.seed)
            for name, real in zip(federation.names, federation.plain, strict=True)
        }

    monkeypatch.setattr(compared_methods, "make_surrogates", make)
    return made


@pytest.mark.parametrize(
    "method", ["single_shot", "central", "local", "fedavg", "exponentiated_gradient"]
)
def test_every_method_lowers_the_gap(method, federation):
    (plain, free), (fair, asked) = (
        run_method(method, federation, sf.DistillConfig(rho_o=rho_o, **FEW), REPORT)
        for rho_o in (0.0, 100.0)
    )
    assert (free.target.fairness, asked.target.fairness) == (False, True)
    gap = "spd" if method == "exponentiated_gradient" else "covariance"  # its decisions are random
    assert abs(fair.overall[gap].value) < 0.75 * abs(plain.overall[gap].value)
    assert plain.overall["accuracy"].value > 0.75
    assert free.converged
    assert set(fair.per_client) == {"client_0", "client_1"}


@pytest.mark.parametrize(
    "method",
    ["single_shot", "surrogate", "refine", "central", "exponentiated_gradient", "fpfl"],
)
def test_no_method_reads_the_group_unless_it_is_asked_to(method, federation, quick_surrogates):
    part, options = federation.test[0], {"rounds": 20}
    clients = federation._replace(test=(part, part._replace(s=1 - part.s)))
    for reads in (False, True):
        config = sf.DistillConfig(rho_o=2.0, group_input=reads, **FEW)
        _, fitted = run_method(method, clients, config, REPORT, rounds=options)
        assert np.array_equal(*fitted.scores) != reads


def test_central_training_has_the_ridge_of_scikit_learn(federation):
    """And so has a client alone, of its own number of rows."""
    config, x = sf.DistillConfig(rho_o=0.0), federation.test[0].x
    for method, rows in (
        ("central", concatenated(federation.train)),
        ("local", federation.train[0]),
    ):
        _, fitted = run_method(method, federation, config, REPORT)
        model = LogisticRegression(C=1, tol=1e-10, max_iter=10_000).fit(rows.x, rows.y)
        np.testing.assert_allclose(fitted.scores[0], model.decision_function(x), atol=1e-5)


@pytest.mark.parametrize("additive", [False, True])
def test_surrogates_come_near_central_training(federation, additive):
    if additive:  # surrogates are made of the columns, and their bases are the server's
        schema = make_schema()
        income = schema.columns["income"].model_copy(update={"basis": Steps(edges=(30, 60))})
        columns = schema.columns | {"income": income}
        schema = type(schema).model_validate(schema.model_dump() | {"columns": columns})
        federation = federate(partition(TABLE, clients=2, seed=0), schema)
    config = sf.DistillConfig(rho_o=100.0)
    ours, central = (
        run_method(method, federation, config, REPORT)[0].overall
        for method in ("surrogate", "central")
    )
    assert ours["covariance"].value == pytest.approx(
        central["covariance"].value,
        abs=0.01 if additive else 5e-3,  # blocks link no columns
    )
    assert ours["accuracy"].value == pytest.approx(central["accuracy"].value, abs=0.015)


@pytest.mark.parametrize("penalty", ["covariance", "selection_rate"])
def test_exchanges_after_surrogates_end_at_central_training(penalty, federation, quick_surrogates):
    config, shared = sf.DistillConfig(rho_o=100.0, penalty=penalty), {}
    (_, one), (found, six) = (
        run_method(method, federation, config, REPORT, shared=shared)
        for method in ("surrogate", "refine")
    )
    assert quick_surrogates == [0]  # they serve both
    central = run_method("central", federation, config, REPORT)[0].overall
    for metric in ("accuracy", "covariance", "spd"):
        assert found.overall[metric].value == pytest.approx(central[metric].value, abs=1e-4), metric
    assert six.converged
    # Of 8 inputs: at 5 points, sums of losses and of two groups.
    numbers = 3 + 5 * 3 * (1 + 8) + 5 * (1 if penalty == "covariance" else 3) * 36
    assert six.cost == (2, 1 + 5, one.cost.bytes_sent + 5 * 2 * 8 * numbers)


def test_no_epsilon_covers_exchanges(federation):
    config = sf.DistillConfig(epsilon=1.0, delta=1e-4)
    with pytest.raises(sf.InputError, match=r"refine: its sums are exact, and no epsilon covers"):
        run_method("refine", federation, config, REPORT)


def test_the_constant_classifier_has_no_gap_and_the_share_of_the_majority(federation):
    found, fitted = run_method("constant", federation, sf.DistillConfig(), REPORT)
    assert fitted.target.by == "nothing"
    labels = np.concatenate([part.y for part in federation.test])
    majority = max(np.mean(labels > 0), np.mean(labels < 0))
    assert found.overall["accuracy"].value == found.constant_accuracy == pytest.approx(majority)
    assert found.overall["spd"].value == 0


def test_a_grid_holds_each_run_once(tmp_path):
    points = make_grid(["local", "local"], [10.0, 1e1, 1.2345678, 1.2345679], 2, tmp_path)
    assert len({point.folder for point in points}) == len(points) == 6
    assert [point.seed for point in points] == [0, 0, 0, 1, 1, 1]


@pytest.mark.parametrize(
    ("methods", "weights", "seeds", "complaint"),
    [
        (["magic"], [1.0], 1, "'magic': must be one of single_shot, surrogate"),
        (["local"], [-1.0], 1, "at least 0 and finite"),
        (["local"], [1.0], 0, "must be 1 to"),
        (["local"], [1.0], 5_000_000_000, "must be 1 to"),
    ],
)
def test_grids_that_cannot_be_run_are_refused(methods, weights, seeds, complaint, tmp_path):
    with pytest.raises(sf.InputError, match=complaint):
        make_grid(methods, weights, seeds, tmp_path)


def test_a_missing_package_is_reported_before_anything_runs(monkeypatch, tmp_path):
    monkeypatch.setattr("synthfair.errors.find_spec", lambda _: None)
    with pytest.raises(sf.InputError, match=r"needs fairlearn; pip install 'synthfair\[compare\]'"):
        make_grid(["exponentiated_gradient"], [1.0], 1, tmp_path)


@pytest.fixture(scope="module")
def demonstration(tmp_path_factory):
    """In few steps, and what was shown."""
    folder, shown = tmp_path_factory.mktemp("demo") / "found", []
    fair = sf.DistillConfig(rho_o=30.0, steps=40)
    found = demonstrate(folder, lambda *stage: shown.append(stage), fair=fair)
    return found, folder, shown


class TestDemo:
    def test_surrogates_nearly_halve_the_gap_at_two_points_of_accuracy(self, demonstration):
        """A few rows more or less, of 399, as machines decide them."""
        outcomes = demonstration[0]
        methods = ["central", "each lender alone", "fair releases", "surrogates"]
        assert [(o.method, o.rho_o) for o in outcomes] == [
            (method, rho) for rho in (0, 30) for method in methods
        ]
        spd, accuracy = (
            {(o.method, o.rho_o): o.evaluation.overall[name].value for o in outcomes}
            for name in ("spd", "accuracy")
        )
        for method in ("central", "surrogates"):
            assert spd[method, 0] > 0.1
            assert abs(spd[method, 30]) < 0.7 * spd[method, 0]
        assert spd["each lender alone", 30] > spd["surrogates", 30] - 0.02
        assert accuracy["surrogates", 30] > accuracy["surrogates", 0] - 0.025
        assert accuracy["surrogates", 30] > outcomes[-1].evaluation.constant_accuracy + 0.02

    def test_its_lenders_are_unlike(self, demonstration):
        shares = [
            (rows["white"].mean(), rows["approve"].mean(), len(rows))
            for lender in ("suburbs", "city")
            for rows in [pd.read_csv(demonstration[1] / f"client_{lender}_train.csv")]
        ]
        assert shares == [
            (pytest.approx(0.89, abs=0.02), pytest.approx(0.90, abs=0.02), 1345),
            (pytest.approx(0.60, abs=0.05), pytest.approx(0.76, abs=0.05), 245),
        ]

    def test_its_files_are_what_the_models_were_made_of(self, demonstration):
        found, folder, _ = demonstration
        for server, method in (("fair/server", "fair releases"), ("surrogate/fair", "surrogates")):
            written = json.loads((folder / server / "metrics.json").read_text())
            (outcome,) = (o for o in found if (o.method, o.rho_o) == (method, 30))
            assert written["spd"]["value"] == outcome.evaluation.overall["spd"].value
        schema = sf.read_schema(folder / "schema.json")
        for kind in ("fair", "plain", "surrogate"):
            for lender in ("city", "suburbs"):
                assert sf.read_releases([folder / kind / f"{lender}.parquet"], schema)
        assert len(pd.read_csv(folder / "surrogate/fair/frontier.csv")) > 30

    def test_the_readme_shows_its_table(self, demonstration):
        """But for fair releases, which the test makes in fewer steps; and another number is seen."""
        readme = (configs_folder().parent / "README.md").read_text(encoding="utf-8")
        others = [one for one in demonstration[0] if one.method != "fair releases"]

        def rows(text):
            lines = re.findall("^[┃│] .*|.* test rows;.*", text, re.MULTILINE)
            return "\n".join(line for line in lines if "fair releases" not in line)

        shown = rows(plain_text(outcomes_table(others), width=80))
        assert len(shown.splitlines()) == 9
        assert same_text(rows(readme), shown, tolerance=EXAMPLE)
        for number, wrong in ((" 0.92 [0.89", " 0.86 [0.89"), (" 0.07 [", " 0.15 [")):
            assert not same_text(rows(readme).replace(number, wrong), shown, tolerance=EXAMPLE)

    def test_it_writes_a_report_and_the_readme_shows_its_last_lines(
        self, demonstration, monkeypatch, capsys
    ):
        monkeypatch.setattr("synthfair.compare.demonstrate", lambda *_, **__: demonstration[0])
        monkeypatch.setattr("sys.platform", "linux")
        folder = demonstration[1]
        demo(output=folder)
        _, said = capsys.readouterr().out.split("intervals.")
        assert "Surrogates, weight 30: Selection rates of other applicants" in " ".join(
            said.split()
        )
        assert (folder / "report.html").exists()
        readme = (configs_folder().parent / "README.md").read_text(encoding="utf-8")
        shown = readme.split("95 % intervals.\n")[1].split("```")[0]
        said = said.replace(str(folder), "synthfair-demo")
        last, found = (re.sub("probably (met|missed)", "", text) for text in (shown, said))
        assert same_text(last, found, tolerance=EXAMPLE)

    def test_each_stage_is_shown(self, demonstration):
        stages = {done: n_all for done, n_all, _ in demonstration[2]}
        assert stages == dict.fromkeys(range(15), 14)
        assert any("city, step 40 of 40" in words for _, _, words in demonstration[2])

    def test_a_folder_with_other_files_is_refused(self, tmp_path):
        (tmp_path / "mine.csv").touch()
        with pytest.raises(sf.InputError, match="is not empty; name another"):
            demonstrate(tmp_path, lambda *_: None)
        assert [path.name for path in tmp_path.iterdir()] == ["mine.csv"]

    def test_its_own_folder_is_written_anew(self, demonstration, tmp_path, monkeypatch):
        """It gets as far as reading the table; the rest takes a minute."""

        def read(name):
            raise FileNotFoundError(name)

        shutil.copytree(demonstration[1], tmp_path / "again")
        monkeypatch.setattr("synthfair.compare.demonstration.load_dataset", read)
        with pytest.raises(FileNotFoundError, match="loanapp"):
            demonstrate(tmp_path / "again", lambda *_: None)

    def test_its_table_has_two_digits_and_says_what_did_not_converge(self, demonstration):
        shown = plain_text(outcomes_table(demonstration[0]), width=100)
        lines = [line for line in shown.splitlines() if line.startswith("│")]
        assert len(lines) == 9
        found = demonstration[0][7].evaluation
        cells = [cell.strip() for cell in lines[7].strip("│").split("│")]
        assert cells[:2] == ["surrogates", "weight 30"]
        for cell, name in zip(cells[2:], ("accuracy", "spd"), strict=True):
            value, low, high = map(float, re.findall(r"-?\d\.\d\d\b", cell))
            assert (value, low, high) == pytest.approx(found.overall[name], abs=0.0051)
        assert [("NOT CONVERGED" in line) for line in lines] == [False, False, True, False] * 2 + [
            False
        ]
        assert f"{found.constant_accuracy:.2f}" in lines[8]
        assert "399 test rows" in shown


class TestMethodsInRounds:
    def test_alpha_is_one_over_rho_o_and_lowers_the_gap(self, federation):
        """Sent are (A + 1) p + 2 A + 2 numbers with a constraint, p + 2 without, of 8 bytes."""
        options = {"rounds": 600, "learning_rate": 1.0}
        (fair, one), (free, other) = (
            run_method("fpfl", federation, sf.DistillConfig(rho_o=rho_o), REPORT, rounds=options)
            for rho_o in (50.0, 0.0)
        )
        assert (one.target.by, one.target.amounts) == ("tolerance", (1 / 50,))
        assert (other.target.by, other.target.amounts) == ("tolerance", ())
        gaps = [abs(each.overall["spd"].value) for each in (fair, free)]
        assert gaps[1] > 0.08
        assert gaps[0] < 0.8 * gaps[1]  # rates of chances are held equal, and decisions follow
        assert fair.overall["accuracy"].value > 0.7
        p = federation.train[0].x.shape[1] + 1
        for fitted, numbers in ((one, 3 * p + 6), (other, p + 2)):
            assert fitted.cost == (2, 600, 8 * numbers * 2 * 600)

    def test_surrogates_are_made_once_a_seed(self, federation, quick_surrogates):
        """Two weights share them, with the same results; another seed has its own."""
        shared = {}
        for seed, rho_o in ((0, 0.0), (0, 10.0), (1, 10.0)):
            config = sf.DistillConfig(rho_o=rho_o, seed=seed)
            before = len(quick_surrogates)
            found, fitted = run_method("surrogate", federation, config, REPORT, shared=shared)
            assert quick_surrogates[before:] == ([] if rho_o and not seed else [seed])
            alone, expected = run_method("surrogate", federation, config, REPORT)
            assert fitted.cost == expected.cost
            assert found.overall == alone.overall

    def test_a_grid_makes_them_once_a_seed_for_all_weights_and_penalties(
        self, tmp_path, quick_surrogates
    ):
        """Each point splits and encodes the table anew, and must still take those that are there."""
        compared, shared = ComparedTable(make_table(600), make_schema(), "s"), {}
        points = make_grid(["surrogate"], [0.0, 10.0], 2, tmp_path)
        penalties = ("covariance", "covariance", "selection_rate", "covariance")
        for point, penalty in zip(points, penalties, strict=True):
            run_point(point, compared, sf.DistillConfig(penalty=penalty), shared=shared)
        assert quick_surrogates == [0, 1]

    def test_other_rows_have_surrogates_of_their_own(self, federation, quick_surrogates):
        x, s, y = federation.train[0]  # plain as they are
        rows = (Encoded(x, s, -y), *federation.train[1:])
        other, shared = federation._replace(train=rows, plain=rows), {}
        for clients in (federation, other, federation):
            compared_methods.surrogate(clients, sf.DistillConfig(), shared=shared)
        assert quick_surrogates == [0, 0, 0]

    def test_single_shot_sends_its_files_once(self, federation, tmp_path):
        _, fitted = run_method("single_shot", federation, sf.DistillConfig(**FEW))
        sizes = []
        for i, distillation in enumerate(fitted.distillations):
            sf.write_release(distillation.release, tmp_path / f"{i}.parquet")
            sizes.append((tmp_path / f"{i}.parquet").stat().st_size)
        assert fitted.cost == (2, 1, sum(sizes))

    @pytest.mark.parametrize(
        ("config", "method", "rho_o", "expected"),
        [
            (None, "fpfl", 20.0, {"method": "fpfl", "alpha": 0.05, "rounds": 1000}),
            (None, "fpfl", 1.0, {"method": "fedsgd"}),
            (None, "fair_sgd", 0.0, {"method": "fair_sgd", "kappa": 0.0, "kappa_rate": 0.0}),
            (None, "two_phase", 0.0, {"method": "two_phase", "kappa": 0.0, "kappa_rate": 0.0}),
            (None, "mmdm", 0.0, {"method": "mmdm", "multiplier_rate": 0.0, "damping": 0.0}),
            ({"seed": 1}, "two_phase", 10.0, {"rounds": 4, "learning_rate": 2.0, "seed": 0}),
            ({"rounds": 7}, "two_phase", 10.0, {"rounds": 7, "kappa": 1.0}),
            ({"method": "two_phase", "memory": 0.5}, "fpfl", 10.0, {"rounds": 500, "memory": 0.5}),
        ],
    )
    def test_settings_are_the_given_ones_or_the_methods_own(self, config, method, rho_o, expected):
        found = round_settings(method, sf.DistillConfig(rho_o=rho_o), config).model_dump()
        assert found | expected == found

    def test_settings_that_a_comparison_or_a_method_does_not_have_are_refused(self):
        with pytest.raises(sf.InputError, match="^notion: Input should be 'statistical_parity'"):
            round_settings("two_phase", sf.DistillConfig(notion="equal_opportunity"))


def test_compare_goes_on_where_it_stopped(tmp_path, capsys):
    """The first of two runs is there already; only the second is computed."""
    argv = ["compare", "loanapp", "--methods", "local", "--weights", "0", "10", "--seeds", "1"]
    argv += ["--output", str(tmp_path)]
    config = sf.DistillConfig(rho_o=0).model_dump(mode="json")
    done = write_run(tmp_path / "local-rho_0-seed_0", method="local") / "metrics.json"
    there = json.loads(done.read_text()) | {
        "config": {"client_0": config, "client_1": config},
        "schema_hash": dataset_schema("loanapp").hash,
        "table": {"name": "loanapp", "sensitive": "white", "clients": 2},
    }
    done.write_text(json.dumps(there))
    assert main(argv) == 0
    said = capsys.readouterr().out
    assert "Wrote 2 runs" in said
    assert "penalty weight 10" in said
    assert json.loads(done.read_text()) == there
    assert main(["compare", "loanapp", "--methods", "magic", "--output", str(tmp_path)]) == 2
    (tmp_path / "other.toml").write_text("lambda_theta = 0.5")
    assert main([*argv, "--config", str(tmp_path / "other.toml")]) == 2
    assert "other settings" in capsys.readouterr().err
    (tmp_path / "gap.toml").write_text("max_gap = 0.1")
    assert main([*argv, "--config", str(tmp_path / "gap.toml")]) == 2
    assert "max_gap: compare runs the weights" in capsys.readouterr().err


@pytest.mark.parametrize("method", ["fedavg", "refine"])
def test_a_model_without_an_intercept_is_not_compared_with_one_that_has_it(federation, method):
    config = sf.DistillConfig(intercept=False, **FEW)
    with pytest.raises(sf.InputError, match=f"intercept = false: {method} always has one"):
        run_method(method, federation, config, REPORT)

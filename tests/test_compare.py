from contextlib import contextmanager

import numpy as np
import pytest
from conftest import make_schema, make_table

import synthfair as sf
from synthfair.compare import (
    METHODS,
    RoundOptions,
    demonstrate,
    federate,
    is_done,
    run_method,
    methods,
    plan,
    run_point,
)
from synthfair.config import TrainConfig
from synthfair.data.partition import partition
from synthfair.federated import UserAssignment
from synthfair.report import outcomes_table, plain_text, read_results, write_report


@contextmanager
def silent(_):
    yield lambda records, step, steps: None


@pytest.fixture(scope="module")
def federation():
    return federate(partition(make_table(n=2000), clients=2, seed=0), make_schema())


@pytest.mark.parametrize("method", METHODS)
def test_every_method_narrows_the_gap(method, federation):
    report = sf.ServerConfig(resamples=10)
    plain, fair = (
        run_method(method, federation, sf.DistillConfig(rho_o=rho_o, steps=300), report)[0]
        for rho_o in (0.0, 100.0)
    )
    gap = "spd" if method == "exponentiated_gradient" else "covariance"  # its decisions are random
    assert abs(fair.evaluation.overall[gap].value) < 0.75 * abs(plain.evaluation.overall[gap].value)
    assert plain.evaluation.overall["accuracy"].value > 0.75
    assert plain.converged
    assert set(fair.evaluation.per_client) == {"client_0", "client_1"}


def test_a_grid_holds_each_run_once(tmp_path):
    cells = plan(["local", "local"], [10.0, 1e1, 1.2345678, 1.2345679], 2, tmp_path)
    assert len({cell.folder for cell in cells}) == len(cells) == 6
    assert [cell.seed for cell in cells] == [0, 0, 0, 1, 1, 1]


@pytest.mark.parametrize(
    ("methods", "weights", "seeds", "complaint"),
    [
        (["magic"], [1.0], 1, "'magic': must be one of"),
        (["local"], [-1.0], 1, "at least 0 and finite"),
        (["local"], [1.0], 0, "must be 1 to"),
        (["local"], [1.0], 5_000_000_000, "must be 1 to"),
    ],
)
def test_grids_that_cannot_be_run_are_refused(methods, weights, seeds, complaint, tmp_path):
    with pytest.raises(sf.InputError, match=complaint):
        plan(methods, weights, seeds, tmp_path)


def test_a_missing_package_is_told_before_anything_runs(monkeypatch, tmp_path):
    monkeypatch.setattr(methods, "find_spec", lambda _: None)
    with pytest.raises(sf.InputError, match=r"needs fairlearn; pip install 'synthfair\[compare\]'"):
        plan(["exponentiated_gradient"], [1.0], 1, tmp_path)


def test_unknown_methods_are_refused(federation):
    with pytest.raises(sf.InputError, match="'magic': must be one of single_shot, central"):
        run_method("magic", federation, sf.DistillConfig())


def test_demo_compares_four_methods_and_writes_its_files(tmp_path):
    outcomes = demonstrate(tmp_path, sf.DistillConfig(steps=200), silent)
    assert [(outcome.method, outcome.rho_o) for outcome in outcomes] == [
        ("single_shot", 10), ("single_shot", 0), ("central", 10), ("central", 0),
    ]  # fmt: skip
    spd = [outcome.evaluation.overall["spd"].value for outcome in outcomes]
    assert abs(spd[0]) < abs(spd[1])
    assert all(outcome.converged for outcome in outcomes)
    assert all(0.8 < outcome.evaluation.overall["accuracy"].value < 1 for outcome in outcomes)
    for name in ("fair", "plain"):
        assert (tmp_path / name / "server" / "metrics.json").exists()
    assert "399 test rows" in plain_text(outcomes_table(outcomes))
    with pytest.raises(sf.InputError, match="exists"):
        demonstrate(tmp_path, sf.DistillConfig(steps=1), silent)
    assert np.isfinite(spd).all()


@pytest.fixture(scope="module")
def fair_and_free(federation):
    report, how = (
        sf.ServerConfig(resamples=10),
        RoundOptions(TrainConfig(rounds=600, learning_rate=1.0)),
    )
    return [
        run_method("fpfl", federation, sf.DistillConfig(rho_o=rho_o), report, rounds=how)
        for rho_o in (50.0, 0.0)
    ]


class TestRounds:
    """Methods in rounds beside the others."""

    def test_alpha_is_one_over_rho_o_and_narrows_the_gap(self, fair_and_free):
        fair, free = (abs(o.evaluation.overall["spd"].value) for o, _ in fair_and_free)
        assert free > 0.08
        assert fair < 0.8 * free  # rates of chances are held equal, and decisions follow
        assert fair_and_free[0][0].evaluation.overall["accuracy"].value > 0.75

    def test_what_is_sent_is_counted(self, fair_and_free, federation):
        """(A + 1) p + 2 A + 2 numbers with a constraint, p + 2 without, of 8 bytes."""
        p = federation.train[0].x.shape[1] + 2
        for (outcome, _), numbers in zip(fair_and_free, (3 * p + 6, p + 2), strict=True):
            assert outcome.cost.bytes_sent == 8 * numbers * 2 * 600
            assert outcome.cost.rounds == 600

    def test_single_shot_sends_its_files_once(self, federation, tmp_path):
        outcome, fitted = run_method("single_shot", federation, sf.DistillConfig(steps=50))
        sizes = []
        for i, distillation in enumerate(fitted.distillations):
            sf.write_release(distillation.release, tmp_path / f"{i}.parquet")
            sizes.append((tmp_path / f"{i}.parquet").stat().st_size)
        assert outcome.cost.bytes_sent == sum(sizes)
        assert outcome.cost.rounds == 1

    def test_a_run_of_other_rounds_is_not_taken_for_this_one(self, tmp_path):
        table, schema, config = make_table(300), make_schema(), sf.DistillConfig()
        cell = plan(["fpfl"], [10.0], 1, tmp_path)[0]
        few = RoundOptions(TrainConfig(rounds=5))
        run_point(cell, table, schema, config, name="small", clients=2, rounds=few)
        assert is_done(cell, schema, config, clients=2, rounds=few)
        with pytest.raises(sf.InputError, match="other settings"):
            is_done(cell, schema, config, clients=2, rounds=RoundOptions(TrainConfig(rounds=6)))

    def test_what_is_not_set_is_as_the_method_has_it(self):
        found = RoundOptions(TrainConfig(seed=1)).settings("two_phase", sf.DistillConfig(rho_o=10.0))
        assert (found.rounds, found.learning_rate) == (4, 2.0)
        found = RoundOptions(TrainConfig(rounds=7)).settings("two_phase", sf.DistillConfig(rho_o=10.0))
        assert found.rounds == 7

    @pytest.mark.parametrize("method", ["fair_sgd", "two_phase"])
    def test_without_a_constraint_its_weight_is_0(self, method):
        found = RoundOptions().settings(method, sf.DistillConfig(rho_o=0.0))
        assert (found.method, found.kappa, found.kappa_rate) == (method, 0.0, 0.0)

    def test_mmdm_without_a_constraint_stays_in_one_place(self):
        found = RoundOptions().settings("mmdm", sf.DistillConfig(rho_o=0.0))
        assert (found.method, found.multiplier_rate, found.damping) == ("mmdm", 0.0, 0.0)

    def test_defaults_of_another_method_are_not_taken_for_wishes(self):
        other = TrainConfig(method="two_phase", memory=0.5)
        found = RoundOptions(other).settings("fpfl", sf.DistillConfig(rho_o=10.0))
        assert (found.rounds, found.memory) == (TrainConfig().rounds, 0.5)

    def test_several_attributes_are_refused_in_words(self):
        with pytest.raises(sf.InputError, match="also: comparisons hold one attribute"):
            RoundOptions(TrainConfig(also=("home",))).settings("fpfl", sf.DistillConfig())

    def test_a_notion_that_a_method_does_not_know_is_refused(self):
        config = sf.DistillConfig(notion="equal_opportunity")
        with pytest.raises(sf.InputError, match="notion must be statistical_parity or"):
            RoundOptions().settings("two_phase", config)

    def test_an_epsilon_is_promised_and_reported(self, tmp_path):
        private = TrainConfig(rounds=5, cohort=50, clip=1.0, epsilon=8.0, delta=1e-3)
        how = RoundOptions(private, UserAssignment(rows_per_user=2.0))
        cell = plan(["fpfl"], [10.0], 1, tmp_path)[0]
        run_point(
            cell,
            make_table(600),
            make_schema(),
            sf.DistillConfig(),
            name="s",
            clients=2,
            rounds=how,
        )
        result = read_results([cell.folder])[0]
        assert result.epsilon == 8.0
        assert result.metrics.promise.unit == "one user, with all its rows"
        page = tmp_path / "report.html"
        write_report([result], page)
        assert "differential privacy of one user" in page.read_text()

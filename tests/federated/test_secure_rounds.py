"""Rounds whose cohort sums go through shares: the plain engine's, and what protects them."""

import json

import numpy as np
import pytest
from builders import make_schema, make_table
from pydantic import ValidationError
from scipy import stats
from summing_methods import Drawing, SumOneByOne, population

import synthfair as sf
from synthfair.cli import main
from synthfair.errors import InputError
from synthfair.federated import engine, train_rounds
from synthfair.federated.engine import STEPS_IN_CLIP, Protection, shared, shared_total
from synthfair.federated.users import Cohorts
from synthfair.metrics_file import MetricsFile
from synthfair.privacy.accounting import SampledSums
from synthfair.privacy.guarantee import SampledMechanism, training_guarantee
from synthfair.privacy.ledger import Ledger, Purchase
from synthfair.report.privacy_words import limits
from synthfair.secure import shares

ALARM = 1e-6
"""False-alarm rate of each statistical test."""

ADD, REPLACE = "add_or_remove", "replace"


@pytest.fixture(scope="module")
def rows():
    table, schema = make_table(200), make_schema()
    return sf.encode(table, schema), np.arange(200) // 4, schema


def data_for(rows, **settings):
    encoded, user, schema = rows
    config = sf.TrainConfig(**{"rounds": 4, "clip": 0.5} | settings)
    return sf.federated.make_user_data(encoded, user, schema, config), config


def plan_for(rows, **settings):
    data, config = data_for(rows, **settings)
    return config.plan(data)


def noise_of_one(protection):
    """Of one aggregator, on which the guarantee rests."""
    return protection.vectors.step * protection.vectors.variance**0.5


def theta(rows, **settings):
    return np.array(train_rounds(*data_for(rows, **settings)).model.theta)


class TestWithoutNoise:
    @pytest.mark.parametrize(("method", "sampling"), [("fedavg", "poisson"), ("fpfl", "fixed")])
    def test_the_model_is_the_plain_engines_within_rounding(self, rows, method, sampling):
        settings = {"method": method, "cohort": 20, "sampling": sampling}
        plain, secure = (theta(rows, **settings, secure=on) for on in (False, True))
        assert np.abs(plain).max() > 1e-2
        assert 0 < np.abs(plain - secure).max() < 1e-7  # 4 rounds of 20 reports, half a step each

    def test_without_a_clip_nothing_is_summed_by_shares(self):
        with pytest.raises(InputError, match="secure needs clip"):
            sf.TrainConfig(secure=True)

    def test_an_interrupted_run_reaches_the_same_numbers(self):
        _, _, users = population()
        sums = shared(2, clip=1.0, relation=ADD, multiplier=2.0)._replace(seed=5)

        def run(**keywords):
            return engine.run(
                SumOneByOne(), users, Cohorts(9, 3, "poisson"), rounds=6, seed=5,
                protection=sums, **keywords,
            )  # fmt: skip

        whole, begun = run(), engine.start(SumOneByOne(), users, 5)
        part = engine.run(
            SumOneByOne(), users, Cohorts(9, 3, "poisson"), rounds=4, seed=5,
            protection=sums, progress=begun,
        )  # fmt: skip
        np.testing.assert_allclose(whole.state, run(progress=part).state, atol=1e-8)

    @pytest.mark.parametrize("at_once", [2**19, 6])
    def test_blocks_of_reports_do_not_change_a_sum(self, monkeypatch, at_once):
        """Three at once leave padding in the last block, whose reports are no zeros here."""
        monkeypatch.setattr(engine, "ENTRIES_AT_ONCE", at_once)
        _, _, users = population()
        cohorts = Cohorts(9, 5, "poisson")
        found = [
            engine.run(Drawing(), users, cohorts, rounds=3, seed=1, protection=how).history
            for how in (
                Protection(10.0),
                shared(2, clip=10.0, relation=ADD, multiplier=None),
            )
        ]
        np.testing.assert_allclose(found[0].total, found[1].total, atol=1e-8)

    def test_reports_without_a_norm_count_as_0(self):
        sums = shared(2, clip=1.0, relation=ADD, multiplier=None)
        reports = [np.array([0.5, 0.0]), np.array([np.nan, 0.0]), np.array([np.inf, 1.0])]
        assert shared_total(sums.vectors, reports) == pytest.approx([0.5, 0.0])

    def test_every_report_is_cut_into_shares(self, monkeypatch):
        seen = []
        split = shares.Sharing.split
        monkeypatch.setattr(
            shares.Sharing,
            "split",
            lambda self, v, source: seen.append(v) or split(self, v, source),
        )
        sums = shared(2, clip=1.0, relation=ADD, multiplier=None)
        shared_total(sums.vectors, np.eye(2))
        assert np.array(seen).tolist() == [[0, 0], [STEPS_IN_CLIP, 0], [0, STEPS_IN_CLIP]]


class TestNoise:
    def test_an_empty_cohort_has_the_same_noise(self):
        """Two aggregators of full scale: variance 2 (multiplier clip)^2, and no smaller."""
        sums = shared(20_000, clip=2.0, relation=ADD, multiplier=3.0)
        found = shared_total(sums.vectors, [])
        spread = 2**0.5 * 3 * 2.0
        assert sums.noise == pytest.approx(spread, rel=1e-8)
        assert stats.kstest(found / spread, "norm").pvalue > ALARM
        for wrong in (0.9, 1.1):
            assert stats.kstest(found / spread * wrong, "norm").pvalue < ALARM

    @pytest.mark.parametrize(("relation", "factor"), [(ADD, 1), (REPLACE, 2)])
    def test_one_aggregator_is_enough_rounding_included(self, relation, factor):
        sums = shared(500, clip=0.3, relation=relation, multiplier=1.7)
        norm = 0.3 + sums.vectors.step * 500**0.5 / 2
        assert noise_of_one(sums) >= 1.7 * factor * norm * (1 - 1e-12)
        assert noise_of_one(sums) == pytest.approx(1.7 * factor * norm, rel=1e-12)
        assert sums.shares.norm >= norm * (1 - 1e-12)

    @pytest.mark.parametrize("multiplier", [0.1, 1.7, 9e3])
    def test_the_grid_is_fine_enough_to_be_accounted_for_as_normal_noise(self, multiplier):
        sums = shared(500, clip=0.3, relation=ADD, multiplier=multiplier)
        assert 2**34 < sums.vectors.variance**0.5 < 2**36.01

    def test_noise_comes_from_the_system_unless_a_test_asks(self, rows):
        """FPFL takes no step where noise hides the groups: in one run of ten never, and two agree."""
        private = {"method": "fedavg", "epsilon": 8.0, "delta": 1e-3}
        one, other = (theta(rows, secure=True, **private) for _ in range(2))
        assert np.abs(one - other).max() > 0
        data, config = data_for(rows, secure=True, **private)
        seeded = [train_rounds(data, config, noise_seed=7).model.theta for _ in range(2)]
        assert seeded[0] == seeded[1]

    def test_a_rate_needs_a_count_above_the_noise_of_both(self, rows):
        plan = plan_for(rows, secure=True, epsilon=2.0, delta=1e-3, memory=0.0)
        assert plan.least_count == pytest.approx(3 * plan.protection.noise)


class TestGuarantee:
    def guarantee(self, rows, **more):
        settings = {"rounds": 2, "secure": True, "epsilon": 2.0, "delta": 1e-3} | more
        return plan_for(rows, **settings).guarantee

    @pytest.mark.parametrize(("sampling", "relation"), [("poisson", ADD), ("fixed", REPLACE)])
    def test_says_what_holds_for_whom_and_against_whom(self, rows, sampling, relation):
        found = self.guarantee(rows, sampling=sampling)
        assert found.relation == relation
        assert (found.unit, found.adversary, found.simulated) == ("user", "all_but_one", True)
        assert not any("Mironov" in line or "securely" in line for line in limits(found))
        assert any("simulation" in line for line in limits(found))
        assert any("collude" in line for line in limits(found))

    def test_its_noise_is_that_of_the_plain_engine_for_the_same_epsilon(self, rows):
        found = self.guarantee(rows)
        assert 1.98 < found.composition.epsilon(1e-3) <= 2.0
        (mechanism,) = found.mechanisms
        plain = self.guarantee(rows, secure=False).mechanisms[0]
        assert mechanism.multiplier == pytest.approx(plain.multiplier, rel=1e-6)

    def test_less_noise_is_refused(self, rows):
        plan = plan_for(rows, secure=True, epsilon=2.0, delta=1e-3)
        noise = noise_of_one(plan.protection)
        with pytest.raises(InputError, match="of the sensitivity; must be at least"):
            training_guarantee(
                {"reports": (SampledSums(50, 50, 4), 0.5)}, epsilon=2.0, delta=1e-3,
                shares=plan.protection.shares, noise=noise * (1 - 1e-6),
            )  # fmt: skip

    def test_a_norm_without_rounding_is_refused(self, rows):
        (mechanism,) = self.guarantee(rows).mechanisms
        fields = mechanism.model_dump()
        SampledMechanism.model_validate(fields)
        for norm in (mechanism.clip, mechanism.clip * 0.5):
            fields["shares"] = mechanism.shares.model_copy(update={"norm": norm}).model_dump()
            with pytest.raises(ValidationError, match="at least clip"):
                SampledMechanism.model_validate(fields)

    def test_a_coarse_grid_or_too_many_numbers_are_refused(self, rows):
        (mechanism,) = self.guarantee(rows).mechanisms
        fields = mechanism.model_dump()
        with pytest.raises(ValidationError, match="34 steps"):
            SampledMechanism.model_validate(fields | {"noise": mechanism.noise / 8})
        with pytest.raises(ValidationError, match="below 2.32"):
            SampledMechanism.model_validate(fields | {"times": 2**30})

    def test_is_booked_and_composes_in_the_ledger(self, rows, tmp_path):
        ledger = Ledger(tmp_path / "a.ledger.jsonl")
        one = self.guarantee(rows)
        for run in "01":
            ledger.book(Purchase(kind="training", output="a", run=run * 64, guarantee=one))
        mechanism = one.mechanisms[0]
        twice = SampledSums(50, 50, 4).epsilon(mechanism.multiplier, 1e-3)
        assert ledger.spent().epsilon(1e-3) == pytest.approx(twice, rel=1e-6)

    def test_all_users_send_where_who_was_drawn_is_hidden(self, rows):
        data, config = data_for(rows, secure=True, cohort=20)
        plan = config.plan(data)
        length = plan.protection.vectors.length
        claimed = plan.bound(guarantee=self.guarantee(rows))
        sent = [train_rounds(data, p).cost.bytes_sent for p in (plan, claimed)]
        assert sent == [2 * 8 * length * 4 * users for users in (20, 50)]


def test_the_command_writes_what_was_guaranteed(tmp_path, capsys):
    table = make_table(200).assign(who=np.arange(200) // 2)
    schema = make_schema().model_copy(update={"ignored": ("who",)})
    table.to_csv(tmp_path / "t.csv", index=False)
    (tmp_path / "schema.json").write_text(schema.to_json())
    args = ["train", str(tmp_path / "t.csv"), "--schema", str(tmp_path / "schema.json"),
            "--user-column", "who", "--rounds", "2", "--method", "fedavg", "--secure",
            "--output", str(tmp_path / "out")]  # fmt: skip
    assert main([*args]) == 2
    assert "secure needs clip" in capsys.readouterr().err
    assert main([*args, "--clip", "0.5", "--epsilon", "4", "--delta", "1e-3"]) == 0
    assert "all aggregators but one" in " ".join(capsys.readouterr().out.split())
    content = (tmp_path / "out" / "metrics.json").read_text()
    metrics = json.loads(content)
    assert metrics["guarantee"]["simulated"] is True
    assert metrics["secure_sums"]["aggregators"] == 2
    read = MetricsFile.model_validate_json(content)
    assert read.guarantee.mechanisms[0].shares == read.secure_sums

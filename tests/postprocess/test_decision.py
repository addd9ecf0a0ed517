"""Decisions by group: steps and coins, in model files, in metrics, and row by row."""

import hashlib
import json

import numpy as np
import pandas as pd
import pytest
from builders import CERTAIN, KEY, MIXED, checksum, fair_model, make_schema, make_table, some_model
from scipy.stats import kstest
from score_rows import histogram_of, metrics

import synthfair as sf
from synthfair.errors import InputError
from synthfair.evaluation import pooled_scores
from synthfair.fairness.metrics import Scored, group_rates
from synthfair.measure.collection import rate_of
from synthfair.postprocess import GroupDecision, coins, score_bins
from synthfair.trained import predict, read_model, write_model


def logit(probability):
    return np.log(probability / (1 - probability))


def test_probabilities_are_those_of_the_last_step_at_or_below_the_bin():
    z, s = logit(np.array([0.15, 0.25, 0.65, 0.75, 0.45, 0.55])), np.array([0, 0, 0, 0, 1, 1])
    expected = [0, 0.25, 0.25, 1, 0, 0.5]
    assert GroupDecision(**MIXED).probabilities(z, s).tolist() == expected
    assert GroupDecision(**CERTAIN).decide(z, s).tolist() == [
        False,
        False,
        True,
        True,
        False,
        False,
    ]


def test_extreme_scores_have_bins():
    z = np.array([-1e308, -np.inf, np.nan, 1e308, np.inf])
    assert score_bins(z, 10).tolist() == [0, 0, 0, 9, 9]


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"steps": (((5, 0.5), (5, 0.7)), ())}, "must rise"),
        ({"steps": (((5, 0.5), (4, 0.7)), ())}, "must rise"),
        ({"steps": (((5, 0.5), (6, 0.4)), ())}, "must rise"),
        ({"steps": (((10, 0.5),), ())}, "below 10"),
        ({"steps": (((-1, 0.5),), ())}, "greater than or equal to 0"),
        ({"steps": (((0, 1.5),), ())}, "less than or equal to 1"),
        ({"steps": (((0, 0.0),), ())}, "greater than 0"),
        ({"steps": (((0, float("nan")),), ())}, "finite"),
        ({"steps": (((0, 0.5),),)}, "at least 2"),
        ({"key": None}, "key must be there"),
        ({"steps": (((0, 1.0),), ())}, "key must be there if, and only if"),
        ({"key": "AB" * 32}, "pattern"),
        ({"n_bins": 10**6}, "2048"),
        ({"n_bins": True}, "integer"),
        ({"alpha": 1.0}, "less than 1"),
        ({"notion": "fairness"}, "statistical_parity"),
        ({"more": 1}, "more: unknown key"),
    ],
)
def test_what_is_no_decision_is_refused(changes, complaint):
    with pytest.raises(InputError, match=complaint):
        GroupDecision(**(MIXED | changes))


class TestCoins:
    def test_a_coin_is_the_first_53_bits_of_a_hash(self):
        digest = hashlib.sha256(bytes.fromhex(KEY) + "zoë".encode()).hexdigest()
        assert coins(KEY, ["zoë"]).tolist() == [(int(digest[:16], 16) >> 11) / 2**53]

    def test_they_are_uniform_and_those_of_another_key_are_others(self):
        """Kolmogorov and Smirnov's test; false alarm once in a million."""
        ids = [str(i) for i in range(4000)]
        found, others = coins(KEY, ids), coins("cd" * 32, ids)
        assert kstest(found, "uniform").pvalue > 1e-6
        assert kstest(found**1.2, "uniform").pvalue < 1e-6
        assert abs(np.corrcoef(found, others)[0, 1]) < 4.9 / 4000**0.5

    def test_decisions_are_drawn_with_their_probability(self):
        """Of 4,000 each within 4.9 standard deviations: false alarm once in a million."""
        s = np.repeat([0, 1], 4000)
        z = np.full(8000, logit(0.6))
        found = GroupDecision(**MIXED).decide(z, s, map(str, range(8000)))
        for group, chance in enumerate((0.25, 0.5)):
            assert (
                abs(found[s == group].mean() - chance) < 4.9 * (chance * (1 - chance) / 4000) ** 0.5
            )

    def test_a_higher_score_never_turns_a_yes_into_a_no(self):
        rule, s = GroupDecision(**MIXED), np.zeros(500, int)
        ids = [str(i) for i in range(500)]
        low, high = (rule.decide(np.full(500, logit(p)), s, ids) for p in (0.3, 0.9))
        assert low.any()
        assert (high >= low).all()

    def test_without_ids_nothing_is_drawn(self):
        with pytest.raises(InputError, match="give ids"):
            GroupDecision(**MIXED).decide(np.zeros(2), np.zeros(2, int))


class TestModelFile:
    def test_round_trip(self, tmp_path):
        for model in (fair_model(), fair_model(**CERTAIN)):
            write_model(model, tmp_path / "m.json")
            assert read_model(tmp_path / "m.json") == model

    def test_without_a_decision_the_file_and_its_checksum_are_those_of_before(self, tmp_path):
        write_model(some_model(), tmp_path / "m.json")
        body = json.loads((tmp_path / "m.json").read_text())
        assert "decision" not in body
        assert body["sha256"] == checksum(body) == some_model().sha256
        assert fair_model().sha256 != some_model().sha256

    @pytest.mark.parametrize(
        ("changes", "complaint"),
        [
            ({"steps": [[[2, 0.25]]] * 3}, "decision: steps must be those of 2 groups"),
            ({"steps": [[[2.5, 0.25]], []]}, "decision.steps.0.0.0"),
            ({"steps": [[[2, "1"]], []]}, "decision.steps.0.0.1"),
            ({"key": "../../etc"}, "decision.key"),
        ],
    )
    def test_a_renewed_checksum_does_not_help_a_bad_decision(self, tmp_path, changes, complaint):
        path = tmp_path / "m.json"
        write_model(fair_model(), path)
        body = json.loads(path.read_text())
        body["decision"] |= changes
        path.write_text(json.dumps(body | {"sha256": checksum(body)}))
        with pytest.raises(InputError, match=complaint):
            read_model(path)

    @pytest.mark.parametrize(
        ("fields", "complaint"),
        [
            ({}, "schema_hash 000.*: is another model's"),
            ({"schema_hash": make_schema().hash}, "model 111.*: is another model's"),
            (
                {
                    "schema_hash": make_schema().hash,
                    "model": some_model().sha256,
                    "groups": ("b", "a"),
                },
                r"groups \('b', 'a'\): is another model's, not \('a', 'b'\)",
            ),
        ],
    )
    def test_a_histogram_of_another_model_is_refused(self, fields, complaint):
        table = sf.encode(make_table(), make_schema())
        counted = histogram_of(some_model().scores(table.x, table.s), table.s, table.y, **fields)
        with pytest.raises(InputError, match=complaint):
            some_model().require_counted(counted)


class TestMetrics:
    def rows(self, n=300):
        rng = np.random.default_rng(0)
        y, s = rng.choice([-1.0, 1.0], n), rng.integers(2, size=n)
        z = rng.normal(size=n) + y + s
        return y, z, s, rng.choice([0.0, 0.3, 1.0], n)

    def test_they_are_means_over_coins(self):
        """Over 2,000 draws; false alarm once in a million. The signs of scores would be refused."""
        y, z, s, chance = self.rows()
        found = metrics(Scored(y, z, s, 2, chance))
        rng = np.random.default_rng(1)
        draws = [
            metrics(Scored(y, np.where(rng.random(len(y)) < chance, 1.0, -1.0), s))
            for _ in range(2000)
        ]
        signs = metrics(Scored(y, z, s))
        for name in ("accuracy", "spd", "equal_opportunity_difference"):
            values = np.array([draw[name] for draw in draws])
            error = 5.1 * values.std() / 2000**0.5
            assert abs(values.mean() - found[name]) < error
            assert abs(values.mean() - signs[name]) > error

    def test_of_sure_decisions_they_are_the_same(self):
        y, z, s, _ = self.rows()
        sure = Scored(y, z, s, 2, (z > 0).astype(float))
        assert metrics(sure) == metrics(Scored(y, z, s))
        assert group_rates(sure) == group_rates(Scored(y, z, s))
        assert metrics(sure.take(np.arange(50))) == metrics(Scored(y, z, s).take(np.arange(50)))

    def test_rates_of_groups_and_of_devices_use_the_probability(self):
        y, z, s, chance = self.rows()
        rows = Scored(y, z, s, 2, chance)
        for group, found in enumerate(group_rates(rows)):
            mine = s == group
            assert found.selection_rate == pytest.approx(chance[mine].mean())
            wrong = np.where(y > 0, 1 - chance, chance)
            assert found.error_rate == pytest.approx(wrong[mine].mean())
        device = np.arange(len(y)) % 3
        rates = rate_of("true_positive_rate", rows, device, 3)
        expected = [chance[(device == d) & (y > 0)].mean() for d in range(3)]
        np.testing.assert_allclose(rates, expected)


class TestRows:
    def test_evaluate_uses_the_decision(self):
        model, table = fair_model(), make_table()
        x, s, y = sf.encode(table, model.schema_)
        chance = GroupDecision(**MIXED).probabilities(model.scores(x, s), s)
        assert 0 < chance.mean() < 1
        found = sf.evaluate(model, {"a": table, "b": table}, sf.ServerConfig(resamples=5))
        expected = np.where(y > 0, chance, 1 - chance).mean()
        assert found.overall["accuracy"].value == pytest.approx(expected)
        assert found.per_client["b"].accuracy.value == pytest.approx(expected)
        np.testing.assert_array_equal(pooled_scores(model, {"a": table}).selected, chance)

    def test_predict_draws_by_id_in_any_order_and_company(self):
        model, table = fair_model(), make_table().assign(who=[f"{i:03d}" for i in range(120)])
        found = predict(model, table, id_column="who")["decision"].to_numpy()
        assert set(found) == {"yes", "no"}
        order = np.random.default_rng(0).permutation(120)[:50]
        again = predict(model, table.iloc[order], id_column="who")["decision"].to_numpy()
        assert (again == found[order]).all()
        others = table.assign(who=table["who"] + "!")
        assert (predict(model, others, id_column="who")["decision"].to_numpy() != found).any()

    def test_predict_of_thresholds_needs_no_ids_and_not_the_sign_of_the_score(self):
        model = fair_model(**CERTAIN)
        found = predict(model, make_table())
        assert set(found["decision"]) == {"yes", "no"}
        x, s, _ = sf.encode(make_table(), model.schema_)
        expected = (s == 0) & (1 / (1 + np.exp(-model.scores(x, s))) >= 0.6)
        assert ((found["decision"] == "yes") == expected).all()

    def test_an_ignored_column_may_hold_the_ids(self):
        ids = pd.Series(range(120), dtype="int64")
        model = fair_model()
        ignoring = model.schema_.model_copy(update={"ignored": ("who",)})
        table = make_table().assign(who=ids)
        found = predict(model.model_copy(update={"schema_": ignoring}), table, id_column="who")
        as_text = table.assign(who=ids.astype(str))
        assert found.equals(predict(model, as_text, id_column="who"))

    @pytest.mark.parametrize(
        ("column", "complaint"),
        [
            ("income", "id column 'income': is a column of the schema"),
            ("nobody", "id column 'nobody': the table has no such column"),
            ("who", "id column 'who', row 3: missing"),
            (None, "need coins"),
        ],
    )
    def test_bad_ids(self, column, complaint):
        table = make_table(n=4).assign(who=["a", "b", None, "d"])
        if column is None:
            table = table.drop(columns="who")
        with pytest.raises(InputError, match=complaint):
            predict(fair_model(), table, id_column=column)

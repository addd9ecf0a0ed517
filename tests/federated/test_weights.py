"""Weights of rows by group and label: their formulas, and training with them."""

import json
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from builders import make_schema, make_table
from two_group_rows import NETWORK, make, rows_of

import synthfair as sf
from synthfair.errors import InputError
from synthfair.federated.dp_sgd import DpSgd
from synthfair.federated.engine import run
from synthfair.federated.fedavg import FedAvg, safe_rate
from synthfair.federated.networks import LogisticRegression
from synthfair.federated.users import Cohorts, make_users
from synthfair.postprocess import RowWeights, ScoreHistogram, make_weights
from synthfair.postprocess.histogram import Origin

COUNTS = np.array([[30, 10], [20, 40], [7, 13]])
TWICE = jnp.array([[1.0, 3.0], [2.0, 1.0]])  # by group and label


def counted(counts=COUNTS, **fields):
    given = {"schema_hash": "0" * 64, "model": None, "groups": tuple("abc"[: len(counts)])} | fields
    return ScoreHistogram(counts=np.asarray(counts)[..., None].tolist(), **given)


def weights_for(schema, by_pair=((1.0, 3.0), (2.0, 1.0))):
    return sf.postprocess.RowWeights(
        schema_hash=schema.hash, groups=schema.groups, method="published", weights=by_pair
    )


class TestFormulas:
    def test_published_weights_give_every_pair_the_same(self):
        """N / (4 C) for two groups, as printed."""
        found = make_weights(counted(COUNTS[:2]), "published").array()
        np.testing.assert_allclose(found, 100 / (4 * COUNTS[:2]))
        found = make_weights(counted(), "published").array()
        np.testing.assert_allclose(found * COUNTS, 120 / 6)

    def test_kamiran_and_calders_weights_make_group_and_label_independent(self):
        weighted = make_weights(counted(), "kamiran_calders").array() * COUNTS
        np.testing.assert_allclose(weighted.sum(axis=1), COUNTS.sum(axis=1))
        np.testing.assert_allclose(weighted.sum(axis=0), COUNTS.sum(axis=0))
        assert np.linalg.matrix_rank(weighted) == 1

    def test_bins_are_summed(self):
        bins = np.random.default_rng(0).multinomial(50, np.full(4, 0.25), (2, 2))
        many = ScoreHistogram(
            schema_hash="0" * 64, model="1" * 64, groups=("a", "b"), counts=bins.tolist()
        )
        for method in ("published", "kamiran_calders"):
            one = make_weights(counted(bins.sum(axis=2)), method)
            assert make_weights(many, method).weights == one.weights

    @pytest.mark.parametrize(
        ("count", "variance", "complaint"),
        [
            (0, 0.0, "group 'b' and label \\+1: counted 0; must be more than 0"),
            (-3, 1.0, "counted -3"),
            (40, 200.0, "counted 40; must be more than 42.4, three standard deviations"),
        ],
    )
    def test_counts_that_are_noise_are_refused(self, count, variance, complaint):
        counts = [[90, 80], [70, count]]
        with pytest.raises(InputError, match=complaint):
            make_weights(counted(counts, variance=variance), "published")

    def test_round_trip(self, tmp_path):
        found = make_weights(counted(origin=Origin(clients=2, guarantees=(None,))), "published")
        found.write(tmp_path / "w.json")
        assert RowWeights.read(tmp_path / "w.json") == found

    @pytest.mark.parametrize(
        ("changes", "complaint"),
        [
            ({"weights": [[1.0, 2.0]]}, "must be \\[groups\\]\\[2 labels\\]"),
            ({"weights": [[1.0, 2.0], [0.0, 1.0], [1.0, 1.0]]}, "weights.1.0"),
            ({"weights": [[1.0, "2"], [1.0, 1.0], [1.0, 1.0]]}, "weights.0.1"),
            ({"format": "synthfair-histogram/1"}, "format"),
            ({"method": "other"}, "method"),
            ({"more": 1}, "more: unknown key"),
        ],
    )
    def test_hostile_files(self, tmp_path, changes, complaint):
        path = tmp_path / "w.json"
        make_weights(counted(), "published").write(path)
        path.write_text(json.dumps(json.loads(path.read_text()) | changes))
        with pytest.raises(InputError, match=complaint):
            RowWeights.read(path)

    @pytest.mark.parametrize("content", [b"", b"[" * 100_000, b"\x80\x04N.", b'{"weights": NaN}'])
    def test_foreign_files(self, tmp_path, content):
        (tmp_path / "w.json").write_bytes(content)
        with pytest.raises(InputError, match="w.json"):
            RowWeights.read(tmp_path / "w.json")


def repeated(a, s, y, owner):
    """Every row as often as it weighs."""
    times = np.asarray(TWICE)[s, (y > 0).astype(int)].astype(int)
    return tuple(np.repeat(part, times, axis=0) for part in (a, s, y, owner))


class TestTraining:
    rows = (*make(80), np.repeat([0, 1], [50, 30]))

    def params(self, algorithm, rows, rounds):
        done = run(algorithm, make_users(*rows), Cohorts(2, 2), rounds=rounds, seed=0)
        return np.asarray(algorithm.params(done.state))

    @pytest.mark.parametrize("local_steps", [1, 5])
    def test_fedavg_with_weights_is_that_of_repeated_rows(self, local_steps):
        """With users who count by their rows, and whole weights."""
        plain = FedAvg(
            model=LogisticRegression(3),
            learning_rate=0.3,
            local_steps=local_steps,
            lambda_theta=1.0,
        )
        expected = self.params(plain, repeated(*self.rows), rounds=7)
        found = self.params(plain.bound(row_weights=TWICE), self.rows, rounds=7)
        np.testing.assert_allclose(found, expected, rtol=1e-9)
        assert np.abs(found - self.params(plain, self.rows, rounds=7)).max() > 0.01

    def test_a_safe_rate_knows_the_weights(self):
        plain = FedAvg(model=LogisticRegression(3))
        expected = safe_rate(plain, make_users(*repeated(*self.rows)))
        found = safe_rate(plain.bound(row_weights=TWICE), make_users(*self.rows))
        assert float(found) == pytest.approx(float(expected))

    def test_dp_sgd_with_weights_is_that_of_repeated_rows(self):
        """All rows in each batch, nothing clipped; the sum is divided by the rows' number."""
        a, s, y, _ = self.rows
        many = repeated(a, s, y, np.zeros(80, int))
        n = len(many[0])
        settings = {"noise": 0.0, "local_steps": 3}
        one = DpSgd(
            model=LogisticRegression(3), learning_rate=0.1, batch=80, row_weights=TWICE, **settings
        )
        all_ = DpSgd(model=LogisticRegression(3), learning_rate=0.1 * n / 80, batch=n, **settings)
        found, expected = (
            run(dp, make_users(*rows), Cohorts(1, 1), rounds=2, seed=0).state
            for dp, rows in ((one, (a, s, y, np.zeros(80, int))), (all_, many))
        )
        np.testing.assert_allclose(found, expected, rtol=1e-9)

    @pytest.mark.parametrize("model", [NETWORK, LogisticRegression(3)])
    def test_weights_multiply_before_clipping(self, model):
        """So that no row, however heavy, moves the sum by more than the clip."""
        rows, params = (
            rows_of(),
            jax.tree.map(lambda leaf: leaf + 0.3, model.init(jax.random.key(1))),
        )
        heavy = DpSgd(model=model, clip=0.5, noise=0.0, batch=60, row_weights=1e6 * TWICE)
        gradient = jax.jit(heavy.noisy_gradient)
        whole = gradient(params, rows, jax.random.key(0))
        without = gradient(
            params, rows._replace(weight=rows.weight.at[0].set(0.0)), jax.random.key(0)
        )
        moved = np.concatenate(
            [
                np.ravel(60 * (b - c))
                for b, c in zip(*map(jax.tree.leaves, (whole, without)), strict=True)
            ]
        )
        assert np.linalg.norm(moved) == pytest.approx(0.5, rel=1e-6)

    def test_how_much_a_client_counts_says_nothing_of_its_labels_with_dp_sgd(self):
        rows = rows_of()
        found = DpSgd(
            model=LogisticRegression(3), batch=60, noise=0.0, row_weights=5 * TWICE
        ).report(jnp.zeros(3), rows, jax.random.key(0))
        assert float(found.weight) == 60


class TestTable:
    def data(self, weights, **settings):
        rows, schema = sf.encode(make_table(), make_schema()), make_schema()
        config = sf.TrainConfig(**settings)
        return sf.federated.make_user_data(
            rows, np.arange(120) % 2, schema, config, weights=weights
        ), config

    @pytest.mark.parametrize("method", ["fedavg", "dp_sgd"])
    def test_methods_that_take_weights_use_them(self, method):
        settings = {"method": method, "rounds": 2}
        settings |= {"batch": 30} if method == "dp_sgd" else {}
        models = [
            sf.federated.train_rounds(*self.data(weights, **settings)).model
            for weights in (None, weights_for(make_schema()))
        ]
        assert np.abs(np.subtract(models[0].theta, models[1].theta)).max() > 1e-3

    def test_dp_sgd_has_a_guarantee_for_rows(self):
        settings = {"method": "dp_sgd", "batch": 60, "clip": 1.0, "epsilon": 2.0, "delta": 1e-3}
        data, config = self.data(weights_for(make_schema()), **settings)
        guarantee = config.plan(data).guarantee
        assert guarantee.unit == "row"
        assert guarantee.condition is None
        spent = guarantee.composition.epsilon(1e-3)
        assert 1.9 < spent <= 2.0
        (mechanism,) = guarantee.mechanisms
        assert mechanism.times == 4 * 5  # rounds, and five passes over 60 rows

    @pytest.mark.parametrize(
        ("settings", "weights", "complaint"),
        [
            (
                {"method": "fpfl"},
                weights_for(make_schema()),
                "weights: not read by fpfl; take one of fedavg, dp_sgd",
            ),
            (
                {"method": "fedavg"},
                weights_for(make_schema(3), ((1.0, 1.0),) * 3),
                "another schema",
            ),
        ],
    )
    def test_weights_that_do_not_fit_are_refused(self, settings, weights, complaint):
        with pytest.raises(InputError, match=complaint):
            self.data(weights, **settings)

    def test_a_batch_larger_than_a_client_is_refused(self):
        data, config = self.data(None, method="dp_sgd", batch=61)
        with pytest.raises(InputError, match=r"batch = 61: must be 1 to 60"):
            config.plan(data)

    @pytest.mark.parametrize("method", ["dp_sgd", "two_phase", "privfairfl_pre", "privfairfl_post"])
    def test_an_unset_batch_is_no_larger_than_a_client(self, method):
        data, config = self.data(None, method=method)
        assert config.plan(data).batch == 60
        larger = data._replace(users=replace(data.users, size=10 * data.users.size))
        assert config.plan(larger).batch == 500

    def test_a_training_with_other_weights_is_another(self):
        from synthfair.federated.training import _fingerprint

        found = set()
        for weights in (
            None,
            weights_for(make_schema()),
            weights_for(make_schema(), ((1.0, 1.0),) * 2),
        ):
            data, config = self.data(weights, method="fedavg")
            found.add(_fingerprint(data, config.plan(data), None))
        assert len(found) == 3

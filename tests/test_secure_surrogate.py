"""One private surrogate of all clients, of sums by shares with one noise for all of them."""

import math

import numpy as np
import pytest
from conftest import make_schema, make_table
from scipy import stats

import synthfair as sf
from synthfair.data.batches import BatchesInOrder, in_memory
from synthfair.data.encode import Encoded
from synthfair.errors import InputError
from synthfair.privacy.accounting import delta_of, discrete_delta_of, mu_for
from synthfair.privacy.discrete import discrete_gaussian
from synthfair.privacy.mechanism import cell_moments_bound, feature_ball, numeric_features
from synthfair.privacy.noise import seeded, system_entropy
from synthfair.secure import RowSums, noisy_sum
from synthfair.surrogate import make_secure_surrogate
from synthfair.surrogate.secure import client_sums, summands

ALARM = 1e-6
"""False-alarm rate of each statistical test."""

SCHEMA = make_schema()


def settings(**more):
    return sf.SurrogateConfig(**{"epsilon": 8.0, "delta": 1e-5, "k_min": 20} | more)


WHAT = summands(settings(), SCHEMA, clients=9)


@pytest.fixture(scope="module")
def rows():
    return sf.encode(make_table(900), SCHEMA)


def part(rows, which):
    return Encoded(*(field[which] for field in rows))


def clients(rows, number):
    return [in_memory(part(rows, slice(i, None, number))) for i in range(number)]


class TestSums:
    def test_moments_are_those_of_the_rows_within_the_grid(self, rows):
        found = WHAT["cell_moments"].values(
            client_sums("cell_moments", WHAT["cell_moments"], in_memory(rows), SCHEMA)
        )
        b = np.column_stack([rows.x - feature_ball(SCHEMA).centre, np.ones(len(rows.y))])
        cell = 2 * rows.s + (rows.y > 0)
        upper = np.triu_indices(b.shape[1])
        exact = np.concatenate([(b[cell == c].T @ b[cell == c])[upper] for c in range(4)])
        assert np.abs(found - exact).max() < len(rows.y) * WHAT["cell_moments"].step ** 0.5
        assert found[len(upper[0]) - 1] == np.sum(cell == 0)  # counts are exact

    def test_histograms_count_each_number_once(self, rows):
        found = WHAT["histograms"].values(
            client_sums("histograms", WHAT["histograms"], in_memory(rows), SCHEMA)
        )
        numbers = rows.x[:, numeric_features(SCHEMA)]
        assert found.sum() == numbers.size
        edges = np.histogram(numbers[(rows.s == 1) & (rows.y > 0), 0], 16, (0, 1))[0]
        assert found.reshape(2, 2, -1, 16)[1, 1, 0].tolist() == edges.tolist()

    @pytest.mark.parametrize("name", ["cell_moments", "histograms"])
    def test_add_up_exactly_over_clients_and_batches(self, rows, name):
        whole = client_sums(name, WHAT[name], in_memory(rows), SCHEMA)
        parts = [client_sums(name, WHAT[name], one, SCHEMA) for one in clients(rows, 7)]
        np.testing.assert_array_equal(whole, sum(parts))
        batches = BatchesInOrder(lambda: [part(rows, slice(i, None, 3)) for i in range(3)])
        np.testing.assert_array_equal(whole, client_sums(name, WHAT[name], batches, SCHEMA))

    @pytest.mark.parametrize("relation", ["add_or_remove", "replace"])
    @pytest.mark.parametrize("name", ["cell_moments", "histograms"])
    def test_no_row_changes_them_by_more_than_the_sensitivity(self, rows, name, relation):
        """Corners of the range, rows far outside of it, and rows without a norm."""
        what = summands(settings(relation=relation), SCHEMA, clients=9)[name]
        rng, d = np.random.default_rng(0), rows.x.shape[1]
        hostile = [*rng.integers(0, 2, (40, d)), *(9 * rng.normal(size=(20, d))), [np.nan] * d]
        terms = []
        for x in np.array(hostile, float):
            row = Encoded(x[None], np.array([rng.integers(2)]), rng.choice([-1.0, 1.0], 1))
            terms.append(client_sums(name, WHAT[name], in_memory(row), SCHEMA).astype(object))
        changes = terms if relation == "add_or_remove" else [
            one - other for one in terms for other in terms
        ]  # fmt: skip
        assert max((change**2).sum() for change in changes) <= what.square

    def test_the_sensitivity_is_that_of_a_row_and_no_idle_multiple(self):
        what = summands(settings(), SCHEMA, clients=9)["cell_moments"]
        norm = what.square**0.5 * what.step
        assert 1 < norm / cell_moments_bound(SCHEMA) < 1.001

    def test_clients_with_too_many_rows_are_refused(self, rows):
        what = WHAT["histograms"]
        what = what.model_copy(update={"largest": 900 * (math.isqrt(what.square) + 1) - 1})
        with pytest.raises(InputError, match="900 of a client; must be at most 899"):
            client_sums("histograms", what, in_memory(rows), SCHEMA)


class TestNoise:
    def test_both_sums_together_give_the_epsilon_of_one_aggregator(self):
        mus = [(what.square / what.variance) ** 0.5 for what in WHAT.values()]
        assert len(mus) == 2
        assert delta_of(math.hypot(*mus), 8.0) == pytest.approx(1e-5, rel=1e-6)
        assert discrete_delta_of(math.hypot(*mus), 8.0) <= 1e-5 * (1 + 1e-9)

    @pytest.mark.parametrize("epsilon", [0.1, 8.0, 60.0])
    def test_the_grid_is_fine_enough_to_be_accounted_for_as_normal_noise(self, epsilon):
        for what in summands(settings(epsilon=epsilon), SCHEMA, clients=9).values():
            assert 2**34 <= what.variance**0.5 < 2**36 * 1.01
            assert np.log2(what.step) / 2 == int(np.log2(what.step) / 2)

    def test_replacing_a_row_costs_twice_the_variance(self):
        one, two = (
            summands(settings(relation=relation), SCHEMA, clients=9)["histograms"]
            for relation in ("add_or_remove", "replace")
        )
        ratio = two.variance * two.step**2 / (one.variance * one.step**2)
        assert ratio == pytest.approx(2, rel=1e-6)

    def test_an_opened_sum_has_the_noise_of_two_for_any_number_of_clients(self):
        what = RowSums(length=20_000, square=9, largest=10, step=1.0, rho=0.01)
        for number in (1, 30):
            found = noisy_sum([np.zeros(20_000, np.int64)] * number, what)
            spread = (2 * 9 / 0.02) ** 0.5
            assert found.variance == pytest.approx(spread**2)
            assert stats.kstest(found.total / spread, "norm").pvalue > ALARM * 1e-3
            assert stats.kstest(found.total / spread * 1.2, "norm").pvalue < ALARM

    def test_comes_from_the_system_unless_a_test_asks(self, rows):
        seeds = (seeded(1), seeded(1), system_entropy, system_entropy)
        made = [
            make_secure_surrogate(clients(rows, 3), settings(), SCHEMA, source=source)
            for source in seeds
        ]
        x = [one.surrogate.table.x for one in made]
        np.testing.assert_array_equal(x[0], x[1])
        assert not np.array_equal(x[2], x[3])


class TestSurrogate:
    def test_has_the_moments_of_all_rows_up_to_noise(self, rows):
        config = settings(epsilon=100.0, moments_only=True)
        table = make_secure_surrogate(clients(rows, 5), config, SCHEMA).surrogate.table
        for s in (0, 1):
            for y in (-1.0, 1.0):
                real = rows.x[(rows.s == s) & (rows.y == y)]
                own = (table.s == s) & (table.y == y)
                assert table.weight[own].sum() == pytest.approx(len(real), abs=8)
                mean = np.average(table.x[own], axis=0, weights=table.weight[own])
                assert mean == pytest.approx(real.mean(axis=0), abs=0.05)

    def test_is_the_same_however_rows_are_cut(self, rows, monkeypatch):
        """Without noise: sums are exact, so that nothing tells one client from nine."""
        monkeypatch.setattr(RowSums, "noise", lambda self, source: np.zeros(self.length, int))
        one, nine = (
            make_secure_surrogate(clients(rows, number), settings(), SCHEMA).surrogate.table
            for number in (1, 9)
        )
        np.testing.assert_array_equal(one.x, nine.x)

    def test_a_cell_too_small_at_every_client_is_there(self, rows):
        """Of 30 clients each has fewer rows of a cell than k_min; all together have enough."""
        parts = clients(rows, 30)
        config = settings(epsilon=50.0, moments_only=True, k_min=50)
        assert len(rows.y) / 30 < 50
        assert make_secure_surrogate(parts, config, SCHEMA).surrogate.left_out == ()

    def test_the_statement_says_what_holds(self, rows):
        found = make_secure_surrogate(clients(rows, 3), settings(), SCHEMA).statement
        assert (found["epsilon"], found["delta"], found["unit"]) == (8.0, 1e-5, "one row")
        assert found["clients"] == 3
        assert found["relation"] == "add_or_remove"
        assert "any single aggregator" in found["holds_against"]
        assert "one process" in found["simulated"]
        assert sum(one["rho"] for one in found["sums"]) == pytest.approx(mu_for(8.0, 1e-5) ** 2 / 2)

    def test_a_corrupt_aggregator_that_takes_off_its_noise_has_the_others(self, rows):
        """What it is left with, less the exact sum, is discrete Gaussian noise of full scale."""
        what = summands(settings(), SCHEMA, clients=9)["histograms"]
        parts = [
            client_sums("histograms", WHAT["histograms"], one, SCHEMA) for one in clients(rows, 3)
        ]
        left = []
        for seed in range(40):
            drawn = []
            monkey = pytest.MonkeyPatch()
            monkey.setattr(
                RowSums,
                "noise",
                lambda self, source, drawn=drawn: (
                    drawn.append(discrete_gaussian(self.exact_variance, self.length)) or drawn[-1]
                ),
            )
            with monkey.context():
                total = noisy_sum(parts, what, source=seeded(seed)).total
            monkey.undo()
            left.append(total - sum(parts) - drawn[0])
        variance = np.var(np.concatenate(left))
        n = np.concatenate(left).size
        assert abs(variance / what.variance - 1) < 5.5 * (2 / n) ** 0.5

    @pytest.mark.parametrize(
        ("more", "message"),
        [({"epsilon": None, "delta": None}, "epsilon: must be given"), ({"k_min": 5000}, "k_min")],
    )
    def test_what_cannot_be_is_refused(self, rows, more, message):
        with pytest.raises(InputError, match=message):
            make_secure_surrogate(clients(rows, 2), settings(**more), SCHEMA)

    def test_no_clients_are_refused(self):
        with pytest.raises(InputError, match="there are none"):
            make_secure_surrogate([], settings(), SCHEMA)

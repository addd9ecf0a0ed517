"""One private surrogate of all clients, of sums by shares with one noise for all of them."""

import json
import math

import numpy as np
import pytest
from conftest import make_schema, make_table
from scipy import stats
from secure_task import parties

import synthfair as sf
from synthfair.data.batches import BatchesInOrder, in_memory
from synthfair.data.encode import Encoded
from synthfair.errors import InputError
from synthfair.privacy.accounting import delta_of, discrete_delta_of, mu_for
from synthfair.privacy.discrete import discrete_gaussian
from synthfair.privacy.mechanism import cell_moments_bound, feature_ball, numeric_features
from synthfair.privacy.noise import seeded, system_entropy
from synthfair.secure import RowSums, Task, noisy_sum, open_sums, read_task, write_task
from synthfair.surrogate import (
    client_sums,
    make_secure_surrogate,
    summands,
    surrogate_from_sums,
)

ALARM = 1e-6
"""False-alarm rate of each statistical test."""

SCHEMA = make_schema()


def settings(**more):
    return sf.SurrogateConfig(**{"epsilon": 8.0, "delta": 1e-5, "k_min": 20} | more)


def named(**more):
    """The sums of some settings by name, for nine clients."""
    return {what.name: what for what in summands(settings(**more), SCHEMA, clients=9)}


WHAT = named()


def own_sums(name, rows, **more):
    """A client's part of a sum."""
    return client_sums(named(**more)[name], rows, settings(**more), SCHEMA)


@pytest.fixture(scope="module")
def rows():
    return sf.encode(make_table(900), SCHEMA)


def part(rows, which):
    return Encoded(*(field[which] for field in rows))


def clients(rows, number):
    return [in_memory(part(rows, slice(i, None, number))) for i in range(number)]


def silent(self, source=None):
    """In place of a sum's noise."""
    return np.zeros(self.length, np.int64)


class TestSums:
    def test_moments_are_those_of_the_rows_within_the_grid(self, rows):
        found = WHAT["cell_moments"].values(own_sums("cell_moments", in_memory(rows)))
        b = np.column_stack([rows.x - feature_ball(SCHEMA).centre, np.ones(len(rows.y))])
        cell = 2 * rows.s + (rows.y > 0)
        upper = np.triu_indices(b.shape[1])
        exact = np.concatenate([(b[cell == c].T @ b[cell == c])[upper] for c in range(4)])
        assert np.abs(found - exact).max() < len(rows.y) * WHAT["cell_moments"].step ** 0.5
        assert found[len(upper[0]) - 1] == np.sum(cell == 0)  # counts are exact

    def test_histograms_count_each_number_once(self, rows):
        found = WHAT["histograms"].values(own_sums("histograms", in_memory(rows)))
        numbers = rows.x[:, numeric_features(SCHEMA)]
        assert found.sum() == numbers.size
        edges = np.histogram(numbers[(rows.s == 1) & (rows.y > 0), 0], 16, (0, 1))[0]
        assert found.reshape(2, 2, -1, 16)[1, 1, 0].tolist() == edges.tolist()

    @pytest.mark.parametrize("name", ["cell_moments", "histograms"])
    def test_add_up_exactly_over_clients_and_batches(self, rows, name):
        whole = own_sums(name, in_memory(rows))
        parts = [own_sums(name, one) for one in clients(rows, 7)]
        np.testing.assert_array_equal(whole, sum(parts))
        batches = BatchesInOrder(lambda: [part(rows, slice(i, None, 3)) for i in range(3)])
        np.testing.assert_array_equal(whole, own_sums(name, batches))

    @pytest.mark.parametrize("relation", ["add_or_remove", "replace"])
    @pytest.mark.parametrize("name", ["cell_moments", "histograms"])
    def test_no_row_changes_them_by_more_than_the_sensitivity(self, rows, name, relation):
        """Corners of the range, rows far outside of it, and rows without a norm."""
        what = named(relation=relation)[name]
        assert what.relation == relation
        rng, d = np.random.default_rng(0), rows.x.shape[1]
        hostile = [*rng.integers(0, 2, (40, d)), *(9 * rng.normal(size=(20, d))), [np.nan] * d]
        terms = []
        for x in np.array(hostile, float):
            row = Encoded(x[None], np.array([rng.integers(2)]), rng.choice([-1.0, 1.0], 1))
            terms.append(own_sums(name, in_memory(row), relation=relation).astype(object))
        changes = terms if relation == "add_or_remove" else [
            one - other for one in terms for other in terms
        ]  # fmt: skip
        assert max((change**2).sum() for change in changes) <= what.square

    def test_the_sensitivity_is_that_of_a_row_and_no_idle_multiple(self):
        what = WHAT["cell_moments"]
        norm = what.square**0.5 * what.step
        assert 1 < norm / cell_moments_bound(SCHEMA) < 1.001

    def test_clients_with_too_many_rows_are_refused(self, rows):
        """Of a hundred thousand, each may have a few thousand rows with so little noise."""
        config = settings(epsilon=60.0)
        what = summands(config, SCHEMA, clients=100_000)[0]
        few = client_sums(what, in_memory(rows), config, SCHEMA)
        assert 0 < abs(few).max() <= what.largest == 2**61 // 100_000
        many = BatchesInOrder(lambda: [rows] * 40)
        with pytest.raises(InputError, match="rows: too many of a client; cell_moments has"):
            client_sums(what, many, config, SCHEMA)

    @pytest.mark.parametrize("name", ["cell_moments", "histograms"])
    def test_rows_of_another_precision_are_refused(self, rows, name):
        single = in_memory(rows._replace(x=rows.x.astype(np.float32)))
        with pytest.raises(InputError, match="float64; these are float32"):
            own_sums(name, single)
        with pytest.raises(InputError, match="float64; these are float32"):
            make_secure_surrogate([single], settings(), SCHEMA)

    @pytest.mark.parametrize(
        ("changes", "complaint"),
        [
            ({"square": 1}, "square 1; settings and schema ask for"),
            ({"rho": 0.01}, "rho 0.01"),
            ({"step": 2.0**-20}, "step"),
            ({"length": 5}, "length 5"),
            ({"relation": "replace"}, "relation replace"),
            ({"epsilon": 9.0}, "epsilon 9.0"),
            ({"delta": 1e-4}, "delta 0.0001"),
            ({"schema_hash": "0" * 64}, "schema_hash 000"),
        ],
    )
    def test_a_planner_who_asks_for_another_sum_is_refused(self, rows, changes, complaint):
        what = WHAT["cell_moments"].model_copy(update=changes)
        with pytest.raises(InputError, match=complaint):
            client_sums(what, in_memory(rows), settings(), SCHEMA)

    def test_a_sum_of_other_settings_is_refused(self, rows):
        """Alone, moments have the whole budget: with histograms on top it would be overspent."""
        alone = named(moments_only=True)["cell_moments"]
        with pytest.raises(InputError, match="cell_moments: "):
            client_sums(alone, in_memory(rows), settings(), SCHEMA)
        with pytest.raises(
            InputError, match=r"histograms; the settings ask for \['cell_moments'\]"
        ):
            client_sums(WHAT["histograms"], in_memory(rows), settings(moments_only=True), SCHEMA)


class TestNoise:
    def test_both_sums_together_give_the_epsilon_of_one_aggregator(self):
        mus = [(what.square / what.variance) ** 0.5 for what in WHAT.values()]
        assert len(mus) == 2
        assert delta_of(math.hypot(*mus), 8.0) == pytest.approx(1e-5, rel=1e-6)
        assert discrete_delta_of(math.hypot(*mus), 8.0) <= 1e-5 * (1 + 1e-9)

    @pytest.mark.parametrize("epsilon", [0.1, 8.0, 60.0])
    def test_the_grid_is_fine_enough_to_be_accounted_for_as_normal_noise(self, epsilon):
        for what in named(epsilon=epsilon).values():
            assert 2**34 <= what.variance**0.5 < 2**36 * 1.01
            assert np.log2(what.step) / 2 == int(np.log2(what.step) / 2)

    def test_replacing_a_row_costs_twice_the_variance(self):
        one, two = (
            named(relation=relation)["histograms"] for relation in ("add_or_remove", "replace")
        )
        ratio = two.variance * two.step**2 / (one.variance * one.step**2)
        assert ratio == pytest.approx(2, rel=1e-6)

    def test_an_opened_sum_has_the_noise_of_two_for_any_number_of_clients(self):
        changes = {"length": 20_000, "square": 9, "step": 1.0, "rho": 0.01}
        what = WHAT["histograms"].model_copy(update=changes)
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
        monkeypatch.setattr(RowSums, "noise", silent)
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

    def test_noise_that_anybody_can_repeat_guarantees_nothing(self, rows):
        made = make_secure_surrogate(clients(rows, 3), settings(), SCHEMA, source=seeded(1))
        assert "none" in made.statement["guarantee"]
        assert "epsilon" not in made.statement
        assert made.statement["holds_against"] is None
        assert all(one["rho"] is None for one in made.statement["sums"])

    def test_a_corrupt_aggregator_that_takes_off_its_noise_has_the_others(self, rows):
        """What it is left with, less the exact sum, is discrete Gaussian noise of full scale."""
        what = WHAT["histograms"]
        parts = [own_sums("histograms", one) for one in clients(rows, 3)]
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


def by_files(folder, rows, names=("cell_moments", "histograms")):
    """Three clients and two aggregators, who have nothing but files in common."""
    opened = []
    for name in names:
        (folder / name).mkdir()
        theirs = parties(WHAT[name])
        write_task(theirs.task, folder / name / "task.json")
        task = read_task(folder / name / "task.json")
        vectors = [client_sums(task.what, one, settings(), SCHEMA) for one in clients(rows, 3)]
        opened.append((task.what, open_sums(task, theirs.answers(folder / name, vectors))))
    return opened


class TestByFiles:
    def test_three_parties_make_the_surrogate_that_one_process_makes(
        self, rows, tmp_path, monkeypatch
    ):
        """Without noise; each of them has read its tasks from files."""
        monkeypatch.setattr(RowSums, "noise", silent)
        found = surrogate_from_sums(by_files(tmp_path, rows), settings(), SCHEMA)
        simulated = make_secure_surrogate(clients(rows, 3), settings(), SCHEMA)
        for own, other in zip(found.surrogate.table, simulated.surrogate.table, strict=True):
            np.testing.assert_array_equal(own, other)
        assert "simulated" not in found.statement
        assert found.statement == {
            key: value for key, value in simulated.statement.items() if key != "simulated"
        }

    def test_has_the_moments_of_all_rows_up_to_noise(self, rows, tmp_path):
        found = surrogate_from_sums(by_files(tmp_path, rows), settings(), SCHEMA)
        table, sd = found.surrogate.table, (2 * WHAT["cell_moments"].variance) ** 0.5
        for s in (0, 1):
            for y in (-1.0, 1.0):
                real = np.sum((rows.s == s) & (rows.y == y))
                weight = table.weight[(table.s == s) & (table.y == y)].sum()
                assert abs(weight - real) < 6 * sd * WHAT["cell_moments"].step  # 2e-9 each

    def test_other_settings_of_what_is_made_of_the_sums_are_free(self, rows, tmp_path):
        opened = by_files(tmp_path, rows)
        config = settings(rows_per_cell=30)
        assert len(surrogate_from_sums(opened, config, SCHEMA).surrogate.table.y) == 120

    def test_what_does_not_fit_is_refused(self, rows, tmp_path):
        moments, histograms = by_files(tmp_path, rows)
        fewer = histograms[1]._replace(statement=histograms[1].statement | {"clients": 2})
        weaker = moments[0].model_copy(update={"square": 1})
        for opened, complaint in [
            ([moments], "sums: .*; must be .*, each once"),
            ([moments, moments, histograms], "each once"),
            ([moments, (histograms[0], moments[1])], "histograms: the total is of another sum"),
            ([moments, (histograms[0], fewer)], "of the same clients"),
            ([(weaker, moments[1]), histograms], "square 1; settings and schema ask for"),
        ]:
            with pytest.raises(InputError, match=complaint):
                surrogate_from_sums(opened, settings(), SCHEMA)
        with pytest.raises(InputError, match="epsilon 8.0; settings and schema ask for 4.0"):
            surrogate_from_sums([moments, histograms], settings(epsilon=4.0), SCHEMA)

    def test_a_task_file_without_a_name_or_schema_is_refused(self, tmp_path):
        task = parties(WHAT["histograms"]).task
        write_task(task, tmp_path / "task.json")
        document = json.loads((tmp_path / "task.json").read_text())
        for key in ("name", "schema_hash", "epsilon", "clients"):
            changed = document | {"what": {k: v for k, v in document["what"].items() if k != key}}
            with pytest.raises(ValueError, match=key):
                Task.model_validate(changed)

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
from synthfair.privacy.noise import discrete_gaussian, seeded, system_entropy
from synthfair.secure import (
    RowSums,
    Task,
    client_sums,
    make_secure_surrogate,
    next_sums,
    noisy_sum,
    open_sums,
    read_task,
    surrogate_from_sums,
    write_task,
)

ALARM = 1e-6
"""False-alarm rate of each statistical test."""

SCHEMA = make_schema()
ROWS = sf.encode(make_table(2000), SCHEMA)
NAMES = ["histograms", "column_moments", "tables", "pairs", "anchors"]
BEFORE = [0, 0, 2, 3, 4]
"""Sums that are opened before each of them."""
COUNTS = {"histograms": 3, "tables": 3, "pairs": 2}
NORMS = COUNTS | {"column_moments": 3 / 16 + 2 / 4, "anchors": 20 / 4}
"""Squares: two numbers and a category; ten models at two temperatures."""


def settings(**more):
    return sf.SurrogateConfig(**{"epsilon": 8.0, "delta": 1e-5, "k_min": 20} | more)


def part(rows, which):
    return Encoded(*(field[which] for field in rows))


def clients(number, rows=ROWS):
    return [in_memory(part(rows, slice(i, None, number))) for i in range(number)]


def silent(self, source=None):
    """In place of a sum's noise."""
    return np.zeros(self.length, np.int64)


def in_one_process(what, before, config):
    return noisy_sum((client_sums(what, one, before, config, SCHEMA) for one in clients(3)), what)


def exchanged(config, sum_up=in_one_process, number=9):
    """All sums with their totals, one exchange after the other."""
    opened = []
    while asked := next_sums(opened, config, SCHEMA, clients=number):
        before = list(opened)
        opened += [(what, sum_up(what, before, config)) for what in asked]
    return opened


@pytest.fixture(scope="module")
def opened():
    return exchanged(settings())


@pytest.fixture(scope="module", params=["add_or_remove", "replace"])
def of_relation(request, opened):
    config = settings(relation=request.param)
    return config, opened if config == settings() else exchanged(config)


@pytest.fixture(scope="module")
def made():
    """With noise of the system."""
    return make_secure_surrogate(clients(3), settings(), SCHEMA)


@pytest.fixture(scope="module")
def repeatable():
    return make_secure_surrogate(clients(3), settings(), SCHEMA, source=seeded(1))


def own_sums(name, rows, opened, config=None):
    """A client's part of a sum."""
    at = NAMES.index(name)
    before = opened[: BEFORE[at]]
    return client_sums(opened[at][0], rows, before, config or settings(), SCHEMA)


class TestSums:
    def test_come_in_four_exchanges(self, opened):
        for count, names in [
            (0, NAMES[:2]),
            (1, NAMES[1:2]),
            (2, NAMES[2:3]),
            (3, NAMES[3:4]),
            (4, NAMES[4:]),
            (5, []),
        ]:
            asked = next_sums(opened[:count], settings(), SCHEMA, clients=9)
            assert [what.name for what in asked] == names

    @pytest.mark.parametrize("name", NAMES)
    def test_add_up_exactly_over_clients_and_batches(self, opened, name):
        whole = own_sums(name, in_memory(ROWS), opened)
        parts = [own_sums(name, one, opened) for one in clients(7)]
        np.testing.assert_array_equal(whole, sum(parts))
        batches = BatchesInOrder(lambda: [part(ROWS, slice(i, None, 3)) for i in range(3)])
        np.testing.assert_array_equal(whole, own_sums(name, batches, opened))

    @pytest.mark.parametrize("name", NAMES)
    def test_no_row_changes_them_by_more_than_the_sensitivity(self, of_relation, name):
        """Corners of the range, rows far outside of it, and rows without a norm."""
        (config, opened), rng = of_relation, np.random.default_rng(0)
        what = opened[NAMES.index(name)][0]
        hostile = [*rng.integers(0, 2, (12, 7)), *(9 * rng.normal(size=(6, 7))), [np.nan] * 7]
        terms = []
        for x in np.array(hostile, float):
            row = Encoded(x[None], np.array([rng.integers(2)]), rng.choice([-1.0, 1.0], 1))
            terms.append(own_sums(name, in_memory(row), opened, config).astype(object))
        changes = terms if config.relation == "add_or_remove" else [
            one - other for one in terms for other in terms
        ]  # fmt: skip
        assert max((change**2).sum() for change in changes) <= what.square

    def test_the_sensitivity_is_that_of_a_row_and_no_idle_multiple(self, of_relation):
        config, opened = of_relation
        for what, _ in opened:
            times = 1 if config.relation == "add_or_remove" else 4
            times = 2 if times == 4 and what.name in COUNTS else times
            assert 1 <= what.square * what.step**2 / (times * NORMS[what.name]) < 1.001
            assert what.relation == config.relation

    def test_clients_with_too_many_rows_are_refused(self):
        """Of a hundred thousand, each may have a few thousand rows with so little noise."""
        config = settings(epsilon=60.0)
        what = next_sums([], config, SCHEMA, clients=100_000)[0]
        few = client_sums(what, in_memory(part(ROWS, slice(99))), [], config, SCHEMA)
        assert 0 < abs(few).max() <= what.largest == 2**61 // 100_000
        many = BatchesInOrder(lambda: [ROWS] * 400)
        with pytest.raises(InputError, match="rows: too many of a client; histograms has"):
            client_sums(what, many, [], config, SCHEMA)

    @pytest.mark.parametrize("name", NAMES)
    def test_rows_of_another_precision_are_refused(self, opened, name):
        single = in_memory(ROWS._replace(x=ROWS.x.astype(np.float32)))
        with pytest.raises(InputError, match="float64; these are float32"):
            own_sums(name, single, opened)

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
            ({"seed": 1}, "seed 1; settings and schema ask for 0"),
            ({"k_min": 30}, "k_min 30"),
        ],
    )
    def test_a_planner_who_asks_for_another_sum_is_refused(self, opened, changes, complaint):
        for at in (1, 4):
            what = opened[at][0].model_copy(update=changes)
            with pytest.raises(InputError, match=complaint):
                client_sums(what, in_memory(ROWS), opened[: BEFORE[at]], settings(), SCHEMA)

    def test_a_sum_of_another_exchange_is_refused(self, opened):
        """Also one that was opened before: twice would cost twice."""
        anchors, histograms = opened[4][0], opened[0][0]
        for what, before, following in [
            (anchors, [], r"\['histograms', 'column_moments'\]"),
            (anchors, opened[:2], r"\['tables'\]"),
            (histograms, opened[:2], r"\['tables'\]"),
            (anchors, opened, r"\[\]"),
        ]:
            with pytest.raises(InputError, match=f"sum: {what.name}; next are {following}"):
                client_sums(what, in_memory(ROWS), before, settings(), SCHEMA)


class TestNoise:
    def test_all_sums_together_give_the_epsilon_of_one_aggregator(self, of_relation):
        mus = [(what.square / what.variance) ** 0.5 for what, _ in of_relation[1]]
        assert len(mus) == 5
        assert delta_of(math.hypot(*mus), 8.0) == pytest.approx(1e-5, rel=1e-6)
        assert discrete_delta_of(math.hypot(*mus), 8.0) <= 1e-5 * (1 + 1e-9)

    def test_comes_from_the_system_unless_a_test_asks(self, made, repeatable):
        same, other = (
            make_secure_surrogate(clients(3), settings(), SCHEMA, source=source).surrogate.weight
            for source in (seeded(1), system_entropy)
        )
        np.testing.assert_array_equal(repeatable.surrogate.weight, same)
        assert not np.array_equal(made.surrogate.weight, other)

    def test_a_corrupt_aggregator_that_takes_off_its_noise_has_the_others(
        self, opened, monkeypatch
    ):
        """What it is left with, less the exact sum, is discrete Gaussian noise of full scale."""
        what, parts, left = opened[0][0], [], []
        parts = [own_sums("histograms", one, opened) for one in clients(3)]
        for seed in range(20):
            drawn = []

            def noise(self, source, drawn=drawn):
                drawn.append(discrete_gaussian(self.exact_variance, self.length))
                return drawn[-1]

            monkeypatch.setattr(RowSums, "noise", noise)
            total = noisy_sum(parts, what, source=seeded(seed)).total
            left.append(total - sum(parts) - drawn[0])
        left = np.concatenate(left)
        assert abs(np.var(left) / what.variance - 1) < 5.5 * (2 / left.size) ** 0.5


def cell_weights(made):
    return np.bincount(2 * made.s + (made.y > 0), made.weight, minlength=4)


class TestSurrogate:
    def test_is_near_all_rows_up_to_noise(self):
        made = make_secure_surrogate(clients(5), settings(epsilon=100.0), SCHEMA).surrogate
        wanted = np.bincount(2 * ROWS.s + (ROWS.y > 0))
        np.testing.assert_allclose(cell_weights(made), wanted, atol=8)
        x = np.average(made.rows(SCHEMA).x, axis=0, weights=made.weight)
        np.testing.assert_allclose(x, ROWS.x.mean(axis=0), atol=0.03)

    def test_is_the_same_however_rows_are_cut(self, monkeypatch):
        """Without noise: sums are exact, so that nothing tells one client from nine."""
        monkeypatch.setattr(RowSums, "noise", silent)
        one, nine = (
            make_secure_surrogate(clients(number), settings(), SCHEMA).surrogate
            for number in (1, 9)
        )
        np.testing.assert_array_equal(one.records, nine.records)
        np.testing.assert_array_equal(one.weight, nine.weight)

    def test_a_cell_too_small_at_every_client_is_there(self):
        """Of 20 clients each has fewer rows of a cell than k_min; all together have enough."""
        config = settings(epsilon=50.0, k_min=50)
        assert make_secure_surrogate(clients(20), config, SCHEMA).surrogate.hidden == ()

    def test_columns_that_go_together_are_joined(self):
        """One number equals the other, and is never missing."""
        x = ROWS.x.copy()
        x[:, 1], x[:, 2] = x[:, 0], 0
        rows = clients(2, ROWS._replace(x=x))
        made = make_secure_surrogate(rows, settings(), SCHEMA).surrogate
        a, b = made.rows(SCHEMA).x[:, :2].T
        assert np.corrcoef(a, b)[0, 1] > 0.5

    def test_a_schema_of_one_column_has_two_exchanges(self):
        roles = ("income", "town", "paid")
        schema = SCHEMA.model_copy(update={"columns": {n: SCHEMA.columns[n] for n in roles}})
        rows = in_memory(ROWS._replace(x=ROWS.x[:, :1]))
        made = make_secure_surrogate([rows], settings(), schema)
        assert len(made.guarantee.mechanisms) == 3

    def test_the_guarantee_says_what_holds(self, made):
        found = made.guarantee
        assert (found.epsilon, found.delta, found.unit) == (8.0, 1e-5, "row")
        assert (found.aggregators, found.relation) == (2, "add_or_remove")
        assert (found.adversary, found.simulated) == ("all_but_one", True)
        assert len(found.mechanisms) == 5
        assert found.composition.mu == pytest.approx(mu_for(8.0, 1e-5))

    def test_noise_that_anybody_can_repeat_guarantees_nothing(self, repeatable):
        assert repeatable.guarantee is None

    @pytest.mark.parametrize(
        ("more", "message"),
        [({"epsilon": None, "delta": None}, "epsilon: must be given"), ({"k_min": 5000}, "k_min")],
    )
    def test_what_cannot_be_is_refused(self, more, message):
        with pytest.raises(InputError, match=message):
            make_secure_surrogate(clients(2), settings(**more), SCHEMA)
        with pytest.raises(InputError, match="there are none"):
            make_secure_surrogate([], settings(), SCHEMA)


def by_files(folder):
    """Sums of three clients and two aggregators, who have nothing but files in common."""

    def sum_up(what, before, config):
        place = folder / what.name
        place.mkdir()
        theirs = parties(what)
        write_task(theirs.task, place / "task.json")
        task = read_task(place / "task.json")
        vectors = [client_sums(task.what, one, before, config, SCHEMA) for one in clients(3)]
        return open_sums(task, theirs.answers(place, vectors))

    return exchanged(settings(), sum_up, number=3)


class TestByFiles:
    def test_three_parties_make_the_surrogate_that_one_process_makes(self, tmp_path, monkeypatch):
        """Without noise; each of them has read its tasks from files."""
        monkeypatch.setattr(RowSums, "noise", silent)
        found = surrogate_from_sums(by_files(tmp_path), settings(), SCHEMA)
        simulated = make_secure_surrogate(clients(3), settings(), SCHEMA)
        np.testing.assert_array_equal(found.surrogate.records, simulated.surrogate.records)
        np.testing.assert_array_equal(found.surrogate.weight, simulated.surrogate.weight)
        assert simulated.guarantee.simulated
        assert found.guarantee == simulated.guarantee.model_copy(update={"simulated": False})

    def test_opened_totals_have_the_noise_that_is_stated(self, tmp_path):
        opened, config = by_files(tmp_path), settings()
        for (what, total), begin in zip(opened, BEFORE, strict=True):
            exact = client_sums(what, in_memory(ROWS), opened[:begin], config, SCHEMA)
            noise = (total.total - exact) / total.variance**0.5
            low, high = stats.chi2.ppf([ALARM / 2, 1 - ALARM / 2], noise.size)
            assert low < (noise**2).sum() < high
            assert total.variance == pytest.approx(2 * what.variance)

    @pytest.mark.parametrize("other", [{"epsilon": 4.0}, {"seed": 1}, {"k_min": 30}])
    def test_sums_of_other_settings_are_refused(self, opened, other):
        """Models whose rates are summed follow from them, too."""
        assert len(surrogate_from_sums(opened, settings(), SCHEMA).surrogate.weight) > 1500
        with pytest.raises(InputError, match=next(iter(other)) + " .*settings and schema ask for"):
            surrogate_from_sums(opened, settings(**other), SCHEMA)

    def test_what_does_not_fit_is_refused(self, opened):
        first, moments, tables, pairs, last = opened
        fewer = last[1]._replace(clients=2)
        louder = first[1]._replace(variance=first[1].variance * 4)
        weaker = moments[0].model_copy(update={"square": 1})
        for given, complaint in [
            ([], r"sums: \['histograms', 'column_moments'\] are missing"),
            ([first], r"sums: \['column_moments'\] are missing"),
            ([first, moments], r"sums: \['tables'\] are missing"),
            ([first, moments, tables], r"sums: \['pairs'\] are missing"),
            ([first, moments, tables, pairs], r"sums: \['anchors'\] are missing"),
            ([*opened, last], "sums: anchors is more than the settings ask for"),
            ([moments, first, tables, pairs, last], "settings and schema ask for"),
            ([first, first, tables, pairs, last], "settings and schema ask for"),
            ([(first[0], moments[1]), moments], "histograms: the total is of another sum"),
            ([(first[0], louder), moments], "histograms: the total is of another sum"),
            ([first, (weaker, moments[1])], "square 1; settings and schema ask for"),
            ([first, moments, tables, pairs, (last[0], fewer)], "of the same clients"),
        ]:
            with pytest.raises(InputError, match=complaint):
                surrogate_from_sums(given, settings(), SCHEMA)

    def test_a_task_file_without_a_name_or_schema_is_refused(self, opened, tmp_path):
        write_task(parties(opened[0][0]).task, tmp_path / "task.json")
        document = json.loads((tmp_path / "task.json").read_text())
        for key in ("name", "schema_hash", "epsilon", "clients"):
            changed = document | {"what": {k: v for k, v in document["what"].items() if k != key}}
            with pytest.raises(ValueError, match=key):
                Task.model_validate(changed)

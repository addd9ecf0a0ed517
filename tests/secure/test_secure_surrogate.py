"""One private surrogate of all clients, of sums by shares with one noise for all of them."""

import json
import math

import numpy as np
import pytest
from builders import make_schema, make_table
from scipy import stats
from secure_task import parties

import synthfair as sf
from synthfair.data.batches import BatchesInOrder, in_memory
from synthfair.data.encode import Encoded, encode_records
from synthfair.errors import InputError
from synthfair.privacy.accounting import delta_of, discrete_delta_of, mu_for
from synthfair.privacy.noise import discrete_gaussian, seeded, system_entropy
from synthfair.secure import (
    RowSums,
    SumTask,
    client_sums,
    make_secure_surrogate,
    new_aggregator_secret,
    next_sums,
    noisy_sum,
    opened_sum,
    surrogate_from_sums,
)
from synthfair.secure.summands import MAX_CLIENTS, MAX_LENGTH
from synthfair.secure.surrogate import next_tasks
from synthfair.surrogate.sums import anchor_rates
from synthfair.task.messages import MAX_QUESTION_BYTES

ALARM = 1e-6
"""False-alarm rate of each statistical test."""

SCHEMA = make_schema()
KEYS = [new_aggregator_secret().public for _ in range(2)]
ROWS = sf.encode(make_table(2000), SCHEMA)
NAMES = ["histograms", "column_moments", "tables", "pairs", "anchors"]
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


def in_one_process(what):
    return noisy_sum(map(client_sums(what), clients(3)), what)


def exchanged(config, sum_up=in_one_process, number=9):
    """All sums, and their totals, one exchange after the other."""
    sums, opened = [], []
    while asked := next_sums(opened, config, SCHEMA, clients=number):
        sums += asked
        opened += [opened_sum(what, sum_up(what)) for what in asked]
    return sums, opened


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


def own_sums(name, rows, exchange):
    """A client's part of a sum."""
    return client_sums(exchange[0][NAMES.index(name)])(rows)


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
            asked = next_sums(opened[1][:count], settings(), SCHEMA, clients=9)
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
        compute = client_sums(opened[0][NAMES.index(name)])
        hostile = [*rng.integers(0, 2, (12, 7)), *(9 * rng.normal(size=(6, 7))), [np.nan] * 7]
        terms = []
        for x in np.array(hostile, float):
            row = Encoded(x[None], np.array([rng.integers(2)]), rng.choice([-1.0, 1.0], 1))
            terms.append(compute(in_memory(row)).astype(object))
        changes = terms if config.relation == "add_or_remove" else [
            one - other for one in terms for other in terms
        ]  # fmt: skip
        mechanism = opened[0][NAMES.index(name)].mechanism
        most = mechanism.sensitivity / mechanism.grid
        assert max((change**2).sum() for change in changes) <= most**2

    def test_the_sensitivity_is_that_of_a_row_and_no_idle_multiple(self, of_relation):
        config, opened = of_relation
        for what in opened[0]:
            times = 1 if config.relation == "add_or_remove" else 4
            times = 2 if times == 4 and what.name in COUNTS else times
            square = what.mechanism.sensitivity**2
            assert 1 <= square / (times * NORMS[what.name]) < 1.001

    @pytest.mark.parametrize("name", ["histograms", "column_moments"])
    def test_no_refusal_tells_how_many_rows_there_are(self, opened, name, monkeypatch):
        """Entries are clipped, so that one row still changes the part by one row at most."""
        rows, which = in_memory(part(ROWS, slice(99))), NAMES.index(name)
        what = next_sums([], settings(), SCHEMA, clients=100_000)[which]
        assert what.entries[1] == 2**61 // 100_000
        whole = client_sums(opened[0][which])(rows)
        bound = int(abs(whole).max()) // 2
        monkeypatch.setattr(RowSums, "entries", (-bound, bound))
        np.testing.assert_array_equal(client_sums(what)(rows), np.clip(whole, -bound, bound))
        assert abs(whole).max() > bound

    @pytest.mark.parametrize("name", NAMES)
    def test_rows_of_another_precision_are_refused(self, opened, name):
        single = in_memory(ROWS._replace(x=ROWS.x.astype(np.float32)))
        with pytest.raises(InputError, match="float64; these are float32"):
            own_sums(name, single, opened)

    @pytest.mark.parametrize(
        "changes",
        [
            {"length": 5}, {"tree": "0" * 64}, {"models": None}, {"models": (0.5,)},
            {"name": "pairs"}, {"name": "histograms"},
        ],
    )  # fmt: skip
    def test_a_planner_who_asks_for_another_sum_is_refused(self, opened, changes):
        """Also for one that was opened before: twice would cost twice."""
        what = opened[0][4].model_copy(update=changes)
        with pytest.raises(InputError, match=r"sum: .*ask for, which are \['anchors'\]"):
            client_sums(what)

    def test_models_of_another_machine_are_summed_as_the_task_has_them(self, opened, monkeypatch):
        """Machines differ in the last digit."""
        sums, totals = opened
        theirs = tuple(float(np.nextafter(value, 1)) for value in sums[4].models)
        asked = sums[4].model_copy(update={"models": theirs})
        assert theirs != sums[4].models
        given, rates = [], anchor_rates
        monkeypatch.setattr(
            "synthfair.surrogate.records.anchor_rates",
            lambda thetas, *public: given.append(thetas) or rates(thetas, *public),
        )
        assert client_sums(asked)(in_memory(ROWS)).shape == (asked.length,)
        last = opened_sum(asked, in_one_process(asked))
        assert last.models == theirs
        assert len(surrogate_from_sums([*totals[:4], last], settings(), SCHEMA).weight) > 1500
        assert len(given) == 3
        assert all(tuple(thetas.ravel()) == theirs for thetas in given)

    def test_a_sum_of_another_exchange_is_refused(self, opened):
        anchors = opened[0][4].model_copy(update={"opened": tuple(opened[1][:2])})
        with pytest.raises(InputError, match=r"sum: anchors: .* are \['tables'\]"):
            client_sums(anchors)


class TestNoise:
    def test_all_sums_together_give_the_epsilon_of_one_aggregator(self, of_relation):
        mus = [
            what.mechanism.sensitivity / what.mechanism.grid / float(what.variance) ** 0.5
            for what in of_relation[1][0]
        ]
        assert len(mus) == 5
        assert delta_of(math.hypot(*mus), 8.0) == pytest.approx(1e-5, rel=1e-6)
        assert discrete_delta_of(math.hypot(*mus), 8.0) <= 1e-5 * (1 + 1e-9)

    def test_comes_from_the_system_unless_a_test_asks(self, made, repeatable):
        same, other = (
            make_secure_surrogate(clients(3), settings(), SCHEMA, source=source).weight
            for source in (seeded(1), system_entropy)
        )
        np.testing.assert_array_equal(repeatable.weight, same)
        assert not np.array_equal(made.weight, other)

    def test_a_corrupt_aggregator_that_takes_off_its_noise_has_the_others(
        self, opened, monkeypatch
    ):
        """What it is left with, less the exact sum, is discrete Gaussian noise of full scale."""
        what, left = opened[0][0], []
        parts = [own_sums("histograms", one, opened) for one in clients(3)]
        for seed in range(20):
            drawn = []

            def noise(self, source, drawn=drawn):
                drawn.append(discrete_gaussian(self.variance, self.length))
                return drawn[-1]

            monkeypatch.setattr(RowSums, "noise", noise)
            total = noisy_sum(parts, what, source=seeded(seed)).total
            left.append(total - sum(parts) - drawn[0])
        left = np.concatenate(left)
        assert abs(np.var(left) / what.variance - 1) < 5.5 * (2 / left.size) ** 0.5


def cell_weights(made):
    return np.bincount(2 * made.s + (made.y > 0), made.weight, minlength=4)


def encoded(made):
    return encode_records(made.x, SCHEMA)


class TestSurrogate:
    def test_is_near_all_rows_up_to_noise(self):
        made = make_secure_surrogate(clients(5), settings(epsilon=100.0), SCHEMA)
        wanted = np.bincount(2 * ROWS.s + (ROWS.y > 0))
        np.testing.assert_allclose(cell_weights(made), wanted, atol=8)
        x = np.average(encoded(made), axis=0, weights=made.weight)
        np.testing.assert_allclose(x, ROWS.x.mean(axis=0), atol=0.03)

    def test_is_the_same_however_rows_are_cut(self, monkeypatch):
        """Without noise: sums are exact, so that nothing tells one client from nine."""
        monkeypatch.setattr(RowSums, "noise", silent)
        one, nine = (
            make_secure_surrogate(clients(number), settings(), SCHEMA) for number in (1, 9)
        )
        np.testing.assert_array_equal(one.x, nine.x)
        np.testing.assert_array_equal(one.weight, nine.weight)

    def test_a_cell_too_small_at_every_client_is_there(self):
        """Of 20 clients each has fewer rows of a cell than k_min; all together have enough."""
        config = settings(epsilon=50.0, k_min=50)
        made = make_secure_surrogate(clients(20), config, SCHEMA)
        rows = np.bincount(2 * ROWS.s + (ROWS.y > 0))
        assert rows.min() / 20 < 50 < rows.min()
        np.testing.assert_allclose(cell_weights(made), rows, atol=12)

    def test_columns_that_go_together_are_joined(self):
        """One number equals the other, and is never missing."""
        x = ROWS.x.copy()
        x[:, 1], x[:, 2] = x[:, 0], 0
        rows = clients(2, ROWS._replace(x=x))
        a, b = encoded(make_secure_surrogate(rows, settings(), SCHEMA))[:, :2].T
        assert np.corrcoef(a, b)[0, 1] > 0.5

    def test_a_schema_of_one_column_has_two_exchanges(self):
        roles = ("income", "town", "paid")
        schema = SCHEMA.model_copy(update={"columns": {n: SCHEMA.columns[n] for n in roles}})
        rows = in_memory(ROWS._replace(x=ROWS.x[:, :1]))
        made = make_secure_surrogate([rows], settings(), schema)
        assert len(made.header.guarantee.mechanisms) == 3

    def test_the_guarantee_says_what_holds(self, made):
        found = made.header.guarantee
        assert (found.epsilon, found.delta, found.unit) == (8.0, 1e-5, "row")
        assert (found.aggregators, found.relation) == (2, "add_or_remove")
        assert (found.adversary, found.simulated) == ("all_but_one", True)
        assert len(found.mechanisms) == 5
        assert found.composition.mu == pytest.approx(mu_for(8.0, 1e-5))

    def test_noise_that_anybody_can_repeat_guarantees_nothing(self, repeatable):
        assert repeatable.header.guarantee is None

    @pytest.mark.parametrize(
        ("more", "message"),
        [({"epsilon": None, "delta": None}, "epsilon: must be given"), ({"k_min": 5000}, "k_min")],
    )
    def test_what_cannot_be_is_refused(self, more, message):
        with pytest.raises(InputError, match=message):
            make_secure_surrogate(clients(2), settings(**more), SCHEMA)
        with pytest.raises(InputError, match="clients: Input should be greater"):
            make_secure_surrogate([], settings(), SCHEMA)


class TestByFiles:
    def test_opened_totals_have_the_noise_that_is_stated(self, opened):
        for what, total in zip(*opened, strict=True):
            exact = client_sums(what)(in_memory(ROWS))
            noise = (np.array(total.total) - exact) / (2 * what.variance) ** 0.5
            low, high = stats.chi2.ppf([ALARM / 2, 1 - ALARM / 2], noise.size)
            assert low < (noise**2).sum() < high

    @pytest.mark.parametrize("other", [{"epsilon": 4.0}, {"seed": 1}, {"k_min": 30}])
    def test_sums_of_other_settings_are_refused(self, opened, other):
        """Models whose rates are summed follow from them, too."""
        assert len(surrogate_from_sums(opened[1], settings(), SCHEMA).weight) > 1500
        with pytest.raises(InputError, match="must be of these settings and this schema"):
            surrogate_from_sums(opened[1], settings(**other), SCHEMA)

    def test_what_does_not_fit_is_refused(self, opened):
        first, moments, tables, pairs, last = opened[1]

        def changed(opened_sum, **update):
            return opened_sum.model_copy(update=update)

        for given, complaint in [
            ([], r"sums: \['histograms', 'column_moments'\] are missing"),
            ([first], r"sums: \['column_moments'\] are missing"),
            ([first, moments], r"sums: \['tables'\] are missing"),
            ([first, moments, tables], r"sums: \['pairs'\] are missing"),
            ([first, moments, tables, pairs], r"sums: \['anchors'\] are missing"),
            ([first, first, tables, pairs, last], "one comes twice"),
            ([changed(first, total=moments.total), moments], "histograms has .* entries"),
            (
                [first, moments, tables, changed(pairs, tree="0" * 64)],
                "pairs has .* entries of the tree 000",
            ),
            ([changed(first, aggregators=3), moments], "by the same number of aggregators"),
            (
                [changed(first, total=(-(2**62), *first.total[1:])), moments],
                "histograms counts fewer than no rows",
            ),
        ]:
            with pytest.raises(InputError, match=complaint):
                surrogate_from_sums(given, settings(), SCHEMA)

    def test_a_client_that_dropped_out_is_named(self, opened):
        first, moments, *_ = opened[1]
        here, there, gone = first.clients
        fewer = moments.model_copy(update={"clients": (here, there)})
        names = {here: "north", there: "south", gone: "west"}
        for totals, known in [
            ([first, fewer], names),
            ([first, moments], {here: "north", there: "south"}),
        ]:
            complaint = f"clients: {known.get(gone, gone)} dropped out: .* begin anew without these"
            with pytest.raises(InputError, match=complaint):
                next_tasks(totals, settings(), SCHEMA, KEYS, known, least=1)
        with pytest.raises(InputError, match="of the same clients"):
            surrogate_from_sums([first, fewer, *opened[1][2:]], settings(), SCHEMA)

    def test_the_clients_of_the_first_sums_are_asked_next_and_all_of_them(self, opened):
        names = dict.fromkeys([*opened[1][0].clients, "f" * 64], "somebody")
        (task, _) = next_tasks([], settings(), SCHEMA, KEYS, names, least=2).values()
        assert (len(task.clients), task.least_clients) == (4, 2)
        (task,) = next_tasks(opened[1][:2], settings(), SCHEMA, KEYS, names, least=2).values()
        assert (task.clients, task.least_clients) == (opened[1][0].clients, 3)
        assert task.what.clients == 3

    def test_other_aggregators_than_of_the_totals_before_are_refused(self, opened):
        names, keys = dict.fromkeys(opened[1][0].clients, "somebody"), KEYS[:]
        keys += [new_aggregator_secret().public]
        with pytest.raises(InputError, match="not as many as added noise to the totals before"):
            next_tasks(opened[1][:2], settings(), SCHEMA, keys, names, least=2)

    def test_the_largest_task_can_be_read(self, opened, tmp_path):
        """By what an entry and a client take: nobody pays for a first sum whose last is refused."""
        task, path = parties(opened[0][2]).task, tmp_path / "task.json"

        def size(entries, clients):
            update = {"total": (-(2**63),) * entries, "clients": ("f" * 64,) * clients}
            total = opened[1][0].model_copy(update=update)
            what = task.what.model_copy(update={"opened": (total,) * 4})
            keys = {"what": what, "clients": ("f" * 64,) * clients}
            task.model_copy(update=keys).write(path)
            return path.stat().st_size

        least, entry, client = size(1, 1), size(2, 1) - size(1, 1), size(1, 2) - size(1, 1)
        assert entry > 4 * 19
        assert client > 5 * 64
        assert (
            least + entry * MAX_LENGTH + client * MAX_CLIENTS
            < SumTask.max_file_bytes
            <= MAX_QUESTION_BYTES
        )

    def test_a_task_file_without_a_name_or_schema_is_refused(self, opened, tmp_path):
        parties(opened[0][0], clients=9).task.write(tmp_path / "task.json")
        document = json.loads((tmp_path / "task.json").read_text())
        for key in ("name", "table_schema", "config", "clients"):
            changed = document | {"what": {k: v for k, v in document["what"].items() if k != key}}
            with pytest.raises(ValueError, match=key):
                SumTask.model_validate(changed)

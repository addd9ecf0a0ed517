"""One private surrogate of all clients, of sums by shares with one noise for all of them."""

import math
from contextlib import nullcontext

import numpy as np
import pytest
from builders import SCHEMA, make_table, part, with_column

import synthfair as sf
from synthfair import secure
from synthfair.data.batches import BatchesInOrder, in_memory
from synthfair.data.encode import Encoded, encode_records
from synthfair.errors import InputError
from synthfair.privacy.accounting import discrete_delta_of
from synthfair.privacy.noise import seeded
from synthfair.secure.surrogate import next_tasks
from synthfair.surrogate.sums import anchor_rates

CONFIG = sf.SurrogateConfig(epsilon=8.0, delta=1e-5, k_min=20)
REPLACE = CONFIG.replace(relation="replace")
ROWS = sf.encode(make_table(2000), SCHEMA)
NAMES = ["histograms", "column_moments", "tables", "pairs", "anchors"]
COUNTS = {"histograms": 3, "tables": 3, "pairs": 2}
NORMS = COUNTS | {"column_moments": 3 / 16 + 2 / 4, "anchors": 20 / 4}
"""Squares: two numbers and a category; ten models at two temperatures."""


def clients(number):
    return [in_memory(part(ROWS, slice(i, None, number))) for i in range(number)]


def opened_of(what):
    """The total of three clients."""
    parts = map(secure.client_sums(what), clients(3))
    return secure.opened_sum(what, secure.noisy_sum(parts, what))


def exchanged(config):
    """All sums, and their totals, one exchange after the other."""
    sums, opened = [], []
    while asked := secure.next_sums(opened, config, SCHEMA, clients=9):
        sums += asked
        opened += map(opened_of, asked)
    return sums, opened


@pytest.fixture(scope="module")
def exchange():
    return exchanged(CONFIG)


@pytest.fixture(scope="module", params=[CONFIG, REPLACE], ids=["add_or_remove", "replace"])
def of_relation(request, exchange):
    return exchange[0] if request.param == CONFIG else exchanged(REPLACE)[0]


@pytest.fixture
def no_noise(monkeypatch):
    monkeypatch.setattr(secure.RowSums, "noise", lambda what, *_: np.zeros(what.length, np.int64))


# Sums


@pytest.mark.parametrize("which", range(5), ids=NAMES)
def test_sums_add_up_exactly_over_clients_and_batches(exchange, which):
    own = secure.client_sums(exchange[0][which])
    whole = own(in_memory(ROWS))
    np.testing.assert_array_equal(whole, sum(map(own, clients(7))))
    batches = [part(ROWS, slice(i, None, 3)) for i in range(3)]
    np.testing.assert_array_equal(whole, own(BatchesInOrder(lambda: batches)))
    with pytest.raises(InputError, match="float32"):
        own(in_memory(ROWS._replace(x=ROWS.x.astype(np.float32))))


@pytest.mark.parametrize("which", range(5), ids=NAMES)
def test_row_changes_a_sum_by_its_sensitivity_at_most(of_relation, which):
    """Corners of the range, rows far outside of it, and rows without a norm."""
    what, rng = of_relation[which], np.random.default_rng(0)
    hostile = [*rng.integers(0, 2, (12, 7)), *(9 * rng.normal(size=(6, 7))), [np.nan] * 7]
    terms = []
    for x in np.array(hostile, float):
        row = Encoded(x[None], np.array([rng.integers(2)]), rng.choice([-1.0, 1.0], 1))
        terms.append(secure.client_sums(what)(in_memory(row)).astype(object))
    replace = what.config.relation == "replace"
    changes = [one - other for one in terms for other in terms] if replace else terms
    most = what.mechanism.sensitivity / what.mechanism.grid
    assert max((change**2).sum() for change in changes) <= most**2
    norm = NORMS[what.name] * (1 if not replace else 2 if what.name in COUNTS else 4)
    assert 1 <= what.mechanism.sensitivity**2 / norm < 1.001  # and no idle multiple of it


def test_noise_of_one_aggregator_gives_the_epsilon_for_all_sums(of_relation):
    steps = [what.mechanism.sensitivity / what.mechanism.grid for what in of_relation]
    mus = [s / float(w.variance) ** 0.5 for s, w in zip(steps, of_relation, strict=True)]
    assert len(mus) == 5
    assert 1 - 1e-4 < discrete_delta_of(math.hypot(*mus), 8.0) / 1e-5 <= 1 + 1e-9


@pytest.mark.parametrize("which", [0, 1], ids=NAMES[:2])
def test_sum_is_clipped_as_a_refusal_would_tell_of_the_rows(exchange, which, monkeypatch):
    rows = in_memory(part(ROWS, slice(99)))
    what = secure.next_sums([], CONFIG, SCHEMA, clients=100_000)[which]
    assert what.entries[1] == 2**61 // 100_000
    whole = secure.client_sums(exchange[0][which])(rows)
    bound = int(abs(whole).max()) // 2
    monkeypatch.setattr(secure.RowSums, "entries", (-bound, bound))
    np.testing.assert_array_equal(secure.client_sums(what)(rows), np.clip(whole, -bound, bound))


OTHER = [{"length": 5}, {"tree": "0" * 64}, {"models": None}, {"models": (0.5,)},
         {"name": "pairs"}, {"name": "histograms"}, "tables"]  # fmt: skip


@pytest.mark.parametrize("change", OTHER, ids=str)
def test_sum_other_than_the_next_one_is_not_computed(exchange, change):
    """Also one that was opened before: twice would cost twice."""
    sums, opened = exchange
    wanted = "tables" if change == "tables" else "anchors"
    update = {"opened": tuple(opened[:2])} if change == "tables" else change
    with pytest.raises(InputError, match=rf"sum: .* \['{wanted}'\]"):
        secure.client_sums(sums[4].model_copy(update=update))


def test_models_of_another_machine_are_summed_as_the_task_has_them(exchange, monkeypatch):
    """Machines differ in the last digit."""
    sums, totals = exchange
    theirs = tuple(float(np.nextafter(value, 1)) for value in sums[4].models)
    asked, given = sums[4].model_copy(update={"models": theirs}), []
    monkeypatch.setattr(
        "synthfair.surrogate.records.anchor_rates",
        lambda thetas, *public: given.append(thetas) or anchor_rates(thetas, *public),
    )
    last = opened_of(asked)
    assert len(secure.surrogate_from_sums([*totals[:4], last], CONFIG, SCHEMA).weight) > 1500
    assert len(given) == 2
    assert {tuple(thetas.ravel()) for thetas in given} == {theirs} != {sums[4].models}


# Surrogates


def test_surrogate_is_the_same_however_rows_are_cut(no_noise):
    """Sums are exact, so that nothing tells one client from twenty, of whom each has fewer rows of
    a cell than k_min."""
    config, rows = CONFIG.replace(k_min=50), np.bincount(2 * ROWS.s + (ROWS.y > 0))
    assert rows.min() / 20 < 50 < rows.min()
    one, many = (secure.make_secure_surrogate(clients(n), config, SCHEMA) for n in (1, 20))
    np.testing.assert_array_equal(one.x, many.x)
    np.testing.assert_array_equal(one.weight, many.weight)
    cells = np.bincount(2 * one.s + (one.y > 0), one.weight)
    np.testing.assert_allclose(cells, rows, atol=1e-6)
    x = np.average(encode_records(one.x, SCHEMA), axis=0, weights=one.weight)
    np.testing.assert_allclose(x, ROWS.x.mean(axis=0), atol=0.03)


def test_surrogate_whose_noise_repeats_guarantees_nothing():
    sources = {"source": seeded(1)}, {"source": seeded(1)}, {}
    one, again, other = (secure.make_secure_surrogate(clients(3), CONFIG, SCHEMA, **source)
                         for source in sources)  # fmt: skip
    np.testing.assert_array_equal(one.weight, again.weight)
    assert not np.array_equal(one.weight, other.weight)
    assert one.header.guarantee is None
    holds, mechanisms = other.header.guarantee, {w.name for w in other.header.guarantee.mechanisms}
    assert (holds.epsilon, holds.delta, holds.adversary) == (8.0, 1e-5, "all_but_one")
    assert (holds.simulated, holds.aggregators, mechanisms) == (True, 2, {*NAMES})


def test_surrogate_that_cannot_be_is_refused():
    few, exact = CONFIG.replace(k_min=5000), CONFIG.replace(epsilon=None, delta=None)
    for config, number, key in ((few, 2, "k_min"), (few, 0, "clients"), (exact, 2, "epsilon")):
        with pytest.raises(InputError, match=key):
            secure.make_secure_surrogate(clients(number), config, SCHEMA)


# By files


def changed(which, **update):
    return lambda totals: [
        total.model_copy(update=update) if i == which else total for i, total in enumerate(totals)
    ]


WRONG = [
    *((lambda totals, n=n: totals[:n], CONFIG, f"{NAMES[n]}.* are missing") for n in range(5)),
    (lambda totals: [totals[0], *totals], CONFIG, "twice"),
    (changed(0, total=(1, 2)), CONFIG, "histograms has 2 entries"),
    (changed(3, tree="0" * 64), CONFIG, "pairs has .* of the tree 000"),
    (changed(0, aggregators=3), CONFIG, "number of aggregators"),
    (changed(1, clients=("0" * 64, "1" * 64, "2" * 64)), CONFIG, "same clients"),
    *((list, CONFIG.replace(**c), "settings") for c in ({"epsilon": 4.0}, {"seed": 1})),
]


@pytest.mark.parametrize(("change", "config", "said"), WRONG)
def test_totals_that_do_not_fit_are_refused(exchange, change, config, said):
    with pytest.raises(InputError, match=said):
        secure.surrogate_from_sums(change(exchange[1]), config, SCHEMA)
    with pytest.raises(InputError, match="this schema"):
        secure.surrogate_from_sums(exchange[1], CONFIG, with_column(SCHEMA, "income", upper=99.0))


@pytest.mark.parametrize(("aggregators", "deviations"), [(2, 9.9), (2, 10.1), (3, 9.9)])
def test_total_is_below_0_by_no_more_than_all_noise(exchange, aggregators, deviations):
    what = exchange[0][0]
    first, second = (t.model_copy(update={"aggregators": aggregators}) for t in exchange[1][:2])
    below = -deviations * aggregators**0.5 * what.mechanism.noise / what.mechanism.grid
    low = first.model_copy(update={"total": (round(below), *first.total[1:])})
    false = pytest.raises(InputError, match="histograms counts")
    with false if deviations > 10 else nullcontext():
        secure.next_sums([low, second], CONFIG, SCHEMA, clients=9)


KEYS = [secure.new_aggregator_secret().public for _ in range(3)]


def test_next_tasks_are_for_all_clients_of_the_first_sums(exchange):
    opened = exchange[1]
    names = dict.fromkeys([*opened[0].clients, "f" * 64], "somebody")
    first, _ = next_tasks([], CONFIG, SCHEMA, KEYS[:2], names, least=2).values()
    assert (len(first.clients), first.least_clients) == (4, 2)
    (task,) = next_tasks(opened[:2], CONFIG, SCHEMA, KEYS[:2], names, least=2).values()
    assert (task.clients, task.least_clients) == (opened[0].clients, 3)
    assert task.what.clients == 3
    with pytest.raises(InputError, match="aggregators"):  # of another number
        next_tasks(opened[:2], CONFIG, SCHEMA, KEYS, names, least=2)

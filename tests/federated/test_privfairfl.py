"""PrivFairFL as methods of train and compare."""

import json
from fractions import Fraction

import jax.numpy as jnp
import numpy as np
import pytest
from builders import make_schema, make_table
from printed import plain_text

import synthfair as sf
from synthfair.compare import federate, run_method
from synthfair.errors import InputError
from synthfair.federated import (
    METHODS,
    draw_users,
    make_user_data,
    method,
    train_rounds,
    train_table,
)
from synthfair.federated.privfairfl import sum_counts
from synthfair.federated.users import held_out_rows
from synthfair.postprocess import count_scores, score_bins
from synthfair.privacy.ledger import Ledger
from synthfair.privacy.noise import discrete_laplace
from synthfair.report.result_tables import training_table
from synthfair.report.results import read_results

QUICK = {"rounds": 2, "batch": 20, "local_epochs": 5.0, "bins": 21, "group_input": True}
PRIVATE = {"clip": 1.0, "epsilon": 4.0, "delta": 1e-4}


def some_data(config, n=3000):
    """Rows of ten clients. Where 3,000 in all are trained on, training is compiled once."""
    rows, schema = sf.encode(make_table(n), make_schema()), make_schema()
    return rows, make_user_data(rows, draw_users(n, clients=10, seed=0), schema, config)


def configured(method, **more):
    own = {key: value for key, value in QUICK.items() if METHODS[method].reads(key)}
    return sf.TrainConfig(method=method, **own | more)


def test_without_noise_counts_are_those_of_the_rows():
    config = configured("privfairfl_post")
    rows, data = some_data(config)
    training = train_rounds(data, config)
    bins = score_bins(training.model.scores(rows.x, rows.s), 21)
    wanted = count_scores(bins, rows.s, rows.y, 2, 21)
    assert training.counts.origin is None
    np.testing.assert_array_equal(training.counts.array(), wanted)
    training.model.model_copy(update={"decision": None}).require_counted(training.counts)


def test_rows_that_are_held_out_are_counted_and_not_trained_on():
    """A model of the other rows alone is the same; the histogram has only those held out."""
    config = configured("privfairfl_post", counts_share=0.25)
    rows, data = some_data(config, n=4000)
    out = held_out_rows(draw_users(4000, clients=10, seed=0), 0.25, seed=config.seed)
    assert out.sum() == 1000
    assert (data.users.size == 300).all()
    assert (data.held_out.size == 100).all()
    found = train_rounds(data, config)
    bins = score_bins(found.model.scores(rows.x, rows.s), 21)
    wanted = count_scores(bins[out], rows.s[out], rows.y[out], 2, 21)
    np.testing.assert_array_equal(found.counts.array(), wanted)
    kept = sf.Encoded(*(part[~out] for part in rows))
    user = draw_users(4000, clients=10, seed=0)[~out]
    alone = configured("dp_sgd")
    alone = train_rounds(make_user_data(kept, user, make_schema(), alone), alone)
    np.testing.assert_allclose(found.model.theta, alone.model.theta, rtol=1e-9)


@pytest.mark.parametrize("share", [0.0, 0.3, 0.99])
def test_every_user_trains_on_a_row_at_least(share):
    user = np.repeat(["a", "b", "c"], [1, 2, 100])
    out = held_out_rows(user, share, seed=1)
    assert [out[user == name].sum() for name in "abc"] == [0, int(2 * share), int(100 * share)]
    assert not np.array_equal(out, held_out_rows(user, share, seed=2)) or share == 0


def test_noise_is_that_of_two_aggregators():
    """A thousand counts: a mean square 5 standard errors off has a chance of about 1e-6."""
    rows, data = some_data(configured("privfairfl_post"))
    exact = sum_counts(data.users, data.schema, epsilon=None).array()
    draws = [sum_counts(data.users, data.schema, epsilon=0.5) for _ in range(250)]
    p = np.exp(-0.5)
    variance = 2 * 2 * p / (1 - p) ** 2
    error = variance * (3.5 / 1000) ** 0.5  # the kurtosis of two Laplace variables is 4.5

    def fits(noise):
        return abs(np.mean(np.square(noise)) - variance) < 5 * error

    assert fits([drawn.array() - exact for drawn in draws])
    assert not fits(discrete_laplace(Fraction(2), 1000))  # one aggregator's alone
    assert draws[0].variance == pytest.approx(variance)
    np.testing.assert_array_equal(exact, count_scores(0 * rows.s, rows.s, rows.y, 2, 1))


def test_post_closes_the_gap_of_the_model_it_is_given():
    config = configured("privfairfl_post", alpha=0.01, counts_epsilon=5.0)
    rows, data = some_data(config)
    model = train_rounds(data, config).model
    scores = model.scores(rows.x, rows.s)

    def gap(selected):
        return abs(selected[rows.s == 1].mean() - selected[rows.s == 0].mean())

    assert gap(scores > 0) > 0.1
    assert gap(model.decide(scores, rows.s)) < 0.03
    assert np.mean(model.decide(scores, rows.s) == (rows.y > 0)) > 0.7


def test_pre_trains_with_the_weights_of_its_counts():
    config = configured("privfairfl_pre")
    data = some_data(config)[1]
    found = train_rounds(data, config)
    weights = sf.postprocess.make_weights(found.counts, "kamiran_calders")
    by_hand = train_rounds(
        data._replace(row_weights=jnp.asarray(weights.array())),
        configured("dp_sgd"),
    )
    np.testing.assert_allclose(found.model.theta, by_hand.model.theta, rtol=1e-9)
    assert found.counts.model is None


def test_pre_searches_for_its_noise_once(tmp_path, monkeypatch):
    """The weights that follow from the counts change no guarantee, nor its noise."""
    searched, search = [], method.training_guarantee
    monkeypatch.setattr(
        method,
        "training_guarantee",
        lambda *a, **k: searched.append(a) or search(*a, **k),
    )
    config = configured("privfairfl_pre", counts_epsilon=1.0, **PRIVATE, batch=480)
    book, users = tmp_path / "ledger.jsonl", {"clients": 5}
    training, _ = train_table(
        make_table(3000), make_schema(), config, tmp_path, ledger=book, users=users
    )
    assert len(searched) == 1
    weights = sf.postprocess.make_weights(training.counts, "kamiran_calders").array()
    assert not np.allclose(weights, 1.0)


@pytest.mark.parametrize("method", ["privfairfl_pre", "privfairfl_post"])
def test_the_cost_includes_the_counts(method):
    config = configured(method)
    _, data = some_data(config)
    found = train_rounds(data, config)
    plain = train_rounds(data, configured("dp_sgd"))
    assert found.cost.rounds == plain.cost.rounds + 1
    assert found.cost.bytes_sent - plain.cost.bytes_sent == 10 * (
        2 * 8 * 84 if method == "privfairfl_post" else 2 * 32
    )


def test_epsilons_add_up_and_the_ledger_books_both(tmp_path):
    config = configured("privfairfl_post", counts_epsilon=1.0, **PRIVATE, batch=480)
    book, users = Ledger.for_table(tmp_path / "rows.csv").path, {"clients": 5}
    training, _ = train_table(
        make_table(3000), make_schema(), config, tmp_path, ledger=book, users=users
    )
    said = plain_text(training_table(training, private=True))
    words = " ".join(said.split())
    assert "(epsilon = 5, delta = 0.0001)-differential privacy of one row" in words
    assert "by themselves (epsilon = 1, delta = 0)-differential privacy of one row" in words
    assert "name gradients" in words
    assert "what clients send" in words
    document = json.loads((tmp_path / "metrics.json").read_text())
    assert document["guarantee"]["epsilon"] == 5.0
    (counts,) = document["counts"]["guarantees"]
    assert (counts["epsilon"], counts["unit"], counts["simulated"]) == (1.0, "row", True)
    decision = sf.read_model(tmp_path / "model.json").decision
    assert decision.notion == "statistical_parity"
    assert decision.origin.model_dump() == document["counts"] | {"guarantees": (counts,)}
    booked = Ledger(book).spent().epsilon(1e-4)
    assert booked == pytest.approx(5.0)
    assert Ledger(book).spent().composition.delta(5.0) == pytest.approx(1e-4, rel=1e-3)
    assert Ledger(book).spent().composition.delta(0.99) == 1.0
    assert read_results([tmp_path])[0].epsilon == 5.0


def test_pre_reads_new_noise_each_time_and_so_does_not_resume(tmp_path):
    config = configured("privfairfl_pre", counts_epsilon=1.0)
    _, data = some_data(config)
    first, second = (train_rounds(data, config).counts for _ in range(2))
    assert first.origin.guarantees[0].epsilon == 1.0
    assert not np.array_equal(first.array(), second.array())
    same = [train_rounds(data, config, noise_seed=3).counts for _ in range(2)]
    np.testing.assert_array_equal(same[0].array(), same[1].array())
    assert same[0].origin.guarantees == (None,)


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        ({"method": "privfairfl_pre", **PRIVATE}, "epsilon needs counts_epsilon"),
        (
            {"method": "privfairfl_post", "notion": "accuracy_parity"},
            "notion: Input should be 'statistical_parity'",
        ),
        (
            {"method": "privfairfl_post", **PRIVATE, "epsilon": 99.5, "counts_epsilon": 1.0},
            "must be at most 100",
        ),
    ],
)
def test_settings_that_contradict_each_other_are_refused(settings, complaint):
    with pytest.raises(ValueError, match=complaint):
        sf.TrainConfig(**settings)


def test_counts_lost_in_noise_are_refused():
    config = configured("privfairfl_post", counts_epsilon=1e-4)
    _, data = some_data(config)
    with pytest.raises(InputError, match="standard deviations of the noise"):
        train_rounds(data, config)


def test_compare_measures_decisions_and_not_scores():
    clients = federate(sf.partition(make_table(3750, seed=1), clients=10, seed=0), make_schema())
    options = QUICK | {"randomized": True}
    report = sf.ServerConfig(resamples=1)
    free, fair = (
        run_method("privfairfl_post", clients, config, report, rounds=options)[0].overall["spd"]
        for config in (sf.DistillConfig(rho_o=rho_o, group_input=True) for rho_o in (0.0, 100.0))
    )
    assert abs(fair.value) < 0.05
    assert abs(free.value) > 0.1

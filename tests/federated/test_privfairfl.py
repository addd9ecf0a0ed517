"""PrivFairFL: counts over clients, before the rounds or after them."""

import json

import jax.numpy as jnp
import numpy as np
import pytest
from builders import SCHEMA, make_table, part

import synthfair as sf
from synthfair.federated import METHODS, draw_users, make_user_data, train_rounds, train_table
from synthfair.federated.privfairfl import sum_counts
from synthfair.federated.users import held_out_rows
from synthfair.postprocess import choose_decision, count_scores, score_bins
from synthfair.privacy.ledger import Ledger

N = 2000
ROWS, USER = sf.encode(make_table(N), SCHEMA), draw_users(N, clients=10, seed=0)
QUICK = {"rounds": 2, "batch": 20, "local_epochs": 5.0, "bins": 21, "group_input": True}


def config_of(method, **more):
    own = {key: value for key, value in QUICK.items() if METHODS[method].reads(key)}
    return sf.TrainConfig(method=method, **own | more)


def trained(config, rows=ROWS, user=USER, noise_seed=None, **given):
    data = make_user_data(rows, user, SCHEMA, config)._replace(**given)
    return train_rounds(data, config, noise_seed=noise_seed)


@pytest.mark.parametrize("share", [0.0, 0.25])
def test_post_counts_the_rows_that_are_held_out_and_trains_on_the_others(share):
    """Where none is held out, all are counted, and trained on."""
    asked = {"notion": "equal_opportunity", "alpha": 0.06, "randomized": True}
    config = config_of("privfairfl_post", counts_share=share, **asked)
    found, out = trained(config), held_out_rows(USER, share, seed=config.seed)
    counted = out if share else ~out
    bins = score_bins(found.model.scores(ROWS.x, ROWS.s), 21)
    wanted = count_scores(bins[counted], ROWS.s[counted], ROWS.y[counted], 2, 21)
    np.testing.assert_array_equal(found.counts.array(), wanted)
    chosen = choose_decision(found.counts, **asked)
    assert found.model.decision == chosen.decision
    alone = trained(config_of("dp_sgd"), part(ROWS, ~out), USER[~out])
    np.testing.assert_allclose(found.model.theta, alone.model.theta, rtol=1e-9)
    # A round of 10 clients' counts more, two shares of 84 numbers each.
    assert found.cost.rounds == alone.cost.rounds + 1
    assert found.cost.bytes_sent == alone.cost.bytes_sent + 10 * 2 * 8 * 84


@pytest.mark.parametrize("weight_method", ["kamiran_calders", "published"])
def test_pre_trains_with_the_weights_of_its_counts(weight_method):
    found = trained(config_of("privfairfl_pre", weight_method=weight_method))
    wanted = count_scores(0 * ROWS.s, ROWS.s, ROWS.y, 2, 1)
    np.testing.assert_array_equal(found.counts.array(), wanted)
    weights = sf.postprocess.make_weights(found.counts, weight_method).array()
    by_hand = trained(config_of("dp_sgd"), row_weights=jnp.asarray(weights))
    np.testing.assert_allclose(found.model.theta, by_hand.model.theta, rtol=1e-9)
    assert found.cost.bytes_sent == by_hand.cost.bytes_sent + 10 * 2 * 32


# Noise


def test_counts_have_the_noise_of_two_aggregators():
    users = make_user_data(ROWS, USER, SCHEMA, config_of("privfairfl_post")).users
    exact = sum_counts(users, SCHEMA, epsilon=None).array()
    drawn, known = (sum_counts(users, SCHEMA, epsilon=0.5, seed=seed) for seed in (None, 1))
    variance = 2 * 2 * np.exp(-0.5) / (1 - np.exp(-0.5)) ** 2
    assert drawn.variance == known.variance == pytest.approx(variance)
    assert 0 < np.abs(known.array() - exact).max() < 20 * variance**0.5
    assert (drawn.origin.guarantees[0].epsilon, known.origin.guarantees) == (0.5, (None,))


def test_epsilons_of_counts_and_training_add_up_in_the_ledger(tmp_path):
    budget = {"clip": 1.0, "epsilon": 4.0, "delta": 1e-4, "counts_epsilon": 1.0}
    config = config_of("privfairfl_post", **budget | {"batch": 320})
    given = {"ledger": tmp_path / "ledger", "users": {"clients": 5}}
    train_table(make_table(N), SCHEMA, config, tmp_path, **given)
    document = json.loads((tmp_path / "metrics.json").read_text())
    assert document["guarantee"]["epsilon"] == 5.0
    (counts,) = document["counts"]["guarantees"]
    assert (counts["epsilon"], counts["unit"], counts["simulated"]) == (1.0, "row", True)
    origin = sf.read_model(tmp_path / "model.json").decision.origin
    assert origin.model_dump() == document["counts"] | {"guarantees": (counts,)}
    spent = Ledger(given["ledger"]).spent()
    assert spent.epsilon(1e-4) == pytest.approx(5.0)
    assert spent.composition.delta(0.99) == 1.0
    assert len([*tmp_path.glob("ledger.*")]) == 0  # what was bought is forgotten

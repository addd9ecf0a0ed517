"""Training in rounds, from a table to files."""

import json

import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
from builders import SCHEMA, TABLE, make_table
from two_group_rows import weights_for

import synthfair as sf
from synthfair.data.schema import Categorical
from synthfair.errors import InputError
from synthfair.evaluation import evaluate
from synthfair.federated import (
    TrainConfig,
    assign_users,
    engine,
    make_user_data,
    train_rounds,
    train_table,
)
from synthfair.federated.training import _fingerprint, rounds_csv
from synthfair.privacy.ledger import Ledger

EPSILON = {"clip": 1.0, "epsilon": 5.0, "delta": 1e-3}
PRIVATE = TrainConfig(rounds=100, **EPSILON)
TWO_PHASE = TrainConfig(method="two_phase", batch=120, rounds=3, teacher_epochs=3, **EPSILON)
FEDAVG = TrainConfig(method="fedavg", rounds=20)
ROWS = sf.encode(TABLE, SCHEMA)


def users_of(config):
    return {"clients": 2} if config.local_passes else {"rows_per_user": 3.0}


def run(folder, config=FEDAVG, **options):
    return train_table(
        make_table(300), SCHEMA, config, folder / "out",
        ledger=folder / "ledger", users=users_of(config), **options,
    )  # fmt: skip


def data_for(config, **more):
    return make_user_data(ROWS, np.arange(len(TABLE)) // 4, SCHEMA, config, **more)


def metrics(folder):
    return json.loads((folder / "out" / "metrics.json").read_text())


def spent(folder):
    return Ledger(folder / "ledger").spent()


# Files


@pytest.mark.parametrize("config", [FEDAVG.replace(hidden=(4, 3)), TrainConfig(method="mmdm")])
def test_training_writes_the_model_that_was_evaluated(tmp_path, config):
    training, evaluation = run(tmp_path, config.replace(rounds=3))
    read = sf.read_model(tmp_path / "out" / "model.json")
    assert read == training.model
    tests = assign_users(make_table(300), **users_of(config), seed=0)[2]
    again = evaluate(read, dict(tests))
    assert again.overall["accuracy"].value == evaluation.overall["accuracy"].value


def test_training_writes_what_was_done_and_what_it_cost(tmp_path):
    training, _ = run(tmp_path, TrainConfig(rounds=5, cohort=20))
    found, n = metrics(tmp_path), len(training.model.inputs)
    assert (found["method"], found["train"]["cohort"]) == ("fpfl", 20)
    # Gradients of the loss and of two groups' rates, two sums of each group, and two counts.
    cost = found["cost"]
    assert (cost["rounds"], cost["bytes_sent"]) == (5, 8 * (3 * n + 2 * 2 + 2) * 20 * 5)
    assert "guarantee" not in found
    assert spent(tmp_path).epsilon(1e-3) is None
    rounds = pd.read_csv(tmp_path / "out" / "rounds.csv")
    counts = training.history.sums.rates.counts[:, 0, 1]
    np.testing.assert_allclose(rounds["sums.rates.counts.0.1"], counts)


@pytest.mark.parametrize("reads", [False, True])
def test_training_decides_alike_whatever_the_group_unless_it_is_to_read_it(reads):
    """By default it does not, and then needs no column of it."""
    config = FEDAVG.replace(group_input=reads)
    model = train_rounds(data_for(config), config).model
    assert ("town=b" in model.inputs) == model.group_input == reads
    other = TABLE.assign(town=TABLE.town.map({"a": "b", "b": "a"}))
    assert (model.predict(TABLE) == model.predict(other)).all() != reads
    if not reads:
        assert (model.predict(TABLE) == model.predict(TABLE.drop(columns="town"))).all()


def test_training_of_a_network_in_numpy_is_the_network_in_jax():
    config = FEDAVG.replace(hidden=(4, 3), rounds=1)
    plan = config.plan(data_for(config))
    end = engine.run(plan, data_for(config).users, plan.cohorts, rounds=1, seed=0).state
    model = train_rounds(data_for(config), config).model
    expected = plan.model.scores(plan.params(end), jnp.asarray(ROWS.x))
    np.testing.assert_allclose(model.scores(ROWS.x, ROWS.s), expected, rtol=1e-6)


def test_training_learns_the_teachers_labels():
    config = TrainConfig(method="two_phase", batch=200, rounds=2, local_epochs=1, teacher_epochs=5)
    data = make_user_data(ROWS, np.arange(400) // 200, SCHEMA, config)
    plan = config.plan(data)
    labelled = plan.teach(data.users, seed=0)
    end = engine.run(plan, labelled, plan.cohorts, rounds=2, seed=0)
    np.testing.assert_allclose(train_rounds(data, config).model.theta, end.state, rtol=1e-9)
    assert not np.array_equal(labelled.y, data.users.y)


# Guarantees


def test_training_with_epsilon_is_booked_once_and_noisy(tmp_path):
    one, _ = run(tmp_path, PRIVATE)
    assert metrics(tmp_path)["guarantee"]["unit"] == "user"
    assert spent(tmp_path).epsilon(1e-3) == pytest.approx(5.0)
    again, _ = run(tmp_path, PRIVATE, force=True)  # what was bought once is bought for good
    assert spent(tmp_path).releases == 1
    assert again.model == one.model
    two, _ = run(tmp_path, PRIVATE.replace(seed=1), force=True)
    assert spent(tmp_path).releases == 2
    counts = [np.asarray(training.history.sums.rows) for training in (one, two)]
    noise = (counts[0] - 240).std()  # of 100 rounds: false alarm 1e-6
    assert (
        0.65 * one.guarantee.mechanisms[0].noise < noise < 1.35 * one.guarantee.mechanisms[0].noise
    )
    assert not np.allclose(*counts)  # another seed each time


@pytest.mark.parametrize(
    ("config", "noise_seed", "condition"), [(PRIVATE, 1, None), (TWO_PHASE, None, "teacher")]
)
def test_training_whose_noise_can_be_repeated_or_has_a_condition_has_no_epsilon(
    tmp_path, config, noise_seed, condition
):
    training, _ = run(tmp_path, config, noise_seed=noise_seed)
    guarantee = metrics(tmp_path).get("guarantee")
    assert (guarantee and guarantee["condition"]) == condition
    assert (training.guarantee is None) == (noise_seed is not None)
    assert spent(tmp_path).epsilon(1e-3) is None


@pytest.mark.parametrize("secure", [False, True])
def test_training_has_noise_of_the_systems_entropy_unless_a_test_asks(secure):
    config = FEDAVG.replace(rounds=2, secure=secure, **EPSILON | {"epsilon": 50.0})
    models = [
        train_rounds(data_for(config), config, noise_seed=k).model for k in (None, None, 7, 7)
    ]
    assert models[0] != models[1]
    assert models[2] == models[3]


def test_training_by_shares_has_the_model_of_the_plain_one_within_rounding():
    """Where noise hides who was drawn, all users send: the others' are zeros."""
    config = TrainConfig(rounds=4, cohort=20, clip=1.0, multiplier_rate=0.01)
    secure = config.replace(secure=True)
    one, other = (train_rounds(data_for(c), c) for c in (config, secure))
    difference = np.abs(np.subtract(one.model.theta, other.model.theta)).max()
    assert 0 < difference < 1e-7
    assert np.abs(one.model.theta).max() > 1e-2
    plan = secure.plan(data_for(secure))
    claimed = secure.replace(cohort=100, **EPSILON).plan(data_for(secure)).guarantee
    cost = train_rounds(data_for(secure), plan.bound(guarantee=claimed)).cost
    assert cost.bytes_sent == other.cost.bytes_sent * 100 / 20


# Interruptions


@pytest.mark.parametrize("config", [PRIVATE, TWO_PHASE], ids=["private", "two_phase"])
def test_training_that_is_interrupted_goes_on_and_is_booked_once(tmp_path, config, monkeypatch):
    """Another seed that the system would give does not matter. Teachers are trained again."""
    token, part = "synthfair.federated.training.secrets.token_bytes", tmp_path / "part"
    monkeypatch.setattr(token, (2**127 + 5).to_bytes)
    whole, _ = run(tmp_path / "whole", config)

    def stop(done, _total, _words):
        if done == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt, match="holds 2 rounds"):
        run(part, config, on_rounds=stop)
    (saved,) = (part / "out").iterdir()
    assert saved.stat().st_mode & 0o077 == 0  # it holds the seed of the noise
    monkeypatch.setattr(token, (7).to_bytes)
    resumed, _ = run(part, config)
    assert resumed.resumed_at == 2
    assert resumed.model == whole.model
    assert rounds_csv(resumed.history) == rounds_csv(whole.history)
    assert spent(part).releases == 1
    assert not saved.exists()


def test_training_with_other_weights_or_noise_is_another():
    weights = [None, weights_for(SCHEMA), weights_for(SCHEMA, ((1.0, 1.0), (1.0, 1.0)))]
    data = [data_for(FEDAVG, weights=own) for own in weights]
    noisy = FEDAVG.replace(**EPSILON)
    plans = [(own, FEDAVG.plan(own)) for own in data] + [(data[0], noisy.plan(data[0]))]
    digests = {_fingerprint(own, plan, seed) for own, plan in plans for seed in (None, 1)}
    assert len(digests) == 8


# Results


def test_training_constrains_several_attributes_at_once():
    home = Categorical(categories=("own", "rent", "other"))
    schema = SCHEMA.model_copy(update={"columns": {**SCHEMA.columns, "home": home}})
    paid = TABLE["paid"] == "yes"  # unfair to those who do not own
    table = TABLE.assign(home=np.where(paid, "own", TABLE["home"].fillna("own")))
    rows, gaps = sf.encode(table, schema), {}
    for also in ((), ("home",)):
        config = TrainConfig(also=also, rounds=400, cohort=200, memory=0.5, learning_rate=1.0)
        groups = [sf.encode(table, schema.with_sensitive(name)).s for name in also]
        data = make_user_data(rows, np.arange(400), schema, config, also=groups)
        chosen = train_rounds(data, config).model.scores(rows.x, rows.s) > 0
        rates = [chosen[(table["home"] == h).to_numpy()].mean() for h in home.categories]
        gaps[also] = max(rates) - min(rates)
    assert gaps["home",] < 0.5 * gaps[()]


def test_training_that_diverges_is_refused_and_noise_chooses_no_such_params():
    """What is left of reports about them is noise alone, by which they may look fair."""
    diverging = FEDAVG.replace(rounds=5, learning_rate=1e308)
    with pytest.raises(InputError, match="learning_rate = 1e[+]308"):
        train_rounds(data_for(diverging), diverging)
    config = TrainConfig(rounds=30, learning_rate=1e308, **EPSILON)
    assert np.isfinite(train_rounds(data_for(config), config, noise_seed=1).model.theta).all()

"""Training in rounds, from a table to files."""

import json

import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
from builders import SCHEMA, TABLE, make_schema, make_table
from two_group_rows import weights_for

import synthfair as sf
from synthfair.data.schema import Categorical
from synthfair.errors import InputError
from synthfair.federated import TrainConfig, engine, make_user_data, train_rounds, train_table
from synthfair.federated.training import _fingerprint
from synthfair.privacy.ledger import Ledger

EPSILON = {"clip": 1.0, "epsilon": 5.0, "delta": 1e-3}
PRIVATE = TrainConfig(rounds=100, **EPSILON)
TWO_PHASE = TrainConfig(method="two_phase", batch=120, rounds=3, teacher_epochs=3, **EPSILON)
FEDAVG = TrainConfig(method="fedavg", rounds=20)
ROWS = sf.encode(TABLE, SCHEMA)


def run(folder, config=PRIVATE, **options):
    """A training with its metrics.json and its ledger."""
    users = {"clients": 2} if config.local_passes else {"rows_per_user": 3.0}
    options |= {"ledger": folder / "ledger", "users": users}
    training, _ = train_table(make_table(300), SCHEMA, config, folder / "out", **options)
    metrics = json.loads((folder / "out" / "metrics.json").read_text())
    return training, metrics, Ledger(folder / "ledger").spent()


def data_for(config, users=100, **more):
    return make_user_data(ROWS, np.arange(len(TABLE)) % users, SCHEMA, config, **more)


def trained(config, **options):
    return train_rounds(data_for(config), config, **options)


# Files, and the model in them


def test_training_writes_its_model_its_rounds_and_what_they_cost(tmp_path):
    config = TrainConfig(rounds=5, cohort=20, hidden=(4,))
    training, found, spent = run(tmp_path, config, tests={"all": TABLE})
    model = sf.read_model(tmp_path / "out" / "model.json")
    assert model == training.model
    assert found["accuracy"]["value"] == np.mean(model.predict(TABLE) == TABLE["paid"])
    assert (found["method"], found["train"]["cohort"]) == ("fpfl", 20)
    # Gradients of the loss and of two groups' rates, two sums of each group, and two counts.
    params, cost = 4 * len(model.inputs) + 4 + 4 + 1, found["cost"]
    assert (cost["rounds"], cost["bytes_sent"]) == (5, 8 * (3 * params + 2 * 2 + 2) * 20 * 5)
    rounds = pd.read_csv(tmp_path / "out" / "rounds.csv")
    counts = training.history.sums.rates.counts[:, 0, 1]
    np.testing.assert_allclose(rounds["sums.rates.counts.0.1"], counts)
    assert "guarantee" not in found
    assert spent.epsilon(1e-3) is None


def test_training_of_a_network_in_numpy_is_the_network_in_jax():
    config = FEDAVG.replace(hidden=(4, 3), rounds=1)
    plan, users = config.plan(data_for(config)), data_for(config).users
    params = plan.params(engine.run(plan, users, plan.cohorts, rounds=1, seed=0).state)
    found = trained(config).model.scores(ROWS.x, ROWS.s)
    np.testing.assert_allclose(found, plan.model.scores(params, jnp.asarray(ROWS.x)), rtol=1e-6)


def test_training_constrains_the_groups_of_further_attributes(tmp_path):
    home = Categorical(categories=("own", "rent", "other"))
    schema = SCHEMA.model_copy(update={"columns": SCHEMA.columns | {"home": home}})
    table, config = TABLE.fillna({"home": "own"}), TrainConfig(also=("home",), rounds=1)
    files = {"ledger": tmp_path / "ledger", "output": tmp_path / "out"}
    given = {"users": {"each_row": True}, "tests": {"all": table}}
    counts = train_table(table, schema, config, **files, **given)[0].history.sums.rates.counts
    town, homes = table["town"].value_counts(), table["home"].value_counts()
    assert counts[0, 0].tolist() == [*town[["a", "b"]], *homes[[*home.categories]]]
    with pytest.raises(InputError, match="home=other"):
        train_table(table[table["home"] != "other"], schema, config, **files, **given, force=True)


def test_training_that_diverges_is_refused_and_noise_chooses_no_such_params():
    """What is left of reports about them is noise alone, by which they may look fair."""
    with pytest.raises(InputError, match="learning_rate = 1e[+]308"):
        trained(FEDAVG.replace(learning_rate=1e308))
    noisy = PRIVATE.replace(rounds=30, learning_rate=1e308)
    assert np.isfinite(trained(noisy, noise_seed=1).model.theta).all()


# Guarantees


def test_training_with_epsilon_is_booked_once_and_noisy(tmp_path):
    one, found, spent = run(tmp_path)
    assert found["guarantee"]["unit"] == "user"
    assert spent.epsilon(1e-3) == pytest.approx(5.0)
    again, _, spent = run(tmp_path, force=True)  # what was bought once is bought for good
    assert (spent.releases, again.model) == (1, one.model)
    two, found, spent = run(tmp_path, PRIVATE.replace(seed=1), force=True)
    assert spent.releases == 2
    held = sf.federated.assign_users(make_table(300), seed=1, rows_per_user=3.0)[2]["test"]
    (x, s, _), scores = sf.encode(held, SCHEMA), two.model.scores
    assert found["covariance"]["value"] == pytest.approx(np.cov(s, scores(x, s), bias=True)[0, 1])
    counts = [np.asarray(training.history.sums.rows) for training in (one, two)]
    ratio = (counts[0] - 240).std() / one.guarantee.mechanisms[0].noise
    assert 0.65 < ratio < 1.35  # of 100 rounds: false alarm 1e-6
    assert not np.allclose(*counts)  # another seed each time


def test_training_says_how_it_was_asked_to_be_fair(tmp_path):
    found = run(tmp_path, FEDAVG.replace(rounds=1), weights=weights_for(SCHEMA))[1]
    assert found["asked"]["by"] == "row_weights"
    asked = {"notion": "equal_opportunity", "temperature": 2.5}
    config = TrainConfig(method="refine", penalty="selection_rate", **asked)
    assert config.plan(data_for(config)).gap == sf.SelectionRatePenalty(2, **asked)


def test_training_with_noise_drawn_anew_is_booked_each_time(tmp_path):
    config = FEDAVG.replace(rounds=2, secure=True, **EPSILON)
    releases = [run(tmp_path, config, force=True)[2].releases for _ in range(2)]
    assert releases == [1, 2]


@pytest.mark.parametrize(("config", "noise_seed"), [(PRIVATE, 1), (TWO_PHASE, None)])
def test_training_with_repeatable_noise_or_a_condition_has_no_epsilon(tmp_path, config, noise_seed):
    training, found, spent = run(tmp_path, config, noise_seed=noise_seed)
    condition = "teacher" if config == TWO_PHASE else None
    assert found.get("guarantee", {}).get("condition") == condition
    assert (training.guarantee is None) == (noise_seed is not None)
    assert spent.epsilon(1e-3) is None


@pytest.mark.parametrize("secure", [False, True])
def test_training_has_noise_of_the_systems_entropy_unless_a_test_asks(secure):
    config = FEDAVG.replace(rounds=2, secure=secure, **EPSILON)
    one, other, first, same = (trained(config, noise_seed=k).model for k in (None, None, 7, 7))
    assert one != other
    assert first == same


def test_training_by_shares_has_messages_of_all_users_where_noise_hides_who_was_drawn():
    config = TrainConfig(rounds=4, cohort=20, clip=1.0, multiplier_rate=0.01, secure=True)
    data = data_for(config)
    claimed = config.plan(data).bound(guarantee=PRIVATE.plan(data).guarantee)
    assert train_rounds(data, claimed).cost.bytes_sent == trained(config).cost.bytes_sent * 5


def test_training_that_is_interrupted_goes_on_and_is_booked_once(tmp_path):
    def stop(done, _total, _words):
        if done == 50:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt, match="50 rounds"):
        run(tmp_path, on_rounds=stop)
    (saved,) = (tmp_path / "out").iterdir()
    resumed, _, spent = run(tmp_path)
    assert (resumed.resumed_at, spent.releases, saved.exists()) == (50, 1, False)
    assert run(tmp_path, force=True)[0].model == resumed.model  # from the first round


def test_training_with_other_rows_weights_settings_or_noise_is_another():
    weights = [None, weights_for(SCHEMA), weights_for(SCHEMA, ((1.0, 1.0), (1.0, 1.0)))]
    data = [data_for(FEDAVG, weights=own) for own in weights]
    data += [data_for(FEDAVG, users=99), data[0]._replace(schema=make_schema(3))]
    plans = [(own, FEDAVG.plan(own)) for own in data]
    others = FEDAVG.replace(**EPSILON), FEDAVG.replace(learning_rate=0.1)
    plans += [(data[0], other.plan(data[0])) for other in others]
    assert len({_fingerprint(*each, seed) for each in plans for seed in (None, 1)}) == 14

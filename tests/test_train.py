"""Training in rounds, from a table to files."""

import json

import numpy as np
import pandas as pd
import pytest
from conftest import make_schema, make_table

from synthfair import read_model
from synthfair.config import TrainConfig, load_train_config
from synthfair.data.encode import encode
from synthfair.data.schema import Categorical
from synthfair.errors import InputError
from synthfair.evaluation import evaluate
from synthfair.federated import UserAssignment, TrainFiles, deal, make_user_data, train_rounds, train_table
from synthfair.federated.from_table import rounds_csv
from synthfair.federated.user_data import other_groups
from synthfair.privacy.ledger import Ledger

QUICK = TrainConfig(rounds=30, cohort=20, learning_rate=0.5)
PRIVATE = {"clip": 1.0, "epsilon": 5.0, "delta": 1e-3}


def population(config=QUICK, n=200, n_groups=2):
    schema, table = make_schema(n_groups), make_table(n, n_groups=n_groups)
    return make_user_data(encode(table, schema), np.arange(n) // 4, schema, config)


def files(tmp_path, **options):
    return TrainFiles(tmp_path / "out", tmp_path / "users.ledger.jsonl", **options)


def dealt(n=300, **how):
    return deal(make_table(n), UserAssignment(**(how or {"rows_per_user": 3.0})), seed=0)


def run(tmp_path, config=QUICK, **options):
    return train_table(dealt(), make_schema(), config, files(tmp_path, **options), source="small")


@pytest.mark.parametrize("method", ["fedavg", "fedsgd", "fpfl", "mmdm", "fair_sgd", "two_phase"])
@pytest.mark.parametrize("hidden", [(), (4, 3)])
def test_the_model_file_decides_as_the_model_that_was_trained(tmp_path, method, hidden):
    config = QUICK.model_copy(update={"method": method, "hidden": hidden})
    if config.averaged:
        config = TrainConfig(method=method, hidden=hidden, batch=1)
    done = run(tmp_path, config)
    read = read_model(tmp_path / "out" / "model.json")
    assert read == done.training.model
    again = evaluate(read, dict(dealt().tests))
    assert again.overall["accuracy"].value == done.evaluation.overall["accuracy"].value


def test_a_network_in_numpy_is_the_network_in_jax():
    import jax.numpy as jnp

    from synthfair.federated.methods import make_plan
    from synthfair.federated.training import _layers

    config = QUICK.model_copy(update={"hidden": (4, 3), "group_input": False})
    people = population(config)
    algorithm = make_plan(people, config).algorithm
    training = train_rounds(people, config)
    rows = encode(make_table(50, seed=9), make_schema())
    assert people.users.a.shape[1] == rows.x.shape[1]
    import jax

    state = algorithm.init(jax.random.key(3))
    hidden, theta = _layers(jax.device_get(algorithm.params(state)), config)
    model = training.model.model_copy(update={"hidden": hidden, "theta": tuple(theta.tolist())})
    np.testing.assert_allclose(
        model.scores(rows.x, rows.s),
        algorithm.model.scores(state.params, jnp.asarray(rows.x)),
        rtol=1e-6,
    )


def test_files_say_what_was_done_and_what_it_cost(tmp_path):
    done = run(tmp_path)
    found = json.loads((tmp_path / "out" / "metrics.json").read_text())
    assert found["method"] == "fpfl"
    assert found["train"]["cohort"] == 20
    n = len(done.training.model.inputs)
    assert found["cost"]["bytes_sent"] == 8 * (3 * n + 2 * 2 + 2) * 20 * 30
    assert found["cost"]["rounds"] == 30
    assert "promise" not in found
    rounds = pd.read_csv(tmp_path / "out" / "rounds.csv")
    assert len(rounds) == 30
    np.testing.assert_allclose(
        rounds["sums.rates.counts.0.1"], done.training.history.sums.rates.counts[:, 0, 1]
    )


def test_a_private_training_is_promised_booked_and_noisy(tmp_path):
    config = TrainConfig(rounds=5, cohort=20, **PRIVATE)
    one = run(tmp_path, config)
    promise = one.training.guarantee
    assert promise.composition.epsilon(1e-3) <= 5.0
    found = json.loads((tmp_path / "out" / "metrics.json").read_text())
    assert found["promise"]["unit"] == "one user, with all its rows"
    ledger = Ledger(tmp_path / "users.ledger.jsonl")
    assert ledger.spent().epsilon(1e-3) == pytest.approx(5.0, rel=2e-3)
    two = run(tmp_path, config, force=True)
    assert ledger.spent().releases == 2
    counts = [np.asarray(t.training.history.sums.rows) for t in (one, two)]
    assert not np.allclose(counts[0], np.round(counts[0]))  # noise, not counts
    assert not np.allclose(*counts)  # and another seed each time


def test_noise_that_can_be_repeated_promises_nothing(tmp_path):
    config = TrainConfig(rounds=5, cohort=20, **PRIVATE)
    one = run(tmp_path, config, noise_seed=1)
    two = run(tmp_path, config, noise_seed=1, force=True)
    assert one.training.model == two.training.model
    assert "promise" not in json.loads((tmp_path / "out" / "metrics.json").read_text())
    assert Ledger(tmp_path / "users.ledger.jsonl").spent().epsilon(1e-3) is None


@pytest.mark.parametrize(
    ("config", "rounds"),
    [
        (TrainConfig(rounds=120, cohort=20), 100),
        (TrainConfig(rounds=120, cohort=20, **PRIVATE), 100),
        (TrainConfig(method="two_phase", batch=1, **PRIVATE), 3),  # teachers are trained again
        (TrainConfig(method="fedavg", rounds=120, momentum=0.9), 100),
    ],
    ids=["fpfl", "private", "two_phase", "fedavg"],
)
def test_an_interrupted_training_goes_on_and_is_booked_once(tmp_path, config, rounds, monkeypatch):
    seed = 2**127 + 5
    monkeypatch.setattr("synthfair.federated.training.secrets.randbits", lambda bits: seed)
    whole = run(tmp_path / "whole", config)

    def stop(done, total, state):
        if done == rounds:
            raise KeyboardInterrupt

    there = files(tmp_path / "part")
    with pytest.raises(KeyboardInterrupt, match=f"keeps {rounds} rounds"):
        train_table(dealt(), make_schema(), config, there, source="small", on_rounds=stop)
    assert not there.model.exists()
    kept = next(there.output.glob("*.checkpoint"))
    assert kept.stat().st_mode & 0o077 == 0  # it holds the seed of the noise
    monkeypatch.setattr("synthfair.federated.training.secrets.randbits", lambda bits: 7)
    done = train_table(dealt(), make_schema(), config, there, source="small")
    assert done.training.resumed_at == rounds
    assert done.training.model == whole.training.model
    assert rounds_csv(done.training.history) == rounds_csv(whole.training.history)
    assert Ledger(there.ledger).spent().releases == 1
    assert not list(there.output.glob("*.checkpoint"))


def test_a_run_whose_checkpoint_is_damaged_is_another_and_booked(tmp_path):
    """It begins anew, with noise of its own."""
    config = TrainConfig(rounds=60, cohort=20, **PRIVATE)

    def stop(done, rounds, state):
        raise KeyboardInterrupt

    there = files(tmp_path)
    with pytest.raises(KeyboardInterrupt):
        train_table(dealt(), make_schema(), config, there, source="small", on_rounds=stop)
    next(there.output.glob("*.checkpoint")).write_bytes(b"damaged")
    done = train_table(dealt(), make_schema(), config, there, source="small")
    assert done.training.resumed_at == 0
    assert Ledger(there.ledger).spent().releases == 2


class TestTwoPhases:
    """Their promise is one of rows, and depends on the teacher."""

    CONFIG = TrainConfig(method="two_phase", batch=40, clip=1.5, epsilon=4.0, delta=1e-3)

    def test_a_conditional_promise_counts_as_none(self, tmp_path):
        done = train_table(
            dealt(clients=2), make_schema(), self.CONFIG, files(tmp_path), source="small"
        )
        promise = done.training.guarantee
        assert promise.condition.startswith("Conditional on the phase-1 teacher")
        assert promise.unit == "one row of one client"
        assert [m.name for m in promise.mechanisms] == ["student's gradients"]
        assert promise.composition.epsilon(1e-3) <= 4.0
        assert Ledger(tmp_path / "users.ledger.jsonl").spent().epsilon(1e-3) is None

    def test_end_to_end_both_phases_are_composed(self, tmp_path):
        config = TrainConfig.model_validate(self.CONFIG.model_dump() | {"end_to_end": True})
        done = train_table(dealt(clients=2), make_schema(), config, files(tmp_path), source="small")
        promise = done.training.guarantee
        assert promise.condition is None
        teacher, student = promise.mechanisms
        assert teacher.clip > student.clip == 1.5  # its sums hold counts beside the gradients
        assert teacher.noise > student.noise
        assert teacher.multiplier == pytest.approx(student.multiplier)
        assert promise.composition.epsilon(1e-3) <= 4.0
        spent = Ledger(tmp_path / "users.ledger.jsonl").spent()
        assert spent.epsilon(1e-3) == pytest.approx(4.0, rel=1e-2)

    @pytest.mark.parametrize(
        "wrong", [{"notion": "accuracy_parity"}, {"cohort": 1}, {"also": ("home",)}]
    )
    def test_what_it_cannot_do_is_refused(self, wrong):
        with pytest.raises(InputError, match="two_phase"):
            load_train_config(None, method="two_phase", **wrong)


def test_fair_sgd_without_a_weight_is_its_own_baseline():
    """B1 and B2 of Padala et al. (2021): accuracy alone, and with the constraint; on chances."""
    rows, gaps = encode(make_table(900), make_schema()), {}
    for kappa in (0.0, 3.0):
        config = TrainConfig(method="fair_sgd", batch=200, kappa=kappa, rounds=20)
        people = make_user_data(rows, np.arange(900) % 2, make_schema(), config)
        chance = 1 / (1 + np.exp(-train_rounds(people, config).model.scores(rows.x, rows.s)))
        gaps[kappa] = abs(chance[rows.s == 0].mean() - chance[rows.s == 1].mean())
    assert gaps[0.0] > 0.08
    assert gaps[3.0] < 0.03


def test_several_attributes_are_held_equal_at_once():
    schema = make_schema()
    home = Categorical(categories=("own", "rent", "other"))
    schema = schema.model_copy(update={"columns": {**schema.columns, "home": home}})
    table = make_table(400)
    table["home"] = table["home"].fillna("own")
    table["home"] = np.where(table["paid"] == "yes", "own", table["home"])  # unfair to others
    gaps = {}
    for also in ((), ("home",)):
        config = QUICK.model_copy(
            update={
                "also": also,
                "rounds": 400,
                "cohort": 200,
                "memory": 0.5,
                "learning_rate": 1.0,
            }
        )
        others = other_groups(table, schema, config, source="t")
        rows = encode(table, schema)
        people = make_user_data(rows, np.arange(400), schema, config, others=others)
        chosen = train_rounds(people, config).model.scores(rows.x, rows.s) > 0
        rates = [chosen[(table["home"] == h).to_numpy()].mean() for h in home.categories]
        gaps[also] = max(rates) - min(rates)
    assert gaps["home",] < 0.5 * gaps[()]


def test_further_attributes_must_be_others():
    table, schema = make_table(), make_schema()
    for also in (("town",), ("age",)):
        with pytest.raises(InputError, match="attribute"):
            other_groups(table, schema, QUICK.model_copy(update={"also": also}), source="t")


@pytest.mark.parametrize(
    ("notion", "complaint"),
    [
        ("statistical_parity", "no user has a row with town = 'c': nothing"),
        ("equal_opportunity", "no user has a row with town = 'b' and paid = 'yes'"),
    ],
)
def test_a_group_that_nobody_has_is_refused(notion, complaint):
    schema = make_schema(3)
    table = make_table(n_groups=2)
    if notion == "equal_opportunity":
        table.loc[table["town"] == "b", "paid"] = "no"
    config = QUICK.model_copy(update={"notion": notion})
    with pytest.raises(InputError, match=complaint):
        make_user_data(encode(table, schema), np.arange(len(table)), schema, config)


def test_a_cohort_larger_than_the_population_is_refused():
    with pytest.raises(InputError, match="cohort = 51: must be 1 to 50"):
        train_rounds(population(), QUICK.model_copy(update={"cohort": 51}))


@pytest.mark.parametrize("private", [{}, PRIVATE])
def test_a_batch_larger_than_a_client_is_refused(private):
    config = TrainConfig(method="two_phase", batch=5, **private)
    with pytest.raises(InputError, match="batch = 5: must be 1 to 4"):
        train_rounds(population(config), config)


def test_training_that_diverges_is_refused_in_words():
    config = TrainConfig(method="fedavg", rounds=5, learning_rate=1e308)
    with pytest.raises(InputError, match="learning_rate = 1e[+]308: training diverged"):
        train_rounds(population(config), config)


def test_noise_does_not_choose_parameters_that_are_no_numbers():
    """What is left of reports about them is noise alone, by which they may look fair."""
    config = TrainConfig(rounds=30, cohort=20, learning_rate=1e308, hidden=(4,), **PRIVATE)
    model = train_rounds(population(config), config, noise_seed=1).model
    assert np.isfinite(model.theta).all()


def test_an_epsilon_that_no_noise_meets_is_refused_before_anything_is_written(tmp_path):
    config = TrainConfig(rounds=10_000, clip=1.0, epsilon=1e-5, delta=1e-12)
    with pytest.raises(InputError, match="no noise up to"):
        run(tmp_path, config)
    assert not list((tmp_path / "out").iterdir())


@pytest.mark.parametrize(
    ("wrong", "complaint"),
    [
        ({"alpha": -0.1}, "alpha"),
        ({"epsilon": 1.0, "delta": 1e-5}, "epsilon needs clip"),
        ({"epsilon": 1.0, "clip": 1.0}, "go together"),
        ({"method": "mmdm", "clip": 1.0}, "mmdm is never private"),
        ({"hidden": [0]}, "at least 1"),
        ({"cohort": 0}, "cohort"),
        ({"gamma": 1}, "unknown key"),
    ],
)
def test_settings_that_cannot_be_are_refused(tmp_path, wrong, complaint):
    with pytest.raises(InputError, match=complaint):
        load_train_config(None, **wrong)


class TestDealing:
    def test_clients_test_on_rows_of_their_own(self):
        found = dealt(clients=3)
        assert sorted(found.tests) == ["client_0", "client_1", "client_2"]
        assert np.unique(found.user, return_counts=True)[1].tolist() == [80, 80, 80]

    def test_of_many_users_a_fifth_of_the_rows_is_kept(self):
        found = dealt()
        assert len(found.tests["test"]) == 60
        assert len(found.train) == len(found.user) == 240
        assert not set(found.train.index) & set(found.tests["test"].index)

    def test_named_users_are_tested_or_trained_on_never_both(self):
        table = make_table(100).assign(who=[f"p{i % 20}" for i in range(100)])
        found = deal(table, UserAssignment(user_column="who"), seed=0)
        assert "who" not in found.train
        tested = {f"p{i % 20}" for i in found.tests["test"].index}
        assert len(tested) == 4
        assert not tested & set(found.user)

    @pytest.mark.parametrize(
        ("how", "complaint"),
        [
            ({}, "give one of"),
            ({"clients": 2, "rows_per_user": 2.0}, "give one of"),
            ({"clients": 0}, "clients = 0"),
            ({"rows_per_user": -1.0}, "rows_per_user = -1"),
            ({"user_column": "who"}, "no such column"),
        ],
    )
    def test_what_cannot_be_dealt_is_refused(self, how, complaint):
        with pytest.raises(InputError, match=complaint):
            deal(make_table(), UserAssignment(**how), seed=0)

    def test_rows_without_a_user_are_refused(self):
        table = make_table(10).assign(who=["a", None, *"bcdefghi"])
        with pytest.raises(InputError, match="row 2: missing"):
            deal(table, UserAssignment(user_column="who"), seed=0)

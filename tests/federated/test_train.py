"""Training in rounds, from a table to files."""

import json

import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
from builders import make_schema, make_table

from synthfair import read_model
from synthfair.data.encode import encode
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
from synthfair.federated.engine import CheckpointFile, Protection, RunProgress
from synthfair.federated.training import make_model, rounds_csv
from synthfair.privacy.ledger import Ledger
from synthfair.settings import load_settings

QUICK = TrainConfig(rounds=50, cohort=20)
EPSILON = {"clip": 1.0, "epsilon": 5.0, "delta": 1e-3}
PRIVATE = TrainConfig(rounds=100, **EPSILON)
"""All users in every round: the noise for samples takes long to find."""
TWO_PHASE = TrainConfig(method="two_phase", batch=120, rounds=3, teacher_epochs=3, **EPSILON)


def user_data(config=QUICK, n=200, n_groups=2):
    schema, table = make_schema(n_groups), make_table(n, n_groups=n_groups)
    return make_user_data(encode(table, schema), np.arange(n) // 4, schema, config)


def assigned(n=300, **how):
    return assign_users(make_table(n), **(how or {"rows_per_user": 3.0}), seed=0)


def users_for(config):
    return {"clients": 2} if config.local_passes else {"rows_per_user": 3.0}


def data_of_run(config):
    """What :func:`run` trains on."""
    (rows, user, _), schema = assigned(), make_schema()
    return make_user_data(encode(rows, schema), user, schema, config)


def run(tmp_path, config=QUICK, on_rounds=None, **options):
    book, users = tmp_path / "users.ledger.jsonl", users_for(config)
    return train_table(
        make_table(300), make_schema(), config, tmp_path / "out",
        ledger=book, users=users, on_rounds=on_rounds, **options,
    )  # fmt: skip


def metrics(tmp_path):
    return json.loads((tmp_path / "out" / "metrics.json").read_text())


def ledger(tmp_path):
    return Ledger(tmp_path / "users.ledger.jsonl").spent()


# Files


@pytest.mark.parametrize(
    ("method", "hidden"),
    [("fedavg", (4, 3)), ("mmdm", ()), ("fair_sgd", ())],
)
def test_the_model_file_decides_as_the_model_that_was_trained(tmp_path, method, hidden):
    batch = {"batch": 20} if method == "fair_sgd" else {}
    config = TrainConfig(method=method, hidden=hidden, rounds=3, **batch)
    training, evaluation = run(tmp_path, config)
    read = read_model(tmp_path / "out" / "model.json")
    assert read == training.model
    again = evaluate(read, dict(assigned(**users_for(config))[2]))
    assert again.overall["accuracy"].value == evaluation.overall["accuracy"].value


@pytest.mark.parametrize("reads", [False, True])
def test_a_model_decides_alike_whatever_the_group_unless_it_is_to_read_it(tmp_path, reads):
    """By default it does not, and then needs no column of it."""
    config = TrainConfig(method="fedavg", rounds=30, **({"group_input": True} if reads else {}))
    model = run(tmp_path, config)[0].model
    assert ("town=b" in model.inputs) == model.group_input == reads
    table = make_table(300)
    other = table.assign(town=table.town.map({"a": "b", "b": "a"}))
    assert (model.predict(table) == model.predict(other)).all() != reads
    if not reads:
        assert (model.predict(table) == model.predict(table.drop(columns="town"))).all()


def test_a_network_in_numpy_is_the_network_in_jax():
    config = QUICK.model_copy(update={"hidden": (4, 3)})
    data = user_data(config)
    plan = config.plan(data)
    end = engine.run(plan, data.users, plan.cohorts, rounds=1, seed=3)
    model = make_model(plan, data, end)
    rows = encode(make_table(50, seed=9), make_schema())
    assert data.users.a.shape[1] == rows.x.shape[1]
    expected = plan.model.scores(plan.params(end.state), jnp.asarray(rows.x))
    np.testing.assert_allclose(model.scores(rows.x, rows.s), expected, rtol=1e-6)


def test_files_say_what_was_done_and_what_it_cost(tmp_path):
    training, _ = run(tmp_path)
    found = metrics(tmp_path)
    assert found["method"] == "fpfl"
    assert found["train"]["cohort"] == 20
    n = len(training.model.inputs)
    assert found["cost"]["bytes_sent"] == 8 * (3 * n + 2 * 2 + 2) * 20 * 50
    assert found["cost"]["rounds"] == 50
    assert "guarantee" not in found
    assert ledger(tmp_path).epsilon(1e-3) is None
    rounds = pd.read_csv(tmp_path / "out" / "rounds.csv")
    assert len(rounds) == 50
    np.testing.assert_allclose(
        rounds["sums.rates.counts.0.1"], training.history.sums.rates.counts[:, 0, 1]
    )


# Guarantees


def test_a_private_training_is_booked_and_noisy(tmp_path):
    one, _ = run(tmp_path, PRIVATE)
    assert one.guarantee.composition.epsilon(1e-3) == pytest.approx(5.0)
    assert metrics(tmp_path)["guarantee"]["unit"] == "user"
    assert ledger(tmp_path).epsilon(1e-3) == pytest.approx(5.0)
    again, _ = run(tmp_path, PRIVATE, force=True)  # what was bought once is bought for good
    assert ledger(tmp_path).releases == 1
    assert again.model == one.model
    two, _ = run(tmp_path, PRIVATE.replace(seed=1), force=True)
    assert ledger(tmp_path).releases == 2
    counts = [np.asarray(training.history.sums.rows) for training in (one, two)]
    mechanism = one.guarantee.mechanisms[0]
    noise = (counts[0] - 240).std()  # of 100 rounds: false alarm 1e-6
    assert 0.65 * mechanism.noise < noise < 1.35 * mechanism.noise
    assert not np.allclose(*counts)  # another seed each time


@pytest.mark.parametrize(
    ("sampling", "relation"), [("poisson", "add_or_remove"), ("fixed", "replace")]
)
def test_the_guarantee_is_of_the_samples_that_are_drawn(sampling, relation):
    config = PRIVATE.model_copy(update={"sampling": sampling, "cohort": 50})
    plan = config.plan(user_data(config))
    assert plan.guarantee.relation == relation
    mechanism = plan.guarantee.mechanisms[0]
    assert (mechanism.population, mechanism.sample, mechanism.times) == (50, 50, 100)
    assert (plan.cohorts.size, plan.cohorts.sampling) == (50, mechanism.sampling)
    assert plan.protection == Protection(mechanism.clip, mechanism.noise)
    assert mechanism.clip == 1.0
    assert plan.least_count > 1  # of noisy counts nearer to 0 no rate is made


def test_noise_that_can_be_repeated_guarantees_nothing(tmp_path):
    one, two = (run(tmp_path, PRIVATE, noise_seed=1, force=True)[0] for _ in range(2))
    assert one.model == two.model
    assert one.guarantee is None
    assert "guarantee" not in metrics(tmp_path)
    assert ledger(tmp_path).epsilon(1e-3) is None


def test_a_conditional_guarantee_counts_as_none(tmp_path):
    training, _ = run(tmp_path, TWO_PHASE)
    guarantee = training.guarantee
    assert read_model(tmp_path / "out" / "model.json") == training.model
    assert guarantee.condition == "teacher"
    assert guarantee.unit == "row"
    assert [m.name for m in guarantee.mechanisms] == ["student_gradients"]
    assert guarantee.composition.epsilon(1e-3) <= 5.0
    assert ledger(tmp_path).epsilon(1e-3) is None


def test_end_to_end_both_phases_are_composed():
    config = TWO_PHASE.model_copy(update={"end_to_end": True, "batch": 100})
    rows = encode(make_table(200), make_schema())
    plan = config.plan(make_user_data(rows, np.arange(200) % 2, make_schema(), config))
    assert plan.guarantee.condition is None
    teacher, student = plan.guarantee.mechanisms
    assert teacher.clip > student.clip == 1.0  # its sums hold counts as well as gradients
    assert teacher.multiplier == pytest.approx(student.multiplier)
    assert plan.noise == pytest.approx(student.multiplier)
    assert (teacher.times, student.times) == (3, 5 * 3)
    assert plan.guarantee.composition.epsilon(1e-3) == pytest.approx(5.0)


# Interruptions


def stop_at(rounds):
    def stop(done, total, words):
        if done == rounds:
            raise KeyboardInterrupt

    return stop


@pytest.mark.parametrize(
    ("config", "rounds"),
    [
        (PRIVATE, 50),
        (TWO_PHASE, 2),  # teachers are trained again
        (TrainConfig(method="fedavg", rounds=100, cohort=20, momentum=0.9), 50),
    ],
    ids=["private", "two_phase", "fedavg"],
)
def test_an_interrupted_training_goes_on_and_is_booked_once(tmp_path, config, rounds, monkeypatch):
    seed = 2**127 + 5
    monkeypatch.setattr("synthfair.federated.training.secrets.token_bytes", seed.to_bytes)
    whole, _ = run(tmp_path / "whole", config)
    part = tmp_path / "part"
    with pytest.raises(KeyboardInterrupt, match=f"holds {rounds} rounds"):
        run(part, config, stop_at(rounds))
    assert not (part / "out" / "model.json").exists()
    saved = next((part / "out").glob("*.checkpoint"))
    assert saved.stat().st_mode & 0o077 == 0  # it holds the seed of the noise
    monkeypatch.setattr("synthfair.federated.training.secrets.token_bytes", (7).to_bytes)
    resumed, _ = run(part, config)
    assert resumed.resumed_at == rounds
    assert resumed.model == whole.model
    assert rounds_csv(resumed.history) == rounds_csv(whole.history)
    assert ledger(part).releases == 1
    assert not saved.exists()


def test_a_checkpoint_is_read_by_its_own_run_alone(tmp_path):
    """Even where it has the other's name."""
    saved = RunProgress(2, {"x": np.arange(3.0)}, np.zeros(2), 2**127 + 5)
    CheckpointFile(tmp_path / "one", "mine").save(saved)
    back = CheckpointFile(tmp_path / "one", "mine").load(saved)
    assert back
    assert (back.rounds, back.seed) == (saved.rounds, saved.seed)
    np.testing.assert_array_equal(back.state["x"], saved.state["x"])
    assert CheckpointFile(tmp_path / "one", "other").load(saved) is None
    for state in ({"x": np.arange(6.0)}, {"x": np.arange(3)}):  # another shape, another type
        like = saved._replace(state=state)
        assert CheckpointFile(tmp_path / "one", "mine").load(like) is None


def test_a_run_whose_checkpoint_is_damaged_begins_anew_with_what_is_booked(tmp_path):
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path, PRIVATE, stop_at(50))
    next((tmp_path / "out").glob("*.checkpoint")).write_bytes(b"damaged")
    assert run(tmp_path, PRIVATE)[0].resumed_at == 0
    assert ledger(tmp_path).releases == 1


# Fairness


@pytest.mark.slow
def test_fair_sgd_without_a_weight_is_its_own_baseline():
    """B1 and B2 of Padala et al. (2021): accuracy alone, and with the constraint; on chances."""
    rows, gaps = encode(make_table(900), make_schema()), {}
    for kappa in (0.0, 3.0):
        config = TrainConfig(method="fair_sgd", batch=200, kappa=kappa, rounds=20, group_input=True)
        data = make_user_data(rows, np.arange(900) % 2, make_schema(), config)
        chance = 1 / (1 + np.exp(-train_rounds(data, config).model.scores(rows.x, rows.s)))
        gaps[kappa] = abs(chance[rows.s == 0].mean() - chance[rows.s == 1].mean())
    assert gaps[0.0] > 0.08
    assert gaps[3.0] < 0.03


def test_several_attributes_are_constrained_at_once():
    schema = make_schema()
    home = Categorical(categories=("own", "rent", "other"))
    schema = schema.model_copy(update={"columns": {**schema.columns, "home": home}})
    table = make_table(400)
    table["home"] = table["home"].fillna("own")
    table["home"] = np.where(table["paid"] == "yes", "own", table["home"])  # unfair to others
    settings = {"rounds": 400, "cohort": 200, "memory": 0.5, "learning_rate": 1.0}
    rows, gaps = encode(table, schema), {}
    for also in ((), ("home",)):
        config = TrainConfig(also=also, **settings)
        groups = [encode(table, schema.with_sensitive(name)).s for name in also]
        data = make_user_data(rows, np.arange(400), schema, config, also=groups)
        chosen = train_rounds(data, config).model.scores(rows.x, rows.s) > 0
        rates = [chosen[(table["home"] == h).to_numpy()].mean() for h in home.categories]
        gaps[also] = max(rates) - min(rates)
    assert gaps["home",] < 0.5 * gaps[()]


# Refusals


def test_further_attributes_must_be_others():
    rows, schema = encode(make_table(), make_schema()), make_schema()
    user = np.arange(len(rows.y))
    for also in (("town",), ("age",)):
        with pytest.raises(InputError, match="attribute"):
            make_user_data(rows, user, schema, TrainConfig(also=also), also=[rows.s])


@pytest.mark.parametrize(
    ("notion", "complaint"),
    [
        ("statistical_parity", "no user has a row with town=c: statistical_parity cannot"),
        ("equal_opportunity", "no user has a row with town=b with paid=yes"),
    ],
)
def test_a_group_that_nobody_has_is_refused(notion, complaint):
    schema, table = make_schema(3), make_table(n_groups=2)
    if notion == "equal_opportunity":
        table.loc[table["town"] == "b", "paid"] = "no"
    rows, config = encode(table, schema), TrainConfig(notion=notion)
    with pytest.raises(InputError, match=complaint):
        make_user_data(rows, np.arange(len(table)), schema, config)


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        ({"cohort": 51}, "cohort = 51: must be 1 to 50"),
        ({"method": "two_phase", "batch": 5}, "batch = 5: must be 1 to 4"),
        ({"method": "two_phase", "batch": 5} | EPSILON, "batch = 5: must be 1 to 4"),
        (EPSILON | {"delta": 0.02}, "delta = 0.02: must be below 1 / 50"),
        ({"method": "two_phase", "batch": 4} | EPSILON | {"delta": 0.3}, "must be below 1 / 4"),
        (EPSILON | {"epsilon": 1e-5, "delta": 1e-12, "rounds": 10_000}, "no noise up to"),
    ],
)
def test_what_does_not_fit_the_users_is_refused(settings, complaint):
    config = TrainConfig(**settings)
    with pytest.raises(InputError, match=complaint):
        config.plan(user_data(config))


def test_training_that_diverges_is_refused_in_words():
    config = TrainConfig(method="fedavg", rounds=5, learning_rate=1e308)
    with pytest.raises(InputError, match="learning_rate = 1e[+]308: training diverged"):
        train_rounds(data_of_run(config), config)


def test_noise_does_not_choose_parameters_that_are_no_numbers():
    """What is left of reports about them is noise alone, by which they may look fair."""
    config = TrainConfig(rounds=30, learning_rate=1e308, **EPSILON)
    model = train_rounds(data_of_run(config), config, noise_seed=1).model
    assert np.isfinite(model.theta).all()


@pytest.mark.parametrize(
    ("wrong", "complaint"),
    [
        ({"alpha": -0.1}, "alpha"),
        ({"epsilon": 1.0, "delta": 1e-5}, "epsilon needs clip"),
        ({"epsilon": 1.0, "clip": 1.0}, "go together"),
        ({"method": "mmdm", "clip": 1.0}, "clip: not read by mmdm"),
        ({"hidden": [0]}, "hidden.0: Input should be greater than or equal to 1"),
        ({"cohort": 0}, "cohort"),
        ({"gamma": 1}, "unknown key"),
        (
            {"method": "two_phase", "notion": "accuracy_parity"},
            "notion: Input should be 'statistical_parity', 'demographic_parity' or 'equalized_odds'",
        ),
        ({"method": "two_phase", "cohort": 1}, "cohort: not read by two_phase"),
        ({"method": "two_phase", "also": ("home",)}, "also: not read by two_phase"),
    ],
)
def test_settings_that_contradict_each_other_are_refused(wrong, complaint):
    with pytest.raises(InputError, match=complaint):
        load_settings(TrainConfig, None, wrong)


class TestAssignment:
    def test_clients_test_on_rows_of_their_own(self):
        _, user, tests = assigned(clients=3)
        assert sorted(tests) == ["client_0", "client_1", "client_2"]
        assert np.unique(user, return_counts=True)[1].tolist() == [80, 80, 80]

    def test_of_many_users_a_fifth_of_the_rows_is_held_out(self):
        train, user, tests = assigned()
        assert len(tests["test"]) == 60
        assert len(train) == len(user) == 240
        assert not set(train.index) & set(tests["test"].index)

    def test_named_users_are_tested_or_trained_on_never_both(self):
        table = make_table(100).assign(who=[f"p{i % 20}" for i in range(100)])
        train, user, tests = assign_users(table, user_column="who", seed=0)
        assert "who" not in train
        tested = {f"p{i % 20}" for i in tests["test"].index}
        assert len(tested) == 4
        assert not tested & set(user)

    @pytest.mark.parametrize(
        ("how", "complaint"),
        [
            ({}, "give one of"),
            ({"clients": 2, "rows_per_user": 2.0}, "give one of"),
            ({"clients": 2, "user_column": "age"}, "give one of"),
            ({"clients": 0}, "clients = 0"),
            ({"rows_per_user": -1.0}, "rows_per_user = -1"),
            ({"user_column": "who"}, "no such column"),
        ],
    )
    def test_what_cannot_be_assigned_is_refused(self, how, complaint):
        with pytest.raises(InputError, match=complaint):
            assign_users(make_table(), **how, seed=0)

    def test_rows_without_a_user_are_refused(self):
        table = make_table(10).assign(who=["a", None, *"bcdefghi"])
        with pytest.raises(InputError, match="row 2: missing"):
            assign_users(table, user_column="who", seed=0)

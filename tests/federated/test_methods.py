"""What all methods keep to: resuming, the order of users, weights, guarantees and settings."""

import numpy as np
import pytest
from builders import SCHEMA, make_table, part
from two_group_rows import weights_for

import synthfair as sf
from synthfair.errors import InputError
from synthfair.federated import METHODS, TrainConfig, make_user_data, train_rounds
from synthfair.federated.engine import CheckpointFile
from synthfair.federated.training import rounds_csv
from synthfair.settings import load_settings

ROWS = sf.encode(make_table(120), SCHEMA)
MANY, TWO = np.arange(120) // 3, np.arange(120) // 60
"""Users of three rows each, and two clients."""

QUICK = {"rounds": 3, "local_epochs": 1, "teacher_epochs": 2, "bins": 5}
EPSILON = {"clip": 0.5, "epsilon": 4.0, "delta": 1e-3}


def config_of(method, *, private=False, **settings):
    """A method with those of the settings that it reads, or is given."""
    known = QUICK | (EPSILON | {"counts_epsilon": 2.0} if private else {})
    known = {key: value for key, value in known.items() if METHODS[method].reads(key)}
    return TrainConfig(method=method, **known | settings)


def data_for(config, rows=ROWS, user=None, **more):
    user = (TWO if config.local_passes else MANY) if user is None else user
    return make_user_data(rows, user, SCHEMA, config, **more)


def plan_of(method, user=None, **settings):
    config = config_of(method, **settings)
    return config.plan(data_for(config, user=user))


def stop(done, _total, _words):
    if done == 2:
        raise KeyboardInterrupt


CASES = [*((method, {}) for method in METHODS), ("two_phase", {"end_to_end": True})]
CASES += [("fedavg", {"secure": True, "momentum": 0.5, "cohort": 20})]


@pytest.mark.parametrize(("method", "more"), CASES)
def test_method_that_is_interrupted_goes_on_to_the_same_digits(method, more, tmp_path):
    config = config_of(method, private=True, **more)
    data, file = data_for(config), CheckpointFile(tmp_path / "file", "run")
    whole = train_rounds(data, config, noise_seed=5)
    with pytest.raises(KeyboardInterrupt):
        train_rounds(data, config, noise_seed=5, checkpoint=file, on_rounds=stop)
    resumed = train_rounds(data, config, noise_seed=5, checkpoint=file)
    # Counts that weigh rows are drawn anew: rounds with others are not gone on with.
    assert resumed.resumed_at == (0 if method == "privfairfl_pre" else 2)
    assert resumed.model == whole.model
    assert rounds_csv(resumed.history) == rounds_csv(whole.history)
    assert len(rounds_csv(whole.history).splitlines()) == 1 + 3
    counts = method.startswith("privfairfl")
    assert whole.cost.rounds == (1 if method == "mmdm" else 3 + counts)


@pytest.mark.parametrize("method", [m for m in METHODS if m not in ("fair_sgd", "two_phase")])
def test_method_does_not_depend_on_the_order_of_users_and_rows(method):
    """Nor, where reports add up, on who holds which rows. Batches are of all rows; teachers and
    Fair-SGD draw by the number of a user."""
    config, order = config_of(method), np.random.default_rng(0).permutation(120)
    user = TWO if config.local_passes else MANY
    renamed = user if config.additive else user.max() - user[order]
    one = train_rounds(data_for(config), config).model.theta
    other = train_rounds(data_for(config, part(ROWS, order), renamed), config).model.theta
    np.testing.assert_allclose(other, one, rtol=1e-8, atol=1e-10)
    assert np.abs(one).max() > 1e-3


@pytest.mark.parametrize("method", ["fedavg", "dp_sgd", "privfairfl_post"])
def test_method_takes_the_weights_of_rows(method):
    """How they enter is told by the tests of FedAvg and DP-SGD."""
    weights, config = weights_for(SCHEMA), config_of(method)
    plan = config.plan(data_for(config, weights=weights))
    np.testing.assert_array_equal(plan.row_weights, weights.array())


# Guarantees


@pytest.mark.parametrize(("method", "cohort", "more"), [
    ("fedavg", 20, {}), ("fedsgd", 40, {"secure": True}),
    ("fpfl", 40, {"sampling": "fixed"}), ("fpfl", 40, {"secure": True, "sampling": "fixed"}),
])  # fmt: skip
def test_method_in_cohorts_has_the_noise_that_its_guarantee_needs(method, cohort, more):
    plan = plan_of(method, private=True, cohort=cohort, **more)
    (mechanism,), guarantee = plan.guarantee.mechanisms, plan.guarantee
    drawn = plan.cohorts.population, plan.cohorts.size, 3, plan.cohorts.sampling
    stated = mechanism.population, mechanism.sample, mechanism.times, mechanism.sampling
    assert stated == drawn == (40, cohort, 3, plan.sampling)
    relation = "replace" if plan.sampling == "fixed" else "add_or_remove"
    assert (guarantee.unit, guarantee.relation, mechanism.clip) == ("user", relation, 0.5)
    assert 3.96 < guarantee.composition.epsilon(1e-3) <= 4.0
    both = 2**0.5 if plan.secure else 1  # two aggregators add as much each
    assert plan.protection[:2] == pytest.approx((0.5, both * mechanism.noise))
    if method == "fpfl":  # of noisy counts nearer to 0 no rate is made
        noise_in_memory = plan.protection.noise / (1 - plan.memory**2) ** 0.5
        assert plan.least_count == pytest.approx(3 * noise_in_memory)


@pytest.mark.parametrize("method", ["dp_sgd", "two_phase", "privfairfl_pre", "privfairfl_post"])
def test_method_on_rows_has_the_noise_that_its_guarantee_needs(method):
    plan = plan_of(method, user=np.arange(120) >= 50, private=True, batch=30)
    (mechanism,), guarantee = plan.guarantee.mechanisms, plan.guarantee
    stated = mechanism.population, mechanism.sample, mechanism.times
    assert stated == (50, 30, 3 * 2)  # of the smallest client
    condition = "teacher" if method == "two_phase" else None
    found = guarantee.unit, guarantee.relation, guarantee.condition
    assert found == ("row", "add_or_remove", condition)
    assert guarantee.epsilon == 4.0 + (plan.get("counts_epsilon") or 0)
    assert 0.99 < guarantee.composition.epsilon(1e-3) / guarantee.epsilon <= 1
    assert (mechanism.clip, mechanism.noise) == (0.5, pytest.approx(0.5 * plan.noise))


# Settings


@pytest.mark.parametrize("method", METHODS)
def test_method_refuses_settings_out_of_range(method):
    kind = METHODS[method]
    positive = {"learning_rate", "cohort", "local_steps", "clip", "batch", "rate_scale", "C"}
    for name in filter(kind.reads, kind.model_fields):
        for wrong in (-1.0, float("nan"), float("inf"), *[0.0] * (name in positive)):
            with pytest.raises(InputError, match=name):
                load_settings(TrainConfig, None, {"method": method, name: wrong})
    with pytest.raises(InputError, match="guarantee"):  # a plan gives it, and no file
        load_settings(TrainConfig, None, {"method": method, "guarantee": {}})


@pytest.mark.parametrize(("method", "settings", "complaint"), [
    ("fpfl", {"hidden": [0]}, "hidden.0"), ("fpfl", {"secure": True}, "secure needs clip"),
    ("fpfl", {"epsilon": 1.0, "delta": 1e-5}, "epsilon needs clip"),
    ("fpfl", {"epsilon": 1.0, "clip": 1.0}, "epsilon and delta"),
    ("mmdm", {"clip": 1.0}, "clip: not read"), ("dp_sgd", {"noise": 1.3}, "noise needs clip"),
    ("two_phase", {"notion": "accuracy_parity"}, "notion"),
    ("two_phase", {"end_to_end": True}, "end_to_end needs clip"),
    ("privfairfl_pre", EPSILON, "epsilon needs counts_epsilon"),
    ("privfairfl_post", EPSILON | {"epsilon": 99.5, "counts_epsilon": 1.0}, "counts_epsilon"),
    ("fpfl", {"cohort": 41}, "cohort = 41"), ("two_phase", {"batch": 61}, "batch = 61"),
    ("fedavg", EPSILON | {"delta": 1 / 40}, "delta"), ("dp_sgd", EPSILON | {"delta": 1 / 60}, "delta"),
    ("fpfl", EPSILON | {"epsilon": 1e-5, "delta": 1e-12, "rounds": 10_000}, "no noise"),
    ("refine", {"start": (1.0, 2.0)}, "start: 2 numbers"),
])  # fmt: skip
def test_method_refuses_settings_that_do_not_fit(method, settings, complaint):
    """Each other, or the users."""
    with pytest.raises(InputError, match=complaint):
        plan_of(method, **settings)

"""What all methods keep to: resuming, the order of users, weights, guarantees and settings."""

import numpy as np
import pytest
from builders import SCHEMA, make_table
from two_group_rows import weights_for

import synthfair as sf
from synthfair.errors import InputError
from synthfair.federated import METHODS, TrainConfig, make_user_data, train_rounds
from synthfair.federated.engine import CheckpointFile, Protection
from synthfair.federated.training import rounds_csv
from synthfair.settings import load_settings

ROWS = sf.encode(make_table(120), SCHEMA)
MANY, TWO = np.arange(120) // 3, np.arange(120) // 60
"""Users of three rows each, and two clients."""

OWN = {  # settings without which a method does not train quickly on them
    "fair_sgd": {"batch": 30, "local_epochs": 1},
    "two_phase": {"local_epochs": 1, "teacher_epochs": 2},
    "dp_sgd": {"local_epochs": 1},
    "privfairfl_pre": {"local_epochs": 1},
    "privfairfl_post": {"local_epochs": 1, "bins": 5},
}
EPSILON = {"clip": 0.5, "epsilon": 4.0, "delta": 1e-3}


def config_of(method, *, private=False, **settings):
    kind = METHODS[method]
    more = EPSILON if private and kind.reads("epsilon") else {}
    more = more | ({"counts_epsilon": 2.0} if more and kind.reads("counts_epsilon") else {})
    return TrainConfig(method=method, **{"rounds": 3} | OWN.get(method, {}) | more | settings)


def data_for(config, rows=ROWS, user=None, **more):
    user = (TWO if config.local_passes else MANY) if user is None else user
    return make_user_data(rows, user, SCHEMA, config, **more)


def take(rows, index):
    return sf.Encoded(*(part[index] for part in rows))


def stop(done, _total, _words):
    if done == 2:
        raise KeyboardInterrupt


@pytest.mark.parametrize("method", METHODS)
def test_method_that_is_interrupted_goes_on_to_the_same_digits(method, tmp_path):
    config = config_of(method, private=True)
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


@pytest.mark.parametrize("method", [m for m in METHODS if m not in ("fair_sgd", "two_phase")])
def test_method_does_not_depend_on_the_order_of_users_and_rows(method):
    """Nor, where reports add up, on who holds which rows. Batches are of all rows; teachers and
    Fair-SGD draw by the number of a user."""
    config, rng = config_of(method), np.random.default_rng(0)
    user = TWO if config.local_passes else MANY
    order, names = rng.permutation(120), rng.permutation(user.max() + 1)
    renamed = names[user[order]]
    if config.additive:
        renamed = rng.permutation(renamed)
    one = train_rounds(data_for(config), config).model
    other = train_rounds(data_for(config, take(ROWS, order), renamed), config).model
    np.testing.assert_allclose(other.theta, one.theta, rtol=1e-8, atol=1e-10)
    assert np.abs(one.theta).max() > 1e-3


@pytest.mark.parametrize("method", ["fedavg", "dp_sgd", "privfairfl_post"])
def test_method_with_weights_trains_as_on_repeated_rows(method):
    """All rows in a batch, whose sum is divided by their number."""
    weights = weights_for(SCHEMA)
    times = weights.array()[ROWS.s, (ROWS.y > 0).astype(int)].astype(int)
    index, user = np.repeat(np.arange(120), times), TWO if method == "fedavg" else 0 * TWO
    rate = 0.2 if method == "fedavg" else 0.2 * len(index) / 120
    one, other = config_of(method, learning_rate=0.2), config_of(method, learning_rate=rate)
    plain = train_rounds(data_for(one, user=user), one).model.theta
    weighted = train_rounds(data_for(one, user=user, weights=weights), one).model.theta
    repeated = train_rounds(data_for(other, take(ROWS, index), user[index]), other).model.theta
    np.testing.assert_allclose(weighted, repeated, rtol=1e-8)
    assert np.abs(np.subtract(weighted, plain)).max() > 1e-3


# Guarantees


@pytest.mark.parametrize(
    ("method", "sampling", "cohort", "secure"),
    [
        ("fedavg", "poisson", 20, False),
        ("fedsgd", "poisson", 40, True),
        ("fpfl", "fixed", 40, False),
        ("fpfl", "poisson", 40, True),
    ],
)
def test_method_in_cohorts_has_the_noise_that_its_guarantee_needs(method, sampling, cohort, secure):
    config = config_of(method, private=True, sampling=sampling, cohort=cohort, secure=secure)
    plan = config.plan(data_for(config))
    (mechanism,), guarantee = plan.guarantee.mechanisms, plan.guarantee
    stated = mechanism.population, mechanism.sample, mechanism.times, mechanism.sampling
    assert stated == (40, cohort, 3, sampling)
    assert (plan.cohorts.size, plan.cohorts.sampling) == (cohort, sampling)
    relation = "add_or_remove" if sampling == "poisson" else "replace"
    assert (guarantee.unit, guarantee.relation, mechanism.clip) == ("user", relation, 0.5)
    assert 3.96 < guarantee.composition.epsilon(1e-3) <= 4.0
    if secure:  # two aggregators add as much each
        assert plan.protection.noise == pytest.approx(2**0.5 * mechanism.noise)
    else:
        assert plan.protection == Protection(0.5, mechanism.noise)
    if method == "fpfl":  # of noisy counts nearer to 0 no rate is made
        noise_in_memory = plan.protection.noise / (1 - plan.memory**2) ** 0.5
        assert plan.least_count == pytest.approx(3 * noise_in_memory)


@pytest.mark.parametrize("method", ["dp_sgd", "two_phase", "privfairfl_pre", "privfairfl_post"])
def test_method_on_rows_has_the_noise_that_its_guarantee_needs(method):
    config = config_of(method, private=True, batch=30)
    plan = config.plan(data_for(config, user=(np.arange(120) >= 50).astype(int)))
    (mechanism,), guarantee = plan.guarantee.mechanisms, plan.guarantee
    stated = mechanism.population, mechanism.sample, mechanism.times
    assert stated == (50, 30, 3 * 2)  # of the smallest client
    assert (guarantee.unit, guarantee.relation) == ("row", "add_or_remove")
    assert guarantee.condition == ("teacher" if method == "two_phase" else None)
    total = 4.0 + (config.get("counts_epsilon") or 0)
    assert guarantee.epsilon == total
    assert total - 0.04 < guarantee.composition.epsilon(1e-3) <= total
    assert (mechanism.clip, mechanism.noise) == (0.5, pytest.approx(0.5 * plan.noise))


@pytest.mark.parametrize("method", ["dp_sgd", "two_phase", "privfairfl_pre", "privfairfl_post"])
def test_method_takes_a_batch_no_larger_than_a_client_if_none_is_given(method):
    config, many = config_of(method), take(ROWS, np.arange(1800) % 120)
    assert config.plan(data_for(config)).batch == 60
    assert config.plan(data_for(config, many, np.arange(1800) % 2)).batch == 500


@pytest.mark.parametrize(
    ("method", "settings", "complaint"),
    [
        ("fpfl", {"cohort": 41}, "cohort = 41"),
        ("two_phase", {"batch": 61}, "batch = 61"),
        ("dp_sgd", {"batch": 61} | EPSILON, "batch = 61"),
        ("fedavg", EPSILON | {"delta": 1 / 40}, "delta = 0.025"),
        ("dp_sgd", EPSILON | {"delta": 1 / 60}, "delta = 0.0166667"),
        ("fpfl", EPSILON | {"epsilon": 1e-5, "delta": 1e-12, "rounds": 10_000}, "no noise"),
        ("refine", {"start": (1.0, 2.0)}, "start: 2 numbers"),
    ],
)
def test_method_that_does_not_fit_its_users_is_refused(method, settings, complaint):
    config = config_of(method, **settings)
    with pytest.raises(InputError, match=complaint):
        config.plan(data_for(config))


# Settings


@pytest.mark.parametrize(
    ("method", "settings", "complaint"),
    [
        ("fpfl", {"alpha": -0.1}, "alpha"),
        ("fpfl", {"alpha": 1.0}, "alpha"),
        ("fpfl", {"learning_rate": 0.0}, "learning_rate"),
        ("fpfl", {"multiplier_rate": -1.0}, "multiplier_rate"),
        ("fpfl", {"damping": float("nan")}, "damping"),
        ("fpfl", {"memory": 1.0}, "memory"),
        ("fpfl", {"count_scale": float("inf")}, "count_scale"),
        ("fpfl", {"rate_scale": 0.0}, "rate_scale"),
        ("fpfl", {"hidden": [0]}, "hidden.0"),
        ("fpfl", {"cohort": 0}, "cohort"),
        ("fpfl", {"gamma": 1}, "gamma"),
        ("fpfl", {"epsilon": 1.0, "delta": 1e-5}, "epsilon needs clip"),
        ("fpfl", {"epsilon": 1.0, "clip": 1.0}, "epsilon and delta"),
        ("fpfl", {"secure": True}, "secure needs clip"),
        ("fedavg", {"momentum": 1.0}, "momentum"),
        ("fedavg", {"local_steps": 0}, "local_steps"),
        ("fedavg", {"rho": 1.0}, "rho"),
        ("mmdm", {"clip": 1.0}, "clip: not read"),
        ("dp_sgd", {"clip": 0.0}, "clip"),
        ("dp_sgd", {"batch": 0}, "batch"),
        ("two_phase", {"notion": "accuracy_parity"}, "notion"),
        ("two_phase", {"cohort": 1}, "cohort: not read"),
        ("two_phase", {"end_to_end": True}, "end_to_end needs clip"),
        ("privfairfl_post", {"notion": "accuracy_parity"}, "notion"),
        ("privfairfl_pre", EPSILON, "epsilon needs counts_epsilon"),
        ("privfairfl_post", EPSILON | {"epsilon": 99.5, "counts_epsilon": 1.0}, "counts_epsilon"),
        ("refine", {"rho": -1.0}, "rho"),
    ],
)
def test_method_refuses_settings_out_of_range_or_that_contradict_each_other(
    method, settings, complaint
):
    with pytest.raises(InputError, match=complaint):
        load_settings(TrainConfig, None, {"method": method} | settings)


def test_method_given_noise_that_nothing_bounds_is_refused():
    with pytest.raises(InputError, match="noise needs clip"):
        METHODS["dp_sgd"](noise=1.3)

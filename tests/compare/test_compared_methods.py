"""Each method is the function of its room, on the same rows, with the same seeds."""

import numpy as np
import pytest
from builders import make_schema, make_table
from sklearn.linear_model import LogisticRegression

import synthfair as sf
from synthfair.compare import federate, round_settings, run_method
from synthfair.data.bases import Steps
from synthfair.data.encode import Encoded
from synthfair.data.partition import partition
from synthfair.fairness.penalties import CovariancePenalty
from synthfair.fairness.target import Target
from synthfair.federated import draw_users, make_user_data, train_rounds
from synthfair.release.format import release_bytes
from synthfair.server.pooling import concatenated
from synthfair.sklearn import FairLogisticRegression
from synthfair.surrogate.fair import GlobalProblem, ridge_of

REPORT = sf.ServerConfig(resamples=10)
FEW = {"n_synthetic": 24, "steps": 100}

TABLE = make_table(n=2000)
TABLE["income"] += np.where(TABLE["town"] == "b", 20, 0)  # by which a blind model has a gap
TABLE["income"] = TABLE["income"].clip(upper=100)


INCOME = make_schema().columns["income"].model_copy(update={"basis": Steps(edges=(30, 60))})
SCHEMA = make_schema().model_copy(update={"columns": make_schema().columns | {"income": INCOME}})
PARTS, SHARED = partition(TABLE, clients=2, seed=0), {}


@pytest.fixture(scope="module")
def clients():
    return federate(PARTS, SCHEMA)


def scores_of(model, clients):
    return np.concatenate([model.scores(rows.x, rows.s) for rows in clients.test])


@pytest.mark.parametrize("rho", [0.0, 100.0])
def test_central_refine_and_local_are_ridge_regressions_of_all_and_of_own_rows(clients, rho):
    """C = 1 of the number of rows, in all three."""
    config, parts = sf.DistillConfig(rho_o=rho, penalty="selection_rate"), clients.train
    fair = FairLogisticRegression(rho=rho, bounds=(0, 1), penalty="selection_rate")
    trained = dict.fromkeys(("central", "refine"), concatenated(parts)) | {"local": parts[1]}
    for method, (x, s, y) in trained.items():
        fitted = run_method(method, clients, config, REPORT)[1]
        assert fitted.target == Target(by="weight", amounts=(rho,))
        peer = LogisticRegression(C=1, tol=1e-10, max_iter=10_000).fit(x, y)
        if rho:
            peer = fair.fit(x, y, sensitive_features=s)
        expected = peer.decision_function(sf.encode(PARTS[1].test, SCHEMA).x)
        np.testing.assert_allclose(fitted.scores[1], expected, atol=1e-5)


def test_fedavg_of_one_client_is_central_but_for_a_ridge_on_the_intercept():
    alone = federate(PARTS[:1], SCHEMA)
    (x, s, y), test = alone.train[0], alone.test[0].x
    a, b = (np.c_[rows, np.ones(len(rows))] for rows in (x, test))
    ridge = ridge_of(1.0, *a.shape, intercept=False)
    for rho in (0.0, 100.0):
        (found,) = run_method("fedavg", alone, sf.DistillConfig(rho_o=rho), REPORT)[1].scores
        problem = GlobalProblem(a, s, y, np.ones(len(y)), CovariancePenalty(), ridge)
        np.testing.assert_allclose(found, b @ problem.solve(rho).theta, atol=1e-3)


def test_single_shot_and_surrogate_pool_the_releases_of_each_client(clients):
    asked = {"penalty": "selection_rate", "notion": "equalized_odds", "temperature": 3.0}
    config = sf.DistillConfig(rho_o=10.0, **asked, **FEW)
    for method, settings, problem in (
        ("single_shot", config, None),
        ("surrogate", config.records, sf.ServerConfig(rho=10.0, **asked)),
    ):
        made = {
            name: sf.distill_table(part.train, SCHEMA, settings, source=name)
            for name, part in zip(clients.names, PARTS, strict=True)
        }
        releases = {name: each.release for name, each in made.items()}
        model = sf.pool_and_train(releases, SCHEMA, problem)
        _, fitted = run_method(method, clients, config, REPORT)
        np.testing.assert_array_equal(np.concatenate(fitted.scores), scores_of(model, clients))
        sizes = [len(release_bytes(each)) for each in releases.values()]
        assert fitted.cost == (2, 1, sum(sizes))
        assert fitted.converged == (problem is not None)  # 100 steps are too few


def test_surrogates_are_shared_by_runs_of_the_same_rows_and_settings(clients):
    def scores(cache, clients=clients, **changes):
        config = sf.DistillConfig(rho_o=10.0, k_min=20).replace(**changes)
        found = run_method("surrogate", clients, config, REPORT, shared=cache)[1]
        return np.concatenate(found.scores)

    expected, twins = scores({}), clients._replace(plain=2 * clients.plain[:1])
    for other in ({"clients": twins}, {"epsilon": 8.0, "delta": 1e-4}):
        cache = {}
        assert not np.array_equal(scores(cache, **other), expected)
        np.testing.assert_array_equal(scores(cache), expected)


@pytest.mark.parametrize("users", [None, {"clients": 3}])
def test_methods_in_rounds_are_those_of_their_room(clients, users):
    """Sent are (A + 1) p + 2 A + 2 numbers with a constraint, of 8 bytes."""
    rows, options = concatenated(clients.train), {"rounds": 20, "learning_rate": 1.0}
    config = sf.DistillConfig(rho_o=50.0)
    _, fitted = run_method("fpfl", clients, config, REPORT, rounds=options, users=users)
    settings = round_settings("fpfl", config, options)
    user = draw_users(len(rows.y), seed=0, **users) if users else clients.user
    model, *_ = train_rounds(make_user_data(rows, user, SCHEMA, settings), settings)
    np.testing.assert_array_equal(np.concatenate(fitted.scores), scores_of(model, clients))
    assert fitted.target == Target(by="tolerance", amounts=(1 / 50,))
    n = len(set(user))
    assert fitted.cost == (n, 20, 8 * (3 * (rows.x.shape[1] + 1) + 6) * n * 20)


def test_exponentiated_gradient_lowers_the_gap(clients):
    (plain, _), (fair, _) = (
        run_method("exponentiated_gradient", clients, sf.DistillConfig(rho_o=rho), REPORT)
        for rho in (0.0, 100.0)
    )
    assert abs(fair.overall["spd"].value) < 0.75 * abs(plain.overall["spd"].value)
    assert fair.overall["accuracy"].value > fair.constant_accuracy


METHODS = "single_shot", "surrogate", "refine", "central", "exponentiated_gradient", "fpfl"


@pytest.mark.parametrize("method", METHODS)
def test_test_rows_decide_nothing_and_groups_only_where_asked(method, clients):
    part, rounds = clients.test[0], {"rounds": 20}
    other = clients._replace(test=(part, Encoded(part.x, 1 - part.s, -part.y)))
    for reads in (False, True):
        config = sf.DistillConfig(rho_o=2.0, group_input=reads, **FEW)
        _, fitted = run_method(method, other, config, REPORT, rounds=rounds, shared=SHARED)
        assert np.array_equal(*fitted.scores) != reads


def test_constant_has_no_gap_and_the_share_of_the_majority(clients):
    found, _ = run_method("constant", clients, sf.DistillConfig(), REPORT)
    assert found.overall["accuracy"].value == found.constant_accuracy
    assert found.overall["spd"].value == 0


@pytest.mark.parametrize(("given", "method", "rho", "expected"), [
    (None, "fpfl", 20.0, {"method": "fpfl", "alpha": 0.05, "rounds": 1000}),
    (None, "fpfl", 1.0, {"method": "fedsgd"}),
    (None, "mmdm", 0.0, {"method": "mmdm", "multiplier_rate": 0.0, "damping": 0.0}),
    ({"seed": 1}, "two_phase", 10.0, {"rounds": 4, "learning_rate": 2.0, "seed": 0}),
])  # fmt: skip
def test_round_settings_are_the_given_ones_or_the_methods_own(given, method, rho, expected):
    found = round_settings(method, sf.DistillConfig(rho_o=rho), given).model_dump()
    assert found | expected == found


@pytest.mark.parametrize(("method", "settings", "key"), [
    ("refine", {"epsilon": 1.0, "delta": 1e-4}, "epsilon"),
    ("fedavg", {"intercept": False}, "intercept"), ("fpfl", {"groups_by": ("town",)}, "groups_by"),
    ("two_phase", {"notion": "equal_opportunity"}, "notion"),
])  # fmt: skip
def test_method_refuses_settings_that_it_does_not_have(method, settings, key, clients):
    with pytest.raises(sf.InputError, match=key):
        run_method(method, clients, sf.DistillConfig(**settings), REPORT)

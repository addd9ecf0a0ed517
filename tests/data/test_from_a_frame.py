"""From a DataFrame to a fair model in Python: what is taken for what, and what is said."""

import warnings

import numpy as np
import pandas as pd
import pytest
from builders import make_schema, make_table

import synthfair as sf
from synthfair.cli import make_app
from synthfair.errors import InputError

SCHEMA = make_schema()
CLIENTS = [make_table(300, seed=seed) for seed in (0, 1)]
SURROGATE = sf.SurrogateConfig(k_min=10)


@pytest.fixture(scope="module")
def sent():
    """What two clients computed."""
    return [sf.distill_table(table, SCHEMA, SURROGATE) for table in CLIENTS]


@pytest.fixture(scope="module")
def model(sent):
    return sf.pool_and_train(sent, SCHEMA)


def drafted(table, **roles):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        return sf.draft_schema(table, **roles)


def test_five_names_lead_from_a_frame_to_a_fair_model():
    table = pd.concat(CLIENTS, ignore_index=True)
    with pytest.warns(UserWarning, match="read off the rows"):
        schema = sf.draft_schema(table, label="paid", positive="yes", sensitive="town")
    model = sf.pool_and_train([sf.distill_table(table, schema, SURROGATE)], schema)
    found = sf.evaluate(model, table).overall
    assert set(model.predict(table)) == {"no", "yes"}
    assert found["accuracy"].value > 0.7
    assert abs(found["spd"].value) < 0.1


@pytest.mark.parametrize(
    ("values", "positive", "wanted"),
    [
        (["no", "yes"], "yes", "yes"),
        ([False, True], True, True),
        ([0, 1], "1", 1),
        ([0.0, 1.0], 1.0, 1),
        (["bad", "good"], "good", "good"),
        (["bad", "fair", "good"], ["fair", "good"], ("fair", "good")),
    ],
)
def test_a_drafted_schema_has_the_positive_label(values, positive, wanted):
    table = pd.DataFrame({"x": np.arange(60) % 7 + 0.5, "g": ["a", "b"] * 30})
    table["y"] = np.resize(np.array(values, object), 60)
    found = drafted(table, label="y", sensitive="g", positive=positive).positive
    assert found == wanted or str(found) == str(wanted)


def test_releases_are_taken_by_name_in_a_list_or_as_files(sent, model, tmp_path):
    named = {"a": sent[0].release, "b": sent[1]}
    for given in (named, [sent[0].release, sent[1]], sent):
        assert sf.pool_and_train(given, SCHEMA).theta == model.theta
    paths = [tmp_path / f"{name}.parquet" for name in "ab"]
    for path, one in zip(paths, sent, strict=True):
        sf.write_release(one.release, path)
    np.testing.assert_allclose(sf.pool_and_train(paths, SCHEMA).theta, model.theta, atol=1e-6)
    with pytest.raises(InputError, match="no releases"):
        sf.pool_and_train([], SCHEMA)


def test_a_penalty_by_name_is_that_of_the_settings(sent):
    config = sf.ServerConfig(penalty="selection_rate", rho=3.0)
    by_name = sf.pool_and_train(sent, SCHEMA, sf.ServerConfig(rho=3.0), penalty="selection_rate")
    assert by_name.theta == sf.pool_and_train(sent, SCHEMA, config).theta
    config = sf.DistillConfig(rho_o=3.0, steps=2, n_synthetic=24)
    fair = sf.distill_table(CLIENTS[0], SCHEMA, config, penalty="selection_rate").release
    assert fair.header.config == config.replace(penalty="selection_rate")
    assert fair.header.config.rho_o == 3.0
    with pytest.raises(InputError, match="penalty: .*'covariance' or 'selection_rate'; got 'gap'"):
        sf.pool_and_train(sent, SCHEMA, penalty="gap")


SURFACES = {
    "DistillConfig": lambda name: sf.DistillConfig(notion=name),
    "ServerConfig": lambda name: sf.ServerConfig(notion=name),
    "fpfl": lambda name: sf.TrainConfig(method="fpfl", notion=name),
    "fair_sgd": lambda name: sf.TrainConfig(method="fair_sgd", notion=name),
    "Parity": sf.federated.Parity,
    "CovariancePenalty": lambda name: sf.CovariancePenalty(notion=name),
    "SelectionRatePenalty": lambda name: sf.SelectionRatePenalty(notion=name),
    "choose_decision": lambda name: sf.postprocess.choose_decision(HISTOGRAM, name, 0.3),
    "estimator": lambda name: sf.sklearn.FairLogisticRegression(notion=name)._fairness(),
}
COUNTS = (((8, 1, 1), (0, 2, 8)), ((6, 3, 1), (4, 4, 2)))
HISTOGRAM = sf.postprocess.ScoreHistogram(
    schema_hash="0" * 64, model="0" * 64, groups=("a", "b"), counts=COUNTS
)


@pytest.mark.parametrize("make", SURFACES.values(), ids=SURFACES)
def test_a_notion_has_fairlearns_name_too_and_an_unknown_one_is_a_line(make):
    assert make("demographic_parity") == make("statistical_parity")
    with pytest.raises(InputError, match="notion.*'?statistical_parity.*equalized_odds") as caught:
        make("parity")
    assert "'parity'" in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "words",
    [
        "server r.parquet --schema s.json --output out",
        "evaluate --model m.json --data t.csv",
        "compare adult --output out",
        "train adult --output out",
        "thresholds counts.json --alpha 0.1 --model m.json --output out.json",
    ],
)
def test_the_command_line_takes_that_name(words):
    words = [*words.split(), "--notion", "demographic_parity"]
    _, found, _ = make_app(words).parse_args(words, exit_on_error=False, print_error=False)
    assert "demographic_parity" in (found.kwargs.get("notion"), *found.kwargs.values())


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: sf.SurrogateConfig(epsilon=np.float64(-6.5), delta=1e-6), "epsilon: .*; got -6.5"),
        (lambda: sf.DistillConfig(roh=3.0), "roh: unknown key"),
        (lambda: sf.TrainConfig(method="fpfl", alpha=-1.0), "alpha: .*; got -1.0"),
    ],
)
def test_an_error_of_settings_is_a_line(make, message):
    with pytest.raises(InputError, match=message) as caught:
        make()
    assert "\n" not in str(caught.value)
    assert "pydantic" not in str(caught.value)


def test_what_is_shown_is_a_line(sent, model):
    config = sf.DistillConfig(rho_o=3.0, steps=2, n_synthetic=24)
    fair = sf.distill_table(CLIENTS[0], SCHEMA, config)
    shown = [SCHEMA, config, fair, fair.release, *sent, model, sf.evaluate(model, CLIENTS[0])]
    for one in shown:
        assert "\n" not in repr(one)
        assert len(repr(one)) < 300
    assert repr(config) == "DistillConfig(rho_o=3.0, n_synthetic=24, steps=2)"


@pytest.mark.parametrize(
    "config",
    [
        sf.DistillConfig(rho_o=3.0, steps=2, n_synthetic=24),
        sf.DistillConfig(epsilon=1.0, delta=1e-6, k_min=5),
        sf.DistillConfig(max_gap=0.05, penalty="covariance"),
        sf.ServerConfig(max_gap=0.05),
        sf.SurrogateConfig(epsilon=1.0, delta=1e-6),
    ],
)
def test_settings_are_shown_as_the_call_that_makes_them(config):
    kinds = (sf.DistillConfig, sf.ServerConfig, sf.SurrogateConfig)
    assert eval(repr(config), {kind.__name__: kind for kind in kinds}) == config
    assert config.replace(seed=3) == type(config)(**config.given, seed=3)


@pytest.mark.parametrize("given", ["a.parquet", 3, [3], {"a": "a.parquet"}])
def test_what_is_no_release_is_refused(given):
    with pytest.raises(InputError, match="releases: .*must be"):
        sf.pool_and_train(given, SCHEMA)


def test_one_release_is_not_several(sent):
    for one in (sent[0], sent[0].release):
        with pytest.raises(InputError, match="releases: must be several"):
            sf.pool_and_train(one, SCHEMA)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda t: t.rename(columns={"income": 3}), "column 3: names must be texts that differ"),
        (lambda t: pd.concat([t, t[["income"]]], axis=1), "'income' appears more than once"),
        (lambda t: t.iloc[:0], "no rows"),
    ],
)
def test_a_table_without_names_or_rows_is_not_drafted(change, message):
    with pytest.raises(InputError, match=message):
        sf.draft_schema(change(CLIENTS[0]), label="paid", positive="yes", sensitive="town")


def test_plots_have_a_point_for_each_model_and_group(model):
    pytest.importorskip("matplotlib")
    found = sf.evaluate(model, CLIENTS[0])
    legend = sf.plot_tradeoff({"one": found, "other": found}, max_gap=0.1).legends[0]
    assert [text.get_text() for text in legend.get_texts()][:2] == ["one", "other"]
    legend = sf.plot_groups(found).legends[0]
    assert [text.get_text() for text in legend.get_texts()] == ["town=a", "town=b"]
    with pytest.raises(InputError, match="there are none"):
        sf.plot_tradeoff({})
    with pytest.raises(InputError, match="notion = 'parity': must be one of"):
        sf.plot_tradeoff({"one": found}, "parity")


@pytest.mark.parametrize("weight", [[1.0] * 5, [np.nan] * 200, [-1.0] * 200, [0.0] * 200])
def test_weights_of_rows_are_one_a_row_finite_and_not_all_0(weight):
    with pytest.raises(InputError, match="weight: must be 200 finite numbers"):
        sf.distill_table(make_table(200), make_schema(), weight=np.array(weight))

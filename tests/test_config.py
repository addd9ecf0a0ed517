import re
from typing import get_args

import pytest

from synthfair.config import (
    DistillConfig,
    TrainConfig,
    changed_settings,
    load_distill_config,
    load_server_config,
    load_train_config,
)
from synthfair.data.datasets import configs_folder
from synthfair.errors import InputError


def config_file(tmp_path, text):
    path = tmp_path / "c.toml"
    path.write_text(text)
    return path


def test_file_then_flags(tmp_path):
    path = config_file(tmp_path, 'rho_o = 3\nlabels = "copy"')
    config = load_distill_config(path, rho_o=None, steps=7)
    assert (config.rho_o, config.labels, config.steps) == (3.0, "copy", 7)


@pytest.mark.parametrize("path", sorted(configs_folder().glob("*/*.toml")), ids=str)
def test_every_config_in_the_project_is_valid(path):
    if "fpfl" in path.name:
        assert load_train_config(path).method == "fpfl"
    else:
        assert load_distill_config(path).rho_o == 10


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("rho = 3", "c.toml: rho: unknown key"),
        ("rho_o = -1", "c.toml: rho_o: .*greater than or equal to 0; got -1"),
        ("rho_o = inf", "c.toml: rho_o: .*finite"),
        ("rho_s = nan", "c.toml: rho_s"),
        ("lambda_theta = 0", "lambda_theta"),
        ("lambda_x = -1", "lambda_x"),
        ("n_synthetic = 0", "n_synthetic"),
        ("n_synthetic = 40000000000", "n_synthetic: .*less than or equal to 10000000"),
        ("steps = 1.5", "steps"),
        ("learning_rate = 0.0", "learning_rate"),
        ("inner_tolerance = 0", "inner_tolerance"),
        ("inner_max_iterations = 0", "inner_max_iterations"),
        ("temperature = -4", "temperature"),
        ("seed = -1", "seed"),
        ('rho_o = "10"', "rho_o: .*number; got '10'"),
        ('labels = "some"', "labels"),
        ('notion = "fair"', "notion"),
        ("intercept = 1", "intercept"),
        ("rho_o =", "not TOML"),
    ],
)
def test_bad_settings_name_file_key_and_value(tmp_path, text, complaint):
    with pytest.raises(InputError, match=complaint):
        load_distill_config(config_file(tmp_path, text))


def test_bad_flags_are_called_flags(tmp_path):
    with pytest.raises(InputError, match="flags: rho_o"):
        load_distill_config(config_file(tmp_path, "rho_s = 1"), rho_o=-1.0)


def test_flags_that_exclude_each_other_are_named_without_a_file_or_all_the_others():
    with pytest.raises(InputError) as refused:
        load_server_config(rho=1.0, max_gap=0.1)
    assert str(refused.value).startswith("flags: rho, max_gap: give one; with max_gap a weight")
    assert not re.search(r"whole file|got|\{", str(refused.value))


def test_no_such_file(tmp_path):
    (tmp_path / "deep.toml").write_text("a = " + "[" * 100_000)
    with pytest.raises(InputError, match="deep.toml: not settings: .*nested too deeply"):
        load_distill_config(tmp_path / "deep.toml")
    with pytest.raises(InputError, match="none.toml: cannot read"):
        load_distill_config(tmp_path / "none.toml")


def test_settings_cannot_be_changed_after_validation():
    with pytest.raises(ValueError, match="frozen"):
        DistillConfig().rho_o = 3


def test_what_was_changed_is_told_by_the_method_s_own_defaults():
    assert changed_settings(TrainConfig(method="two_phase")) == {"method": "two_phase"}
    long = TrainConfig(method="two_phase", rounds=TrainConfig().rounds, memory=0.5)
    assert changed_settings(long) == {"method": "two_phase", "rounds": 500}


def test_every_setting_of_training_is_read_by_some_method():
    methods = get_args(TrainConfig.model_fields["method"].annotation)
    for name in TrainConfig.model_fields:
        assert any(TrainConfig(method=method).reads(name) for method in methods)


@pytest.mark.parametrize("method", [3, ["fpfl"], "fed"])
def test_a_method_that_is_none_is_refused(method):
    with pytest.raises(InputError, match="method"):
        load_train_config(None, method=method)


def test_server_settings():
    assert load_server_config(seed=3).seed == 3
    with pytest.raises(InputError, match="resamples"):
        load_server_config(resamples=0)

"""The settings of a release: whether an epsilon is decided against, and contradictions."""

import pytest

import synthfair as sf
from synthfair.errors import InputError
from synthfair.release.settings import load_release_config


def test_without_epsilon_is_a_flag_or_a_key_that_an_epsilon_overrides(tmp_path):
    decided = tmp_path / "c.toml"
    decided.write_text("without_epsilon = true")
    for config in (load_release_config(decided), load_release_config(without_epsilon=True)):
        assert (config.without_epsilon, config.epsilon) == (True, None)
    config = load_release_config(decided, epsilon=1.0, delta=1e-6)
    assert (config.without_epsilon, config.epsilon) == (False, 1.0)


def test_settings_that_are_given_hold_and_go_together(tmp_path):
    (tmp_path / "c.toml").write_text('release = "surrogate"')
    config = load_release_config(tmp_path / "c.toml", release="fair", rho_o=0.0)
    assert config == sf.DistillConfig(rho_o=0.0)
    least_disclosed = {"labels": "balanced", "start": "range", "k_min": 50, "group_input": False}
    assert sf.DistillConfig() == sf.DistillConfig(**least_disclosed, relation="add_or_remove")
    for wrong in ({"delta": 1e-6}, {"epsilon": 1.0}, {"rho_s": 1.0}, {"lambda_theta": 0.0}):
        with pytest.raises(InputError):
            sf.DistillConfig(**wrong)


def test_settings_are_those_of_the_file_that_they_make():
    decided, read = sf.SurrogateConfig(without_epsilon=True), sf.SurrogateConfig()
    assert decided == read
    assert len({decided, read}) == 1
    assert decided != sf.SurrogateConfig(seed=1)

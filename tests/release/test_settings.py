"""The settings of a release: whether an epsilon is decided against, and contradictions."""

import synthfair as sf
from synthfair.release.settings import load_release_config


def test_without_epsilon_is_a_flag_or_a_key_that_an_epsilon_overrides(tmp_path):
    decided = tmp_path / "c.toml"
    decided.write_text("without_epsilon = true")
    for config in (load_release_config(decided), load_release_config(without_epsilon=True)):
        assert (config.without_epsilon, config.epsilon) == (True, None)
    config = load_release_config(decided, epsilon=1.0, delta=1e-6)
    assert (config.without_epsilon, config.epsilon) == (False, 1.0)


def test_settings_are_those_of_the_file_that_they_make():
    decided, read = sf.SurrogateConfig(without_epsilon=True), sf.SurrogateConfig()
    assert decided == read
    assert len({decided, read}) == 1
    assert decided != sf.SurrogateConfig(seed=1)

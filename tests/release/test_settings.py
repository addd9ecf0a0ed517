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


@pytest.mark.parametrize(("text", "flags", "keys"), [
    ("epsilon = 1.0\ndelta = 1e-6", {"without_epsilon": True}, "c.toml: without_epsilon, epsilon"),
    ("release = 'x'", {}, "c.toml: release: 'x'"),
    ("", {"k_min": 100}, "flags: k_min"),
    ("rho_s = 1.0", {}, "rho_s"),
    ("epsilon = 1\ndelta = 1e-6\nk_min = 4", {}, "k_min: .*5"),
])  # fmt: skip
def test_settings_that_contradict_are_refused_by_their_keys(tmp_path, text, flags, keys):
    (tmp_path / "c.toml").write_text(text)
    with pytest.raises(InputError, match=keys):
        load_release_config(tmp_path / "c.toml", **flags)


def test_settings_are_those_of_the_file_that_they_make():
    decided, read = sf.SurrogateConfig(without_epsilon=True), sf.SurrogateConfig()
    assert decided == read
    assert len({decided, read}) == 1
    assert decided != sf.SurrogateConfig(seed=1)

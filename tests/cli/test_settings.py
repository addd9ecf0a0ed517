"""Settings in files and flags."""

import pytest
from pydantic import ValidationError

from synthfair.data.datasets import configs_folder
from synthfair.errors import InputError
from synthfair.federated import METHODS, TrainConfig
from synthfair.release.settings import SurrogateConfig, load_release_config
from synthfair.server.settings import ServerConfig
from synthfair.settings import load_settings


@pytest.fixture
def config_file(tmp_path):
    """A function that writes a configuration."""

    def write(text):
        (tmp_path / "c.toml").write_text(text)
        return tmp_path / "c.toml"

    return write


def test_flags_override_the_file(config_file):
    config = load_release_config(config_file('rho_o = 3\nlabels = "copy"'), rho_o=None, steps=7)
    assert (config.rho_o, config.labels, config.steps) == (3.0, "copy", 7)


@pytest.mark.parametrize("path", sorted(configs_folder().glob("*/*.toml")), ids=str)
def test_configs_of_the_project_are_valid(path):
    if "fpfl" in path.name:
        assert load_settings(TrainConfig, path, {}).method == "fpfl"
    else:
        assert load_release_config(path).rho_o == 10


@pytest.mark.parametrize(("text", "flags", "named"), [
    ("roh = 3", {}, "c.toml: roh"),
    ("rho_o = -1", {}, "c.toml: rho_o: .*-1"),
    ("rho_o = inf", {}, "c.toml: rho_o"),
    ('rho_o = "10"', {}, "rho_o: .*'10'"),
    ("n_synthetic = 40000000000", {}, "n_synthetic"),
    ('notion = "fair"', {}, "notion"),
    ("rho_o =", {}, "c.toml: not TOML"),
    ("a = " + "[" * 100_000, {}, "c.toml: not TOML"),
    ("rho_s = 1", {"rho_o": -1.0}, "flags: rho_o"),
    ('release = "surrogate"', {"rho_o": 1.0}, "rho_o: not read"),
])  # fmt: skip
def test_settings_refused_name_file_key_and_value(config_file, text, flags, named):
    with pytest.raises(InputError, match=named):
        load_release_config(config_file(text), **flags)


def test_settings_of_surrogates_are_in_both_kinds(config_file):
    file = config_file('release = "surrogate"\nk_min = 20\n')
    assert load_release_config(file) == SurrogateConfig(k_min=20)
    assert load_release_config(None, k_min=30, epsilon=1.0, delta=1e-6).records.k_min == 30


@pytest.mark.parametrize("settings", [{}, {"rho": 3.0}, {"max_gap": 0.1}])
def test_settings_are_frozen_and_read_again_as_they_were_written(settings):
    asked = ServerConfig(**settings)
    assert ServerConfig.model_validate_json(asked.model_dump_json()) == asked
    with pytest.raises(ValidationError, match="frozen"):
        asked.rho = 3


@pytest.mark.parametrize("method", METHODS)
def test_method_is_its_settings_and_refuses_others(method):
    config = TrainConfig.model_validate({"method": method})
    assert config == TrainConfig(method=method) == METHODS[method]()
    others = {key: field for other in METHODS.values() for key, field in other.model_fields.items()}
    unread = {key: field.default for key, field in others.items() if not config.reads(key)}
    for key, value in unread.items():
        with pytest.raises(InputError, match=f"flags: {key}: "):
            load_settings(TrainConfig, None, {"method": method, key: value or "0"})

"""Settings in files and flags."""

import pytest

from synthfair.data.datasets import configs_folder
from synthfair.errors import InputError
from synthfair.federated import METHODS, TrainConfig
from synthfair.release.settings import SurrogateConfig, load_release_config
from synthfair.settings import load_settings


@pytest.fixture
def load(tmp_path):
    """A function that writes a configuration, and reads it with flags."""

    def write(text, **flags):
        (tmp_path / "c.toml").write_text(text)
        return load_release_config(tmp_path / "c.toml", **flags)

    return write


def test_flags_override_the_file(load):
    config = load('rho_o = 3\nlabels = "copy"', rho_o=None, steps=7)
    assert (config.rho_o, config.labels, config.steps) == (3.0, "copy", 7)


@pytest.mark.parametrize("path", sorted(configs_folder().glob("*/*.toml")), ids=str)
def test_configs_of_the_project_are_valid(path):
    if "fpfl" in path.name:
        assert load_settings(TrainConfig, path, {}).method == "fpfl"
    else:
        assert load_release_config(path).rho_o == 10


@pytest.mark.parametrize(("text", "flags", "named"), [
    ("roh = 3", {}, "c.toml: roh"), ("rho_o = -1", {}, "c.toml: rho_o: .*-1"),
    ("rho_o = inf", {}, "c.toml: rho_o"), ('rho_o = "10"', {}, "rho_o: .*'10'"),
    ("n_synthetic = 40000000000", {}, "n_synthetic"), ('notion = "fair"', {}, "notion"),
    ("rho_o =", {}, "c.toml: not TOML"), ("a = " + "[" * 100_000, {}, "c.toml: not TOML"),
    ("rho_s = 1", {"rho_o": -1.0}, "flags: rho_o"),
    ('release = "surrogate"', {"rho_o": 1.0}, "rho_o: not read"),
    ("", {"k_min": 100}, "flags: k_min"),
    ("epsilon = 1\ndelta = 1e-6\nk_min = 4", {}, "k_min: .*5"),
    ("epsilon = 1\ndelta = 1e-6", {"without_epsilon": True}, "c.toml: without_epsilon, epsilon"),
])  # fmt: skip
def test_settings_refused_name_file_key_and_value(load, text, flags, named):
    with pytest.raises(InputError, match=named):
        load(text, **flags)


def test_settings_of_surrogates_are_in_both_kinds(load):
    assert load('release = "surrogate"\nk_min = 20') == SurrogateConfig(k_min=20)
    assert load_release_config(None, k_min=30, epsilon=1.0, delta=1e-6).records.k_min == 30


@pytest.mark.parametrize("method", METHODS)
def test_method_is_its_settings_and_refuses_others(method):
    config = TrainConfig.model_validate({"method": method})
    assert config == TrainConfig(method=method) == METHODS[method]()
    others = {key: field for other in METHODS.values() for key, field in other.model_fields.items()}
    unread = {key: field.default for key, field in others.items() if not config.reads(key)}
    for key, value in unread.items():
        with pytest.raises(InputError, match=f"flags: {key}: "):
            load_settings(TrainConfig, None, {"method": method, key: value or "0"})

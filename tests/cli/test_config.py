import re
from typing import get_args

import jax
import pytest

import synthfair as sf
from synthfair.cli import main, make_app
from synthfair.cli.train import Method
from synthfair.data.datasets import configs_folder
from synthfair.errors import InputError
from synthfair.federated import METHODS, Perceptron, TrainConfig
from synthfair.release.settings import DistillConfig, load_release_config
from synthfair.settings import load_settings


def config_file(tmp_path, text):
    path = tmp_path / "c.toml"
    path.write_text(text)
    return path


def test_file_then_flags(tmp_path):
    path = config_file(tmp_path, 'rho_o = 3\nlabels = "copy"')
    config = load_release_config(path, rho_o=None, steps=7)
    assert (config.rho_o, config.labels, config.steps) == (3.0, "copy", 7)


@pytest.mark.parametrize("path", sorted(configs_folder().glob("*/*.toml")), ids=str)
def test_every_config_in_the_project_is_valid(path):
    if "fpfl" in path.name:
        assert load_settings(TrainConfig, path, {}).method == "fpfl"
    else:
        assert load_release_config(path).rho_o == 10


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("roh = 3", "c.toml: roh: unknown key"),
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
        load_release_config(config_file(tmp_path, text))


def test_bad_flags_are_called_flags(tmp_path):
    with pytest.raises(InputError, match="flags: rho_o"):
        load_release_config(config_file(tmp_path, "rho_s = 1"), rho_o=-1.0)


@pytest.mark.parametrize("gap", ["max_gap", "max_client_gap"])
def test_flags_that_exclude_each_other_are_named_without_a_file_or_all_the_others(gap):
    with pytest.raises(InputError) as refused:
        load_settings(sf.ServerConfig, None, {"rho": 1.0, gap: 0.1})
    assert str(refused.value).startswith(f"flags: rho, {gap}: give one; a search for a gap")
    assert not re.search(r"whole file|got|\{", str(refused.value))


def test_no_such_file(tmp_path):
    (tmp_path / "deep.toml").write_text("a = " + "[" * 100_000)
    with pytest.raises(InputError, match="deep.toml: not TOML"):
        load_release_config(tmp_path / "deep.toml")
    with pytest.raises(InputError, match="none.toml: cannot read"):
        load_release_config(tmp_path / "none.toml")


def test_settings_cannot_be_changed_after_validation():
    with pytest.raises(ValueError, match="frozen"):
        DistillConfig().rho_o = 3


@pytest.mark.parametrize("method", METHODS)
def test_a_method_is_its_settings(method):
    config = TrainConfig.model_validate({"method": method})
    assert config == TrainConfig(method=method) == METHODS[method]()
    others = {key: field for other in METHODS.values() for key, field in other.model_fields.items()}
    unread = {key: field.default for key, field in others.items() if not config.reads(key)}
    for key, value in unread.items():
        with pytest.raises(InputError, match=f"flags: {key}: not read by {method}"):
            load_settings(TrainConfig, None, {"method": method, key: value or "0"})


@pytest.mark.parametrize("method", METHODS)
def test_another_seed_or_number_needs_no_other_code_and_another_model_does(method):
    """JAX compiles anew for another structure."""
    kind = METHODS[method]
    rate = {} if method == "refine" else {"learning_rate": 0.25}
    plain = jax.tree.structure(kind())
    assert jax.tree.structure(kind(seed=3, rounds=7, group_input=True, **rate)) == plain
    assert jax.tree.structure(kind(model=Perceptron(3, (2,)))) != plain
    doubled = jax.tree.map(lambda leaf: 2 * leaf, kind(**rate))
    assert doubled.learning_rate == 2 * kind(**rate).learning_rate


def test_every_method_has_a_flag():
    assert get_args(Method) == tuple(METHODS)
    words = "train loanapp --output o --method privfairfl_pre --epsilon 1 --no-group-input"
    argv = [*words.split(), "--hidden", "3", "2"]
    _, given, _ = make_app(argv).parse_args(argv)
    assert given.arguments["method"] == "privfairfl_pre"
    found = {"epsilon": 1.0, "group_input": False, "hidden": (3, 2)}
    assert given.arguments["settings"] == found


@pytest.mark.parametrize("method", METHODS)
def test_help_with_a_method_shows_its_settings_and_no_others(method, capsys):
    assert main(["train", "--method", method, "--help"]) == 0
    said = capsys.readouterr().out
    shown = re.findall(r"^│ --([a-z-]+)", said.replace("C ", "c "), re.MULTILINE)
    fields = {name for name in METHODS[method].model_fields if METHODS[method].reads(name)}
    assert {name.replace("-", "_") for name in shown} == {
        n.lower() for n in fields - {"method", "start"}
    }
    assert len(shown) <= 20


@pytest.mark.parametrize("method", [3, ["fpfl"], "fed"])
def test_a_method_that_is_none_is_refused(method):
    with pytest.raises(InputError, match="method"):
        load_settings(TrainConfig, None, {"method": method})


def test_server_settings():
    assert load_settings(sf.ServerConfig, None, {"seed": 3}).seed == 3
    with pytest.raises(InputError, match="resamples"):
        load_settings(sf.ServerConfig, None, {"resamples": 0})


def test_settings_of_the_other_kind_are_refused(tmp_path):
    file = tmp_path / "s.toml"
    file.write_text('release = "surrogate"\nk_min = 20\n')
    assert load_release_config(file) == sf.SurrogateConfig(k_min=20)
    assert load_release_config(None, release="surrogate", seed=3) == sf.SurrogateConfig(seed=3)
    with pytest.raises(InputError, match="rho_o: not read; fairness is"):
        load_release_config(file, rho_o=1.0)
    private = load_release_config(None, k_min=30, epsilon=1.0, delta=1e-6)
    assert private.records.k_min == 30


def test_one_weight_or_one_gap_is_asked_for():
    with pytest.raises(InputError, match="^rho, max_gap: give one"):
        sf.ServerConfig(rho=1.0, max_gap=0.1)


@pytest.mark.parametrize("settings", [{}, {"rho": 3.0}, {"max_gap": 0.1}])
def test_settings_are_read_again_as_they_were_written(settings):
    asked = sf.ServerConfig(**settings)
    assert sf.ServerConfig.model_validate_json(asked.model_dump_json()) == asked

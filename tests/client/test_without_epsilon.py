"""A release without an epsilon asks for a decision, on the command line alone."""

import pytest
from builders import make_schema, make_table

import synthfair as sf
from synthfair.cli import main
from synthfair.errors import InputError
from synthfair.release.settings import load_release_config
from synthfair.report.release_tables import EPSILON_COSTS

KINDS = {
    "fair": ["--steps", "20"],
    "surrogate": ["--release", "surrogate", "--k-min", "10"],
}
DISCLOSED = {
    "fair": "at least as much as a model trained on the rows",
    "surrogate": "nearly how many rows each group and label has",
}
PRIVATE = ["--epsilon", "100", "--delta", "1e-6"]  # hardly any noise, as rows are few


@pytest.fixture
def folder(tmp_path):
    make_table(200).to_csv(tmp_path / "rows.csv", index=False)
    (tmp_path / "schema.json").write_text(make_schema().to_json())
    (tmp_path / "without.toml").write_text("without_epsilon = true")
    return tmp_path


def run_client(folder, name, *flags):
    files = ["--data", f"{folder}/rows.csv", "--schema", f"{folder}/schema.json"]
    return main(["client", *files, "--output", f"{folder}/{name}.parquet", *flags])


@pytest.mark.parametrize("kind", KINDS)
def test_it_is_warned_of_once_unless_it_is_decided_and_no_release_tells(folder, capsys, kind):
    def warned(name, *flags):
        assert run_client(folder, name, *KINDS[kind], *flags) == 0
        return " ".join(capsys.readouterr().err.split())

    said = warned("open")
    assert said.count("warning: without epsilon no row is protected, and the file discloses") == 1
    assert DISCLOSED[kind] in said
    assert (
        f"--epsilon 1 --delta 1e-6 protects each row, at a cost of {EPSILON_COSTS[kind]} on public"
        in said
    )
    assert "From version 1.0 on, --epsilon or --without-epsilon must be given" in said
    config = ["--config", f"{folder}/without.toml"]
    for name, flags in {"flag": ["--without-epsilon"], "key": config}.items():
        assert "without epsilon" not in warned(name, *flags)
        decided, undecided = (folder / f"{one}.parquet" for one in (name, "open"))
        assert decided.read_bytes() == undecided.read_bytes()
    assert "without epsilon" not in warned("private", *config, *PRIVATE)


def test_python_is_not_warned(recwarn):
    sf.distill_table(make_table(200), make_schema(), sf.SurrogateConfig(k_min=10))
    assert not [one for one in recwarn if "epsilon" in str(one.message)]


def test_an_epsilon_and_the_decision_against_one_are_refused(folder, capsys):
    assert run_client(folder, "r", "--without-epsilon", *PRIVATE) == 2
    assert "flags: without_epsilon, epsilon: exclude each other" in capsys.readouterr().err
    assert not (folder / "r.parquet").exists()


@pytest.mark.parametrize(
    ("text", "given", "is_decided", "epsilon"),
    [
        ("", {}, False, None),
        ("without_epsilon = false", {}, False, None),
        ("without_epsilon = true", {}, True, None),
        ("", {"without_epsilon": True}, True, None),
        ("without_epsilon = true", {"epsilon": 1.0, "delta": 1e-6}, False, 1.0),
        ("epsilon = 1.0\ndelta = 1e-6", {}, False, 1.0),
    ],
)
def test_the_decision_is_a_flag_or_a_key_that_an_epsilon_overrides(
    tmp_path, text, given, is_decided, epsilon
):
    file = tmp_path / "c.toml"
    file.write_text(text)
    config = load_release_config(file, **given)
    assert (config.without_epsilon, config.epsilon) == (is_decided, epsilon)


@pytest.mark.parametrize(
    ("text", "given", "complaint"),
    [
        ("without_epsilon = true\nepsilon = 1.0\ndelta = 1e-6", {}, "c.toml: .* exclude"),
        ("epsilon = 1.0\ndelta = 1e-6", {"without_epsilon": True}, "c.toml: .* exclude"),
        ("without_epsilon = 1", {}, "c.toml: without_epsilon: .*valid boolean; got 1"),
        ("release = 'x'", {}, "c.toml: release: 'x' is not allowed; must be fair or surrogate"),
        ("", {"k_min": 100}, "k_min: not read for a fair release without epsilon"),
    ],
)
def test_a_contradiction_or_no_answer_is_refused(tmp_path, text, given, complaint):
    file = tmp_path / "c.toml"
    file.write_text(text)
    with pytest.raises(InputError, match=complaint):
        load_release_config(file, **given)


def test_settings_are_those_of_the_file_that_they_make():
    decided, read = sf.SurrogateConfig(without_epsilon=True), sf.SurrogateConfig()
    assert decided == read
    assert len({decided, read}) == 1
    assert decided != sf.SurrogateConfig(seed=1)

"""Several answers about the same persons: which need consent, by files and through an engine."""

import pytest
from builders import RELEASE, World, make_schema, make_table

import synthfair as sf
from synthfair.cli import main
from synthfair.client import distill_file
from synthfair.privacy.ledger import BudgetError, Ledger

EXACT = sf.SurrogateConfig(k_min=5)
PRIVATE = sf.SurrogateConfig(k_min=5, epsilon=1.0, delta=1e-6)


@pytest.fixture
def months(tmp_path):
    """A population in October, and in November with one row more."""
    (tmp_path / "schema.json").write_text(make_schema().to_json())
    table = make_table(601)
    table[:600].to_csv(tmp_path / "october.csv", index=False)
    table.to_csv(tmp_path / "november.csv", index=False)
    return tmp_path


def release(folder, month, config, **options):
    path = folder / f"{month}.csv"
    paths = path, folder / "schema.json", folder / "out.parquet"
    distill_file(*paths, config, force=True, ledger=folder / "all.ledger.jsonl", **options)


def test_a_second_exact_release_needs_consent_once(months):
    release(months, "october", EXACT)
    release(months, "october", EXACT)  # the very same file tells nothing new
    others = ("october", EXACT.model_copy(update={"k_min": 10})), ("november", EXACT)
    (months / "out.parquet").unlink()
    for month, config in others:
        with pytest.raises(BudgetError, match="its exact level in about a third of the columns"):
            release(months, month, config)
        assert not (months / "out.parquet").exists()
    release(months, "november", EXACT, again=True)
    release(months, "november", EXACT)
    with pytest.raises(BudgetError):
        release(months, "october", EXACT.model_copy(update={"k_min": 10}))


def test_a_private_release_comes_after_an_exact_one_and_not_the_other_way_round(months):
    release(months, "october", EXACT)
    release(months, "october", PRIVATE)
    other = EXACT.model_copy(update={"seed": 1})
    with pytest.raises(BudgetError, match="undoes what the epsilon protects"):
        release(months, "october", other)
    release(months, "october", other, again=True)


def test_the_command_names_its_flag(months, capsys):
    argv = ["client", "--data", str(months / "october.csv"), "--schema",
            str(months / "schema.json"), "--release", "surrogate", "--k-min", "5"]  # fmt: skip
    private = "--epsilon", "1", "--delta", "1e-6"
    assert main([*argv, *private, "--output", str(months / "private.parquet")]) == 0
    exact = [*argv, "--without-epsilon", "--output", str(months / "exact.parquet")]
    assert main(exact) == 2
    assert capsys.readouterr().err.rstrip().endswith("for one job (--again)")
    assert main([*exact, "--again"]) == 0


def test_a_site_of_an_engine_asks_the_same_ledger(tmp_path):
    world = World(tmp_path)

    def code(number, settings):
        job = f"job-{number}"
        return world.code(world.ask(settings, job=job), job=job)

    assert [code(1, RELEASE), code(2, RELEASE | {"seed": 1})] == ["ok", "budget"]
    assert any("again = true" in line for line in world.said)
    world.limit("north", again=1)
    assert code(3, RELEASE | {"seed": 1}) == "ok"
    assert Ledger.for_table(tmp_path / "north" / "rows.csv").spent().releases == 2
    assert code(4, RELEASE | {"seed": 2}) == "budget"  # that job has used it up


def test_noise_of_a_seed_is_no_repetition_of_what_an_epsilon_bought(months):
    release(months, "october", PRIVATE)
    with pytest.raises(BudgetError, match="undoes what the epsilon protects"):
        release(months, "october", PRIVATE, noise_seed=3)

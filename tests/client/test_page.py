"""The whole job of a client, from file to file: what is written, booked, refused and said."""

import json
from dataclasses import replace
from itertools import product

import jax
import numpy as np
import pytest
from builders import SCHEMA, TABLE

import synthfair as sf
from synthfair.cli import main
from synthfair.client import distill_file, fair_task
from synthfair.client.page import Site, release_task
from synthfair.data.encode import Clipping, encode
from synthfair.errors import InputError
from synthfair.files import claimed
from synthfair.privacy.guarantee import FEATURE_GRID
from synthfair.privacy.ledger import BudgetError, Ledger
from synthfair.privacy.noise import seeded
from synthfair.release.format import read_release
from synthfair.release.keys import make_keys, read_keys, read_signing_key
from synthfair.task.limits import Claim

FAIR = sf.DistillConfig(n_synthetic=24, steps=30)
SURROGATE = sf.SurrogateConfig(k_min=5)
PRIVATE = {"epsilon": 20.0, "delta": 1e-5}
PRIVATE_FAIR, PRIVATE_SURROGATE = (one.model_copy(update=PRIVATE) for one in (FAIR, SURROGATE))
CONFIGS = [FAIR, SURROGATE, PRIVATE_FAIR, PRIVATE_SURROGATE]


# Every path makes the same release, and books it


@pytest.mark.parametrize("config", CONFIGS)
def test_release_in_a_file_is_what_python_makes_signed_and_booked(paths, tmp_path, config):
    """A surrogate to the last bit; a fair one but for rounding, by a step of the grid."""
    noise = {"noise": seeded(3)} if config.epsilon else {}
    make_keys(tmp_path / "ada.key")
    named = {"key": read_signing_key(tmp_path / "ada.key"), "noise_seed": 3 if noise else None}
    made, receipt = distill_file(*paths, config, **named)
    back = read_release(paths[2], SCHEMA, keys=read_keys([tmp_path]))
    wanted = sf.distill_table(TABLE, SCHEMA, config, **noise).release
    for name in ("s", "y", "weight"):
        np.testing.assert_array_equal(getattr(back, name), getattr(wanted, name))
    np.testing.assert_allclose(back.x, wanted.x, atol=1e-3 if wanted.weight is None else 0)
    assert wanted.weight is not None or not (back.x / FEATURE_GRID % 1).any()
    assert (back.fingerprint, back.header) == (made.release.fingerprint, made.release.header)
    assert back.header.guarantee is None  # also where noise is known
    assert receipt.size == paths[2].stat().st_size
    (booked,) = Ledger.for_table(paths[0]).records()
    assert (booked.what.output, booked.what.guarantee) == ("out.parquet", None)
    assert distill_file(*paths, config, **named, force=True)[1].sha256 == receipt.sha256
    other = config.replace(seed=1)
    assert distill_file(*paths, other, **named, force=True, again=True)[1].sha256 != receipt.sha256


def test_question_claims_and_has_settings_schema_and_whether_noise_is_the_systems():
    claims = [Claim(kind, *budget, k_min=k_min) for kind, budget, k_min in (
        ("fair", [None], None), ("surrogate", [None], 5),
        ("fair", PRIVATE.values(), 50), ("surrogate", PRIVATE.values(), 5))]  # fmt: skip
    assert [release_task(config, SCHEMA).claim for config in CONFIGS] == claims
    other = SCHEMA.model_copy(update={"name": "other"})
    asked = [*product(CONFIGS, (SCHEMA, other)), *product(CONFIGS[2:], [SCHEMA], [seeded(3)])]
    assert len({release_task(*each).asked for each in asked}) == len(asked)


def test_run_of_a_fair_release_is_of_its_precision(paths):
    """In another precision the same rows would have another release."""
    site, runs = Site(paths[0], SCHEMA, Ledger.for_table(paths[0])), set()
    for double in (False, True):
        with jax.enable_x64(double):
            runs.add(release_task(FAIR, SCHEMA).read(site, Clipping()).sha256)
    assert len(runs) == 2


# What is refused leaves nothing


def copied_row(monkeypatch):
    distill = fair_task.FairTask.distill

    def planted(*given):
        made = distill(*given)
        x = made.release.x.copy()
        x[3] = encode(TABLE, SCHEMA).x[200]
        return made._replace(release=replace(made.release, x=x))

    monkeypatch.setattr(fair_task.FairTask, "distill", planted)


REFUSED = {
    "copy": (copied_row, FAIR, "1 of 24 synthetic rows"),
    "divergence": (None, FAIR.replace(rho_o=1e308, group_input=True), "diverged, by step"),
    "large": (lambda patch: patch.setattr(fair_task, "MAX_FEATURE", 0.1), FAIR, "diverged, by"),
    "few rows": (lambda patch: patch.setattr(fair_task, "MIN_EXACT_ROWS", 401), FAIR, "401"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_release_that_is_refused_is_neither_written_nor_booked(paths, monkeypatch, case):
    plant, config, named = REFUSED[case]
    with monkeypatch.context() as patch:
        if plant:
            plant(patch)
        with pytest.raises(InputError, match=f"rows.csv: .*{named}"):
            distill_file(*paths, config)
    assert {path.name for path in paths[0].parent.iterdir()} == {"rows.csv", "schema.json"}
    distill_file(*paths, FAIR)
    assert Ledger.for_table(paths[0]).spent().releases == 1


def test_output_that_cannot_be_written_is_refused_before_anything_is_booked(paths):
    data, schema, output = paths
    with claimed(output, force=False), pytest.raises(InputError, match="out.parquet: another run"):
        distill_file(*paths, PRIVATE_FAIR)
    output.write_text("precious")
    with pytest.raises(InputError, match="out.parquet: exists"):
        distill_file(*paths, PRIVATE_FAIR)
    assert output.read_text() == "precious"
    for source in (data, schema):
        with pytest.raises(InputError, match=f"{source}: "):
            distill_file(data, schema, source, PRIVATE_FAIR, force=True)
    schema.write_text(text := json.dumps(json.loads(schema.read_text())))  # like a line cut off
    with pytest.raises(InputError, match=f"{schema}: "):
        distill_file(*paths, FAIR, force=True, ledger=schema)
    assert schema.read_text() == text
    with pytest.raises(InputError, match="output: must be on one line"):
        distill_file(data, schema, output.with_name("bad\nname"), PRIVATE_FAIR)
    assert not Ledger.for_table(data).path.exists()


# What may leave next: the ledger decides, and consent is passed on


def test_consent_to_another_exact_release_counts_once(paths):
    distill_file(*paths, SURROGATE)
    distill_file(*paths, PRIVATE_SURROGATE, force=True)
    other = SURROGATE.replace(k_min=6)
    for config, named in ((other, {}), (PRIVATE_SURROGATE, {"noise_seed": 3})):
        with pytest.raises(BudgetError, match="again"):
            distill_file(*paths, config, force=True, **named)
    assert read_release(paths[2], SCHEMA).header.config == PRIVATE_SURROGATE
    distill_file(*paths, other, force=True, again=True)
    distill_file(*paths, other, force=True)
    with pytest.raises(BudgetError, match="again"):
        distill_file(*paths, SURROGATE.replace(k_min=7), force=True)


def test_command_without_an_epsilon_warns_once_unless_it_is_decided(paths, capsys):
    """The decision is in no file; consent to another answer is a flag."""
    folder = paths[0].parent
    (folder / "c.toml").write_text("without_epsilon = true")

    def run(*flags, code=0):
        argv = ["client", "--data", str(paths[0]), "--schema", str(paths[1]), "--force"]
        argv += ["--output", str(paths[2]), "--release", "surrogate", "--k-min", "10"]
        assert main([*argv, *flags]) == code
        return capsys.readouterr().err, paths[2].read_bytes()

    said, content = run()
    assert said.count("without epsilon") == 1
    config = "--config", f"{folder}/c.toml"
    assert run("--without-epsilon") == run(*config) == ("", content)
    assert run(*config, "--epsilon", "100", "--delta", "1e-6")[0] == ""
    said, _ = run("--without-epsilon", "--k-min", "11", code=2)
    assert said.rstrip().endswith("(--again)")
    run("--without-epsilon", "--k-min", "11", "--again")

"""A fair release with epsilon is distilled from private records, which are bought once."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from builders import make_schema, make_table, silent

import synthfair as sf
from synthfair.cli import main
from synthfair.client import distill_file
from synthfair.data.encode import encode, encode_records
from synthfair.data.schema import Schema
from synthfair.errors import InputError
from synthfair.privacy.guarantee import make_guarantee
from synthfair.privacy.ledger import Ledger
from synthfair.privacy.noise import seeded
from synthfair.release.format import inspect_release, read_release
from synthfair.report.privacy_words import header_facts
from synthfair.surrogate.sums import TableSums
from synthfair.task.protocol import Run

SCHEMA = make_schema()
TABLE = make_table(600)
BUDGET = {"epsilon": 4.0, "delta": 1e-5}
FEW = {"n_synthetic": 24, "steps": 20}
CONFIG = sf.DistillConfig(**FEW, **BUDGET, k_min=5)


@pytest.fixture
def paths(tmp_path):
    TABLE.to_csv(tmp_path / "rows.csv", index=False)
    (tmp_path / "schema.json").write_text(SCHEMA.to_json())
    return tmp_path / "rows.csv", tmp_path / "schema.json", tmp_path / "out.parquet"


def refuse_rows(*_, **__):
    raise AssertionError("real rows are read once")


def test_it_is_what_the_records_of_a_surrogate_distil_to():
    surrogate = sf.SurrogateConfig(**BUDGET, k_min=5)
    records = sf.distill_table(TABLE, SCHEMA, surrogate, noise=seeded(3)).release
    rows = sf.Encoded(encode_records(records.x, SCHEMA), records.s, records.y)
    own = {"rho_o": 3.0, "group_input": True}
    config = sf.DistillConfig(**FEW, **own)
    wanted = sf.distill_table(rows, SCHEMA, config, weight=records.weight)
    found = sf.distill_table(TABLE, SCHEMA, CONFIG.replace(**own), noise=seeded(3))
    np.testing.assert_array_equal(found.release.x, wanted.release.x)
    np.testing.assert_array_equal(found.release.y, wanted.release.y)


@jax.jit
def hinge(margin):
    return jnp.logaddexp(0.0, 3 * (1 - margin)) / 3


def mean_scores(scores, rows):
    """Compare the groups' mean scores."""
    weight = jnp.ones_like(scores) if rows.weight is None else rows.weight
    one, two = (jnp.average(scores, weights=weight * (rows.s == s)) for s in (0, 1))
    return (one - two) ** 2


def test_any_loss_penalty_and_wanted_gap_in_single_precision():
    with jax.enable_x64(False):
        own = sf.distill_table(
            TABLE, SCHEMA, CONFIG, model=sf.LinearModel(hinge), penalty=mean_scores
        )
        wanted = sf.distill_table(TABLE, SCHEMA, CONFIG.replace(max_gap=0.1, steps=200))
    assert own.release.header.penalty == "mean_scores"
    assert own.release.header.guarantee == make_guarantee(CONFIG, SCHEMA)
    assert wanted.gap_met
    assert wanted.tried


def test_many_rows_of_many_inputs_in_single_precision():
    """Of which the number, squared, is beyond 32 bits."""
    table, schema = sf.load_dataset("loanapp")
    config = sf.DistillConfig(epsilon=8.0, delta=1e-5, n_synthetic=2000, steps=1, k_min=10)
    with jax.enable_x64(False):
        assert len(sf.distill_table(table, schema, config).release.x) == 2000


def test_columns_with_a_basis_are_measured_as_they_are_in_the_table():
    known = SCHEMA.model_dump(mode="json", exclude_none=True)
    known["columns"]["income"]["basis"] = {"kind": "spline", "knots": [0.0, 40.0, 100.0]}
    schema = Schema.model_validate_json(Schema.model_validate(known).to_json())
    made = sf.distill_table(TABLE, schema, CONFIG)
    assert made.release.x.shape == (24, len(schema.encoded_names))
    with pytest.raises(InputError, match="with epsilon they must have the .* of schema.plain"):
        sf.distill_table(encode(TABLE, schema), schema, CONFIG)


def test_a_file_has_the_guarantee_of_its_records_and_is_booked_once(paths, capsys):
    data, schema, output = map(str, paths)
    argv = ["client", "--data", data, "--schema", schema, "--output", output, "--steps", "20"]
    assert main([*argv, "--epsilon", "4", "--delta", "1e-5", "--k-min", "5"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "(epsilon = 4, delta = 1e-05)-differential privacy of one row" in shown
    assert "on private records" in shown
    guarantee = read_release(paths[2], SCHEMA).header.guarantee
    assert guarantee == make_guarantee(sf.SurrogateConfig(**BUDGET), SCHEMA)
    spent = Ledger.for_table(paths[0]).spent()
    assert spent.releases == 1
    assert spent.epsilon(1e-5) == pytest.approx(4, rel=1e-3)
    assert main(["inspect", output, "--schema", schema]) == 0
    assert "distilled from private records" in " ".join(capsys.readouterr().out.split())


def test_records_are_bought_once_and_serve_every_release(paths, monkeypatch):
    def stop(*_):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        distill_file(*paths, CONFIG, run=Run(progress=stop))
    assert not paths[2].exists()
    monkeypatch.setattr("synthfair.client.surrogate_task.read_sums", refuse_rows)
    first, _ = distill_file(*paths, CONFIG)
    again, _ = distill_file(*paths, CONFIG, force=True)
    np.testing.assert_array_equal(first.release.x, again.release.x)
    other = CONFIG.replace(penalty="selection_rate", rho_o=30.0, seed=1)
    distill_file(*paths, other, force=True)
    distill_file(*paths, CONFIG.records, force=True)
    assert inspect_release(paths[2], schema=SCHEMA).fits
    assert Ledger.for_table(paths[0]).spent().releases == 1
    (stored,) = paths[0].parent.glob("rows.csv.ledger.jsonl.*.bought")
    assert stored.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    "change", [{"epsilon": 3.9}, {"delta": 2e-5}, {"k_min": 6}, {"relation": "replace"}]
)
def test_what_records_depend_on_makes_another_purchase(paths, change):
    options = {"ledger": paths[0].with_name("ledger"), "force": True}
    other = CONFIG.replace(**change)
    for config in (CONFIG, other):
        if "relation" in change and config is other:
            with pytest.raises(InputError, match="needs a ledger of its own"):
                distill_file(*paths, config, **options)
        else:
            distill_file(*paths, config, **options)
    spent = Ledger(paths[0].with_name("ledger")).spent().releases
    assert spent == (1 if "relation" in change else 2)


def test_a_limit_stops_a_purchase_and_not_what_was_bought(paths, monkeypatch):
    Ledger.for_table(paths[0]).set_limit(4.5, 1e-5)
    distill_file(*paths, CONFIG)
    monkeypatch.setattr("synthfair.client.surrogate_task.read_sums", refuse_rows)
    distill_file(*paths, CONFIG, force=True)
    with pytest.raises(InputError, match=r"the limit is 4.5"):
        distill_file(*paths, CONFIG.replace(k_min=6), force=True)


def test_records_of_one_label_are_refused_and_their_surrogate_is_paid_for(paths, monkeypatch):
    TABLE.assign(paid="yes").to_csv(paths[0], index=False)
    said = (
        r"column 'paid' holds only 'yes'.*k_min = 50, or the noise of epsilon = 4,.*"
        r"records are paid for: .* release = surrogate, with the same epsilon, delta and k_min"
    )
    config = CONFIG.replace(k_min=50)
    by_name = "synthfair.client.surrogate_task.%s"
    monkeypatch.setattr(by_name % "TableSums", lambda *a: TableSums(*a[:2], silent))
    with pytest.raises(InputError, match=said):
        distill_file(*paths, config)
    monkeypatch.setattr(by_name % "read_sums", refuse_rows)
    made, _ = distill_file(*paths, config.records)
    assert set(made.release.y) == {1.0}
    assert Ledger.for_table(paths[0]).spent().releases == 1


def test_damaged_records_are_refused_and_measured_anew_once_they_are_deleted(paths):
    distill_file(*paths, CONFIG)
    (stored,) = paths[0].parent.glob("*.bought")
    stored.write_bytes(stored.read_bytes()[:500])
    with pytest.raises(InputError, match="bought: damaged, or of another version"):
        distill_file(*paths, CONFIG, force=True)
    stored.unlink()
    distill_file(*paths, CONFIG, force=True)
    assert Ledger.for_table(paths[0]).spent().releases == 2


def test_noise_from_a_seed_is_marked_and_booked_without_a_guarantee(paths):
    distill_file(*paths, CONFIG, noise_seed=3)
    header = read_release(paths[2], SCHEMA).header
    assert header.guarantee is None
    assert "fixed seed" in " ".join(header_facts(header)["discloses"])
    assert Ledger.for_table(paths[0]).spent().composition is None
    assert not [*paths[0].parent.glob("*.bought")]


def test_names_that_cannot_be_booked_are_refused_and_spend_nothing(paths):
    with pytest.raises(InputError, match="output: must be on one line"):
        distill_file(*paths[:2], paths[2].with_name("bad\nname.parquet"), CONFIG)
    assert not Ledger.for_table(paths[0]).path.exists()


def test_rows_with_weights_have_no_epsilon():
    with pytest.raises(InputError, match="rows have weights, of which an epsilon does not know"):
        sf.distill_table(TABLE, SCHEMA, CONFIG, weight=np.ones(600))

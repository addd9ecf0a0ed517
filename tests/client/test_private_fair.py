"""A fair release with epsilon is distilled from private records, which are bought once."""

import jax
import numpy as np
import pytest
from builders import SCHEMA, TABLE
from conftest import silent
from small_problem import mean_gap, squared_hinge

import synthfair as sf
from synthfair.client import distill_file
from synthfair.data.encode import encode, encode_records
from synthfair.data.schema import Schema
from synthfair.errors import InputError
from synthfair.privacy.guarantee import make_guarantee
from synthfair.privacy.ledger import Ledger
from synthfair.privacy.noise import seeded
from synthfair.release.format import read_release
from synthfair.surrogate.sums import TableSums
from synthfair.task.protocol import Run

BUDGET = {"epsilon": 4.0, "delta": 1e-5}
FEW = {"n_synthetic": 24, "steps": 20}
CONFIG = sf.DistillConfig(**FEW, **BUDGET, k_min=5)


@pytest.fixture
def spent(paths):
    return lambda: Ledger.for_table(paths[0]).spent()


def refuse_rows(*_, **__):
    raise AssertionError("real rows are read once")


READ_SUMS = "synthfair.client.surrogate_task.read_sums"


def test_private_release_is_what_the_records_of_a_surrogate_distil_to():
    records = sf.distill_table(TABLE, SCHEMA, CONFIG.records, noise=seeded(3)).release
    rows = sf.Encoded(encode_records(records.x, SCHEMA), records.s, records.y)
    own = {"rho_o": 3.0, "group_input": True}
    wanted = sf.distill_table(rows, SCHEMA, sf.DistillConfig(**FEW, **own), weight=records.weight)
    found = sf.distill_table(TABLE, SCHEMA, CONFIG.replace(**own), noise=seeded(3))
    np.testing.assert_array_equal(found.release.x, wanted.release.x)
    np.testing.assert_array_equal(found.release.y, wanted.release.y)


def test_private_release_of_any_loss_penalty_and_wanted_gap_in_single_precision():
    named = {"model": sf.LinearModel(squared_hinge), "penalty": mean_gap}
    with jax.enable_x64(False):
        own = sf.distill_table(TABLE, SCHEMA, CONFIG, **named)
        wanted = sf.distill_table(TABLE, SCHEMA, CONFIG.replace(max_gap=0.1, steps=200))
    assert own.release.header.penalty == "mean_gap"
    assert own.release.header.guarantee == make_guarantee(CONFIG, SCHEMA)
    assert wanted.gap_met


def test_private_release_of_a_basis_measures_the_columns_of_the_table():
    known = SCHEMA.model_dump(mode="json", exclude_none=True)
    known["columns"]["income"]["basis"] = {"kind": "spline", "knots": [0.0, 40.0, 100.0]}
    schema = Schema.model_validate_json(Schema.model_validate(known).to_json())
    for config in (CONFIG, sf.DistillConfig(**FEW)):
        made = sf.distill_table(TABLE, schema, config)
        assert made.release.x.shape == (24, len(schema.encoded_names))
    with pytest.raises(InputError, match="schema.plain"):
        sf.distill_table(encode(TABLE, schema), schema, CONFIG)
    with pytest.raises(InputError, match="weights"):
        sf.distill_table(TABLE, SCHEMA, CONFIG, weight=np.ones(len(TABLE)))


def test_records_have_the_guarantee_and_are_bought_once_for_every_release(
    paths, spent, monkeypatch
):
    """Also after a run that ended on the way; and only their owner may read what is kept."""

    def stop(*_):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        distill_file(*paths, CONFIG, run=Run(progress=stop))
    assert not paths[2].exists()
    monkeypatch.setattr(READ_SUMS, refuse_rows)
    releases = [distill_file(*paths, CONFIG, force=True)[0].release for _ in range(2)]
    np.testing.assert_array_equal(releases[0].x, releases[1].x)
    other = CONFIG.replace(penalty="selection_rate", rho_o=30.0, seed=1)
    for config in (other, CONFIG.records):
        distill_file(*paths, config, force=True)
        guarantee = read_release(paths[2], SCHEMA).header.guarantee
        assert guarantee == make_guarantee(CONFIG.records, SCHEMA)
    assert (spent().releases, spent().epsilon(1e-5)) == (1, pytest.approx(4, rel=1e-3))
    (stored,) = paths[0].parent.glob("rows.csv.ledger.jsonl.*.bought")
    assert stored.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("change", [{"epsilon": 3.9}, {"delta": 2e-5}, {"k_min": 6}])
def test_records_of_other_settings_are_another_purchase_within_the_limit(paths, spent, change):
    distill_file(*paths, CONFIG)
    distill_file(*paths, CONFIG.replace(**change), force=True)
    assert spent().releases == 2
    Ledger.for_table(paths[0]).set_limit(6.0, 1e-5)
    distill_file(*paths, CONFIG, force=True)
    for more, named in (({"k_min": 7}, "limit is 6"), ({"relation": "replace"}, "replace")):
        with pytest.raises(InputError, match=named):
            distill_file(*paths, CONFIG.replace(**more), force=True)
    assert spent().releases == 2


def test_records_of_one_label_are_refused_and_their_surrogate_is_paid_for(
    paths, spent, monkeypatch
):
    TABLE.assign(paid="yes").to_csv(paths[0], index=False)
    config = CONFIG.replace(k_min=50)
    silently = "synthfair.client.surrogate_task.TableSums"
    monkeypatch.setattr(silently, lambda *a: TableSums(*a[:2], silent))
    with pytest.raises(InputError, match="'paid' holds only 'yes'.*paid for"):
        distill_file(*paths, config)
    monkeypatch.setattr(READ_SUMS, refuse_rows)
    made, _ = distill_file(*paths, config.records)
    assert set(made.release.y) == {1.0}
    assert spent().releases == 1


def test_records_that_are_damaged_are_refused_and_bought_anew_once_they_are_deleted(paths, spent):
    distill_file(*paths, CONFIG)
    (stored,) = paths[0].parent.glob("*.bought")
    stored.write_bytes(stored.read_bytes()[:500])
    with pytest.raises(InputError, match="bought: damaged"):
        distill_file(*paths, CONFIG, force=True)
    stored.unlink()
    distill_file(*paths, CONFIG, force=True)
    assert spent().releases == 2

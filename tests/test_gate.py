import numpy as np
import pytest
from conftest import make_schema, make_table

import synthfair as sf
from synthfair.cli import client as command
from synthfair.cli import run as run_command
from synthfair.client import Options, RefusedReleaseError, distill_file
from synthfair.client.from_file import read_rows
from synthfair.config import DistillConfig
from synthfair.data.encode import Encoded, encode
from synthfair.intake import read_release
from synthfair.privacy.gate import preview
from synthfair.privacy.ledger import Ledger

SCHEMA = make_schema()
ROWS = encode(make_table(900), SCHEMA)
REAL, HELD_OUT = Encoded(*(f[:700] for f in ROWS)), Encoded(*(f[700:] for f in ROWS))


def looked_at(x, s=None, y=None, *, real=REAL, held_out=HELD_OUT, scores=None):
    n = len(x)
    rng = np.random.default_rng(1)
    s = rng.integers(2, size=n) if s is None else s
    y = rng.choice([-1.0, 1.0], n) if y is None else y
    scores = scores or (lambda rows: np.zeros(len(rows.y)))
    return preview(Encoded(x, s, y), real, held_out, scores, seed=0)


def uniform(n=200, seed=0):
    return np.random.default_rng(seed).uniform(size=(n, ROWS.x.shape[1]))


def test_public_noise_passes():
    found = looked_at(uniform())
    assert found.risks == ()
    assert found.copies == 0
    assert found.near == 0.0
    assert found.largest < 1
    assert not any(inference.alarming for inference in found.inferences)


def test_each_copy_is_counted_wherever_it_is():
    x = uniform()
    x[[0, 199]] = REAL.x[[699, 3]]
    found = looked_at(x)
    assert found.copies == 2
    assert found.risks == ("Holds copies of real rows.",)
    x[0, 0] += 1e-3
    assert looked_at(x).copies == 1


def test_near_copies_stop_a_release_and_fresh_rows_do_not():
    """Other rows of the same table are near by the same measure as often as chance allows."""
    moved = REAL.x[:200] + 1e-4
    assert looked_at(moved).risks == ("Holds more near copies of real rows than chance allows.",)
    fresh = encode(make_table(400, seed=7), SCHEMA).x
    assert looked_at(fresh).risks == ()
    assert looked_at(fresh).near < 0.15


def test_the_real_groups_and_labels_in_order_stop_a_release():
    found = looked_at(uniform(700), REAL.s, REAL.y)
    assert found.risks == ("Holds the groups and labels of the real rows, in order.",)


def test_membership_is_inferred_from_near_copies_and_from_an_overfitted_model():
    near = looked_at(REAL.x + 1e-4).inferences[0]
    assert near.alarming
    assert near.members > 0.9
    known = {row.tobytes() for row in REAL.x}

    def overfitted(rows):
        return np.array(
            [y if x.tobytes() in known else -y for x, y in zip(rows.x, rows.y, strict=True)]
        )

    assert looked_at(uniform(), scores=overfitted).inferences[1].members == 1.0


def test_the_group_of_a_row_is_inferred_from_a_release_that_copies():
    found = looked_at(REAL.x, REAL.s, REAL.y)
    assert found.inferences[2].members == 1.0
    assert found.inferences[2].alarming


def test_false_alarms_are_as_rare_as_stated():
    """Members and others from one distribution: of 300 checks with 1 in 1,000 each, at most 4."""
    alarms = 0
    for seed in range(100):
        rows = encode(make_table(400, seed=seed), SCHEMA)
        real, held_out = (Encoded(*(f[part] for f in rows)) for part in (np.s_[:200], np.s_[200:]))
        found = looked_at(
            uniform(60, seed), real=real, held_out=held_out, scores=lambda r: r.x @ np.ones(7)
        )
        alarms += sum(inference.alarming for inference in found.inferences)
    assert alarms <= 4


def test_few_held_out_rows_tell_nothing_but_copies_are_found():
    none = Encoded(*(field[:0] for field in HELD_OUT))
    found = looked_at(REAL.x[:10], held_out=none)
    assert found.near is None
    assert found.inferences == ()
    assert found.risks == ("Holds copies of real rows.",)


@pytest.fixture
def files(tmp_path):
    make_table(900).to_csv(tmp_path / "rows.csv", index=False)
    (tmp_path / "schema.json").write_text(SCHEMA.to_json())
    return tmp_path / "rows.csv", tmp_path / "schema.json", tmp_path / "out.parquet"


def client(files, *flags):
    data, schema, output = map(str, files)
    words = ["--data", data, "--schema", schema, "--output", output, "--n-synthetic", "24"]
    return run_command(command, prog="client", argv=[*words, "--steps", "40", *flags])


def test_held_out_rows_are_not_distilled(files):
    config = DistillConfig()
    real, held_out = read_rows(files[0], SCHEMA, config, hold_out=0.1)
    everything, _ = read_rows(files[0], SCHEMA, config)
    assert len(held_out.y) == 90
    both = np.concatenate([real.encoded.x, held_out.x])
    assert sorted(map(tuple, both)) == sorted(map(tuple, everything.encoded.x))
    again, _ = read_rows(files[0], SCHEMA, config, hold_out=0.1)
    np.testing.assert_array_equal(again.columns, real.columns)


def test_a_risky_release_is_not_written_unless_accepted_and_then_says_so(files, capsys):
    risky = ("--start", "real", "--steps", "1", "--learning-rate", "1e-9")
    assert client(files, *risky) == 2
    out, err = capsys.readouterr()
    assert "copies of real rows" in out
    assert "out.parquet: not written: Holds copies of real rows." in err
    assert not files[2].exists()
    assert not Ledger.beside(files[0]).path.exists()
    assert client(files, *risky, "--accept-risk") == 0
    accepted = read_release(files[2], SCHEMA).header.privacy.accepted_risks
    assert accepted[0] == "Holds copies of real rows."
    assert not any(character.isdigit() for line in accepted for character in line)


def test_every_release_is_looked_at_and_booked(files, capsys):
    assert client(files) == 0
    assert "checks before the release" in capsys.readouterr().out
    assert Ledger.beside(files[0]).spent().releases == 1
    assert Ledger.beside(files[0]).spent().mu is None


PRIVATE = ("--epsilon", "1", "--delta", "1e-5")


def test_a_private_release_says_what_it_promises(files, capsys):
    assert client(files, *PRIVATE) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "(epsilon = 1, delta = 1e-05)-differential privacy of one row" in shown
    promised = read_release(files[2], SCHEMA).header.privacy.guarantee
    assert [m.name for m in promised.mechanisms] == ["moments", "curvature", "gradients"]
    ledger = Ledger.beside(files[0])
    assert ledger.spent().mu == pytest.approx(promised.mu)
    assert ledger.spent().epsilon(1e-5) == pytest.approx(1, rel=1e-3)


def test_an_interrupted_private_run_spends_nothing_twice(files):
    data, schema, output = files
    config = DistillConfig(epsilon=1.0, delta=1e-5, n_synthetic=24, steps=200)

    def stop(records, step, steps):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt, match="keeps 50 steps"):
        distill_file(data, schema, output, config, progress=stop)
    assert Ledger.beside(data).spent().releases == 1
    done, _ = distill_file(data, schema, output, config)
    assert done.resumed_at == 50
    assert Ledger.beside(data).spent().releases == 1
    assert sorted(path.name for path in output.parent.iterdir() if not path.name.startswith(".")) == [
        "out.parquet", "rows.csv", "rows.csv.ledger.jsonl", "schema.json",
    ]  # fmt: skip
    distill_file(data, schema, output, config, Options(force=True))
    assert Ledger.beside(data).spent().releases == 2


def test_a_budget_that_is_spent_stops_a_release_before_rows_are_measured(files, capsys):
    Ledger.beside(files[0]).set_limit(1.2, 1e-5)
    assert client(files, *PRIVATE) == 0
    assert client(files, *PRIVATE, "--force") == 2
    assert "the limit is 1.2" in capsys.readouterr().err
    assert client(files, "--force") == 2
    assert "no release without an epsilon" in capsys.readouterr().err
    assert Ledger.beside(files[0]).spent().releases == 1


def test_settings_that_cannot_work_spend_nothing(files, capsys):
    assert client(files, *PRIVATE, "--n-synthetic", "25") == 2
    assert "multiple of 4" in capsys.readouterr().err
    assert not Ledger.beside(files[0]).path.exists()
    assert client(files, "--epsilon", "1") == 2
    assert "go together" in capsys.readouterr().err
    assert client(files, *PRIVATE, "--hold-out", "0.9") == 2
    assert "hold_out = 0.9: must be from 0 to 0.5" in capsys.readouterr().err


def test_noise_from_a_seed_is_marked_and_booked_as_no_promise(files):
    assert client(files, *PRIVATE, "--insecure-noise-seed", "3") == 0
    privacy = read_release(files[2], SCHEMA).header.privacy
    assert privacy.guarantee is None
    assert "fixed seed" in " ".join(privacy.discloses)
    assert Ledger.beside(files[0]).spent().mu is None


def test_a_kept_fit_that_was_damaged_is_not_used(files):
    data, schema, output = files
    config = DistillConfig(epsilon=1.0, delta=1e-5, n_synthetic=24, steps=100)

    def stop(records, step, steps):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        distill_file(data, schema, output, config, progress=stop)
    (kept,) = output.parent.glob("*.fit")
    kept.write_text("{}")
    distill_file(data, schema, output, config)
    assert Ledger.beside(data).spent().releases == 2  # measured anew, and booked


def test_the_error_carries_what_was_found(files):
    data, schema, output = files
    config = DistillConfig(start="real", n_synthetic=24, steps=1, learning_rate=1e-9)
    with pytest.raises(RefusedReleaseError) as refused:
        distill_file(data, schema, output, config)
    assert refused.value.preview.copies == 24
    assert isinstance(refused.value, sf.InputError)

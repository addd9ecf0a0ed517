import re
from collections import Counter

import numpy as np
import pandas as pd
import pytest
from conftest import make_schema, make_table
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scipy.stats import binom

import synthfair as sf
from synthfair.cli import main
from synthfair.client import Options, RefusedReleaseError, distill_file
from synthfair.client.fair_task import FairTask, HeldOut
from synthfair.config.client_settings import DistillConfig
from synthfair.data.encode import Encoded, encode
from synthfair.errors import InputError
from synthfair.privacy.gate import ALARM, excess, nearer, preview
from synthfair.privacy.ledger import Ledger
from synthfair.privacy.statement import UNSEEN
from synthfair.release.reading import read_release

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
    assert found.distances.near.value == 0.0
    assert found.largest < 1
    assert not any(attack.alarming for attack in found.attacks.values())


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
    moved = REAL.x[:200] + 3e-4
    assert looked_at(moved).risks[0] == "Holds more near copies of real rows than chance allows."
    fresh = encode(make_table(400, seed=7), SCHEMA).x
    assert looked_at(fresh).risks == ()
    assert looked_at(fresh).distances.near.value < 0.15


def test_even_a_few_near_copies_stop_a_release():
    real, held_out, x = (np.random.default_rng(i).uniform(size=(700, 12)) for i in range(3))
    as_rows = [Encoded(part, REAL.s, REAL.y) for part in (real, held_out)]
    x[:3] = real[:3] + 1e-5
    found = looked_at(x, real=as_rows[0], held_out=as_rows[1])
    assert found.risks == ("Holds more near copies of real rows than chance allows.",)
    assert found.distances.close.value == 3 / 700


def test_near_copies_of_rows_that_repeat_stop_a_release():
    """Of a table of categories; held-out rows have no equal among those distilled."""
    categories = np.random.default_rng(0).integers(2, size=(900, 12)).astype(float)
    rows = Encoded(categories, ROWS.s, ROWS.y)
    apart = HeldOut(0.3, seed=0)(rows)
    real, held_out = (Encoded(*(f[m] for f in rows)) for m in (~apart, apart))
    near = real.x[:400] + 1e-5
    found = looked_at(near, real=real, held_out=held_out)
    assert "Holds more near copies of real rows than chance allows." in found.risks
    public = np.random.default_rng(2).uniform(size=(400, 12))
    assert looked_at(public, real=real, held_out=held_out).risks == ()


def test_the_real_groups_and_labels_in_order_stop_a_release():
    found = looked_at(uniform(700), REAL.s, REAL.y)
    assert found.risks == ("Holds the groups or labels of the real rows, in order.",)


def test_membership_is_inferred_from_near_copies_and_from_an_overfitted_model():
    near = looked_at(REAL.x + 1e-4).attacks["membership, by distance"]
    assert near.alarming
    assert near.value > 0.9
    known = {row.tobytes() for row in REAL.x}

    def overfitted(rows):
        return np.array(
            [y if x.tobytes() in known else -y for x, y in zip(rows.x, rows.y, strict=True)]
        )

    assert looked_at(uniform(), scores=overfitted).attacks["membership, by loss"].value == 1.0


def test_the_group_of_a_row_is_inferred_from_a_release_that_copies():
    found = looked_at(REAL.x, REAL.s, REAL.y).attacks["group of a row"]
    assert found.value == 1.0
    assert found.alarming


def excesses(seeds):
    """In standard errors, of attacks on members and others from one distribution."""
    for seed in range(seeds):
        rows = encode(make_table(400, seed=seed), SCHEMA)
        real, held_out = (Encoded(*(f[part] for f in rows)) for part in (np.s_[:200], np.s_[200:]))
        found = looked_at(
            uniform(60, seed), real=real, held_out=held_out, scores=lambda r: r.x @ np.ones(7)
        )
        yield from ((a.value - a.expected) / a.error for a in found.attacks.values())


def test_false_alarms_are_rare():
    """Of 60 checks with 1 in 1,000 each, more than 2 are alarms once in 30,000."""
    assert sum(excess > ALARM for excess in excesses(20)) <= 2


@pytest.mark.slow
def test_false_alarms_are_as_rare_as_stated(size):
    """More alarms than that: once in 1,000. Errors half as large would give 6 % alarms."""
    found = np.array([*excesses(size(100, 400))])
    most = binom.ppf(0.999, len(found), 0.001)
    assert np.sum(found > ALARM) <= most < np.sum(2 * found > ALARM)


def test_without_held_out_rows_copies_are_found():
    none = Encoded(*(field[:0] for field in HELD_OUT))
    found = looked_at(REAL.x[:10], held_out=none)
    assert found.distances is None
    assert not found.attacks
    assert found.risks[0] == "Holds copies of real rows."


@pytest.fixture
def files(tmp_path):
    make_table(900).to_csv(tmp_path / "rows.csv", index=False)
    (tmp_path / "schema.json").write_text(SCHEMA.to_json())
    return tmp_path / "rows.csv", tmp_path / "schema.json", tmp_path / "out.parquet"


def client(files, *flags, **settings):
    data, schema, output = map(str, files)
    config = files[0].with_name("settings.toml")
    lines = {"n_synthetic": 24, "steps": 40} | settings
    config.write_text("\n".join(f"{key} = {value!r}" for key, value in lines.items()))
    words = ["--data", data, "--schema", schema, "--output", output, "--config", str(config)]
    return main(["client", *words, *flags])


def as_multiset(rows):
    return Counter(map(tuple, np.column_stack(rows)))


def test_held_out_rows_are_not_distilled(files):
    config = DistillConfig()
    task = FairTask(SCHEMA, config)
    real, held_out, sha256 = task.read(files[0], hold_out=0.1)
    everything, none, of_all = task.read(files[0])
    assert sha256 == of_all
    assert 50 < len(held_out.y) < 130
    assert none is None
    assert as_multiset(real.encoded) + as_multiset(held_out) == as_multiset(everything.encoded)
    again = task.read(files[0], hold_out=0.1).real
    np.testing.assert_array_equal(again.columns, real.columns)
    assert real.columns.flags.c_contiguous
    seeded_anew = FairTask(SCHEMA, config.model_copy(update={"seed": 1}))
    other = seeded_anew.read(files[0], hold_out=0.1).real
    assert as_multiset(other.encoded) != as_multiset(real.encoded)


def test_the_checks_look_at_the_same_rows_in_any_order_of_the_table(tmp_path, monkeypatch):
    """Of more rows than they look at; equal rows take one place."""
    monkeypatch.setattr("synthfair.client.fair_task.MOST_CHECKED", 50)
    monkeypatch.setattr("synthfair.privacy.gate.MOST_REAL", 100)
    table, found = make_table(9000), []
    table = pd.concat([table, table.iloc[:900]])
    release = Encoded(*(field[:200] for field in encode(make_table(200, seed=1), SCHEMA)))
    for i, rows in enumerate((table, table.sample(frac=1, random_state=0))):
        rows.to_parquet(tmp_path / f"{i}.parquet", index=False)
        task = FairTask(SCHEMA, DistillConfig())
        real, held_out, _ = task.read(tmp_path / f"{i}.parquet", hold_out=0.3)
        assert len(as_multiset(held_out)) == 50
        scores = lambda rows: rows.x @ np.ones(rows.x.shape[1])  # noqa: E731
        found.append(preview(release, real.encoded, held_out, scores, seed=0))
    assert found[0] == found[1]


@given(removed=st.integers(0, 899), hold_out=st.sampled_from([0.0, 0.1, 0.5]))
@settings(max_examples=6, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_neighbouring_files_give_neighbouring_rows(tmp_path, removed, hold_out):
    """What sensitivities rely on: a row more or less in the file is one at most in what is read."""
    table, read = make_table(900), []
    for name, rows in (("a.csv", table), ("b.csv", table.drop(index=removed))):
        rows.to_csv(tmp_path / name, index=False)
        real = FairTask(SCHEMA, DistillConfig()).read(tmp_path / name, hold_out=hold_out).real
        read.append(as_multiset(real.encoded))
    assert sum((read[0] - read[1]).values()) <= 1
    assert not read[1] - read[0]


def details(files):
    return files[2].with_name(f"{files[2].stem}.checks.txt")


def test_a_risky_release_is_not_written_unless_accepted_and_then_says_so(files, capsys):
    risky = {"start": "real", "learning_rate": 1e-9}
    assert client(files, **risky) == 2
    out, err = capsys.readouterr()
    said = " ".join(out.split())
    assert " checks failed, " in said
    assert re.search("copies of real rows: (\\d+) of \\1, expected none", said)
    assert "MORE THAN CHANCE" in details(files).read_text()
    assert "out.parquet: not written: Holds copies of real rows." in err
    safer, last = err.index("start = range, a lower n_synthetic"), err.index("--accept-risk")
    assert safer < last
    assert not files[2].exists()
    assert not Ledger.for_table(files[0]).path.exists()
    assert client(files, "--accept-risk", **risky) == 0
    accepted = read_release(files[2], SCHEMA).header.privacy.accepted_risks
    assert accepted[0] == "Holds copies of real rows."
    assert not any(character.isdigit() for line in accepted for character in line)


def test_a_release_with_an_epsilon_never_tells_what_the_checks_found(files):
    """Whether copies were found is known from rows without noise: the file says the same always."""
    assert client(files, *PRIVATE, "--accept-risk") == 0
    assert read_release(files[2], SCHEMA).header.privacy.accepted_risks == (UNSEEN,)


def test_every_release_is_looked_at_and_booked(files, capsys):
    assert client(files) == 0
    said = " ".join(capsys.readouterr().out.split())
    safe = r"Safe to send by \d+ checks \(only an epsilon|checks found nothing; distances and"
    assert re.search(safe, said)
    assert "checks before the release" in details(files).read_text()
    assert "MORE THAN CHANCE" not in details(files).read_text()
    assert Ledger.for_table(files[0]).spent().releases == 1
    assert Ledger.for_table(files[0]).spent().mu is None


PRIVATE = ("--epsilon", "1", "--delta", "1e-5")


def test_a_private_release_shows_its_guarantee_and_books_it(files, capsys):
    assert client(files, *PRIVATE) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "(epsilon = 1, delta = 1e-05)-differential privacy of one row" in shown
    guarantee = read_release(files[2], SCHEMA).header.privacy.guarantee
    assert [m.name for m in guarantee.mechanisms] == ["moments", "curvature", "gradients"]
    ledger = Ledger.for_table(files[0])
    assert ledger.spent().mu == pytest.approx(guarantee.mu)
    assert ledger.spent().epsilon(1e-5) == pytest.approx(1, rel=1e-3)


@pytest.mark.parametrize("seed", range(3))
def test_a_table_of_one_row_is_released_whether_or_not_that_row_is_held_out(tmp_path, seed):
    make_table(1).to_csv(tmp_path / "one.csv", index=False)
    (tmp_path / "schema.json").write_text(SCHEMA.to_json())
    data, schema, output = (tmp_path / name for name in ("one.csv", "schema.json", "r.parquet"))
    config = DistillConfig(epsilon=1.0, delta=1e-5, n_synthetic=24, steps=10, seed=seed)
    _, receipt = distill_file(data, schema, output, config, Options(hold_out=0.5))
    assert receipt.preview.n_held_out in (0, 1)
    assert read_release(output, SCHEMA).header.privacy.guarantee.epsilon == 1.0


def test_an_interrupted_private_run_spends_nothing_twice(files):
    data, schema, output = files
    config = DistillConfig(epsilon=1.0, delta=1e-5, n_synthetic=24, steps=199)

    def stop(records, step, steps):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        distill_file(data, schema, output, config, progress=stop)
    assert not output.exists()
    assert Ledger.for_table(data).spent().releases == 1
    distill_file(data, schema, output, config)
    assert Ledger.for_table(data).spent().releases == 1
    assert sorted(path.name for path in output.parent.iterdir() if not path.name.startswith(".")) == [
        "out.parquet", "rows.csv", "rows.csv.ledger.jsonl", "schema.json",
    ]  # fmt: skip
    distill_file(data, schema, output, config, Options(force=True))
    assert Ledger.for_table(data).spent().releases == 2


def test_a_budget_that_is_spent_stops_a_release_before_rows_are_measured(files, capsys):
    Ledger.for_table(files[0]).set_limit(1.2, 1e-5)
    assert client(files, *PRIVATE) == 0
    assert client(files, *PRIVATE, "--force") == 2
    assert "the limit is 1.2" in capsys.readouterr().err
    assert client(files, "--force") == 2
    assert "allows none without one" in capsys.readouterr().err
    assert Ledger.for_table(files[0]).spent().releases == 1


def test_settings_that_cannot_work_spend_nothing(files, capsys):
    assert client(files, *PRIVATE, n_synthetic=25) == 2
    assert "multiple of 2" in capsys.readouterr().err
    assert not Ledger.for_table(files[0]).path.exists()
    assert client(files, "--epsilon", "1") == 2
    assert "go together" in capsys.readouterr().err
    assert client(files, *PRIVATE, "--hold-out", "0.9") == 2
    assert "hold_out = 0.9: must be from 0 to 0.5" in capsys.readouterr().err


def test_noise_from_a_seed_is_marked_and_booked_without_a_guarantee(files):
    config = DistillConfig(epsilon=1.0, delta=1e-5, n_synthetic=24, steps=40)
    distill_file(*files, config, Options(noise_seed=3))
    privacy = read_release(files[2], SCHEMA).header.privacy
    assert privacy.guarantee is None
    assert "fixed seed" in " ".join(privacy.discloses)
    assert Ledger.for_table(files[0]).spent().mu is None


def test_a_stored_fit_that_was_damaged_is_refused(files):
    data, schema, output = files
    config = DistillConfig(epsilon=1.0, delta=1e-5, n_synthetic=24, steps=100)

    def stop(records, step, steps):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        distill_file(data, schema, output, config, progress=stop)
    (stored,) = output.parent.glob("*.fit")
    stored.write_text("{}")
    with pytest.raises(InputError, match="fit: .* damaged, or of another version .* once more"):
        distill_file(data, schema, output, config)
    stored.unlink()
    distill_file(data, schema, output, config)
    assert Ledger.for_table(data).spent().releases == 2  # measured anew, and booked


def test_what_was_bought_serves_other_settings_of_the_distillation(files):
    data, schema, output = files
    config = DistillConfig(epsilon=1.0, delta=1e-5, n_synthetic=24, steps=60)
    with pytest.raises(InputError, match="diverged"):
        distill_file(data, schema, output, config.model_copy(update={"learning_rate": 1e300}))
    distill_file(data, schema, output, config)
    assert Ledger.for_table(data).spent().releases == 1


@pytest.mark.parametrize(
    ("name", "complaint"),
    [
        ("bad\nname.parquet", "output: String should match"),
        ("x" * 240 + ".parquet", "cannot write|too long|name"),
    ],
)
def test_bad_names_are_refused_and_book_nothing(files, capsys, name, complaint):
    data, schema, output = files
    assert client((data, schema, output.with_name(name)), *PRIVATE) != 0
    assert re.search(complaint, capsys.readouterr().err)
    assert not Ledger.for_table(data).path.exists()


def test_the_error_carries_what_was_found(files):
    data, schema, output = files
    config = DistillConfig(start="real", n_synthetic=24, steps=40, learning_rate=1e-9)
    with pytest.raises(RefusedReleaseError) as refused:
        distill_file(data, schema, output, config)
    assert refused.value.preview.copies == 24
    assert isinstance(refused.value, sf.InputError)


def alarms(rate):
    """Of 4,000 pools of 20 held-out and 200 synthetic distances, all drawn alike."""
    rng = np.random.default_rng(0)
    return sum(rate(rng.random(200), rng.random(20), 0.05).alarming for _ in range(4000))


def test_near_rows_are_a_false_alarm_once_in_a_thousand():
    """This fails by chance once in a million; not if the quantile is taken for known."""
    most = binom.isf(1e-6, 4000, 1e-3)
    assert alarms(nearer) <= most
    assert alarms(lambda near, far, q: excess(near, far, float(np.quantile(far, q)))) > most

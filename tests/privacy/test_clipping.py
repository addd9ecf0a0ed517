"""Values beyond the schema's bounds: counted as they are clipped, and shown at home alone."""

import io
import sys

import numpy as np
import pandas as pd
import pytest
from builders import make_schema, make_table
from printed import plain_text
from small_problem import start_at_rows

import synthfair as sf
from synthfair.cli import main
from synthfair.client import distill_file
from synthfair.data.encode import Clipping, encode
from synthfair.release.format import read_release
from synthfair.report.release_tables import clipping_table, real_rows_warnings
from synthfair.task.protocol import Run

SCHEMA, TABLE = make_schema(), make_table(n=200)
QUICK = sf.DistillConfig(n_synthetic=24, steps=2)
SURROGATE = sf.SurrogateConfig(k_min=5)


def counted(table, parts=1):
    seen = Clipping()
    for rows in np.array_split(np.arange(len(table)), parts):
        encode(table.iloc[rows], SCHEMA, clipping=seen)
    return seen


@pytest.mark.parametrize("parts", [1, 3])
def test_what_is_clipped_is_counted_over_all_parts(parts):
    table = TABLE.assign(income=[-1.0] * 30 + [50.0] * 100 + [101.0] * 70)
    seen = counted(table, parts)
    assert seen.rows == 200
    assert seen.clipped() == {"income": (0.0, 100.0, 0.15, 0.35)}  # age is refused, not clipped


def test_bounds_themselves_and_missing_values_are_not_clipped():
    column = SCHEMA.columns["income"].model_copy(update={"missing": "category"})
    schema = SCHEMA.model_copy(update={"columns": SCHEMA.columns | {"income": column}})
    seen, table = Clipping(), TABLE.assign(income=[0.0, 100.0, np.nan, 100.5] * 50)
    encode(table, schema, clipping=seen)
    assert seen.clipped()["income"].share == 0.25


def test_counting_changes_no_number():
    plain, watched = encode(TABLE, SCHEMA), encode(TABLE, SCHEMA, clipping=Clipping())
    assert all(np.array_equal(a, b) for a, b in zip(plain, watched, strict=True))


@pytest.mark.parametrize(("share", "warns"), [(0.0, False), (0.05, False), (0.06, True)])
def test_above_a_twentieth_there_is_a_warning_by_name_and_bounds(share, warns):
    beyond = round(share * 200)
    seen = counted(TABLE.assign(income=[200.0] * beyond + [50.0] * (200 - beyond)))
    assert (clipping_table(seen) is None) == (share == 0)
    found = real_rows_warnings(seen, SURROGATE)
    assert bool(found) == warns
    if warns:
        assert "column 'income': 6.0%" in found[0]
        assert "0 to 100 (0.0% below, 6.0% above)" in found[0]


def test_the_most_clipped_come_first_and_names_are_no_markup():
    names = [f"[red]{i}" for i in range(25)]
    columns = {name: {"kind": "numeric", "lower": 0, "upper": i + 1, "out_of_range": "clip"}
               for i, name in enumerate(names)}  # fmt: skip
    others = {name: SCHEMA.columns[name] for name in ("town", "paid")}
    schema = sf.Schema(name="many", label="paid", positive="yes", sensitive="town",
                       columns={**columns, **others})  # fmt: skip
    seen = Clipping()
    encode(
        TABLE[["town", "paid"]].assign(**{n: np.arange(200.0) for n in names}),
        schema,
        clipping=seen,
    )
    text = plain_text(clipping_table(seen))
    assert "[red]0'" in text
    assert "The first 20 of 25." in text
    assert len(real_rows_warnings(seen, SURROGATE)) == 20


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "schema.json").write_text(SCHEMA.to_json())
    (tmp_path / "rows").mkdir()
    beyond = TABLE.assign(income=TABLE["income"] + 1000)
    for i in range(2):
        beyond.iloc[100 * i : 100 * (i + 1)].to_csv(tmp_path / f"rows/{i}.csv", index=False)
    return tmp_path


@pytest.mark.parametrize(
    "config",
    [
        QUICK,
        SURROGATE,
        SURROGATE.model_copy(update={"epsilon": 8.0, "delta": 1e-3, "k_min": 5}),
    ],
    ids=["fair", "surrogate", "private"],
)
def test_every_release_counts_each_row_once_and_sends_nothing_of_it(config, folder):
    output = folder / "out.parquet"
    seen = []
    run = Run(on_rows=seen.append)
    distill_file(folder / "rows", folder / "schema.json", output, config, run=run)
    assert seen[0].rows == 200  # once however often they are read
    assert seen[0].clipped()["income"].above == 1
    assert "clip" not in read_release(output, SCHEMA).header.model_dump_json(
        exclude={"table_schema"}
    )


@pytest.mark.parametrize("kind", ["fair", "surrogate"])
@pytest.mark.parametrize("epsilon", [None, 8.0])
def test_it_is_known_before_anything_is_booked(kind, epsilon, folder):
    """Who stops there has spent nothing, and left nothing behind."""
    config = QUICK if kind == "fair" else SURROGATE
    delta = epsilon and 1e-3
    config = config.model_copy(update={"epsilon": epsilon, "delta": delta})
    before, seen = sorted(folder.rglob("*")), []

    def stop(clipping):
        seen.append(clipping.clipped()["income"].above)
        raise KeyboardInterrupt

    paths = folder / "rows", folder / "schema.json", folder / "out.parquet"
    with pytest.raises(KeyboardInterrupt):
        distill_file(*paths, config, run=Run(on_rows=stop))
    assert seen == [1.0]
    assert sorted(folder.rglob("*")) == before


@pytest.mark.parametrize(("answer", "code"), [("\n", 2), ("y\n", 0)])
def test_a_person_is_asked_before_epsilon_is_spent(folder, monkeypatch, answer, code):
    """On a terminal; Enter stops. The ledger says whether anything was booked."""

    class Terminal(io.StringIO):
        def isatty(self):
            return True

    class Person(Terminal):
        def readline(self, *_):
            assert "epsilon = 8 nevertheless?" in said.getvalue()
            assert not booked()
            return answer

    def booked():
        return list(folder.glob("*.ledger.jsonl"))

    said = Terminal()
    for name, stream in (("stdin", Person()), ("stderr", said)):
        monkeypatch.setattr(sys, name, stream)
    monkeypatch.setenv("TERM", "xterm")
    argv = ["client", "--data", f"{folder}/rows", "--schema", f"{folder}/schema.json"]
    argv += ["--output", f"{folder}/out.parquet", "--release", "surrogate"]
    argv += ["--epsilon", "8", "--delta", "1e-3", "--k-min", "5"]
    assert main(argv) == code
    assert "were clipped to them" in said.getvalue()
    assert (folder / "out.parquet").exists() == bool(booked()) == (code == 0)


@pytest.mark.parametrize("config", [QUICK, SURROGATE], ids=["fair", "surrogate"])
def test_a_data_frame_is_warned_of_before_noise_is_drawn(config):
    def noise(_size):
        raise AssertionError("the warning comes first")

    private = config.model_copy(update={"epsilon": 8.0, "delta": 1e-3})
    beyond = TABLE.assign(income=TABLE["income"] + 1000)
    with pytest.raises(UserWarning, match=r"lender: column 'income': 100.0% of the values lie"):
        sf.distill_table(beyond, SCHEMA, private, noise=noise, source="lender")


def test_a_data_frame_within_its_bounds_makes_no_warning():
    sf.distill_table(TABLE, SCHEMA, SURROGATE)  # warnings are errors here


def test_the_client_is_told_also_where_the_release_is_refused(folder, capsys, monkeypatch):
    start_at_rows(monkeypatch)
    twins = pd.concat([TABLE.assign(income=1e4, age=50, home="own")] * 2)  # equal rows are copies
    twins.to_csv(folder / "twins.csv", index=False)
    argv = ["client", "--data", str(folder / "twins.csv"), "--schema", str(folder / "schema.json")]
    config = folder / "settings.toml"
    config.write_text("n_synthetic = 24\nsteps = 2\nlearning_rate = 1e-9")
    argv += ["--output", str(folder / "out.parquet"), "--config", str(config)]
    code = main(argv)
    shown = capsys.readouterr()
    assert code == 2
    assert not (folder / "out.parquet").exists()
    assert "values clipped to the schema's bounds" in shown.out
    assert "column 'income': 100.0%" in shown.err.replace("\n", "")


def test_a_table_below_the_minimum_makes_no_release(folder):
    paths = folder / "few.csv", folder / "schema.json", folder / "out.parquet"
    TABLE.head(40).to_csv(paths[0], index=False)
    with pytest.raises(sf.InputError, match=r"few.csv: 40 rows; .* at least 50"):
        distill_file(*paths, QUICK)
    with pytest.raises(
        sf.InputError, match=r"the 50 rows that k_min .*: town=a with paid=no has \d+, "
    ):
        distill_file(*paths, sf.SurrogateConfig())
    assert not paths[2].exists()


def test_with_epsilon_few_rows_are_said_at_home_alone():
    seen = counted(TABLE.head(3))
    private = sf.DistillConfig(epsilon=1.0, delta=1e-6)
    assert real_rows_warnings(seen, private) == [
        "3 rows: the release is hardly more than its noise"
    ]
    assert real_rows_warnings(counted(TABLE), private) == []
    assert real_rows_warnings(seen, sf.DistillConfig()) == []  # no noise: it is refused instead


def test_every_way_to_use_ones_own_table_warns(folder):
    """Of many clients, of arrays, of rounds and of comparisons, as of one release."""
    from synthfair.sklearn import FairLogisticRegression

    beyond = TABLE.assign(income=TABLE["income"] + 1000)
    said = r"100.0% of the values lie outside"
    with pytest.raises(UserWarning, match="north: column 'income': " + said):
        sf.distill_table(beyond, SCHEMA, QUICK, source="north")
    numbers = TABLE[["income"]].fillna(0.0).to_numpy(float)
    with pytest.raises(UserWarning, match="X: column 'x0': " + said):
        FairLogisticRegression(rho=0.0, bounds=(1000, 2000)).fit(numbers, np.arange(200) % 2)
    beyond.to_csv(folder / "beyond.csv", index=False)
    own = [str(folder / "beyond.csv"), "--schema", str(folder / "schema.json")]
    for argv in (["train", *own, "--output", str(folder / "t")],
                 ["compare", *own, "--output", str(folder / "c")]):  # fmt: skip
        with pytest.raises(UserWarning, match="beyond.csv: column 'income': " + said):
            main(argv)

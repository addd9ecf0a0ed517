"""Values beyond the schema's bounds: counted as they are clipped, and shown at home alone."""

import io
import sys

import numpy as np
import pytest
from builders import SCHEMA, make_table

import synthfair as sf
from synthfair.cli import main
from synthfair.client import distill_file
from synthfair.release.format import read_release
from synthfair.sklearn import FairLogisticRegression
from synthfair.task.protocol import Run

TABLE = make_table(200)
BEYOND = TABLE.assign(income=TABLE["income"] + 1000)
FAIR, SURROGATE = sf.DistillConfig(n_synthetic=24, steps=2), sf.SurrogateConfig(k_min=5)
BUDGET = {"epsilon": 8.0, "delta": 1e-3}


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "schema.json").write_text(SCHEMA.to_json())
    (tmp_path / "rows").mkdir()
    for i in range(2):
        BEYOND[100 * i : 100 * (i + 1)].to_csv(tmp_path / f"rows/{i}.csv", index=False)
    return tmp_path


CONFIGS = {"fair": FAIR, "surrogate": SURROGATE, "private fair": FAIR.replace(**BUDGET),
           "private surrogate": SURROGATE.replace(**BUDGET)}  # fmt: skip


@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
def test_clipping_is_known_before_anything_is_booked_and_is_not_sent(config, folder):
    """Who stops there has spent nothing; each row is counted once, however often it is read."""

    def stop(clipping):
        seen.append((clipping.rows, clipping.clipped()["income"].above))
        raise KeyboardInterrupt

    paths = folder / "rows", folder / "schema.json", folder / "out.parquet"
    before, seen = sorted(folder.rglob("*")), []
    with pytest.raises(KeyboardInterrupt):
        distill_file(*paths, config, run=Run(on_rows=stop))
    assert sorted(folder.rglob("*")) == before
    distill_file(*paths, config, run=Run(on_rows=lambda c: seen.append((c.rows, 1.0))))
    assert seen == [(200, 1.0)] * 2
    header = read_release(paths[2], SCHEMA).header
    assert "clip" not in header.model_dump_json(exclude={"table_schema"})


@pytest.mark.parametrize(("reply", "code"), [("\n", 2), ("y\n", 0)])
def test_person_is_asked_before_epsilon_is_spent(folder, monkeypatch, reply, code):
    """On a terminal; Enter stops. The ledger says whether anything was booked."""

    def booked():
        return list(folder.glob("*.ledger.jsonl"))

    def readline(*_):
        asked.append((said.getvalue().count("epsilon = 8") > 0, booked()))
        return reply

    said, person, asked = io.StringIO(), io.StringIO(), []
    for name, stream in (("stderr", said), ("stdin", person)):
        stream.isatty = lambda: True
        monkeypatch.setattr(sys, name, stream)
    person.readline = readline
    monkeypatch.setenv("TERM", "xterm")
    argv = ["client", "--data", f"{folder}/rows", "--schema", f"{folder}/schema.json",
            "--output", f"{folder}/out.parquet", "--release", "surrogate", "--k-min", "5",
            "--epsilon", "8", "--delta", "1e-3"]  # fmt: skip
    assert main(argv) == code
    assert asked == [(True, [])]
    assert (folder / "out.parquet").exists() == bool(booked()) == (code == 0)


@pytest.mark.parametrize("config", [FAIR, SURROGATE], ids=["fair", "surrogate"])
def test_data_frame_is_warned_of_before_noise_is_drawn(config):
    def noise(_size):
        raise AssertionError("the warning comes first")

    with pytest.raises(UserWarning, match="lender: column 'income': 100.0%"):
        sf.distill_table(BEYOND, SCHEMA, config.replace(**BUDGET), noise=noise, source="lender")


def test_arrays_rounds_and_comparisons_warn_as_releases_do(folder):
    numbers = TABLE[["income"]].to_numpy(float)
    with pytest.raises(UserWarning, match="X: column 'x0': 100.0%"):
        FairLogisticRegression(rho=0.0, bounds=(1000, 2000)).fit(numbers, np.arange(200) % 2)
    BEYOND.to_csv(folder / "beyond.csv", index=False)
    for command in ("train", "compare"):
        argv = [command, f"{folder}/beyond.csv", "--schema", f"{folder}/schema.json"]
        with pytest.raises(UserWarning, match="beyond.csv: column 'income': 100.0%"):
            main([*argv, "--output", f"{folder}/{command}"])

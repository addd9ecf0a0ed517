"""Releases, sites' answers and trainings are booked once, and one answer leaves for an epsilon."""

import errno
import os
import tempfile
from pathlib import Path

import pytest
from builders import SCHEMA, make_table

import synthfair as sf
from synthfair.client import distill_file
from synthfair.errors import InputError
from synthfair.federated import TrainConfig, train_table
from synthfair.files import claimed
from synthfair.privacy.ledger import Ledger
from synthfair.surrogate.records import read_sums

BUDGET = {"epsilon": 20.0, "delta": 1e-5}
SURROGATE = sf.SurrogateConfig(k_min=5, **BUDGET)
TASK = "synthfair.client.surrogate_task"


@pytest.fixture
def paths(tmp_path):
    make_table(300).to_csv(tmp_path / "rows.csv", index=False)
    (tmp_path / "schema.json").write_text(SCHEMA.to_json())
    return tmp_path / "rows.csv", tmp_path / "schema.json", tmp_path / "out.parquet"


def full(*_, **__):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def fill_disk_once_booked(patch, ledger):
    """From the first line of the ledger on, no file can be made; those there can be written to."""
    make = tempfile.mkstemp
    patch.setattr(tempfile, "mkstemp", lambda **at: full() if ledger.exists() else make(**at))


def test_release_of_other_settings_or_schema_is_another_purchase(paths, monkeypatch):
    """And not one of another order of rows, name of the table, or seed."""
    book = Ledger(paths[0].parent / "ledger")
    named = SCHEMA.model_copy(update={"name": "other"})
    others = ({"k_min": 6}, SCHEMA), ({"delta": 2e-5}, SCHEMA), ({}, named), ({}, SCHEMA)
    with monkeypatch.context() as patch:
        patch.setattr(f"{TASK}.surrogate_of", full)
        for number, (change, schema) in enumerate(others, 1):
            paths[1].write_text(schema.to_json())
            with pytest.raises(OSError, match="No space"):
                distill_file(*paths, SURROGATE.replace(**change), ledger=book.path)
            assert book.spent().releases == number
    again = paths[0].with_name("again.parquet")
    make_table(300).sample(frac=1, random_state=1).to_parquet(again, index=False)
    distill_file(again, *paths[1:], SURROGATE.replace(seed=1), ledger=book.path)
    assert book.spent().releases == len(others)
    book.path.unlink()  # it is written again, before what it paid for leaves
    distill_file(again, *paths[1:], SURROGATE, ledger=book.path, force=True)
    assert Ledger(book.path).spent().releases == 1


def test_refusal_by_noise_is_an_answer_and_not_drawn_again(paths, monkeypatch):
    """Else runs until one is not refused would be a choice among many draws of the noise."""
    for reading in (read_sums, None):
        monkeypatch.setattr(f"{TASK}.read_sums", reading)
        with pytest.raises(InputError, match="town and paid"):
            distill_file(*paths, SURROGATE.replace(k_min=250))
    assert Ledger.for_table(paths[0]).spent().releases == 1


# Trainings

TRAIN = TrainConfig(rounds=3, clip=1.0, epsilon=5.0, delta=1e-3)
COUNTS = {"method": "privfairfl_post", "counts_epsilon": 1.0, "batch": 20, "bins": 21}


def train(folder, config=TRAIN):
    users = {"clients": 2} if config.local_passes else {"rows_per_user": 3.0}
    files = {"output": folder / "out", "ledger": folder / "ledger", "force": True}
    return train_table(make_table(300), SCHEMA, config, users=users, **files)[0]


def between_names(patch, _ledger):
    """The second file gets no name; the first, the model, may be read already."""
    rename = Path.replace
    name = lambda path, to: full() if to.name == "rounds.csv" else rename(path, to)  # noqa: E731
    patch.setattr(Path, "replace", name)


def before(where):
    return lambda patch, _: patch.setattr(f"synthfair.federated.training.{where}", full)


FAILS = {"rounds": before("train_rounds"), "evaluation": before("evaluate"),
         "room": fill_disk_once_booked, "names": between_names}  # fmt: skip


@pytest.mark.parametrize("fail", FAILS.values(), ids=FAILS)
def test_training_that_ends_on_the_way_is_booked_once(tmp_path, monkeypatch, fail):
    model = tmp_path / "out" / "model.json"
    with monkeypatch.context() as patch:
        fail(patch, tmp_path / "ledger")
        for _ in range(2):
            with pytest.raises(OSError, match="No space"):
                train(tmp_path)
    read = model.read_bytes() if model.exists() else None
    train(tmp_path)
    assert read in (None, model.read_bytes())
    assert (read is not None) == (fail == between_names)
    assert Ledger(tmp_path / "ledger").spent().releases == 1
    assert not list((tmp_path / "out").glob("*.checkpoint"))


@pytest.mark.parametrize("what", [{"secure": True}, COUNTS], ids=["shares", "counts"])
def test_noise_that_is_drawn_anew_is_booked_anew(tmp_path, monkeypatch, what):
    """Once a file has its name."""
    config = TrainConfig(**TRAIN.model_dump(exclude_unset=True) | what)
    with monkeypatch.context() as patch:
        between_names(patch, None)
        with pytest.raises(OSError, match="No space"):
            train(tmp_path, config)
    train(tmp_path, config)
    assert Ledger(tmp_path / "ledger").spent().releases == 2


def test_training_is_bought_by_one_run_at_a_time(tmp_path):
    model = tmp_path / "out" / "model.json"
    with claimed(model, force=True), pytest.raises(InputError, match="another run"):
        train(tmp_path)
    assert not (tmp_path / "ledger").exists()

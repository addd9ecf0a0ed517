"""An epsilon is booked once, and one answer leaves for it, wherever runs end."""

import errno
import os
import signal
import subprocess
import sys
import tempfile
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from builders import PRIVATE, World, make_schema, make_table

import synthfair as sf
from synthfair.client import distill_file
from synthfair.client.fair_task import FairTask
from synthfair.client.surrogate_task import SurrogateTask
from synthfair.data.batches import in_memory
from synthfair.data.encode import encode
from synthfair.errors import InputError
from synthfair.federated import TrainConfig, train_table
from synthfair.files import claimed
from synthfair.privacy.guarantee import Guarantee
from synthfair.privacy.ledger import Ledger, Purchase
from synthfair.release.format import read_release
from synthfair.surrogate.records import most_numbers, read_sums, surrogate_of
from synthfair.surrogate.sums import SurrogateSpec, TableSums

SCHEMA, RUN = make_schema(), "a" * 64
BUDGET = {"epsilon": 20.0, "delta": 1e-5}
CONFIGS = {
    "fair": sf.DistillConfig(n_synthetic=24, steps=20, k_min=5, **BUDGET),
    "surrogate": sf.SurrogateConfig(k_min=5, **BUDGET),
}
READ_SUMS = "synthfair.client.surrogate_task.read_sums"


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

    def mkstemp(**place):
        return full() if ledger.exists() else make(**place)

    patch.setattr(tempfile, "mkstemp", mkstemp)


# What is bought


@pytest.fixture
def shop(tmp_path):
    """A ledger and a purchase, whose answers are numbered as they are computed."""
    made = []

    def make():
        made.append(f"answer {len(made)}".encode())
        return made[-1]

    guarantee = Guarantee(epsilon=1.0, relation="add_or_remove")
    ledger = Ledger(tmp_path / "ledger")

    def buy(make=make, asked=RUN, **changes):
        purchase = Purchase(output="a", run=asked, guarantee=guarantee, **changes)
        return Ledger(ledger.path).buy(purchase, make, max_bytes=100)

    return SimpleNamespace(ledger=ledger, path=ledger.bought(RUN), made=made, buy=buy)


def test_an_answer_is_computed_and_booked_once(shop):
    assert [shop.buy(), shop.buy()] == [b"answer 0"] * 2
    assert shop.ledger.spent().releases == 1
    assert shop.path.stat().st_mode & 0o777 == 0o600
    shop.path.unlink()  # as when it has left
    assert shop.buy() == b"answer 1"
    assert shop.ledger.spent().releases == 2


def test_another_question_is_another_purchase(shop):
    assert [shop.buy(), shop.buy(asked="b" * 64)] == [b"answer 0", b"answer 1"]
    assert shop.ledger.spent().releases == 2


def test_rounds_are_one_purchase_while_each_is_one_question(shop):
    for number in (0, 1, 0, 1):
        assert shop.buy(round=number, question=f"{number:064d}") == b"answer 0"
    assert shop.ledger.spent().releases == 1
    assert len(shop.ledger.records()) == 2
    assert shop.buy(round=1, question="2" * 64) == b"answer 1"
    assert shop.ledger.spent().releases == 2


def test_an_answer_fits_into_the_room_that_was_there_before_the_booking(shop):
    sizes = []

    def make():
        sizes.append(shop.path.stat().st_size)
        return bytes(100)

    shop.buy(make)
    assert shop.path.stat().st_size == sizes[0]


@pytest.mark.parametrize("where", ["book", "make", "half", "word"])
def test_a_run_that_ends_on_the_way_books_and_sells_once(shop, monkeypatch, where):
    """Before and after the line in the ledger, in the middle of the answer, and at its end."""
    syncs = []

    def end(*_, **__):
        syncs.append(1)
        if where != "word" or len(syncs) == 2:
            raise SystemExit

    with monkeypatch.context() as patch:
        if where == "book":
            patch.setattr(Ledger, "book", end)
        elif where != "make":
            patch.setattr("synthfair.privacy.ledger._sync", end)
        with pytest.raises(SystemExit):
            shop.buy(*([end] if where == "make" else []))
        syncs.clear()
        with suppress(SystemExit):  # with its last word, the answer was there
            shop.buy(*([end] if where == "make" else []))
    shop.buy()
    assert shop.ledger.spent().releases == 1
    assert shop.buy() == shop.made[-1]


def test_an_equal_booking_of_an_answer_that_has_left_pays_for_no_other(shop, monkeypatch):
    shop.buy()
    shop.path.unlink()
    with monkeypatch.context() as patch:
        patch.setattr(Ledger, "book", lambda *_, **__: sys.exit())
        with pytest.raises(SystemExit):
            shop.buy()
    shop.buy()
    assert shop.ledger.spent().releases == 2


def test_a_full_disk_refuses_before_anything_is_booked(shop, monkeypatch):
    monkeypatch.setattr(tempfile, "mkstemp", full)
    with pytest.raises(OSError, match="No space"):
        shop.buy()
    assert not shop.ledger.path.exists()
    assert not shop.path.exists()


def test_a_limit_refuses_before_there_is_a_file_and_not_what_is_booked(shop):
    shop.ledger.set_limit(0.5, 1e-6)
    with pytest.raises(InputError, match="the limit is 0.5"):
        shop.buy()
    assert not shop.path.exists()
    shop.ledger.set_limit(1.0, 1e-6)
    with pytest.raises(SystemExit):
        shop.buy(sys.exit)
    assert shop.buy() == b"answer 0"


@pytest.mark.parametrize("content", [b"", b"complete", b"complete " + b"b" * 64 + b" x\n"])
def test_a_damaged_file_is_refused(shop, content):
    shop.buy()
    shop.path.write_bytes(content)
    with pytest.raises(
        InputError, match=r"damaged, or of another version .* spends epsilon once more"
    ):
        shop.buy()


def test_two_runs_at_once_do_not_buy_the_same(shop):
    with claimed(shop.path, force=True), pytest.raises(InputError, match="another run"):
        shop.buy()
    assert not shop.ledger.path.exists()
    assert shop.buy() == b"answer 0"


# Releases


@pytest.mark.parametrize("kind", CONFIGS)
def test_three_tries_on_a_full_disk_are_one_booking(paths, monkeypatch, kind):
    ledger = Ledger.for_table(paths[0])
    with monkeypatch.context() as patch:
        fill_disk_once_booked(patch, ledger.path)
        for _ in range(3):
            with pytest.raises(OSError, match="No space"):
                distill_file(*paths, CONFIGS[kind])
            assert ledger.spent().releases == 1
    assert not paths[2].exists()
    made, _ = distill_file(*paths, CONFIGS[kind])
    assert made.release.header.guarantee.epsilon == 20.0
    assert ledger.spent().releases == 1
    assert len(list(paths[2].parent.glob("*.bought"))) == 1


KILLED = """
import os, signal, sys
from pathlib import Path
from synthfair.client import distill_file
from synthfair.release.settings import SurrogateConfig
from synthfair.jax_setup import start_jax
from synthfair.client import surrogate_task

start_jax()
surrogate_task.read_sums = lambda *_, **__: os.kill(os.getpid(), signal.SIGKILL)
config = SurrogateConfig.model_validate_json(sys.argv[1])
distill_file(*map(Path, sys.argv[2:]), config)
"""


def test_a_run_that_is_killed_between_booking_and_saving_is_one_booking(paths):
    config, ledger = CONFIGS["surrogate"], Ledger.for_table(paths[0])
    command = [sys.executable, "-c", KILLED, config.model_dump_json(), *map(str, paths)]
    assert subprocess.run(command, check=False).returncode == -signal.SIGKILL
    assert ledger.spent().releases == 1
    distill_file(*paths, config)
    assert ledger.spent().releases == 1
    assert read_release(paths[2], SCHEMA).header.guarantee


class EndedError(Exception):
    """A run ends."""


STEPS = ["histograms", "column_moments", "tree", "pairs", "anchors", "records"]


@pytest.mark.parametrize("step", STEPS)
def test_wherever_a_surrogate_ends_it_is_booked_once(paths, monkeypatch, step):
    """After one sum, one choice or another has been drawn, or all of them."""
    from synthfair.privacy.mechanism import NoisySum, PrivateChoice

    config, ledger = CONFIGS["surrogate"], Ledger.for_table(paths[0])

    def end(self, *_):
        if self._mechanism.name == step:
            raise EndedError
        return drawn[type(self)](self, *_)

    def end_late(*_, **__):
        raise EndedError

    drawn = {NoisySum: NoisySum.release, PrivateChoice: PrivateChoice.choose}
    with monkeypatch.context() as patch:
        patch.setattr(NoisySum, "release", end)
        patch.setattr(PrivateChoice, "choose", end)
        if step == "records":
            patch.setattr("synthfair.client.surrogate_task.surrogate_of", end_late)
        for _ in range(2):
            with pytest.raises(EndedError):
                distill_file(*paths, config)
            assert ledger.spent().releases == 1
            assert not paths[2].exists()
    distill_file(*paths, config)
    assert ledger.spent().releases == 1


def test_what_changes_a_surrogates_answer_is_another_purchase(paths, monkeypatch):
    """And what does not is none: the order of rows, the name of the table, and a seed."""
    config, folder = CONFIGS["surrogate"], paths[0].parent
    ledger = {"ledger": folder / "ledger"}
    changes = {}, {"k_min": 6}, {"delta": 2e-5}, {"epsilon": 19.0}
    with monkeypatch.context() as patch:
        patch.setattr("synthfair.client.surrogate_task.surrogate_of", lambda *_: full())
        for files, change in enumerate(changes, start=1):
            with pytest.raises(OSError, match="No space"):
                distill_file(*paths, config.model_copy(update=change), **ledger)
            assert len(list(folder.glob("*.bought"))) == files
    make_table(300).sample(frac=1, random_state=1).to_parquet(folder / "again.parquet", index=False)
    other = config.model_copy(update={"seed": 1})
    distill_file(folder / "again.parquet", *paths[1:], other, **ledger)
    assert Ledger(folder / "ledger").spent().releases == len(changes)
    # A ledger that was lost is written again, before what it paid for leaves.
    (folder / "ledger").unlink()
    distill_file(folder / "again.parquet", *paths[1:], config, **ledger, force=True)
    assert Ledger(folder / "ledger").spent().releases == 1


@pytest.mark.parametrize("kind", CONFIGS)
def test_another_guarantee_of_the_same_settings_is_another_purchase(kind, monkeypatch):
    """As where another version of synthfair splits a budget in another way."""
    task = (FairTask if kind == "fair" else SurrogateTask)(SCHEMA, CONFIGS[kind])
    before = task.task
    mechanisms = before.guarantee.mechanisms
    louder = mechanisms[0].model_copy(update={"noise": 2 * mechanisms[0].noise})
    other = before.guarantee.model_copy(update={"mechanisms": (louder, *mechanisms[1:])})
    monkeypatch.setattr(SurrogateTask, "guarantee", other)
    assert task.task.asked != before.asked


def test_another_schema_of_the_same_rows_is_another_purchase(paths, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr("synthfair.client.surrogate_task.surrogate_of", lambda *_: full())
        for named in ("one", "two"):
            paths[1].write_text(SCHEMA.model_copy(update={"name": named}).to_json())
            with pytest.raises(OSError, match="No space"):
                distill_file(*paths, CONFIGS["surrogate"])
    assert Ledger.for_table(paths[0]).spent().releases == 2


def test_a_noisy_refusal_is_an_answer_and_not_drawn_again(paths, monkeypatch):
    """Else runs until one is not refused would be a choice among many draws of the noise."""
    few = CONFIGS["surrogate"].model_copy(update={"k_min": 250})
    for reading in (read_sums, None):
        monkeypatch.setattr(READ_SUMS, reading)
        with pytest.raises(InputError, match="no pair of town and paid has a noisy number"):
            distill_file(*paths, few)
        assert len(list(paths[2].parent.glob("*.bought"))) == 1
    assert Ledger.for_table(paths[0]).spent().releases == 1


@pytest.mark.parametrize("groups", [2, 4])
def test_there_is_room_for_as_many_records_as_there_can_be(groups, monkeypatch):
    """Of tables so large that every cell has its most records, whatever the noise."""
    monkeypatch.setattr("synthfair.surrogate.records.MAX_RECORDS", 100)
    schema, config = make_schema(groups), sf.SurrogateConfig(**BUDGET)
    rows = encode(make_table(2000, n_groups=groups), schema)
    spec = SurrogateSpec(config, schema)
    made = surrogate_of(read_sums(TableSums(in_memory(rows), spec), spec), spec)
    numbers = sum(np.size(field) for field in made)
    assert len(made.y) > 190 * groups
    assert numbers <= most_numbers(schema) < 1.5 * numbers


# Sites


def test_a_site_that_ended_after_booking_still_answers_within_its_limit(tmp_path, monkeypatch):
    world = World(tmp_path)
    world.bound("north", epsilon=1.2, delta=1e-6)
    with monkeypatch.context() as patch:
        patch.setattr(READ_SUMS, lambda *_, **__: full())
        assert world.code(world.ask(PRIVATE)) == "failed"
    ledger = Ledger.for_table(tmp_path / "north" / "rows.csv")
    assert ledger.spent().releases == 1
    assert world.code(world.ask(PRIVATE, job="job-2"), job="job-2") == "ok"
    assert ledger.spent().releases == 1


# Trainings

TRAIN = TrainConfig(rounds=3, clip=1.0, epsilon=5.0, delta=1e-3)


COUNTS = {"method": "privfairfl_post", "counts_epsilon": 1.0, "batch": 20, "bins": 21}


def train(folder, config=TRAIN):
    users = {"clients": 2} if config.local_passes else {"rows_per_user": 3.0}
    files = {"output": folder / "out", "ledger": folder / "ledger", "force": True}
    return train_table(make_table(300), SCHEMA, config, users=users, **files)[0]


def test_a_column_of_users_that_no_file_may_name_is_refused_before_anything_is_bought(tmp_path):
    table = make_table(300).assign(**{"a\tb": np.arange(300) // 3})
    files, users = {"ledger": tmp_path / "ledger"}, {"user_column": "a\tb"}
    with pytest.raises(InputError, match="^user_column: must be on one line"):
        train_table(table, SCHEMA, TRAIN, tmp_path / "out", users=users, **files)
    assert not list(tmp_path.iterdir())


def test_a_training_is_bought_by_one_run_at_a_time(tmp_path):
    with (
        claimed(tmp_path / "out" / "model.json", force=True),
        pytest.raises(InputError, match="another run is writing it"),
    ):
        train(tmp_path)
    assert not (tmp_path / "ledger").exists()


def stopped_between_names(folder, monkeypatch, config):
    """A training whose second file gets no name; the first, the model, may be read already."""
    rename = Path.replace

    def replace(path, target):
        return full() if target.name == "rounds.csv" else rename(path, target)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", replace)
        with pytest.raises(OSError, match="No space"):
            train(folder, config)
    return (folder / "out" / "model.json").read_bytes()


def test_a_training_that_ends_between_the_names_of_its_files_is_booked_once(tmp_path, monkeypatch):
    model = stopped_between_names(tmp_path, monkeypatch, TRAIN)
    train(tmp_path)
    assert (tmp_path / "out" / "model.json").read_bytes() == model
    assert Ledger(tmp_path / "ledger").spent().releases == 1
    assert not list((tmp_path / "out").glob("*.checkpoint"))


@pytest.mark.parametrize("what", [{"secure": True}, COUNTS])
def test_noise_that_is_drawn_anew_is_booked_anew_once_a_file_has_its_name(
    tmp_path, monkeypatch, what
):
    config = TrainConfig(**TRAIN.model_dump(exclude_unset=True) | what)
    stopped_between_names(tmp_path, monkeypatch, config)
    train(tmp_path, config)
    assert Ledger(tmp_path / "ledger").spent().releases == 2


def test_a_training_whose_results_find_no_room_is_booked_once(tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        fill_disk_once_booked(patch, tmp_path / "ledger")
        for _ in range(3):
            with pytest.raises(OSError, match="No space"):
                train(tmp_path)
    assert not (tmp_path / "out").exists()
    train(tmp_path)
    assert Ledger(tmp_path / "ledger").spent().releases == 1
    assert not list((tmp_path / "out").glob("*.checkpoint"))


@pytest.mark.parametrize("where", ["train_rounds", "evaluate"])
def test_a_training_that_is_killed_is_booked_once(tmp_path, monkeypatch, where):
    with monkeypatch.context() as patch:
        patch.setattr(f"synthfair.federated.training.{where}", lambda *_, **__: sys.exit())
        for _ in range(2):
            with pytest.raises(SystemExit):
                train(tmp_path)
    assert train(tmp_path).resumed_at == 0
    assert Ledger(tmp_path / "ledger").spent().releases == 1

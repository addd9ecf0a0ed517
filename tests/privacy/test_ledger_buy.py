"""An epsilon is booked before its answer is computed, once, wherever runs end."""

import errno
import os
import sys
import tempfile
from contextlib import suppress

import pytest

from synthfair.errors import InputError
from synthfair.files import claimed
from synthfair.privacy.guarantee import Guarantee
from synthfair.privacy.ledger import Ledger, Purchase, compute_once, is_complete

RUN = "a" * 64


def end(*_, **__):
    raise SystemExit


def full(*_, **__):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


class Shop:
    """A ledger whose answers are numbered as they are computed."""

    def __init__(self, folder):
        self.ledger, self.made = Ledger(folder / "ledger"), []
        self.path = self.ledger.bought(RUN)

    def make(self):
        self.made.append(f"answer {len(self.made)}".encode())
        return self.made[-1]

    def buy(self, make=None, run=RUN, epsilon=1.0, **changes):
        guarantee = Guarantee(epsilon=epsilon, relation="add_or_remove")
        purchase = Purchase(output="a", run=run, guarantee=guarantee, **changes)
        return Ledger(self.ledger.path).buy(purchase, make or self.make, max_bytes=100)

    @property
    def booked(self):
        return self.ledger.spent().releases


@pytest.fixture
def shop(tmp_path):
    return Shop(tmp_path)


def test_purchase_is_computed_and_booked_once(shop):
    assert [shop.buy(), shop.buy()] == [b"answer 0"] * 2
    assert shop.booked == 1
    shop.path.unlink()  # as when it has left
    assert shop.buy() == b"answer 1"
    assert shop.booked == 2


def test_purchase_is_booked_and_has_its_room_before_it_is_computed(shop, monkeypatch):
    """On disk: the line, then the answer, then the word that it is whole."""

    def synced(_):
        steps.append((shop.path.exists() and b"answer" in shop.path.read_bytes(),
                      shop.path.exists() and is_complete(shop.path)))  # fmt: skip

    def make():
        assert shop.booked == 1
        assert not is_complete(shop.path)
        sizes.append(shop.path.stat().st_size)
        return b"answer" + bytes(94)

    sizes, steps = [], []
    monkeypatch.setattr(os, "fsync", synced)
    shop.buy(make)
    assert sizes == [shop.path.stat().st_size]
    assert steps[-3:] == [(False, False), (True, False), (True, True)]


@pytest.mark.parametrize("change", [{"run": "b" * 64}, {"epsilon": 0.5}, {"question": "b" * 64}])
def test_purchase_of_something_else_is_another(shop, change):
    assert [shop.buy(), shop.buy(**change)] == [b"answer 0", b"answer 1"]
    assert shop.booked == 2


def test_purchase_has_rounds_while_each_is_one_question(shop):
    for number in (0, 1, 0, 1):
        assert shop.buy(round=number, question=f"{number:064d}") == b"answer 0"
    assert (shop.booked, len(shop.ledger.records())) == (1, 2)
    assert shop.buy(round=1, question="2" * 64) == b"answer 1"
    assert shop.booked == 2


@pytest.mark.parametrize("where", ["book", "make", "half", "word"])
def test_run_that_ends_on_the_way_books_and_sells_once(shop, monkeypatch, where):
    """Before and after the line in the ledger, in the middle of the answer, and at its end."""

    def end_late(*_):
        syncs.append(1)
        if where == "half" or len(syncs) == 2:
            raise SystemExit

    syncs, make = [], end if where == "make" else None
    with monkeypatch.context() as patch:
        if where == "book":
            patch.setattr(Ledger, "book", end)
        elif where != "make":
            patch.setattr("synthfair.privacy.ledger._sync", end_late)
        with pytest.raises(SystemExit):
            shop.buy(make)
        syncs.clear()
        with suppress(SystemExit):  # with its last word, the answer was there
            shop.buy(make)
    shop.buy()
    assert shop.booked == 1
    assert shop.buy() == shop.made[-1]


def test_booking_of_an_answer_that_has_left_pays_for_no_other(shop, monkeypatch):
    shop.buy()
    shop.path.unlink()
    with monkeypatch.context() as patch:
        patch.setattr(Ledger, "book", end)
        with pytest.raises(SystemExit):
            shop.buy()
    shop.buy()
    assert shop.booked == 2


def test_full_disk_refuses_before_anything_is_booked(shop, monkeypatch):
    monkeypatch.setattr(tempfile, "mkstemp", full)
    with pytest.raises(OSError, match="No space"):
        shop.buy()
    assert not shop.ledger.path.exists()
    assert not shop.path.exists()


def test_limit_refuses_before_there_is_room_and_not_what_is_booked(shop):
    shop.ledger.set_limit(0.5, 1e-6)
    with pytest.raises(InputError, match=r"limit is 0\.5"):
        shop.buy()
    assert not shop.path.exists()
    shop.ledger.set_limit(1.0, 1e-6)
    with pytest.raises(SystemExit):
        shop.buy(sys.exit)
    assert shop.buy() == b"answer 0"


@pytest.mark.parametrize("content", [b"", b"complete", b"complete " + b"b" * 64 + b" x\n"])
def test_damaged_purchase_is_refused(shop, content):
    shop.buy()
    shop.path.write_bytes(content)
    for use in (shop.buy, lambda: compute_once(shop.path, RUN, shop.make, max_bytes=9)):
        with pytest.raises(InputError, match=f"{shop.path}: damaged"):
            use()
    assert shop.made == [b"answer 0"]


def test_two_runs_at_once_do_not_buy_the_same(shop):
    with claimed(shop.path, force=True), pytest.raises(InputError, match="another run"):
        shop.buy()
    assert not shop.ledger.path.exists()
    assert shop.buy() == b"answer 0"

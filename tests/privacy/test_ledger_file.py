"""The ledger as a file: locked, durable, its owner's alone, and refused where it was altered."""

import os

import pytest
from filelock import FileLock, Timeout

from synthfair.errors import InputError
from synthfair.privacy import ledger as module
from synthfair.privacy.accounting import accountant
from synthfair.privacy.guarantee import Guarantee
from synthfair.privacy.ledger import Ledger, Purchase, compute_once
from synthfair.privacy.mechanism import GaussianMechanism, grid_for

MECHANISM = GaussianMechanism(name="pairs", sensitivity=1.0, noise=10.0, grid=grid_for(10.0))
CLAIM = {"epsilon": 1.0, "delta": 0.01, "relation": "add_or_remove", "accountant": accountant()}
GUARANTEE = Guarantee(mechanisms=(MECHANISM,), **CLAIM)
NOISY = Purchase(output="r.parquet", run="a" * 64, guarantee=GUARANTEE)
USES = {"book": lambda book: book.book(NOISY), "limit": lambda book: book.set_limit(1.0, 1e-3)}


@pytest.fixture
def ledger(tmp_path):
    return Ledger.for_table(tmp_path / "rows.csv")


def lock_of(ledger):
    return FileLock(ledger.path.with_name(f".{ledger.path.name}.lock"), timeout=0)


@pytest.mark.parametrize("use", USES.values(), ids=USES)
def test_ledger_locked_by_another_is_not_written(ledger, monkeypatch, use):
    monkeypatch.setattr(module, "MAX_WAIT_SECONDS", 0.05)
    with lock_of(ledger), pytest.raises(InputError, match=f"{ledger.path}: locked"):
        use(ledger)
    assert not ledger.path.exists()
    use(ledger)
    assert len(ledger.records()) == 1


def test_ledger_is_locked_from_the_check_of_its_limit_to_the_line(ledger, monkeypatch):
    def locked(real):
        def wrapped(self, *args):
            with pytest.raises(Timeout):
                lock_of(ledger).acquire()
            steps.append(real.__name__)
            return real(self, *args)

        return wrapped

    steps = []
    for name in ("require", "_append"):
        monkeypatch.setattr(Ledger, name, locked(getattr(Ledger, name)))
    ledger.book(NOISY)
    ledger.set_limit(1.0, 1e-3)
    assert steps == ["require", "_append", "_append"]


def test_ledger_is_on_disk_before_its_lines_count(ledger, monkeypatch):
    synced = []
    monkeypatch.setattr(os, "fsync", lambda _: synced.append(ledger.path.read_bytes()))
    ledger.book(NOISY)
    assert synced == [ledger.path.read_bytes()] * 2  # the file, and the folder that names it


@pytest.mark.parametrize(("end", "lines"), [(50, 1), (-1, 2)])
def test_last_line_counts_where_it_is_whole_also_without_its_end(ledger, end, lines):
    """What a crash cut off was not booked."""
    for _ in range(2):
        ledger.book(NOISY)
    first, second = ledger.path.read_bytes().splitlines(keepends=True)
    ledger.path.write_bytes(first + second[:end])
    cut = Ledger(ledger.path)
    assert len(cut.records()) == lines
    cut.book(NOISY)
    assert len(Ledger(ledger.path).records()) == lines + 1


def test_last_line_that_gets_its_end_from_another_is_not_read_twice(ledger):
    ledger.book(NOISY)
    ledger.path.write_bytes(ledger.path.read_bytes()[:-1])
    reader = Ledger(ledger.path)
    assert len(reader.records()) == 1
    Ledger(ledger.path).book(NOISY)
    assert len(reader.records()) == len(Ledger(ledger.path).records()) == 2


def change(old, new):
    return lambda lines: [lines[0].replace(old, new, 1), *lines[1:]]


HOSTILE = {
    "swapped": (lambda lines: [lines[1], lines[0], lines[2]], 1),
    "repeated": (lambda lines: [*lines, lines[-1]], 4), "first lost": (lambda lines: lines[1:], 1),
    "altered": (change(b"r.parquet", b"q.parquet"), 2),
    "louder": (change(b'"noise":10.0', b'"noise":0.01'), 1),
    "cut": (lambda lines: [lines[0][:50], *lines[1:]], 1),
    "another file's end": (lambda lines: [*lines, b"salary,label"], 4),
}  # fmt: skip


@pytest.mark.parametrize(("alter", "line"), HOSTILE.values(), ids=HOSTILE)
def test_ledger_that_was_altered_is_neither_read_nor_written(ledger, alter, line):
    for _ in range(3):
        ledger.book(NOISY)
    lines = alter(ledger.path.read_bytes().splitlines())
    ledger.path.write_bytes(b"".join(line + b"\n" for line in lines))
    before, hostile = ledger.path.read_bytes(), Ledger(ledger.path)
    for use in (Ledger.spent, *USES.values()):
        with pytest.raises(InputError, match=f"ledger.jsonl: line {line}: "):
            use(hostile)
    assert ledger.path.read_bytes() == before


def test_ledger_that_lost_its_end_meanwhile_is_refused(ledger):
    for _ in range(2):
        ledger.book(NOISY)
    first, _ = ledger.path.read_bytes().splitlines(keepends=True)
    for lose in (lambda: ledger.path.write_bytes(first), ledger.path.unlink):
        lose()
        with pytest.raises(InputError, match="lost"):
            ledger.book(NOISY)


def test_ledger_of_a_link_is_that_of_its_table(tmp_path, ledger):
    (tmp_path / "link.csv").symlink_to(tmp_path / "rows.csv")
    (tmp_path / "other.jsonl").symlink_to(ledger.path)
    for book in (ledger, Ledger.for_table(tmp_path / "link.csv"), Ledger(tmp_path / "other.jsonl")):
        book.book(NOISY)
    assert ledger.spent().releases == 3
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    assert Ledger.for_table(tmp_path / "loop").path.name == "loop.ledger.jsonl"


def test_private_files_are_their_owners_alone(tmp_path):
    """Whatever the umask: the ledger and its lock, and noisy answers."""
    before = os.umask(0)
    try:
        Ledger.for_table(tmp_path / "rows.csv").book(NOISY)
        compute_once(tmp_path / "a.bought", "a" * 64, lambda: b"x", max_bytes=1)
    finally:
        os.umask(before)
    modes = [path.stat().st_mode & 0o777 for path in tmp_path.iterdir()]
    assert modes == [0o600] * 3

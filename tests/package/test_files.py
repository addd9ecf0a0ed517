"""Files are written whole, by one run, and over nothing that is not meant."""

import errno
import os
import signal
import subprocess
import sys

import pytest

from synthfair.errors import InputError
from synthfair.files import claimed, require_distinct, require_free, whole_file, write_text


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_write_that_fails_leaves_the_old_file_and_nothing_else(tmp_path, error):
    path = tmp_path / "out.txt"
    path.write_text("old")
    with pytest.raises(error), whole_file(path) as temporary:  # noqa: PT012
        temporary.write_text("half")
        raise error
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_file_is_written_as_any_other(tmp_path):
    write_text(tmp_path / "one", "é")
    (tmp_path / "two").write_text("é", encoding="utf-8")
    one, two = (tmp_path / name for name in ("one", "two"))
    assert (one.read_bytes(), one.stat().st_mode) == (two.read_bytes(), two.stat().st_mode)


def make_link(path):
    (path.parent / "target").write_text("old")
    path.symlink_to(path.parent / "target")


def make_broken_link(path):
    path.symlink_to(path.parent / "nowhere")


@pytest.mark.parametrize("make", [make_link, make_broken_link, os.mkfifo])
@pytest.mark.parametrize("force", [True, False])
def test_output_that_is_no_regular_file_is_not_replaced(tmp_path, make, force):
    """Neither asked for before the work, nor where one turns up while it is done."""
    path = tmp_path / "out"
    make(path)
    before = [(file, file.lstat()[:7]) for file in sorted(tmp_path.iterdir())]
    with pytest.raises(InputError, match="out: is not a regular file"):
        require_free(path, force=force)
    with pytest.raises(InputError, match="out: is not a regular file"):
        write_text(path, "new")
    assert [(file, file.lstat()[:7]) for file in sorted(tmp_path.iterdir())] == before


def test_write_on_a_full_disk_names_the_file(tmp_path):
    path = tmp_path / "out"
    with pytest.raises(OSError, match="No space") as caught, whole_file(path):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    assert caught.value.filename == str(path)


@pytest.mark.parametrize("force", [True, False])
def test_output_is_claimed_by_one_run(tmp_path, force):
    path = tmp_path / "out"
    with (
        claimed(path, force=force),
        pytest.raises(InputError, match="out: another run"),
        claimed(tmp_path / "other", path, force=force),
    ):
        pass
    assert not list(tmp_path.iterdir())
    with claimed(path, force=force):
        write_text(path, "new")
    assert list(tmp_path.iterdir()) == [path]


def test_output_that_another_run_has_just_written_is_not_lost(tmp_path, monkeypatch):
    """It ends between the first look of another and its claim."""
    import filelock

    class Late(filelock.FileLock):
        def acquire(self, *args, **kwargs):
            write_text(tmp_path / "out", "first")
            return super().acquire(*args, **kwargs)

    monkeypatch.setattr(filelock, "FileLock", Late)
    with pytest.raises(InputError, match="out: exists"), claimed(tmp_path / "out", force=False):
        write_text(tmp_path / "out", "second")
    assert (tmp_path / "out").read_text() == "first"


def test_output_of_a_killed_run_is_free(tmp_path):
    code = (
        "import os, signal, sys\nfrom pathlib import Path\nfrom synthfair.files import claimed\n"
        "with claimed(Path(sys.argv[1]), force=False): os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    path = tmp_path / "out"
    done = subprocess.run([sys.executable, "-c", code, str(path)], check=False)
    assert done.returncode == -signal.SIGKILL
    with claimed(path, force=False):
        write_text(path, "new")
    assert list(tmp_path.iterdir()) == [path]


def test_output_that_cannot_be_written_is_refused_before_the_work(tmp_path):
    path = tmp_path / "out"
    path.touch()
    require_free(path, force=True)
    for place, force, word in (
        (path, False, "exists"),
        (tmp_path, True, "folder"),
        (path / "out", False, "cannot write"),
    ):
        with pytest.raises(InputError, match=word):
            require_free(place, force=force)


def test_folders_are_made_only_for_what_is_written(tmp_path):
    out = tmp_path / "a" / "b" / "out"
    require_free(out, force=False)
    assert not (tmp_path / "a").exists()  # that was only a look
    for write in (claimed(out, force=False), whole_file(out)):
        with pytest.raises(ZeroDivisionError), write:
            1 / len([*out.parent.glob("no file")])
        assert not (tmp_path / "a").exists()
    with claimed(out, force=False):
        write_text(out, "new")
    assert list(out.parent.iterdir()) == [out]


def test_folder_with_something_in_it_stays_after_a_refusal(tmp_path):
    out = tmp_path / "a" / "b" / "out"
    claim = claimed(out, force=False)
    claim.__enter__()
    write_text(out.with_name("details"), "kept")
    assert not claim.__exit__(InputError, InputError("refused"), None)
    assert list(out.parent.iterdir()) == [out.with_name("details")]


@pytest.mark.parametrize("name", ["out", "folder/../out", "link", "linked/out", "hard", "loop"])
def test_file_under_two_names_is_refused(tmp_path, name):
    out = tmp_path / "out"
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to(out)
    (tmp_path / "linked").symlink_to(tmp_path)
    (tmp_path / "loop").symlink_to(tmp_path / "pool")
    (tmp_path / "pool").symlink_to(tmp_path / "loop")
    out.touch()
    (tmp_path / "hard").hardlink_to(out)
    first = tmp_path / name if name == "loop" else out
    with pytest.raises(InputError, match=f"{first.name}: is named twice"):
        require_distinct(first, tmp_path / "other", tmp_path / name)
    with pytest.raises(InputError, match="is named twice"):
        require_free(first, tmp_path / name, force=True)
    require_distinct(first, tmp_path / "other", tmp_path / "none")

import errno
import os
import signal
import subprocess
import sys

import pytest

from synthfair.errors import InputError
from synthfair.files import claimed, require_distinct, require_free, whole_file, write_text


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path, error):
    path = tmp_path / "out.txt"
    path.write_text("old")
    with pytest.raises(error), whole_file(path) as temporary:  # noqa: PT012
        temporary.write_text("half")
        raise error
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_file_is_ordinary(tmp_path):
    write_text(tmp_path / "one", "é")
    (tmp_path / "two").write_text("é", encoding="utf-8")
    one, two = (tmp_path / name for name in ("one", "two"))
    assert one.read_bytes() == two.read_bytes()
    assert one.stat().st_mode == two.stat().st_mode


def make_link(path):
    (path.parent / "target").write_text("old")
    path.symlink_to(path.parent / "target")


def make_broken_link(path):
    path.symlink_to(path.parent / "nowhere")


@pytest.mark.parametrize("make", [make_link, make_broken_link, os.mkfifo])
@pytest.mark.parametrize("force", [True, False])
def test_only_regular_files_are_replaced(tmp_path, make, force):
    """Neither asked for before the work, nor where one turns up while it is done."""
    path = tmp_path / "out"
    make(path)
    there = sorted(tmp_path.iterdir())
    before = [file.lstat() for file in there]
    with pytest.raises(InputError, match="out: is not a regular file"):
        require_free(path, force=force)
    with pytest.raises(InputError, match="out: is not a regular file"):
        write_text(path, "new")
    assert sorted(tmp_path.iterdir()) == there
    after = [file.lstat() for file in there]
    assert [(s.st_ino, s.st_mode, s.st_size) for s in after] == [
        (s.st_ino, s.st_mode, s.st_size) for s in before
    ]


def test_a_full_disk_names_the_file(tmp_path):
    path = tmp_path / "out"
    with pytest.raises(OSError, match="No space") as caught, whole_file(path):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    assert caught.value.filename == str(path)


@pytest.mark.parametrize("force", [True, False])
def test_an_output_is_claimed_by_one_run(tmp_path, force):
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


def test_an_output_that_a_run_has_just_written_is_not_lost(tmp_path, monkeypatch):
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


def test_a_killed_run_hinders_nobody(tmp_path):
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


def test_existing_output_needs_force(tmp_path):
    path = tmp_path / "out"
    path.touch()
    with pytest.raises(InputError, match="exists.*force = true"):
        require_free(path, force=False)
    require_free(path, force=True)


def test_a_folder_is_no_file(tmp_path):
    with pytest.raises(InputError, match="is a folder"):
        require_free(tmp_path, force=True)


def test_unwritable_folder(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match="cannot write here"):
        require_free(tmp_path / "file" / "out", force=False)


def test_missing_folders_are_made(tmp_path):
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


def test_a_folder_with_something_in_it_stays_after_a_refusal(tmp_path):
    out = tmp_path / "a" / "b" / "out"
    claim = claimed(out, force=False)
    claim.__enter__()
    write_text(out.with_name("details"), "kept")
    assert not claim.__exit__(InputError, InputError("refused"), None)
    assert list(out.parent.iterdir()) == [out.with_name("details")]


@pytest.mark.parametrize("exists", [True, False])
@pytest.mark.parametrize("name", ["out", "folder/../out", "link", "linked/out"])
def test_one_file_under_two_names(tmp_path, name, exists):
    out = tmp_path / "out"
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to(out)
    (tmp_path / "linked").symlink_to(tmp_path)
    (tmp_path / "other").touch()
    if exists:
        out.touch()
    with pytest.raises(InputError, match="out: is named twice"):
        require_distinct(out, tmp_path / "other", tmp_path / name)
    require_distinct(out, tmp_path / "other", tmp_path / "none")


def test_links_that_form_a_loop_are_no_file(tmp_path):
    for here, there in ("ab", "ba"):
        (tmp_path / here).symlink_to(tmp_path / there)
    require_distinct(tmp_path / "out", tmp_path / "a")
    with pytest.raises(InputError, match="a: is named twice"):
        require_distinct(tmp_path / "a", tmp_path / "a")


def test_a_hard_link_is_the_same_file(tmp_path):
    (tmp_path / "out").touch()
    (tmp_path / "hard").hardlink_to(tmp_path / "out")
    with pytest.raises(InputError, match="is named twice"):
        require_distinct(tmp_path / "out", tmp_path / "hard")

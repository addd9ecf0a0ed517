import pytest

from synthfair.errors import InputError
from synthfair.files import require_distinct, require_free, whole_file, write_text


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


def test_a_link_to_nowhere_needs_force(tmp_path):
    path = tmp_path / "out"
    path.symlink_to(tmp_path / "nowhere")
    with pytest.raises(InputError, match="exists.*--force"):
        require_free(path, force=False)


def test_existing_output_needs_force(tmp_path):
    path = tmp_path / "out"
    path.touch()
    with pytest.raises(InputError, match="exists.*--force"):
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
    require_free(tmp_path / "a" / "b" / "out", force=False)
    assert (tmp_path / "a" / "b").is_dir()


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


def test_a_hard_link_is_the_same_file(tmp_path):
    (tmp_path / "out").touch()
    (tmp_path / "hard").hardlink_to(tmp_path / "out")
    with pytest.raises(InputError, match="is named twice"):
        require_distinct(tmp_path / "out", tmp_path / "hard")

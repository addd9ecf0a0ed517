"""Unfair FEMNIST: its images, against naive rewrites."""

import numpy as np
import pytest

from benchmarks import digits, femnist_fpfl
from benchmarks.digits import (
    SOURCE,
    distinct,
    group_of_writer,
    on_blackboard,
    painted,
    unfair_digits,
)
from synthfair.data.datasets import DATA_VARIABLE, find_file
from synthfair.errors import InputError


def blurred(image, sigma):
    """Convolution with a Gaussian kernel, entry by entry, of an image mirrored at its edges."""
    radius = 4 * sigma
    steps = np.arange(-radius, radius + 1)
    kernel = np.exp(-(steps[:, None] ** 2 + steps**2) / (2 * sigma**2))
    kernel /= kernel.sum()
    padded = np.pad(image, radius, mode="symmetric")
    windows = np.lib.stride_tricks.sliding_window_view(padded, kernel.shape)
    return np.einsum("ijkl,kl->ij", windows, kernel)


def test_chalk_is_equation_19():
    paper = np.random.default_rng(1).random((2, 28, 28))
    found = on_blackboard(paper, np.random.default_rng(0))
    noise = np.random.default_rng(0).standard_normal((2, 28, 28))
    for image, white, xi in zip(found, 1 - paper, noise, strict=True):
        smeared = blurred(white + blurred(xi, 2), 1)
        assert image[27 - 5, 3] == pytest.approx(smeared[3, 5])  # right becomes top
        np.testing.assert_allclose(image, np.rot90(smeared), atol=1e-12)


def test_ink_is_black_or_blue_and_paper_white():
    paper = np.ones((2, 28, 28), np.float32)
    paper[:, 4, 7] = 0
    black, blue = painted(paper, np.array([0, 1]), np.random.default_rng(0))
    assert list(black[:, 4, 7]) == [0, 0, 0]
    assert list(blue[:, 4, 7]) == [0, 0, 1]
    assert (black[:, 5] == 1).all()
    assert (blue[:, 5] == 1).all()


def test_of_equal_images_of_a_writer_one_for_training_is_kept():
    x = np.array([[1], [1], [2], [2], [3], [1]], np.uint8)
    writers = np.array([0, 0, 0, 0, 0, 1])
    is_test = np.array([True, False, False, False, True, True])
    assert list(distinct(x, writers, is_test)) == [1, 2, 4, 5]


def test_groups_have_the_published_sizes():
    assert list(np.bincount(group_of_writer(3_383))) == [1_522, 1_522, 339]


@pytest.mark.slow
@pytest.mark.usefixtures("public_tables")
def test_the_file_has_65_repeated_images():
    digits = unfair_digits(seed=0)
    with np.load(find_file(SOURCE), allow_pickle=False) as file:
        x, writer, is_test = file["x"], file["writer"], file["is_test"]
    keys = [(w, image.tobytes()) for w, image in zip(writer, x, strict=True)]
    train = {key for key, test in zip(keys, is_test, strict=True) if not test}
    test = {key for key, test in zip(keys, is_test, strict=True) if test}
    assert (len(keys), len(train | test), len(train & test)) == (21_999, 21_934, 19)
    assert len({image for _, image in train | test}) == 21_934  # no image has two writers
    assert (~digits.is_test).sum() == len(train)
    assert digits.is_test.sum() == len(test - train)
    writers = np.unique(np.column_stack([digits.writers, digits.groups]), axis=0)
    assert list(writers[:, 0]) == list(range(201))
    assert list(np.bincount(writers[:, 1])) == [90, 90, 21]
    most = np.bincount(digits.labels[~digits.is_test]).argmax()
    assert np.mean(digits.labels[digits.is_test] == most) == femnist_fpfl.CONSTANT


@pytest.fixture
def invented(tmp_path, monkeypatch):
    """Digits of a file of twenty writers with fifty images each."""
    rng = np.random.default_rng(0)
    path, writer = tmp_path / SOURCE.file, np.repeat(np.arange(20), 50)
    np.savez(
        path,
        x=rng.integers(256, size=(1000, 784)).astype(np.uint8),
        y=rng.integers(10, size=1000),
        writer=writer,
        writer_ids=np.array([f"f{i:02}" for i in range(20)]),
        is_test=rng.random(1000) < 0.1,
    )
    monkeypatch.setattr(digits, "find_file", lambda source: path)
    return unfair_digits(seed=0)


def test_writers_lie_in_one_group_each(invented):
    pairs = np.unique(np.column_stack([invented.writers, invented.groups]), axis=0)
    assert list(pairs[:, 0]) == list(range(20))
    assert list(np.bincount(pairs[:, 1])) == [9, 9, 2]
    assert (np.diff(pairs[:, 1]) >= 0).all()
    assert set(invented.labels) == set(range(10))


def test_images_are_float32_and_only_chalk_leaves_the_range(invented):
    assert invented.images.shape == (1000, 3, 28, 28)
    assert invented.images.dtype == np.float32
    pens, chalk = invented.images[invented.groups < 2], invented.images[invented.groups == 2]
    assert (pens.min(), pens.max()) == (0, 1)
    assert chalk.min() < 0


def test_the_seed_decides_the_noise_and_nothing_else():
    paper, groups = np.random.default_rng(1).random((6, 28, 28), np.float32), np.arange(6) % 3
    one, again, other = (painted(paper, groups, np.random.default_rng(i)) for i in (0, 0, 1))
    assert (again == one).all()
    assert ((other != one).any(axis=(1, 2, 3)) == (groups == 2)).all()


def test_another_file_is_refused(tmp_path, monkeypatch):
    (tmp_path / SOURCE.file).write_bytes(b"PK")
    monkeypatch.setenv(DATA_VARIABLE, str(tmp_path))
    with pytest.raises(
        InputError, match=f"{SOURCE.file}: its sha256 is .* must be {SOURCE.sha256}"
    ):
        unfair_digits(seed=0)

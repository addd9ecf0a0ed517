"""The digits of FEMNIST by writer, changed into the three groups of "unfair FEMNIST".

Rodríguez-Gálvez, Granqvist, van Dalen and Seigel (2021), section 4.2. They had 3,383 writers; the
file at hand has 201, so orderings can be reproduced, and no digits after the point.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.ndimage import gaussian_filter

from synthfair.data.datasets import Source, find_file

SOURCE = Source(
    "femnist_digits_by_writer.npz",
    "67986194a53f2668e7d6df5147114e9a4d4f2a7ab61d8026b2041f1e20ace22f",
)
"""Made of public LEAF samples, with no address of its own: it lies in the folder SYNTHFAIR_DATA."""

GROUPS = ("black pen", "blue pen", "chalk")


class Digits(NamedTuple):
    """N images.

    Attributes:
        images: float32 [N, 3, 28, 28], red, green and blue. Of pens in [0, 1]; of chalk with noise,
            which leaves that range and is not cut off, because equation (19) does not.
        labels: int [N], the digit.
        groups: int [N], index into GROUPS.
        writers: int [N], 0, 1, ... in lexicographic order of the writers' names.
        is_test: bool [N], the split of LEAF.
    """

    images: np.ndarray
    labels: np.ndarray
    groups: np.ndarray
    writers: np.ndarray
    is_test: np.ndarray


def unfair_digits(seed: int) -> Digits:
    """Return the 21,934 distinct digits of 201 writers: 90 with a black pen, 90 blue, 21 chalk.

    The file has 21,999. Dropped are 46 that repeat another of the same writer and part, and 19 of
    the test part that are in the same writer's training part too.

    Args:
        seed: at least 0; of the noise behind the chalk.

    Raises:
        synthfair.InputError: the file is not at hand, or is another one.
    """
    with np.load(find_file(SOURCE), allow_pickle=False) as file:
        x, y, names = file["x"], file["y"], file["writer_ids"][file["writer"]]
        is_test = file["is_test"]
    present, writers = np.unique(names, return_inverse=True)  # six names have no digit left
    chosen = distinct(x, writers, is_test)
    groups = group_of_writer(len(present))[writers[chosen]]
    paper = (x[chosen].reshape(-1, 28, 28) / 255).astype(np.float32)
    images = painted(paper, groups, np.random.default_rng(seed))
    return Digits(images, y[chosen].astype(int), groups, writers[chosen], is_test[chosen])


def distinct(x: np.ndarray, writers: np.ndarray, is_test: np.ndarray) -> np.ndarray:
    """Return ascending indices that keep one of each writer's equal images, a training one if any.

    Args:
        x: uint8 [N, pixels].
        writers: int [N].
        is_test: bool [N].
    """
    training_first = np.argsort(is_test, kind="stable")
    rows = np.column_stack([writers, x])[training_first]
    _, first = np.unique(rows, axis=0, return_index=True)
    return np.sort(training_first[first])


def group_of_writer(n_writers: int) -> np.ndarray:
    """[n_writers] group index: the first 45 % of the writers, the next 45 %, and the rest."""
    pens = n_writers * 45 // 100
    return np.digitize(np.arange(n_writers), [pens, 2 * pens])


def painted(paper: np.ndarray, groups: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """float32 [N, 3, 28, 28]: images in the colours of their groups.

    Args:
        paper: float32 [N, 28, 28], 0 where there is ink and 1 where there is none.
        groups: int [N].
        rng: of the noise.
    """
    black, blue, chalk = (groups == i for i in range(len(GROUPS)))
    images = np.empty((len(paper), 3, 28, 28), np.float32)
    images[black] = paper[black][:, None]
    images[blue] = paper[blue][:, None]
    images[blue, 2] = 1  # full blue on paper and in ink, whose red and green stay 0
    images[chalk] = on_blackboard(paper[chalk], rng)[:, None]
    return images


def on_blackboard(paper: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """[N, 28, 28] white on black: ((1 - paper) + noise * k_2) * k_1, turned by 90 degrees.

    k_1 and k_2 are Gaussian kernels of standard deviation 1 and 2, noise is standard normal, and
    * is convolution: equation (19). The paper does not say which way it turned; this is
    counterclockwise. One grey noise for the three colours, as on a blackboard.
    """
    noise = gaussian_filter(rng.standard_normal(paper.shape), (0, 2, 2))
    smeared = gaussian_filter((1 - paper) + noise, (0, 1, 1))
    return np.rot90(smeared, axes=(1, 2))

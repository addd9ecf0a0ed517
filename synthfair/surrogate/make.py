"""From a client's rows to its surrogate: what is asked of the rows, and the records of the answers.

    histograms    of each column, at fine public levels; of them, coarse levels of about equal mass
    moments       first and second ones of the numbers
    pairs         two-way tables on the edges of a tree over columns
    anchors       smooth rates of models of random fair problems on records that are drawn so far

each by cell, which is a pair of group and label. Records are then drawn through the tree, and their
weights tilted until moments and rates agree, too. How wide the encoding of the columns is does not
matter.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Generator, Mapping, Sequence
from itertools import combinations
from typing import NamedTuple

import numpy as np

from synthfair.config import SurrogateConfig
from synthfair.data.batches import Batches
from synthfair.data.encode import Encoded, encode_records
from synthfair.data.schema import Schema, shown
from synthfair.errors import InputError
from synthfair.privacy.mechanism import NoisySum, PrivateChoice, SumName, require_float64
from synthfair.privacy.noise import RandomBytes, system_entropy
from synthfair.privacy.statement import PRIVATE_PROBLEMS, make_guarantee
from synthfair.surrogate.anchors import self_play, smooth_rates
from synthfair.surrogate.levels import Columns
from synthfair.surrogate.marginals import (
    Edges,
    Margins,
    associations,
    chow_liu,
    draw,
    expected,
    make_margins,
    rounded,
)
from synthfair.surrogate.tilt import tilted, variance_of

PROBLEMS = 60
"""Random fair problems of a surrogate without epsilon."""

RARE = 5.0
"""Without epsilon, all sums are rounded to multiples of this many rows: statistical offices round
tables of frequencies so (Hundepool et al. 2012, *Statistical Disclosure Control*, chapter 5)."""

GRID = 2.0**-20
"""Of numbers that are summed without noise, so that no bit tells in which order rows came."""

LEAST_WEIGHT = 1e-6
"""Of a record; others are left out."""

REMEDIES = (
    "Lower k_min (--k-min, at least 5; it is published), make one release of your rows and another"
    " organisation's, or merge small groups (in the schema, by 'unlisted')"
)
"""What a client can do whose pairs of group and label have too few rows."""


class Sums(NamedTuple):
    """All that is read of the rows: exact, and then private; or with noise.

    Attributes:
        histograms: [2 G, L] numbers of rows of each cell in each level of each column.
        moments: [2 G, m] sums of z_i z_j, i <= j, and of z, of the numbers z in [-1/2, 1/2].
        edges: [p - 1, 2] columns of the tree's edges.
        pairs: flat, of each edge [C, K_i, K_j] numbers of rows of the C cells that are large.
        thetas: [Q, n] models; computed from records, not from rows.
        rates: [C, 2 Q] sums of sigma(q theta'a) - 1/2, for q = 1 and 4.
    """

    histograms: np.ndarray
    moments: np.ndarray
    edges: np.ndarray
    pairs: np.ndarray
    thetas: np.ndarray
    rates: np.ndarray


class Question(NamedTuple):
    """A sum over rows that is asked for.

    Attributes:
        name: of the sum.
        length: number of its entries.
        of: of a batch of rows, their numbers [N, k] and the entry at which each row's begin [N];
            None of a row that adds nothing.
    """

    name: SumName
    length: int
    of: Callable[[Encoded], tuple[np.ndarray, np.ndarray]]


Errors = Mapping[SumName, float]
"""Standard deviation of the error in each entry of a sum."""

ROUNDING: Errors = dict.fromkeys(
    ("histograms", "column_moments", "pairs", "anchors"), RARE / 12**0.5
)

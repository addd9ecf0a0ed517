"""Weights of rows by group and label, from counts that may have noise in them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import numpy as np
from pydantic import Field, model_validator

from synthfair.files import read_as, write_json
from synthfair.postprocess.histogram import Origin, ScoreHistogram, require_rows
from synthfair.settings import Checked, WeightMethod

MAX_BYTES = 10_000_000
"""The largest size of a file that is read."""

_Weight = Annotated[float, Field(gt=0)]
_Pair = Annotated[tuple[_Weight, _Weight], Field(strict=False)]


class RowWeights(Checked):
    """Factors of the loss of a row in training, by its group and label.

    Attributes:
        schema_hash: of the tables.
        groups: their names, in the schema's order.
        method: by which they were made.
        weights: [G, 2] of label -1 and +1, positive.
        origin: of the counts they were made of; None without noise.

    Raises:
        ValueError: another number of groups.
    """

    format: Literal["synthfair-weights/1"] = "synthfair-weights/1"
    schema_hash: str = Field(pattern=r"^[0-9a-f]{64}$")
    groups: tuple[str, ...] = Field(strict=False, min_length=2)
    method: WeightMethod
    weights: tuple[_Pair, ...] = Field(strict=False)
    origin: Origin | None = None

    @model_validator(mode="after")
    def _shape(self) -> RowWeights:
        if len(self.weights) != len(self.groups):
            raise ValueError("weights must be [groups][2 labels]")
        return self

    def array(self) -> np.ndarray:
        """The weights as an array [G, 2]."""
        return np.asarray(self.weights)


def make_weights(histogram: ScoreHistogram, method: WeightMethod) -> RowWeights:
    """PrivFairFL-Pre: weights from counts C(s, y) of rows over all clients.

        published        W(s, y) = N / (2 G C(s, y))        Pentyala et al. (2022), protocol 2
        kamiran_calders  W(s, y) = N_s N_y / (N C(s, y))    Kamiran and Calders (2012), algorithm 3

    With G = 2 groups the first has N / (4 C), as printed: all pairs of group and label weigh the
    same in all. The second leaves groups and labels their weight and makes them independent. With
    either, the weights of all rows counted sum to N.

    Guarantee: that of the histogram, as nothing else of the rows is read.

    Args:
        histogram: of one bin or more, whose sums are taken.
        method: one of the two.

    Raises:
        InputError: a count that does not stand out from its noise, see
            :func:`synthfair.postprocess.histogram.require_rows`.

    Example:
        >>> import synthfair as sf
        >>> counts = sf.postprocess.ScoreHistogram(
        ...     schema_hash="0" * 64, model=None, groups=("f", "m"),
        ...     counts=(((30,), (10,)), ((20,), (40,))),
        ... )
        >>> sf.postprocess.make_weights(counts, "published").array().round(2).tolist()
        [[0.83, 2.5], [1.25, 0.62]]
        >>> sf.postprocess.make_weights(counts, "kamiran_calders").array().round(2).tolist()
        [[0.67, 2.0], [1.5, 0.75]]
    """
    require_rows(histogram, ((0,), (1,)))
    rows = histogram.array().sum(axis=2).astype(float)
    by_group, by_label = rows.sum(axis=1, keepdims=True), rows.sum(axis=0)
    targets = {
        "published": np.full(rows.shape, rows.sum() / rows.size),
        "kamiran_calders": by_group * by_label / rows.sum(),
    }[method]
    return RowWeights(
        schema_hash=histogram.schema_hash,
        groups=histogram.groups,
        method=method,
        weights=(targets / rows).tolist(),
        origin=histogram.origin,
    )


def write_weights(weights: RowWeights, path: Path) -> None:
    """Writes the weights as JSON, whole or not at all."""
    write_json(path, weights.model_dump(mode="json"))


def read_weights(path: Path) -> RowWeights:
    """Reads a file that :func:`write_weights` wrote.

    Raises:
        InputError: unreadable, larger than MAX_BYTES, or not weights; the message names the entry.
    """
    return read_as(path, RowWeights, MAX_BYTES)

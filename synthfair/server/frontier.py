"""frontier.csv: accuracy and gap over the weight of a server's penalty."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, NamedTuple

from pydantic import Field, TypeAdapter, ValidationError

from synthfair.errors import InputError, reason, refusal
from synthfair.files import open_file, write_text
from synthfair.settings import STRICT, Share

FRONTIER = "frontier.csv"
"""The name of the file in a run's folder."""

MOST_LINES = 10_000
"""The most lines of a frontier that is read."""

_Known = Annotated[float, Field(ge=0, le=1)]


class FrontierLine(NamedTuple):
    """A line of frontier.csv; not-a-number on test rows where there are none.

    Attributes:
        rho: weight of the penalty.
        accuracy: on the pooled rows of the surrogates, by their weights.
        gap: largest difference between the groups' decision rates there.
        test_accuracy: on the test rows.
        test_gap: there.
        converged: 1 where the model's training met its tolerance, else 0.
    """

    rho: Annotated[float, Field(ge=0, le=1e12)]
    accuracy: _Known
    gap: Share
    test_accuracy: Share
    test_gap: Share
    converged: _Known


def write_frontier(lines: Sequence[FrontierLine], path: Path) -> None:
    """Write a frontier.csv, whole or not at all."""
    import pandas as pd

    text = pd.DataFrame(lines).to_csv(index=False, float_format="%.6g", lineterminator="\n")
    write_text(path, text)


def read_frontier(path: Path) -> tuple[FrontierLine, ...]:
    """Return the lines of a frontier.csv.

    Raises:
        InputError: unreadable, other columns, a number out of range, no lines or too many.
    """
    import pandas as pd

    lines = Annotated[tuple[FrontierLine, ...], Field(min_length=1, max_length=MOST_LINES)]
    try:
        with open_file(path) as file:
            table = pd.read_csv(file, index_col=False, nrows=MOST_LINES + 1)
        records = tuple(table.to_dict("records"))
        return TypeAdapter(lines, config=STRICT).validate_python(records)
    except ValidationError as error:
        raise refusal(str(path), error) from error
    except (OSError, ValueError) as error:
        raise InputError(f"{path}: not a frontier: {reason(error)}") from error

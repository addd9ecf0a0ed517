"""A release file as a table on a terminal; whatever it holds, only printable text is shown."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from rich.table import Table
from rich.text import Text

from synthfair.config import changed_settings
from synthfair.release.format import Release
from synthfair.release.inspection import Inspection
from synthfair.report.privacy import statement_lines
from synthfair.report.results import shown

MOST_COLUMNS = 100
"""Columns whose range is shown by itself."""


def inspection_table(found: Inspection) -> Table:
    """All that a release file holds and claims, and what does not fit."""
    table = Table(show_header=False, box=None)
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in _lines(found):
        table.add_row(Text(shown(name)), Text(shown(value)))
    return table


def _lines(found: Inspection) -> Iterator[tuple[str, str]]:
    release, header = found.release, found.release.header
    yield "file", f"{found.path} ({found.size:,} bytes)"
    yield "sha256", found.sha256
    yield "format", f"{header.format}, written by synthfair {header.version}"
    yield "content", f"unaltered, sha256 {found.signature.sha256}"
    yield "signature", _signature(found)
    fits = {None: "", True: "; fits the schema given", False: "; DOES NOT FIT the schema given"}
    yield "schema", header.schema_hash + fits[found.fits]
    yield "rows", f"{release.x.shape[0]} x {release.x.shape[1]} features, s, y"
    yield from (("pairs", line) for line in _pairs(release))
    yield from (("range", line) for line in _ranges(release))
    yield "model", header.model
    yield "penalty", header.penalty
    settings = changed_settings(header.config)
    for key, value in settings.items():
        yield "setting", f"{key} = {value}"
    if not settings:
        yield "settings", "all the defaults"
    yield from statement_lines(header.privacy)
    yield from (("DOES NOT FIT", problem) for problem in found.problems)


def _signature(found: Inspection) -> str:
    key = found.signature.public_key
    if key is None:
        return "none: anybody may have written this"
    if found.client is not None:
        return f"valid, by {found.client!r}, key {key}"
    return f"valid, by somebody unknown here, key {key}"


def _pairs(release: Release) -> Iterator[str]:
    pairs, counts = np.unique(np.stack([release.s, release.y]), axis=1, return_counts=True)
    for (s, y), count in zip(pairs.T, counts, strict=True):
        yield f"s = {s:.0f}, y = {y:+.0f}: {count} rows"


def _ranges(release: Release) -> Iterator[str]:
    low, high = release.x.min(axis=0), release.x.max(axis=0)
    for i, name in enumerate(release.names[:MOST_COLUMNS]):
        yield f"{name}: {low[i]:.4g} to {high[i]:.4g}"
    rest = len(release.names) - MOST_COLUMNS
    if rest > 0:
        least, most = low[MOST_COLUMNS:].min(), high[MOST_COLUMNS:].max()
        yield f"{rest} more columns: {least:.4g} to {most:.4g}"

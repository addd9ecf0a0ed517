"""One schema of several sites' drafts."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

from pydantic import ConfigDict, Field, ValidationError

from synthfair.data.draft import CODES_QUESTION, round_bounds
from synthfair.data.schema import (
    MAX_COLUMNS,
    MAX_SCHEMA_BYTES,
    Categorical,
    Numeric,
    Schema,
    Value,
    document_differences,
    shown,
)
from synthfair.errors import InputError, refusal
from synthfair.files import parse_as, parse_json, read_bytes
from synthfair.settings import Checked

ROLES = "label", "positive", "sensitive"

Document = Mapping[str, Any]
"""A schema, or a draft of one, as JSON."""


class DraftedCategorical(Categorical):
    """A column of a site where one category alone may occur."""

    categories: tuple[Value, ...] = Field(min_length=1, max_length=MAX_COLUMNS, strict=False)


class DraftFile(Checked):
    """A schema, or a draft of one whose attribute may have one group alone."""

    model_config = ConfigDict(extra="allow")

    label: str
    positive: Any
    sensitive: Any
    columns: dict[str, Annotated[Numeric | DraftedCategorical, Field(discriminator="kind")]]
    ignored: tuple[str, ...] = Field((), strict=False)
    missing_values: tuple[str, ...] = Field((), strict=False)


def read_draft(path: Path) -> dict[str, Any]:
    """Return a site's schema, or draft, as JSON. Raises InputError: unreadable, or not like one."""
    content = read_bytes(path, MAX_SCHEMA_BYTES)
    parse_as(content, DraftFile, str(path))
    return parse_json(content, str(path))


def merge_schemas(documents: Mapping[str, Document]) -> tuple[dict[str, Any], Schema]:
    """Return the document that all sites' tables fit, a draft where they differ, and its schema.

    A categorical column has all sites' categories. A column of numbers has the lowest lower and the
    highest upper bound, rounded outwards, and of bases the one with fewest steps. A column that a
    site ignores, as it is constant there, is kept; one that a site does not have is ignored.

    Args:
        documents: by site.

    Raises:
        InputError: label, positive or sensitive attribute differ, a column holds numbers at one
            site and texts at another, or the result is no schema; the message names the site.

    Example:
        >>> from synthfair.data.datasets import dataset_schema
        >>> document = dataset_schema("loanapp").document
        >>> merged, schema = merge_schemas({"a": document, "b": document})
        >>> schema.hash == dataset_schema("loanapp").hash
        True
    """
    (first, one), *others = documents.items()
    for role in ROLES:
        for site, document in others:
            if document[role] != one[role]:
                raise InputError(
                    f"{site}: {role} {document[role]!r}; must be {one[role]!r}, as in {first}"
                )
    columns, lacking, questions = {}, {}, {}
    for name in dict.fromkeys(
        name for document in documents.values() for name in document["columns"]
    ):
        entries = {s: d["columns"][name] for s, d in documents.items() if name in d["columns"]}
        without = [s for s, d in documents.items() if s not in entries and name not in _ignored(d)]
        if without:
            lacking[name] = questions[name] = f"ignored: not in {shown(without)}"
            continue
        columns[name] = _merged(name, entries)
        if different := [s for s, entry in entries.items() if entry != columns[name]]:
            is_both = len({entry["kind"] for entry in entries.values()}) > 1
            cause = CODES_QUESTION if is_both else "values of all sites"
            questions[f"columns.{name}"] = f"{cause} (other in {shown(different)})"
    ignored = [name for document in documents.values() for name in _ignored(document)]
    words = dict.fromkeys(w for d in documents.values() for w in d.get("missing_values", ()))
    merged = {key: value for key, value in one.items() if key != "draft"} | {
        "columns": columns,
        "ignored": [name for name in dict.fromkeys([*ignored, *lacking]) if name not in columns],
        **({"missing_values": [*words]} if words else {}),
    }
    try:
        schema = Schema.model_validate_json(json.dumps(merged))
    except ValidationError as error:
        raise refusal("the merged schema", error) from error
    return {"draft": {"to_review": questions}} | merged if questions else merged, schema


def changes(document: Document, merged: Document) -> list[str]:
    """Return the differences of a merged document from a site's, a line each."""
    return document_differences(document, merged, ("here", "in all"))


def _ignored(document: Document) -> list[str]:
    return document.get("ignored", [])


def _merged(name: str, entries: Mapping[str, dict[str, Any]]) -> dict[str, Any]:
    """Return the entry of a column that fits all sites."""
    given = list(entries.values())
    if all(entry == given[0] for entry in given):
        return given[0]
    merged = {key: value for entry in reversed(given) for key, value in entry.items()}
    allows = {"missing": "category", "out_of_range": "clip"}
    merged |= {k: v for k, v in allows.items() if v in [entry.get(k) for entry in given]}
    values = [v for entry in given for v in entry.get("categories", ())]
    numeric = [entry for entry in given if entry["kind"] == "numeric"]
    if not numeric:
        is_text = any(isinstance(v, str) for v in values)
        if is_text and not all(isinstance(v, str) for v in values):
            values = [str(v) for v in values]
        last = merged.get("unlisted")
        listed = sorted({*values} - {last}) + [last] * (last is not None)
        return merged | {"kind": "categorical", "categories": listed}
    if any(isinstance(v, str) for v in values):
        texts = next(site for site, entry in entries.items() if entry["kind"] != "numeric")
        raise InputError(f"{texts}: column {name!r}: texts, where other sites have numbers")
    bounds = {(entry["lower"], entry["upper"]) for entry in numeric}
    low = min([*values, *(entry["lower"] for entry in numeric)])
    high = max([*values, *(entry["upper"] for entry in numeric)])
    lower, upper = (low, high) if (low, high) in bounds else round_bounds(low, high)
    merged |= {"kind": "numeric", "lower": lower, "upper": upper}
    bases = [entry["basis"] for entry in numeric if entry.get("basis")]
    if bases:
        coarse = min(bases, key=lambda basis: len(basis.get("knots") or basis["edges"]))
        if "knots" in coarse:
            coarse = coarse | {"knots": [lower, *coarse["knots"][1:-1], upper]}
        merged["basis"] = coarse
    return {key: value for key, value in merged.items() if key in Numeric.model_fields}

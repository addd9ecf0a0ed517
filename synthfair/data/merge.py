"""One schema of several sites' drafts."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

from pydantic import ConfigDict, Field

from synthfair.data.draft import CODES_QUESTION, round_bounds
from synthfair.data.schema import (
    MAX_COLUMNS,
    MAX_SCHEMA_BYTES,
    MISSING_VALUES,
    Categorical,
    Numeric,
    Schema,
    Value,
    parse_schema,
    shown,
)
from synthfair.errors import InputError
from synthfair.files import parse_as, parse_json, read_bytes
from synthfair.settings import Checked

ROLES = "label", "positive", "sensitive"


class DraftedCategorical(Categorical):
    """A column of a site where one category alone may occur."""

    categories: tuple[Value, ...] = Field(min_length=1, max_length=MAX_COLUMNS, strict=False)


class DraftBlock(Checked):
    """The block of a draft that says what is open, by key."""

    warning: str = ""
    to_review: dict[str, str] = Field(default_factory=dict)


class DraftFile(Checked):
    """A schema, or a draft of one whose attribute may have one group alone."""

    model_config = ConfigDict(extra="allow")

    label: str
    positive: Any
    sensitive: Any
    columns: dict[str, Annotated[Numeric | DraftedCategorical, Field(discriminator="kind")]]
    ignored: tuple[str, ...] = Field((), strict=False)
    missing_values: tuple[str, ...] = Field(MISSING_VALUES, strict=False)
    draft: DraftBlock = DraftBlock()


def read_draft(path: Path) -> dict[str, Any]:
    """Return a site's schema, or draft, as JSON. Raises InputError: unreadable, or not like one."""
    content = read_bytes(path, MAX_SCHEMA_BYTES)
    draft = parse_as(content, DraftFile, str(path))
    lists = {"ignored": [*draft.ignored], "missing_values": [*draft.missing_values]}
    return parse_json(content, str(path)) | lists


def merge_schemas(documents: Mapping[str, dict[str, Any]]) -> tuple[dict[str, Any], Schema]:
    """Return the document that all sites' tables fit, and its schema.

    The document is a draft if one of the sites' is, or is not the same as the result. The schema
    does not depend on the order of the sites, nor on their names.

    A categorical column has all sites' categories. A column of numbers has the lowest lower and the
    highest upper bound, rounded outwards, and of bases the one with fewest steps. A column that
    some sites ignore and the others use is used; one that a site does not have is ignored.

    Args:
        documents: by site, as :func:`read_draft` returns them.

    Raises:
        InputError: label, positive or sensitive attribute, or bins or shares of a column differ, a
            column holds numbers at one site and texts at another, or the result is no schema; the
            message names the site.

    Example:
        >>> from synthfair.data.datasets import dataset_schema
        >>> document = dataset_schema("loanapp").document
        >>> merged, schema = merge_schemas({"a": document, "b": document})
        >>> schema.hash == dataset_schema("loanapp").hash
        True
    """
    first, *others = documents
    for role, site in [(role, site) for role in ROLES for site in others]:
        want, has = (v if isinstance(v := documents[s][role], list) else [v] for s in (first, site))
        if has != want:
            raise InputError(f"{site}: {role} {shown(has)}; must be {shown(want)}, as in {first}")
    contents = {s: {k: v for k, v in d.items() if k != "draft"} for s, d in documents.items()}
    contents = dict(sorted(contents.items(), key=lambda item: json.dumps(item[::-1])))
    given = list(contents.values())
    merged = given[0] | {k: v for content in given[::-1] for k, v in content.items()}
    # A list of one value means the same as the value, which comes before it here.
    merged |= {role: min((content[role] for content in given), key=json.dumps) for role in ROLES}
    columns, causes = {}, {}
    for name in dict.fromkeys(name for content in given for name in content["columns"]):
        entries = {s: d["columns"][name] for s, d in contents.items() if name in d["columns"]}
        if lacking := [s for s in contents if not (s in entries or name in contents[s]["ignored"])]:
            causes[f"columns.{name}"] = f"ignored, as it is not in {shown(lacking)}"
            continue
        columns[name] = _merged(name, entries)
        if len({entry["kind"] for entry in entries.values()}) > 1:
            causes[f"columns.{name}"] = CODES_QUESTION
    unused = dict.fromkeys(n for d in given for part in ("ignored", "columns") for n in d[part])
    merged |= {
        "columns": columns,
        "ignored": [name for name in unused if name not in columns],
        "missing_values": [*dict.fromkeys(w for d in given for w in d["missing_values"])],
    }
    schema = parse_schema(json.dumps(merged), source=f"{shown([*documents])} merged")
    drafts = [documents[site]["draft"] for site in contents if "draft" in documents[site]]
    asked = {k: v for draft in drafts for k, v in draft.get("to_review", {}).items()}
    whole, parts = _parts(merged), {site: _parts(content) for site, content in contents.items()}
    for key in dict.fromkeys(key for part in (whole, *parts.values()) for key in part):
        if sites := [site for site in parts if parts[site].get(key) != whole.get(key)]:
            asked[key] = f"{causes.get(key, 'sites differ')} (other in {shown(sites)})"
    block = {k: v for draft in drafts for k, v in draft.items()} | {"to_review": asked}
    return {"draft": block} | merged if asked or drafts else merged, schema


def _parts(document: dict[str, Any]) -> dict[str, Any]:
    """Return a document's columns and other keys, each by the name that a question has."""
    columns = {f"columns.{name}": entry for name, entry in document["columns"].items()}
    return {key: value for key, value in document.items() if key != "columns"} | columns


def _merged(name: str, entries: Mapping[str, dict[str, Any]]) -> dict[str, Any]:
    """Return the entry of a column that fits all sites."""
    first, given = next(iter(entries)), list(entries.values())
    if all(entry == given[0] for entry in given):
        return given[0]
    for key, part in (("bins", "bins"), ("shares", "categories")):
        fixed = {s: e.get(key) and [e[key], e.get(part)] for s, e in entries.items()}
        if differing := [site for site in fixed if fixed[site] != fixed[first]]:
            raise InputError(f"{differing[0]}: columns.{name}.{key}: must be as in {first}")
    merged = {k: v for entry in given[::-1] for k, v in entry.items() if v is not None}
    allows = ("missing", "unlisted"), ("missing", "category"), ("out_of_range", "clip")
    merged |= {key: v for key, v in allows if v in [entry.get(key) for entry in given]}
    last, rest = merged.get("unlisted"), [entry.get("unlisted") for entry in given]
    orders = [[v for v in entry.get("categories", ()) if v not in rest] for entry in given]
    is_text = any(isinstance(v, str) for order in orders for v in order)
    orders = [[str(v) if is_text else v for v in order] for order in orders]
    values: list[Any] = sorted({v for order in orders for v in order})
    numeric = [entry for entry in given if entry["kind"] == "numeric"]
    if not numeric:
        # The order of a site that lists all values may mean something.
        listed = next(order for order in [*orders, values] if sorted(order) == values)
        labels = {v: n for e in given[::-1] for v, n in (e.get("labels") or {}).items()}
        merged |= {} if merged.get("bins") else {"categories": listed + [last] * (last is not None)}
        return merged | ({"labels": labels} if labels else {})
    if is_text:
        texts = next(site for site, entry in entries.items() if entry["kind"] != "numeric")
        raise InputError(f"{texts}: column {name!r}: texts, where other sites have numbers")
    bounds = {(entry["lower"], entry["upper"]) for entry in numeric}
    low = min([*values, *(entry["lower"] for entry in numeric)])
    high = max([*values, *(entry["upper"] for entry in numeric)])
    lower, upper = (low, high) if (low, high) in bounds else round_bounds(low, high)
    merged |= {"kind": "numeric", "lower": lower, "upper": upper}
    if bases := [entry["basis"] for entry in numeric if entry.get("basis")]:
        coarse = min(bases, key=lambda basis: len(basis.get("knots") or basis["edges"]))
        if "knots" in coarse:
            coarse = coarse | {"knots": [lower, *coarse["knots"][1:-1], upper]}
        merged["basis"] = coarse
    return {key: value for key, value in merged.items() if key in Numeric.model_fields}

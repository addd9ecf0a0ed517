"""Writes, reads and validates the one file that leaves a client."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

import synthfair
from synthfair.config import MAX_ROWS, DistillConfig
from synthfair.errors import InputError, reason, refusal
from synthfair.files import whole_file
from synthfair.privacy.statement import Guarantee, Line, PrivacyStatement

if TYPE_CHECKING:
    import pyarrow as pa

    from synthfair.data.schema import Schema

FORMAT = "synthfair-release/1"

MAX_CELLS = 50_000_000
"""Rows times columns of a file that is read, about 400 MB; a small file may claim far more."""

MAX_ABSOLUTE = 1e6
"""Largest feature accepted; encoded features lie in [0, 1] and distilled ones stay near it."""

_KEY = b"synthfair"
_STRICT = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class Header(BaseModel):
    """The metadata of a release file. Public settings only: no statistic of the real rows."""

    model_config = _STRICT

    format: Literal["synthfair-release/1"] = FORMAT
    schema_hash: str = Field(pattern="^[0-9a-f]{64}$")
    version: Line
    model: Line
    penalty: Line
    config: DistillConfig
    privacy: PrivacyStatement

    @model_validator(mode="after")
    def _says_what_the_settings_mean(self) -> Header:
        config, said = self.config, self.privacy
        if said.guarantee:
            wanted = (config.epsilon, config.delta, config.relation)
            if wanted != (said.guarantee.epsilon, said.guarantee.delta, said.guarantee.relation):
                raise ValueError("the privacy statement claims another guarantee than the settings")
        silent = set(disclosures(config, private=said.guarantee is not None)) - set(said.discloses)
        if silent:
            raise ValueError(f"the privacy statement must say: {min(silent)}")
        return self


@dataclass(frozen=True)
class Release:
    """Synthetic rows and what is said about them.

    Attributes:
        header: the metadata.
        names: [d] names of the encoded features.
        x: [N_s, d] synthetic features.
        s: [N_s] groups.
        y: [N_s] labels, -1 or +1.
    """

    header: Header
    names: tuple[str, ...]
    x: np.ndarray
    s: np.ndarray
    y: np.ndarray

    @property
    def fingerprint(self) -> str:
        """sha256 of the rows, whatever the metadata: the same rows twice are the same release."""
        parts = (self.x.astype("<f8"), self.s.astype("<i4"), self.y.astype("<i4"))
        return hashlib.sha256(b"".join(part.tobytes() for part in parts)).hexdigest()


def name_of(part: object) -> str:
    """What to call a model or a penalty in a file: its ``name``, its function's, or its class's.

    Raises:
        InputError: it is a lambda, which cannot be told from another.
    """
    own = getattr(part, "name", None) or getattr(part, "__name__", None)
    name = str(own or type(part).__name__)
    if "<lambda>" in name:
        raise InputError(f"{name}: a loss or a penalty needs a name of its own; define it with def")
    return name


def make_header(
    config: DistillConfig,
    schema: Schema,
    *,
    model: object,
    penalty: object,
    guarantee: Guarantee | None = None,
) -> Header:
    """The header of a release made with these settings, this model, penalty and guarantee."""
    discloses = disclosures(config, private=guarantee is not None)
    return Header(
        schema_hash=schema.hash,
        version=synthfair.__version__,
        model=name_of(model),
        penalty=name_of(penalty),
        config=config,
        privacy=PrivacyStatement(guarantee=guarantee, discloses=discloses),
    )


def disclosures(config: DistillConfig, *, private: bool | None = None) -> tuple[str, ...]:
    """What a release made with these settings tells its reader about the real rows.

    Args:
        config: its settings.
        private: whether its noise protects anything; not so where it came from a fixed seed. If not
            given, whether the settings ask for it.
    """
    asked = config.epsilon is not None
    if asked and (private or private is None):
        return (
            "What rows have in common; about any one row, at most what differential privacy with"
            f" epsilon = {config.epsilon:g} and delta = {config.delta:g} allows.",
        )
    lines = [
        "The synthetic rows fix a model trained on the real rows, and its curvature: they tell"
        " at least as much as publishing that model. No differential privacy is claimed; not"
        " anonymous."
    ]
    if asked:
        lines.append("The noise came from a fixed seed, for tests: anybody can subtract it.")
    if config.labels == "proportional":
        lines.append("The share of each pair of group and label among the real rows.")
    if config.labels == "copy":
        lines.append(
            "The group and the label of every real row, in order, and the number of real rows."
        )
    if config.start == "normal":
        lines.append("Traces of the mean and the variance of each real feature, where it started.")
    if config.start == "real":
        lines.append("Real rows: it started at them, and some may be unchanged or nearly so.")
    return tuple(lines)


def write_release(release: Release, path: Path) -> str:
    """Writes a release whole or not at all.

    Returns:
        sha256 of the file; the same release gives the same bytes.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    columns = [*release.x.T.astype(float), release.s.astype("int32"), release.y.astype("int32")]
    metadata = {_KEY: release.header.model_dump_json().encode()}
    table = pa.table(columns, schema=_arrow_schema(release.names).with_metadata(metadata))
    with whole_file(path) as temporary:
        pq.write_table(table, temporary, write_page_checksum=True)
        return hashlib.sha256(temporary.read_bytes()).hexdigest()


def read_release(path: Path, schema: Schema) -> Release:
    """Reads a release and believes nothing in it.

    Raises:
        InputError: unreadable, not a release of this format, of another schema, with other columns
            or types, or with values that no release can have.
    """
    return release_reader(schema)(path)


def release_reader(schema: Schema) -> Callable[[Path], Release]:
    """:func:`read_release` for many files: what they must hold is worked out once."""
    names = schema.encoded_names
    return partial(_read, _Expected(schema.hash, names, _arrow_schema(names), len(schema.groups)))


class _Expected(NamedTuple):
    """What every file of one schema must hold."""

    schema_hash: str
    names: tuple[str, ...]
    columns: pa.Schema
    n_groups: int


def _read(expected: _Expected, path: Path) -> Release:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        # Reading ahead and decoding in threads would take longer than a release's few pages.
        with pq.ParquetFile(path, page_checksum_verification=True, pre_buffer=False) as file:
            found = file.schema_arrow
            header = _header(found, expected, str(path))
            _check_columns(found, expected, str(path))
            _check_rows(file.metadata.num_rows, expected, str(path))
            table = file.read(use_threads=False)
            table.validate(full=True)
    except InputError:
        raise
    except (OSError, ValueError, MemoryError, pa.ArrowException) as error:
        raise InputError(f"{path}: not a readable Parquet file: {reason(error)}") from error
    columns = table.columns
    if any(column.null_count for column in columns):
        raise InputError(f"{path}: holds missing values; a release has none")
    *features, s, y = (column.to_numpy() for column in columns)
    # Copies, so that no release keeps Arrow's memory.
    rows = np.column_stack(features), s.copy(), y.astype(float)
    release = Release(header, expected.names, *rows)
    _check_values(release, expected, str(path))
    return release


def _arrow_schema(names: tuple[str, ...]) -> pa.Schema:
    import pyarrow as pa

    fields = [pa.field(name, pa.float64()) for name in names]
    return pa.schema([*fields, pa.field("s", pa.int32()), pa.field("y", pa.int32())])


def _header(found: pa.Schema, expected: _Expected, source: str) -> Header:
    text = (found.metadata or {}).get(_KEY)
    if text is None:
        raise InputError(f"{source}: Parquet, but not a synthfair release (no such metadata)")
    try:
        header = Header.model_validate_json(text)
    except ValidationError as error:
        raise refusal(source, error) from error
    if header.schema_hash != expected.schema_hash:
        raise InputError(
            f"{source}: made with schema {header.schema_hash[:12]}, but the schema given"
            f" is {expected.schema_hash[:12]}; all clients and the server must use the same schema"
            " file"
        )
    return header


def _check_columns(found: pa.Schema, expected: _Expected, source: str) -> None:
    wanted = expected.columns
    if found.equals(wanted):
        return
    for name in [*wanted.names, *found.names]:
        if wanted.names.count(name) != found.names.count(name):
            raise InputError(f"{source}: column {name!r} is missing, unknown or repeated")
    for field, other in zip(wanted, found, strict=True):
        if field.name != other.name or field.type != other.type:
            must = f"must be {field.name!r} ({field.type})"
            raise InputError(f"{source}: column {other.name!r} ({other.type}) {must}")


def _check_rows(rows: int, expected: _Expected, source: str) -> None:
    most = min(MAX_ROWS, MAX_CELLS // len(expected.columns))
    if not 1 <= rows <= most:
        raise InputError(f"{source}: holds {rows} rows; must hold 1 to {most}")


def _check_values(release: Release, expected: _Expected, source: str) -> None:
    named = [
        *zip(release.names, release.x.T, np.abs(release.x.T) <= MAX_ABSOLUTE, strict=True),
        ("s", release.s, (release.s >= 0) & (release.s < expected.n_groups)),
        ("y", release.y, np.abs(release.y) == 1),
    ]
    allowed = {"s": f"0 to {expected.n_groups - 1}", "y": "-1 or 1"}
    for name, values, right in named:
        if not right.all():
            row = int(np.argmin(right))
            value = values[row].item()
            raise InputError(
                f"{source}: column {name!r}, row {row + 1}: {value!r} is not allowed; must be"
                f" {allowed.get(name, f'a finite number of at most {MAX_ABSOLUTE:g} in size')}"
            )

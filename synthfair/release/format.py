"""The format of a release file, read as hostile input."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import zip_longest
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, cast

import numpy as np
from pydantic import field_serializer, model_validator

import synthfair
from synthfair.data.schema import (
    RELEASE_COLUMNS,
    Categorical,
    Numeric,
    Schema,
    differences,
    is_within,
)
from synthfair.errors import InputError, reason
from synthfair.files import open_file, parse_as, whole_file
from synthfair.privacy.guarantee import Guarantee, require_true
from synthfair.release.keys import RELEASE_DOMAIN, Keys, Signature, require_signer, sign, verify
from synthfair.release.settings import (
    MAX_SYNTHETIC_ROWS,
    DistillConfig,
    ReleaseConfig,
    SurrogateConfig,
)
from synthfair.settings import Checked, Line

if TYPE_CHECKING:
    import pyarrow as pa
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

HEADER_KEY, SIGNATURE_KEY = b"synthfair", b"synthfair.release.signature"
"""Keys of the file's metadata."""

MAX_FEATURE = 1e6
"""Largest feature accepted; encoded features lie in [0, 1] and distilled ones stay near it."""

MIN_RECORD_WEIGHT, MAX_RECORD_WEIGHT = 1e-6, 1e9
"""Real rows that a row of a surrogate may stand for, unless none."""

MAX_CELLS = 50_000_000
"""Rows times columns of all files of a pool, about 400 MB; a small file may claim far more."""

MAX_METADATA_BYTES = {HEADER_KEY: 2**22, SIGNATURE_KEY: 1000}
"""The largest sizes of a file's metadata that are read."""

MAX_TEXT_BYTES = 20_000_000
"""The longest text in a file's metadata: Arrow makes a copy of all of it."""


class Header(Checked):
    """The metadata of a release file, from which follows what it discloses.

    Attributes:
        table_schema: of the rows.
        version: of synthfair.
        model: its name.
        penalty: its name; None in a surrogate, whose server chooses one.
        config: public settings.
        guarantee: of differential privacy, or None: then nothing is claimed.
        hides_pairs: whether some pairs of group and label have fewer than ``k_min`` rows, and
            records of them are made up, see :mod:`synthfair.surrogate.tables`. Never with epsilon.
    """

    format: Literal["synthfair-release/5"] = "synthfair-release/5"
    table_schema: Schema
    version: Line
    model: Line
    penalty: Line | None
    config: ReleaseConfig
    guarantee: Guarantee | None = None
    hides_pairs: bool = False

    @field_serializer("table_schema")
    def _without_labels(self, schema: Schema) -> dict[str, Any]:
        return schema.document

    @property
    def kind(self) -> Literal["fair", "surrogate"]:
        """``fair``: rows that train a fair model without a penalty; ``surrogate``: with weights."""
        return "surrogate" if isinstance(self.config, SurrogateConfig) else "fair"

    @property
    def own_columns(self) -> tuple[str, ...]:
        """The columns after the features; a fair release for a blind model has none of groups."""
        if isinstance(self.config, SurrogateConfig):
            return RELEASE_COLUMNS
        return RELEASE_COLUMNS[:2] if self.config.group_input else RELEASE_COLUMNS[1:2]

    @property
    def names(self) -> tuple[str, ...]:
        """The names [k] of the features: the schema's, of a fair release those of encoded ones."""
        schema = self.table_schema
        return tuple(schema.features) if self.kind == "surrogate" else schema.encoded_names

    @model_validator(mode="after")
    def _follows_from_settings(self) -> Header:
        if self.guarantee:
            require_true(self.guarantee, self.config, self.table_schema)
        if self.hides_pairs and (self.kind == "fair" or self.config.epsilon is not None):
            raise ValueError("hides_pairs: is for surrogates without epsilon")
        return self


@dataclass(frozen=True, eq=False)  # arrays have no truth value
class Release:
    """A release: synthetic rows with their metadata; :func:`write_release` has an example.

    Attributes:
        header: the metadata.
        x: [N_s, k] synthetic features: of a fair release, encoded ones; of a surrogate, columns of
            the schema, as of :func:`synthfair.data.encode.encode_records`.
        s: [N_s] groups; of a fair release for a blind model, which holds none, all 0.
        y: [N_s] labels, -1 or +1.
        weight: [N_s] numbers of real rows that each row of a surrogate stands for; None in a fair
            release, whose rows count alike.
        signature: what the file that it was read from says of its content, verified; None where it
            comes from no file.
    """

    header: Header
    x: np.ndarray
    s: np.ndarray
    y: np.ndarray
    weight: np.ndarray | None = None
    signature: Signature | None = field(default=None, kw_only=True)

    def __repr__(self) -> str:
        """Return its kind, size and epsilon, in a line."""
        epsilon = self.header.config.epsilon
        rows = f"{len(self.y):,} rows x {self.x.shape[1]} columns"
        if self.weight is not None:
            rows += f" for {self.weight.sum():,.0f} real rows"
        said = f"epsilon = {epsilon:g}" if epsilon else "no epsilon"
        return f"Release({self.header.kind}, {rows}, {said})"

    @cached_property
    def fingerprint(self) -> bytes:
        """sha256 of the rows, whatever the metadata: the same rows twice are the same release."""
        digest = hashlib.sha256(np.ascontiguousarray(self.x, "<f8").data)
        for name in self.header.own_columns:
            column, dtype = self.own_values[name], "<f8" if name == RELEASE_COLUMNS[2] else "<i4"
            digest.update(np.ascontiguousarray(column, dtype).data)
        return digest.digest()

    @property
    def own_values(self) -> dict[str, Any]:
        """The columns after the features, by name."""
        return dict(zip(RELEASE_COLUMNS, (self.s, self.y, self.weight), strict=True))


def name_of(component: object) -> str:
    """Return the name of a model or penalty: its ``name``, its function's, or its class's.

    Raises:
        InputError: it is a lambda, whose name it shares with all others.
    """
    label = getattr(component, "name", None) or getattr(component, "__name__", None)
    name = str(label or type(component).__name__)
    if "<lambda>" in name:
        raise InputError(f"{name}: a loss or a penalty needs a name of its own; define it with def")
    return name


def make_header(
    config: DistillConfig | SurrogateConfig,
    schema: Schema,
    *,
    model: object,
    penalty: object = None,
    **said: Any,
) -> Header:
    """Return the metadata of a release.

    Args:
        config: settings that it was made with.
        schema: of its rows.
        model: that it was distilled for; only its name enters.
        penalty: of the outer objective; only its name enters. A surrogate has none: its server
            chooses one.
        said: ``guarantee`` and ``hides_pairs`` of the header, where there are any.

    Raises:
        InputError: model or penalty has no name.
        ValueError: the guarantee is not that of the settings.
    """
    return Header(
        table_schema=schema,
        version=synthfair.__version__,
        model=name_of(model),
        penalty=None if penalty is None else name_of(penalty),
        config=config,
        **said,
    )


def write_release(
    release: Release, path: str | PathLike[str], *, key: Ed25519PrivateKey | None = None
) -> str:
    """Write a release whole or not at all, and return the file's sha256.

    The same release and key give the same bytes.

    Args:
        release: what is written.
        path: of the file.
        key: that it is signed with, see :func:`read_signing_key`; it is not signed if not given.

    Example:
        >>> import tempfile
        >>> from pathlib import Path
        >>> import numpy as np
        >>> import synthfair as sf
        >>> _, schema = sf.load_dataset("loanapp")
        >>> header = sf.release.make_header(
        ...     sf.DistillConfig(), schema, model=sf.LinearModel(), penalty=sf.CovariancePenalty()
        ... )
        >>> x = np.full((2, len(schema.encoded_names)), 0.5)
        >>> s, y = np.array([0, 0]), np.array([-1.0, 1.0])
        >>> release = sf.Release(header, x, s, y)
        >>> folder = tempfile.TemporaryDirectory()
        >>> sha256 = sf.write_release(release, Path(folder.name) / "loans.parquet")
        >>> found = sf.release.inspect_release(Path(folder.name) / "loans.parquet", schema=schema)
        >>> found.fits, found.problems, found.release.x.shape
        (True, (), (2, 37))
        >>> folder.cleanup()
    """
    content = release_bytes(release, key)
    with whole_file(Path(path)) as temporary:
        temporary.write_bytes(content)
    return hashlib.sha256(content).hexdigest()


def release_bytes(release: Release, key: Ed25519PrivateKey | None = None) -> bytes:
    """Return the content of a release's file, see :func:`write_release`."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    header = release.header.model_dump_json().encode()
    signature = sign(_content_digest(header, release), key).model_dump_json().encode()
    schema = _arrow_schema(release.header)
    columns = [*release.x.T, *(release.own_values[name] for name in release.header.own_columns)]
    metadata = {HEADER_KEY: header, SIGNATURE_KEY: signature}
    table, file = pa.table(columns, schema=schema.with_metadata(metadata)), pa.BufferOutputStream()
    pq.write_table(table, file, write_page_checksum=True)
    return file.getvalue().to_pybytes()


def _arrow_schema(header: Header) -> pa.Schema:
    """Return the columns of a release file with this header."""
    import pyarrow as pa

    types = dict(zip(RELEASE_COLUMNS, (pa.int32(), pa.int32(), pa.float64()), strict=True))
    features = [(name, pa.float64()) for name in header.names]
    return pa.schema(features + [(name, types[name]) for name in header.own_columns])


def _content_digest(header: bytes, release: Release) -> bytes:
    """Return the digest of a release whose header stands in the file so."""
    digests = hashlib.sha256(header).digest() + release.fingerprint
    return hashlib.sha256(RELEASE_DOMAIN + digests).digest()


def read_release(
    path: Path, schema: Schema | None, *, keys: Keys | None = None, room: int = MAX_CELLS
) -> Release:
    """Return the release in a file; believe nothing in it.

    Args:
        path: of the file.
        schema: the clients'; any, if not given.
        keys: of the clients, see :func:`read_keys`; if not given, anybody's release is read, signed
            or not.
        room: rows times columns that it may hold: what other releases of its pool leave.

    Returns:
        The release, verified; a surrogate's records are of the schema given, see :func:`fitted`.
        For an example see :func:`write_release`.

    Raises:
        InputError: unreadable, not a release of this format, of another schema, with other columns
            or types, with values that no release can have, altered since it was written, wrongly
            signed, or signed with none of the keys.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    source = str(path)
    options = {"page_checksum_verification": True, "thrift_string_size_limit": MAX_TEXT_BYTES}
    try:
        # Reading ahead and decoding in threads would take longer than a release's few pages.
        with open_file(path) as raw, pq.ParquetFile(raw, pre_buffer=False, **options) as file:
            # What the file says, its columns and number of rows, before the rows are read.
            layout = file.schema_arrow
            text, header, signature = _metadata(layout, source)
            _require_columns(layout, header, source)
            # A server encodes the columns of a surrogate, which are more then.
            encoded = len(schema.encoded_names) + len(header.own_columns) if schema else 0
            _require_room(file.metadata.num_rows, max(len(layout), encoded), room, source)
            table = file.read(use_threads=False)
            table.validate(full=True)
    except InputError:
        raise
    except (OSError, ValueError, MemoryError, pa.ArrowException) as error:
        raise InputError(f"{path}: not a readable Parquet file: {reason(error)}") from error
    # The rows, as copies, so that no release keeps Arrow's memory.
    if any(column.null_count for column in table.columns):
        raise InputError(f"{source}: holds missing values; a release has none")
    x = np.column_stack([table[name].to_numpy() for name in header.names])
    values = {name: table[name].to_numpy().copy() for name in header.own_columns}
    group, label, weight = RELEASE_COLUMNS
    s, y = values.get(group, np.zeros(len(x), "int32")), values[label].astype(float)
    release = Release(header, x, s, y, values.get(weight), signature=signature)
    require_fit(release, schema, source)
    # They are what was written, and by whom.
    verify(signature, _content_digest(text, release), source=source)
    if keys is not None:
        require_signer(signature, keys, source=source)
    return release if schema is None else fitted(release, schema)


def _metadata(columns: pa.Schema, source: str) -> tuple[bytes, Header, Signature]:
    """Return the header as it stands, what it says, and the digest and signature."""
    metadata = columns.metadata or {}
    if HEADER_KEY not in metadata:
        raise InputError(f"{source}: Parquet, but not a synthfair release (no such metadata)")
    for key, value in metadata.items():
        if key not in MAX_METADATA_BYTES:
            raise InputError(f"{source}: metadata {key[:50]!r}: unknown; a release has none such")
        if len(value) > MAX_METADATA_BYTES[key]:
            most = MAX_METADATA_BYTES[key]
            raise InputError(
                f"{source}: metadata {key.decode()!r} has {len(value)} bytes; at most {most}"
            )
    text = metadata[HEADER_KEY]
    header = parse_as(text, Header, source)  # first: that of another format says so
    if SIGNATURE_KEY not in metadata:
        raise InputError(f"{source}: altered since it was written: its sha256 is missing")
    return text, header, parse_as(metadata[SIGNATURE_KEY], Signature, source)


def _require_columns(layout: pa.Schema, header: Header, source: str) -> None:
    """Refuse other columns, types or places than a release with this header has."""
    for i, columns in enumerate(zip_longest(layout, _arrow_schema(header)), 1):
        text, wanted = (f"{c.name!r} ({c.type})" if c else "missing" for c in columns)
        if text != wanted:
            raise InputError(f"{source}: column {i}: {text[:1000]}; must be {wanted}")


def require_fit(release: Release, schema: Schema | None, source: str) -> None:
    """Refuse a release of another schema than the one given, or with values that none can have.

    Records of a surrogate may be of a schema within the one given, see
    :func:`synthfair.data.schema.is_within`; columns of a fair release are encoded.

    Raises:
        InputError: it does not fit; the message says what differs, by column.
    """
    made_with = release.header.table_schema
    if schema is not None:
        # The hash does not see the order of encoded columns.
        names = made_with.encoded_names, schema.encoded_names
        is_same = made_with.hash == schema.hash and names[0] == names[1]
        if not (is_same or (release.header.kind == "surrogate" and is_within(made_with, schema))):
            unlike = "; ".join(differences(made_with, schema)) or "columns are in another order"
            raise InputError(f"{source}: made with another schema than the one given: {unlike}")
    _require_values(release, source)


def fitted(release: Release, schema: Schema) -> Release:
    """Return a release that fits a schema, with the positions of its records' categories there."""
    made_with = release.header.table_schema
    if release.weight is None:
        return release
    columns = dict(zip(made_with.features, release.x.T, strict=True))
    for name, column in made_with.features.items():
        if isinstance(column, Categorical):
            categories = schema.categorical(name).categories
            place = [*map(categories.index, column.categories), len(categories)]
            columns[name] = np.array(place)[columns[name].astype(int)]
    groups = np.array([schema.groups.index(group) for group in made_with.groups])
    x = np.column_stack([columns[name] for name in schema.features])
    header = release.header.model_copy(update={"table_schema": schema})
    return replace(release, header=header, x=x, s=groups[release.s])


def _require_room(rows: int, columns: int, room: int, source: str) -> None:
    """Refuse a file that holds no rows, or more than there is room for."""
    most = min(MAX_SYNTHETIC_ROWS, MAX_CELLS // columns)
    if not 1 <= rows <= most:
        raise InputError(f"{source}: holds {rows} rows; must hold 1 to {most}")
    if rows * columns > room:
        raise InputError(
            f"{source}: holds {rows} rows of {columns} columns; releases before it leave {room}"
            f" values of {MAX_CELLS}"
        )


def _require_values(release: Release, source: str) -> None:
    """Refuse the first value, column by column, that no release of its schema can have."""
    weight, schema = release.weight, release.header.table_schema
    features = [None] * release.x.shape[1] if weight is None else schema.features.values()
    # Each column's name, values, whether they are allowed, and what is.
    checks = [
        (name, values, *_range_check(values, column))
        for name, values, column in zip(release.header.names, release.x.T, features, strict=True)
    ]
    in_range = (release.s >= 0) & (release.s < len(schema.groups))
    checks.append((RELEASE_COLUMNS[0], release.s, in_range, f"0 to {len(schema.groups) - 1}"))
    checks.append((RELEASE_COLUMNS[1], release.y, np.abs(release.y) == 1, "-1 or 1"))
    if weight is not None:
        right = (weight == 0) | ((weight >= MIN_RECORD_WEIGHT) & (weight <= MAX_RECORD_WEIGHT))
        words = f"0, or a number from {MIN_RECORD_WEIGHT:g} to {MAX_RECORD_WEIGHT:g}"
        checks.append((RELEASE_COLUMNS[2], weight, right & weight.any(), f"{words}, and not all 0"))
    for name, values, right, allowed in checks:
        if not right.all():
            row = int(np.argmin(right))
            raise InputError(
                f"{source}: column {name!r}, row {row + 1}: {values[row].item()!r} is not allowed;"
                f" must be {allowed}"
            )


def _range_check(
    values: np.ndarray, column: Numeric | Categorical | None
) -> tuple[np.ndarray, str]:
    """Return a mask [N] of a feature's allowed values, and what is; None: encoded."""
    if column is None:
        words = f"a finite number of at most {MAX_FEATURE:g} in size"
        return np.abs(values) <= MAX_FEATURE, words
    missing, may_miss = np.isnan(values), column.missing == "category"
    if isinstance(column, Numeric):
        inside = (values >= column.lower) & (values <= column.upper)
        words = f"from {column.lower:g} to {column.upper:g}" + ", or missing" * may_miss
        return inside | (missing & may_miss), words
    last = len(column.categories) - 1 + may_miss
    right = (values >= 0) & (values <= last) & (values == np.rint(values))
    return right, f"a whole number from 0 to {last}, a category's position"


class Inspection(NamedTuple):
    """A release file that was not altered, and what was compared with it.

    Attributes:
        path: of the file.
        size: in bytes.
        sha256: of the file.
        release: what it holds.
        signature: its own, verified: the digest of its content, signed or not.
        fits: whether it fits the schema; None where none was given.
        client: that signed it, by the keys; None where it is none of theirs, or none were given.
        problems: what does not fit, each a sentence with the file, what was found and what is
            allowed.
    """

    path: Path
    size: int
    sha256: str
    release: Release
    signature: Signature
    fits: bool | None
    client: str | None
    problems: tuple[str, ...]


def inspect_release(
    path: str | PathLike[str], *, schema: Schema | None = None, keys: Keys | None = None
) -> Inspection:
    """Return what a release file holds, and all that does not fit what is known of it.

    Args:
        path: of the file.
        schema: that it must be made with; any, if not given.
        keys: of the clients, one of which must have signed it; anybody, if not given.

    Returns:
        What it holds, and all that does not fit. For an example see :func:`write_release`.

    Raises:
        InputError: it cannot be read as a release, was altered, or is wrongly signed: then nothing
            that it holds can be shown.
    """
    path = Path(path)
    release = read_release(path, None)
    with open_file(path) as file:
        digest, size = hashlib.file_digest(file, "sha256").hexdigest(), file.tell()
    signature = cast(Signature, release.signature)  # as it comes from a file
    client, problems = None, []
    if schema is not None:
        try:
            require_fit(release, schema, str(path))
        except InputError as error:
            problems.append(str(error))
    fits = None if schema is None else not problems
    if keys is not None:
        try:
            client = require_signer(signature, keys, source=str(path))
        except InputError as error:
            problems.append(str(error))
    return Inspection(path, size, digest, release, signature, fits, client, tuple(problems))

"""The one file that leaves a client: how it is written, and read by who believes nothing in it."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, cast

import numpy as np
from pydantic import field_serializer, model_validator

import synthfair
from synthfair.data.schema import (
    OWN_COLUMNS,
    Categorical,
    Numeric,
    Schema,
    differences,
    is_within,
)
from synthfair.errors import InputError, reason
from synthfair.files import open_file, parse_as, whole_file
from synthfair.privacy.guarantee import Guarantee, require_true
from synthfair.release.keys import (
    Keys,
    Signature,
    content_digest,
    require_signer,
    rows_digest,
    sign,
    verify,
)
from synthfair.settings import (
    MAX_ROWS,
    Checked,
    DistillConfig,
    Line,
    ReleaseConfig,
    SurrogateConfig,
)

if TYPE_CHECKING:
    import pyarrow as pa
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

HEADER_KEY, SIGNATURE_KEY = b"synthfair", b"synthfair.release.signature"
"""Keys of the file's metadata."""

MAX_ABSOLUTE = 1e6
"""Largest feature accepted; encoded features lie in [0, 1] and distilled ones stay near it."""

MIN_WEIGHT, MAX_WEIGHT = 1e-6, 1e9
"""Real rows that a row of a surrogate may stand for, unless none."""

MAX_CELLS = 50_000_000
"""Rows times columns of all files of a pool, about 400 MB; a small file may claim far more."""

MAX_COLUMNS, MAX_NAME = 10_000, 1000
"""The most columns of a file, and characters of a column's name."""

MAX_BYTES = {HEADER_KEY: 2**22, SIGNATURE_KEY: 1000}
"""The largest sizes of a file's metadata that are read."""

_THRIFT = 20_000_000
"""Bytes of any text in a file's metadata: Arrow makes a copy of all of it."""


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
    def schema_hash(self) -> str:
        """The hash of the schema."""
        return self.table_schema.hash

    @property
    def kind(self) -> Literal["fair", "surrogate"]:
        """``fair``: rows that train a fair model without a penalty; ``surrogate``: with weights."""
        return "surrogate" if isinstance(self.config, SurrogateConfig) else "fair"

    @property
    def own_columns(self) -> tuple[str, ...]:
        """The columns after the features; a fair release for a blind model has none of groups."""
        if isinstance(self.config, SurrogateConfig):
            return OWN_COLUMNS
        return OWN_COLUMNS[:2] if self.config.group_input else OWN_COLUMNS[1:2]

    @model_validator(mode="after")
    def _follows_from_settings(self) -> Header:
        if self.guarantee:
            require_true(self.guarantee, self.config, self.table_schema)
        if self.hides_pairs and (self.kind == "fair" or self.config.epsilon is not None):
            raise ValueError("hides_pairs: is for surrogates without epsilon")
        return self


@dataclass(frozen=True, eq=False)  # arrays have no truth value
class Release:
    """Synthetic rows and what is said about them; :func:`write_release` has an example.

    Attributes:
        header: the metadata.
        names: [k] names of the columns of x.
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
    names: tuple[str, ...]
    x: np.ndarray
    s: np.ndarray
    y: np.ndarray
    weight: np.ndarray | None = None
    signature: Signature | None = field(default=None, kw_only=True)

    def __repr__(self) -> str:
        """Its kind, size and epsilon, in a line."""
        epsilon = self.header.config.epsilon
        rows = f"{len(self.y):,} rows x {len(self.names)} columns"
        if self.weight is not None:
            rows += f" for {self.weight.sum():,.0f} real rows"
        said = f"epsilon = {epsilon:g}" if epsilon else "no epsilon"
        return f"Release({self.header.kind}, {rows}, {said})"

    @cached_property
    def fingerprint(self) -> bytes:
        """sha256 of the rows, whatever the metadata: the same rows twice are the same release."""
        s = self.s if OWN_COLUMNS[0] in self.header.own_columns else None
        return rows_digest(self.x, s, self.y, self.weight)


def name_of(part: object) -> str:
    """The name of a model or penalty for a file: its ``name``, its function's, or its class's.

    Raises:
        InputError: it is a lambda, whose name it shares with all others.
    """
    label = getattr(part, "name", None) or getattr(part, "__name__", None)
    name = str(label or type(part).__name__)
    if "<lambda>" in name:
        raise InputError(f"{name}: a loss or a penalty needs a name of its own; define it with def")
    return name


def make_header(
    config: DistillConfig | SurrogateConfig,
    schema: Schema,
    *,
    model: object,
    penalty: object = None,
    guarantee: Guarantee | None = None,
    hides_pairs: bool = False,
) -> Header:
    """The metadata of a release.

    Args:
        config: settings that it was made with.
        schema: of its rows.
        model: that it was distilled for; only its name enters.
        penalty: of the outer objective; only its name enters. A surrogate has none: its server
            chooses one.
        guarantee: of differential privacy, or None: then nothing is claimed.
        hides_pairs: as the header says it.

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
        guarantee=guarantee,
        hides_pairs=hides_pairs,
    )


def write_release(
    release: Release, path: str | PathLike[str], *, key: Ed25519PrivateKey | None = None
) -> str:
    """Writes a release whole or not at all, with the digest of its content.

    Args:
        release: what is written.
        path: of the file.
        key: that it is signed with, see :func:`read_signing_key`; it is not signed if not given.

    Returns:
        sha256 of the file; the same release and key give the same bytes.

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
        >>> release = sf.Release(header, schema.encoded_names, x, s, y)
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

    file = pa.BufferOutputStream()
    pq.write_table(_table(release, key), file, write_page_checksum=True)
    return file.getvalue().to_pybytes()


def _table(release: Release, key: Ed25519PrivateKey | None) -> pa.Table:
    import pyarrow as pa

    own = dict(zip(OWN_COLUMNS, (release.s, release.y, release.weight), strict=True))
    columns = [*release.x.T, *(own[name] for name in release.header.own_columns)]
    header = release.header.model_dump_json().encode()
    signature = sign(content_digest(header, release.names, release.fingerprint), key)
    metadata = {HEADER_KEY: header, SIGNATURE_KEY: signature.model_dump_json().encode()}
    schema = arrow_schema(release.names, release.header)
    return pa.table(columns, schema=schema.with_metadata(metadata))


def arrow_schema(names: tuple[str, ...], header: Header) -> pa.Schema:
    """Return the columns of a release file with these features and this header."""
    import pyarrow as pa

    types = dict(zip(OWN_COLUMNS, (pa.int32(), pa.int32(), pa.float64()), strict=True))
    own = [pa.field(name, types[name]) for name in header.own_columns]
    return pa.schema([*(pa.field(name, pa.float64()) for name in names), *own])


def read_release(
    path: Path, schema: Schema | None, *, keys: Keys | None = None, room: int = MAX_CELLS
) -> Release:
    """Reads a release and believes nothing in it.

    Args:
        path: of the file.
        schema: the clients'. Without it the file's own columns are taken, where they are those of
            some release.
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
    options = {"page_checksum_verification": True, "thrift_string_size_limit": _THRIFT}
    try:
        # Reading ahead and decoding in threads would take longer than a release's few pages.
        with open_file(path) as raw, pq.ParquetFile(raw, pre_buffer=False, **options) as file:
            # What the file says, its columns and number of rows, before the rows are read.
            layout = file.schema_arrow
            text, header, signature = _metadata(layout, source)
            names = _feature_names(layout, source, header)
            # A server encodes the columns of a surrogate, which are more then.
            encoded = len(schema.encoded_names) + len(header.own_columns) if schema else 0
            _check_rows(file.metadata.num_rows, max(len(layout), encoded), room, source)
            table = file.read(use_threads=False)
            table.validate(full=True)
    except InputError:
        raise
    except (OSError, ValueError, MemoryError, pa.ArrowException) as error:
        raise InputError(f"{path}: not a readable Parquet file: {reason(error)}") from error
    # The rows, as copies, so that no release keeps Arrow's memory.
    if any(column.null_count for column in table.columns):
        raise InputError(f"{source}: holds missing values; a release has none")
    arrays = [column.to_numpy() for column in table.columns]
    x = np.column_stack(arrays[: len(names)])
    own = {name: table[name].to_numpy().copy() for name in header.own_columns}
    group, label, weight = OWN_COLUMNS
    s, y = own.get(group, np.zeros(len(x), "int32")), own[label].astype(float)
    release = Release(header, names, x, s, y, own.get(weight), signature=signature)
    if schema is None:
        _check_values(release, header.table_schema, source)
    else:
        require_fit(release, schema, source)
    # They are what was written, and by whom.
    verify(signature, content_digest(text, names, release.fingerprint), source=source)
    if keys is not None:
        require_signer(signature, keys, source=source)
    return release if schema is None else fitted(release, schema)


def _metadata(columns: pa.Schema, source: str) -> tuple[bytes, Header, Signature]:
    """The header as it stands, what it says, and the digest and signature."""
    metadata = columns.metadata or {}
    if HEADER_KEY not in metadata:
        raise InputError(f"{source}: Parquet, but not a synthfair release (no such metadata)")
    for key, value in metadata.items():
        if key not in MAX_BYTES:
            raise InputError(f"{source}: metadata {key[:50]!r}: unknown; a release has none such")
        if len(value) > MAX_BYTES[key]:
            raise InputError(
                f"{source}: metadata {key.decode()!r}: has {len(value)} bytes; at most"
                f" {MAX_BYTES[key]} are allowed"
            )
    text = metadata[HEADER_KEY]
    try:  # first: that of another format says so
        header = _header(text)
    except InputError:
        header = parse_as(text, Header, source)  # raises, with the file's name
    if SIGNATURE_KEY not in metadata:
        raise InputError(f"{source}: altered since it was written: its sha256 is missing")
    return text, header, parse_as(metadata[SIGNATURE_KEY], Signature, source)


@lru_cache(maxsize=16)
def _header(text: bytes) -> Header:
    """Return the header of a text, which most clients of a federation share."""
    return parse_as(text, Header, "header")


def _feature_names(columns: pa.Schema, source: str, header: Header) -> tuple[str, ...]:
    """Return the names of the features, of columns that a release may have."""
    names = tuple(name for name in columns.names if name not in OWN_COLUMNS)
    if not names or (*names, *header.own_columns) != tuple(columns.names):
        own = ", ".join(header.own_columns)
        raise InputError(f"{source}: must have columns of features, then {own}, by its settings")
    if len(names) > MAX_COLUMNS or max(map(len, names)) > MAX_NAME:
        raise InputError(
            f"{source}: has {len(names)} features; at most {MAX_COLUMNS} are allowed, with names of"
            f" at most {MAX_NAME} characters"
        )
    if len(set(names)) < len(names):
        raise InputError(f"{source}: a column's name is repeated")
    for column, other in zip(arrow_schema(names, header), columns, strict=True):
        if field.type != other.type:
            raise InputError(
                f"{source}: column {field.name!r} ({other.type}) must be {field.name!r}"
                f" ({field.type})"
            )
    return names


def require_fit(release: Release, schema: Schema, source: str) -> None:
    """Refuse a release of another schema, with other columns, or values that it cannot have.

    Records of a surrogate may be of a schema within the one given, see
    :func:`synthfair.data.schema.is_within`; columns of a fair release are encoded.

    Raises:
        InputError: it does not fit; the message says what differs, by column.
    """
    header, own, names = release.header, release.header.table_schema, schema.encoded_names
    if header.kind == "surrogate":
        fits, names = is_within(own, schema), tuple(own.features)
        why = "records pool where each column allows no more than the schema given"
    else:
        fits = own.hash == schema.hash
        why = "columns of a fair release are encoded, so that all need the same schema file"
    if not fits:
        found = "; ".join(differences(own, schema))
        raise InputError(f"{source}: made with another schema than the one given: {found}; {why}")
    if release.names != names:
        wrong = [*(set(names) ^ set(release.names)), *names]
        raise InputError(f"{source}: column {wrong[0]!r} is missing, unknown or in another place")
    _check_values(release, own, source)


def fitted(release: Release, schema: Schema) -> Release:
    """Return a release that fits a schema, with the positions of its records' categories there."""
    own = release.header.table_schema
    if release.weight is None:
        return release
    columns, features = dict(zip(release.names, release.x.T, strict=True)), schema.features
    for name, column in own.features.items():
        if isinstance(column, Categorical):
            categories = schema.categorical(name).categories
            place = [*map(categories.index, column.categories), len(categories)]
            columns[name] = np.array(place)[columns[name].astype(int)]
    groups = np.array([schema.groups.index(group) for group in own.groups])
    x = np.column_stack([columns[name] for name in features])
    header = release.header.model_copy(update={"table_schema": schema})
    return replace(release, header=header, names=tuple(features), x=x, s=groups[release.s])


def _check_rows(rows: int, columns: int, room: int, source: str) -> None:
    most = min(MAX_ROWS, MAX_CELLS // columns)
    if not 1 <= rows <= most:
        raise InputError(f"{source}: holds {rows} rows; must hold 1 to {most}")
    if rows * columns > room:
        raise InputError(
            f"{source}: holds {rows} rows of {columns} columns, {rows * columns} values; all"
            f" releases together may hold {MAX_CELLS}, and those before it leave {room}"
        )


def _check_values(release: Release, schema: Schema, source: str) -> None:
    """Refuses the first value, column by column, that no release of the schema can have."""
    weight = release.weight
    columns = {} if weight is None else schema.features
    n_groups = len(schema.groups)
    # Each column's name, values, whether they are allowed, and what is.
    checks = [
        (name, values, *_range_check(values, columns.get(name), encoded=weight is None))
        for name, values in zip(release.names, release.x.T, strict=True)
    ]
    in_range = (release.s >= 0) & (release.s < n_groups)
    checks.append((OWN_COLUMNS[0], release.s, in_range, f"0 to {n_groups - 1}"))
    checks.append((OWN_COLUMNS[1], release.y, np.abs(release.y) == 1, "-1 or 1"))
    most = f"0, or a number from {MIN_WEIGHT:g} to {MAX_WEIGHT:g}"
    if weight is not None:
        right = (weight == 0) | ((weight >= MIN_WEIGHT) & (weight <= MAX_WEIGHT))
        checks.append((OWN_COLUMNS[2], weight, right, most))
    for name, values, right, allowed in checks:
        if not right.all():
            row = int(np.argmin(right))
            raise InputError(
                f"{source}: column {name!r}, row {row + 1}: {values[row].item()!r} is not allowed;"
                f" must be {allowed}"
            )
    if weight is not None and not weight.any():
        raise InputError(
            f"{source}: column {OWN_COLUMNS[2]!r}: all are 0, so that it stands for no row; must be"
            f" {most}, and one of them not 0: ask its site for another release"
        )


def _range_check(
    values: np.ndarray, column: Numeric | Categorical | None, *, encoded: bool
) -> tuple[np.ndarray, str]:
    """[N] whether each value of a feature is allowed, and what is."""
    if encoded:
        right = np.abs(values) <= MAX_ABSOLUTE
        return right, f"a finite number of at most {MAX_ABSOLUTE:g} in size"
    if column is None:  # a column that the file's own schema does not name
        return ~np.isinf(values), "a finite number, or a missing one"
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
    path: str | PathLike[str],
    *,
    schema: Schema | None = None,
    keys: Keys | None = None,
) -> Inspection:
    """Reads a release file and compares it with what is known of it.

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

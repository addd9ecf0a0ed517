"""The one file that leaves a client: what it holds, and how it is written."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from pydantic import field_serializer, model_validator

import synthfair
from synthfair.data.schema import OWN_COLUMNS, Schema
from synthfair.errors import InputError
from synthfair.files import whole_file
from synthfair.privacy.guarantee import Guarantee
from synthfair.privacy.statement import require_true
from synthfair.release.keys import Signature, content_digest, rows_digest, sign
from synthfair.settings import Checked, DistillConfig, Line, ReleaseConfig, SurrogateConfig

if TYPE_CHECKING:
    import pyarrow as pa
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

HEADER_KEY, SIGNATURE_KEY = b"synthfair", b"synthfair.release.signature"
"""Keys of the file's metadata."""

MAX_ABSOLUTE = 1e6
"""Largest feature accepted; encoded features lie in [0, 1] and distilled ones stay near it."""

MIN_WEIGHT, MAX_WEIGHT = 1e-6, 1e9
"""Real rows that a row of a surrogate may stand for, unless none."""


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
            records of them are made up, see :mod:`synthfair.surrogate.strata`. Never with epsilon.
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

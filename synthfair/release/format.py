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
from synthfair.privacy.statement import PrivacyStatement
from synthfair.release.keys import Signature, content_digest, rows_digest, sign
from synthfair.settings import Checked, DistillConfig, Line, ReleaseConfig, SurrogateConfig

if TYPE_CHECKING:
    import pyarrow as pa
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

FORMATS = {"fair": "synthfair-release/2", "surrogate": "synthfair-release/4"}
"""The file format of each kind of release."""

HEADER_KEY, SIGNATURE_KEY = b"synthfair", b"synthfair.release.signature"
"""Keys of the file's metadata."""

MAX_ABSOLUTE = 1e6
"""Largest feature accepted; encoded features lie in [0, 1] and distilled ones stay near it."""

HIDDEN = (
    "Some pairs have fewer rows. These, and others that would tell of them, have no sums of their"
    " own, but sums by label and by group over all of them, from which how often each occurs is"
    " estimated."
)
"""Of a surrogate with sums by label and by group, see :mod:`synthfair.surrogate.strata`."""

SEEDED_NOISE = "The noise came from a fixed seed, for tests: anybody can subtract it."

MIN_WEIGHT, MAX_WEIGHT = 1e-6, 1e9
"""Real rows that a row of a surrogate may stand for, unless none."""


class Header(Checked):
    """The metadata of a release file: schema, public settings, and what is said of privacy."""

    format: Literal["synthfair-release/2", "synthfair-release/4"]
    table_schema: Schema
    version: Line
    model: Line
    penalty: Line
    config: ReleaseConfig
    privacy: PrivacyStatement

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

    @property
    def hides_pairs(self) -> bool:
        """Whether records of a surrogate have pairs of group and label that are made up."""
        return HIDDEN in self.privacy.discloses

    @model_validator(mode="after")
    def _follows_from_settings(self) -> Header:
        if self.format != FORMATS[self.kind]:
            raise ValueError(f"a {self.kind} release has format {FORMATS[self.kind]}")
        config, guarantee = self.config, self.privacy.guarantee
        settings = (config.epsilon, config.delta, config.relation)
        if guarantee and (guarantee.epsilon, guarantee.delta, guarantee.relation) != settings:
            raise ValueError("the privacy statement claims another guarantee than the settings")
        private = guarantee is not None
        expected = disclosures(config, private=private)
        hidden = disclosures(config, private=private, hides_pairs=True)
        if self.privacy.discloses not in (expected, hidden):
            raise ValueError(f"the privacy statement must say what these settings mean: {expected}")
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
        hides_pairs: of a surrogate, as :func:`disclosures` takes it.

    Raises:
        InputError: model or penalty has no name.
        ValueError: the guarantee is not that of the settings.
    """
    discloses = disclosures(config, private=guarantee is not None, hides_pairs=hides_pairs)
    kind = "surrogate" if isinstance(config, SurrogateConfig) else "fair"
    return Header(
        format=FORMATS[kind],  # type: ignore[arg-type]
        table_schema=schema,
        version=synthfair.__version__,
        model=name_of(model),
        penalty="chosen by the server" if penalty is None else name_of(penalty),
        config=config,
        privacy=PrivacyStatement(guarantee=guarantee, discloses=discloses),
    )


def disclosures(
    config: DistillConfig | SurrogateConfig,
    *,
    private: bool | None = None,
    hides_pairs: bool = False,
) -> tuple[str, ...]:
    """Lists what a release made with these settings discloses about the real rows.

    The lines stand in release files and are compared when a file is read: never change them.

    Args:
        config: its settings.
        private: whether its noise protects anything; not so where it came from a fixed seed. If not
            given, whether the settings ask for it.
        hides_pairs: whether sums by label and by group stand in place of those of some pairs.
    """
    # Noise that protects bounds what can be learned, whatever the kind.
    is_surrogate = isinstance(config, SurrogateConfig)
    records = (
        "The rows are distilled from private records: those of a surrogate with the same epsilon,"
        f" delta and k_min = {config.k_min}."
    )
    made_of = () if is_surrogate else (records,)
    pairs = f"each pair of group and label with at least {config.k_min} real rows"
    fewer = "Which pairs are missing: they have fewer rows, or none, or protect such a pair."
    if config.epsilon is not None:
        if private is False:
            return (
                *made_of,
                f"Of {pairs}, with noise: how many they are, how each column is distributed, and"
                " about how columns depend on each other.",
                SEEDED_NOISE,
                fewer,
            )
        return (
            *made_of,
            "What rows have in common; about any one row, at most what differential privacy with"
            f" epsilon = {config.epsilon:g} and delta = {config.delta:g} allows.",
        )
    if is_surrogate:
        return (
            f"Of {pairs}: how many they are; how each column is distributed; two-way tables of as"
            " many pairs of columns as connect all of them; means and products of numbers; and"
            " averages of smooth functions along models of the rows. All are sums over rows that"
            " are rounded to multiples of 5 rows. No differential privacy is claimed; not"
            " anonymous.",
            fewer,
            *[HIDDEN] * hides_pairs,
        )
    # A fair release without a guarantee, by its settings.
    lines = [
        "The synthetic rows fix a model trained on the real rows, and its curvature: they tell"
        " at least as much as publishing that model. No differential privacy is claimed; not"
        " anonymous."
    ]
    if config.labels == "proportional":
        part = "pair of group and label" if config.group_input else "label"
        lines.append(f"The share of each {part} among the real rows.")
    if config.labels == "copy":
        part = "group and the label" if config.group_input else "label"
        lines.append(f"The {part} of every real row, in order, and the number of real rows.")
    if config.start == "normal":
        lines.append("Traces of the mean and the variance of each real feature, where it started.")
    if config.start == "real":
        lines.append("Real rows: it started at them, and some may be unchanged or nearly so.")
    return tuple(lines)


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

"""Checks whether a kit is hardened, and ready to join; a problem is a line."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

from synthfair.data.schema import Schema, read_schema
from synthfair.data.tables import read_chunks
from synthfair.deploy.aggregator_site import AggregatorSettings
from synthfair.deploy.hardening import (
    MOST_BYTES,
    Role,
    description,
    folder_problems,
    problem_lines,
    role_of,
)
from synthfair.deploy.jobs import read_site_settings
from synthfair.errors import InputError
from synthfair.files import read_bytes
from synthfair.privacy.ledger import Ledger
from synthfair.release.keys import read_keys, read_signing_key
from synthfair.secure.aggregator_keys import (
    read_aggregator_folder,
    read_aggregator_secret,
    require_records,
)
from synthfair.task.limits import FILE, ServerSettings, SiteSettings, read_settings

EXPIRES_SOON = timedelta(days=14)

CODE_FOR_ALL = Path("/local/custom")
"""The engine's scripts put it before everything else that Python imports."""


def problems(kit: Path) -> list[str]:
    """Lists all that speaks against a kit; empty if it is hardened and ready.

    Args:
        kit: folder of a server's, a site's or a submitter's kit.

    Raises:
        InputError: it is no kit.
    """
    kit, role = kit.resolve(), role_of(kit)
    tree = description(role, kit)
    parts = [_modes(kit)]
    parts += [folder_problems(kit / name, tree[name]) for name in ("startup/", "local/")]
    parts.append(_certificates(kit, role))
    if role != "admin":
        parts.append(_server(kit) if role == "server" else _site(kit))
    return [problem for part in parts for problem in problem_lines(part)]


def _modes(kit: Path) -> Iterator[str]:
    """Lists what others on this machine may read, or write to, and must not."""
    if kit.stat().st_mode & 0o077:
        yield f"{kit}: others may read it; chmod 700"
    for folder in (kit / "startup", kit / "local"):
        for path in (folder, *folder.rglob("*")) if folder.exists() else ():
            mode = path.lstat().st_mode
            if mode & 0o022 and not stat.S_ISLNK(mode):
                yield f"{path}: others may write to it; chmod go-w"
    if CODE_FOR_ALL.exists():
        yield f"{CODE_FOR_ALL}: exists, and the engine would import code from it; remove it"


def _certificates(kit: Path, role: Role) -> Iterator[str]:
    from cryptography import x509
    from cryptography.exceptions import InvalidSignature

    kind = "server" if role == "server" else "client"
    path, root_path = kit / "startup" / f"{kind}.crt", kit / "startup" / "rootCA.pem"
    try:
        (leaf,) = x509.load_pem_x509_certificates(read_bytes(path, MOST_BYTES))
        # One more would be trusted as well.
        (root,) = x509.load_pem_x509_certificates(read_bytes(root_path, MOST_BYTES))
        leaf.verify_directly_issued_by(root)
    except InputError:
        yield f"{path}: it, or {root_path.name}, cannot be read"
        return
    except (ValueError, TypeError, InvalidSignature):
        yield f"{path}: must be one certificate that the one in {root_path.name} has signed"
        return
    now = datetime.now(UTC)
    for file, certificate in ((path, leaf), (root_path, root)):
        end = certificate.not_valid_after_utc
        if not certificate.not_valid_before_utc <= now < end:
            yield f"{file}: expired, or not valid yet; valid until {end:%Y-%m-%d}"
        elif end - now < EXPIRES_SOON:
            yield f"{file}: expires on {end:%Y-%m-%d}; get another"


def _server(kit: Path) -> Iterator[str]:
    settings = read_settings(kit / "local" / FILE, ServerSettings)
    read_schema(settings.schema_path)
    read_keys([settings.keys])
    if settings.aggregators:
        read_aggregator_folder(settings.aggregators)
    for path in settings.tests:
        if not path.is_file():
            yield f"{path}: no such test table"
    if settings.trusted and not settings.trusted.is_file():
        yield f"{settings.trusted}: no such trusted table"


def _site(kit: Path) -> Iterator[str]:
    path = kit / "local" / FILE
    settings = read_site_settings(path)
    schema = read_schema(settings.schema_path)
    if isinstance(settings, AggregatorSettings):
        yield from _aggregator(path, settings)
        return
    if settings.aggregators:
        read_aggregator_folder(settings.aggregators)
    if not settings.data.exists():
        yield f"{settings.data}: no such table; data in {path} must name the site's own"
    elif not os.access(settings.data, os.R_OK):
        yield f"{settings.data}: cannot be read"
    advice = f"keygen --output {settings.key}, and send the server"
    yield from _key(settings.key, advice, read_signing_key)
    yield from _limits(path, settings, schema)


def _limits(path: Path, settings: SiteSettings, schema: Schema) -> Iterator[str]:
    """Lists limits of the site that its ledger's limit must bound."""
    limits = settings.limits
    if not limits.kinds:
        yield f"{path}: limits: kinds allow none: no job may have anything"
    least = limits.least_rows or 0
    if least and settings.data.exists():
        n = sum(map(len, read_chunks(settings.data, schema)))
        if n < least:
            yield f"{settings.data}: {n} rows; limits: least_rows is {least}"
    ledger = Ledger(settings.ledger_file)
    if limits.most_epsilon is not None and limits.without_epsilon:
        yield (
            f"{path}: limits: most_epsilon is {limits.most_epsilon:g} and without_epsilon is true;"
            " only one may be set: a ledger with a limit books no answer without an epsilon"
        )
    # most_epsilon is of one answer: without a limit, jobs could have any number of them.
    needs_bound = limits.most_epsilon is not None or limits.least_epsilon_left > 0
    if needs_bound and ledger.spent().limit is None:
        yield (
            f"{ledger.path}: has no limit of what all jobs spend together; python -m synthfair"
            f" ledger {ledger.path} --limit-epsilon EPSILON --limit-delta DELTA"
        )


def _aggregator(path: Path, settings: AggregatorSettings) -> Iterator[str]:
    advice = f"keygen --aggregator --output {settings.key}, and give the server and each site"
    yield from _key(
        settings.key,
        advice,
        lambda key: require_records(settings.records, read_aggregator_secret(key)),
    )
    read_keys([settings.clients])
    if not settings.limits.most_tasks:
        yield f"{path}: limits allow no task: no job may have a sum"


def _key(path: Path, advice: str, read: Callable[[Path], object]) -> Iterator[str]:
    """Lists problems of the key that a party makes itself."""
    if not path.exists():
        public = path.with_suffix(".pub").name
        yield f"{path}: no such key; python -m synthfair {advice} {public}"
        return
    read(path)
    if path.stat().st_mode & 0o077:
        yield f"{path}: others may read it; chmod 600"

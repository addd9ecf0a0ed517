"""The check of a kit: whether it is hardened, and ready to join; a problem is a line."""

from __future__ import annotations

import os
import re
import stat
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

from synthfair.data.schema import Schema, read_schema
from synthfair.data.tables import read_chunks
from synthfair.deploy.aggregator_site import AggregatorSettings, read_site_settings
from synthfair.deploy.hardening import description, folder_problems, problem_lines
from synthfair.deploy.kit import MAX_BYTES, Role, address, certificate, role_of
from synthfair.errors import InputError
from synthfair.files import read_bytes, read_document
from synthfair.privacy.ledger import Ledger
from synthfair.release.keys import read_keys, read_signing_key
from synthfair.secure.aggregator_keys import (
    read_aggregator_folder,
    read_aggregator_secret,
    require_records,
)
from synthfair.task.limits import FILE, ServerSettings, SiteSettings, read_settings

EXPIRES_SOON = timedelta(days=14)


def problems(kit: Path) -> list[str]:
    """List all that speaks against a kit; empty if it is hardened and ready.

    Args:
        kit: folder of a server's, a site's or a submitter's kit.

    Raises:
        InputError: it is no kit.
    """
    kit, role = kit.resolve(), role_of(kit)
    parts = [_surroundings(kit), _modes(kit), _certificates(kit, role)]
    parts += [_identity(kit, role), _files(kit, role)]
    if role != "admin":
        parts.append(_server(kit) if role == "server" else _site(kit))
    return [*dict.fromkeys(problem for part in parts for problem in problem_lines(part))]


def _surroundings(kit: Path) -> Iterator[str]:
    """List what the engine, or Python, would take from elsewhere."""
    for variable, own in (("NVFL_WORKSPACE", str(kit)), ("PYTHONPATH", "")):
        value = os.environ.get(variable)
        if value and value != own:
            yield f"{variable}={value}: its folder, or code, would come from there; unset it"
    for path in (kit, sys.executable):
        if re.search(r"\s", str(path)):
            yield f"{path}: has a blank, and the engine splits its commands there; move it"
    for path in filter(Path.is_symlink, kit.iterdir()):
        yield f"{path}: is a link; put the folder itself here"


def _modes(kit: Path) -> Iterator[str]:
    """List what others on this machine may read, or write to, and must not."""
    if kit.stat().st_mode & 0o077:
        yield f"{kit}: others may read it; chmod 700"
    for folder in (kit / "startup", kit / "local"):
        for path in (folder, *folder.rglob("*")) if folder.exists() else ():
            mode = path.lstat().st_mode
            if mode & 0o022 and not stat.S_ISLNK(mode):
                yield f"{path}: others may write to it; chmod go-w"


def _certificates(kit: Path, role: Role) -> Iterator[str]:
    """List certificates that the root has not signed, or that end."""
    from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm

    leaf, root = certificate(kit, role), certificate(kit, role, root=True)
    try:
        leaf.content.verify_directly_issued_by(root.content)
    except (ValueError, TypeError, UnsupportedAlgorithm, InvalidSignature):
        yield f"{leaf.path}: must be signed by the certificate in {root.path.name}"
    now = datetime.now(UTC)
    for one in (leaf, root):
        end = one.content.not_valid_after_utc
        if not one.content.not_valid_before_utc <= now < end:
            yield f"{one.path}: expired, or not valid yet; valid until {end:%Y-%m-%d}"
        elif end - now < EXPIRES_SOON:
            yield f"{one.path}: expires on {end:%Y-%m-%d}; get another"


def _identity(kit: Path, role: Role) -> Iterator[str]:
    """List where key, certificate and settings are not of one party, or of another server."""
    leaf, (server, port) = certificate(kit, role), address(kit, role)
    if leaf.key != _public_key(leaf.path.with_suffix(".key")):
        yield f"{leaf.path.with_suffix('.key')}: is not the key of {leaf.path.name}"
    must = "lead" if role == "admin" else role
    if leaf.role != must:
        yield f"{leaf.path}: its role is {leaf.role!r}; must be {must!r}"
    if leaf.hosts != [leaf.name]:
        yield f"{leaf.path}: is valid for {leaf.hosts}; must be for {leaf.name!r} alone"
    # A site's certificate would do for a server of its name, and a site's name has no dot.
    if "." not in server and server != "localhost":
        yield f"{kit}: the server {server!r} must be a host with a dot in its name"
    if role == "admin":
        return
    own = kit / "local" / FILE
    settings = read_document(own)
    if leaf.org != (org := settings.get("org")):
        yield f"{leaf.path}: its organisation is {leaf.org!r}; in {own} it is {org!r}"
    if role == "client" and f"{server}:{port}" != (agreed := settings.get("server")):
        yield f"{kit}: connects to {server}:{port}; in {own} the server is {agreed!r}"


def _public_key(path: Path) -> object:
    """Return the public half of a private key."""
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    content = read_bytes(path, MAX_BYTES)
    try:
        return load_pem_private_key(content, None).public_key()
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise InputError(f"{path}: must be a private key without a passphrase") from error


def _files(kit: Path, role: Role) -> Iterator[str]:
    """List where files are not those of a hardened kit of this party."""
    server, port = address(kit, role)
    party, project = (certificate(kit, role, root=root).name for root in (False, True))
    tree = description(role, KIT=kit, PARTY=party, PROJECT=project, SERVER=server, PORT=port)
    for name in ("startup/", "local/"):
        yield from folder_problems(kit / name, tree[name])


def _server(kit: Path) -> Iterator[str]:
    settings = read_settings(kit / "local" / FILE, ServerSettings)
    read_schema(settings.schema_path)
    read_keys([settings.keys])
    if settings.aggregators:
        read_aggregator_folder(settings.aggregators)
    for path in filter(None, (*settings.tests, settings.trusted)):
        if not path.is_file():
            yield f"{path}: no such table"


def _site(kit: Path) -> Iterator[str]:
    path = kit / "local" / FILE
    settings = read_site_settings(path)
    schema = read_schema(settings.schema_path)
    if isinstance(settings, AggregatorSettings):
        yield from _aggregator(path, settings)
        return
    if settings.aggregators:
        read_aggregator_folder(settings.aggregators)
    if not os.access(settings.data, os.R_OK):
        yield f"{settings.data}: no such table, or not readable; data in {path} must name one"
    advice = f"keygen --output {settings.key}, and send the server"
    yield from _key(settings.key, advice, read_signing_key)
    yield from _limits(path, settings, schema)


def _limits(path: Path, settings: SiteSettings, schema: Schema) -> Iterator[str]:
    """List limits of the site that its ledger's limit must bound."""
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
    """List problems of the key that a party makes itself."""
    if not path.exists():
        public = path.with_suffix(".pub").name
        yield f"{path}: no such key; python -m synthfair {advice} {public}"
        return
    read(path)
    if path.stat().st_mode & 0o077:
        yield f"{path}: others may read it; chmod 600"

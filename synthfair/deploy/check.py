"""The check of a kit that is to join a federation: a problem is a line."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from synthfair.data.schema import read_schema
from synthfair.deploy.kit import MAX_KIT_FILE_BYTES, Kit, description, differences, read_yaml
from synthfair.errors import InputError
from synthfair.files import read_bytes, read_document
from synthfair.privacy.ledger import Ledger
from synthfair.release.keys import read_keys, read_signing_key
from synthfair.secure.task import (
    RECORDS,
    read_aggregator_folder,
    read_aggregator_secret,
    require_records,
)
from synthfair.task.limits import (
    ServerSettings,
    SiteSettings,
    read_settings,
    read_site_settings,
)

MIN_VALIDITY = timedelta(days=14)
"""The time for which a certificate must hold, so that another can be had before it ends."""


def problems(folder: Path) -> list[str]:
    """List all that speaks against a kit; empty if it is hardened and ready.

    Args:
        folder: a server's, a site's or a submitter's kit.

    Raises:
        InputError: it is no kit.
    """
    kit = Kit(folder)
    checks = [_surroundings, _certificates, _identity, _files]
    if kit.role != "admin":
        checks.append(_server if kit.role == "server" else _site)
    return [*dict.fromkeys(line for check in checks for line in _problem_lines(check(kit)))]


def _surroundings(kit: Kit) -> Iterator[str]:
    """List where the engine would look elsewhere, or others may look in."""
    if kit.folder.stat().st_mode & 0o077:
        yield f"{kit.folder}: others may read it; chmod 700"
    for folder in (kit.startup.parent, kit.settings_path.parent):
        for path in (folder, *folder.rglob("*")):
            if path.exists() and not path.is_symlink() and path.stat().st_mode & 0o022:
                yield f"{path}: others may write to it; chmod go-w"
    for path in (kit.folder, sys.executable):
        if re.search(r"\s", str(path)):
            yield f"{path}: has a blank, and the engine splits its commands there; move it"
    for path in filter(Path.is_symlink, kit.folder.iterdir()):
        yield f"{path}: is a link; put the folder itself here"


def _certificates(kit: Kit) -> Iterator[str]:
    """List certificates that the root has not signed, or that end."""
    from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm

    try:
        kit.party.content.verify_directly_issued_by(kit.root.content)
    except (ValueError, TypeError, UnsupportedAlgorithm, InvalidSignature):
        yield f"{kit.party.path}: must be signed by the certificate in {kit.root.path.name}"
    now = datetime.now(UTC)
    for path, content, *_ in (kit.party, kit.root):
        end = content.not_valid_after_utc
        if not content.not_valid_before_utc <= now < end:
            yield f"{path}: expired, or not valid yet; valid until {end:%Y-%m-%d}"
        elif end - now < MIN_VALIDITY:
            yield f"{path}: expires on {end:%Y-%m-%d}; get another"


def _identity(kit: Kit) -> Iterator[str]:
    """List where key, certificate and settings are not of one party, or of another server."""
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    leaf, (server, port) = kit.party, kit.address
    path = leaf.path.with_suffix(".key")
    content = read_bytes(path, MAX_KIT_FILE_BYTES)
    try:
        is_its_key = load_pem_private_key(content, None).public_key() == leaf.content.public_key()
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise InputError(f"{path}: must be a private key without a passphrase") from error
    if not is_its_key:
        yield f"{path}: is not the key of {leaf.path.name}"
    must = "lead" if kit.role == "admin" else kit.role
    if leaf.role != must:
        yield f"{leaf.path}: its role is {leaf.role!r}; must be {must!r}"
    if leaf.hosts != [leaf.name]:
        yield f"{leaf.path}: is valid for {leaf.hosts}; must be for {leaf.name!r} alone"
    # A site's certificate would do for a server of its name, and a site's name has no dot.
    if "." not in server and server != "localhost":
        yield f"{kit.folder}: the server {server!r} must be a host with a dot in its name"
    if kit.role == "admin":
        return
    path, settings = kit.settings_path, read_document(kit.settings_path)
    if leaf.org != (org := settings.get("org")):
        yield f"{leaf.path}: its organisation is {leaf.org!r}; in {path} it is {org!r}"
    if kit.role == "client" and f"{server}:{port}" != (agreed := settings.get("server")):
        yield f"{kit.folder}: connects to {server}:{port}; in {path} the server is {agreed!r}"


def _files(kit: Kit) -> Iterator[str]:
    """List where files are not those of a hardened kit of this party."""
    (server, port), party, project = kit.address, kit.party.name, kit.root.name
    values = {"PARTY": party, "PROJECT": project, "SERVER": server, "PORT": port}
    tree = description(kit.role, KIT=str(kit.folder), **values)
    for name in ("startup/", "local/"):
        yield from _folder_problems(kit.folder / name, tree[name])


def _folder_problems(folder: Path, tree: dict[str, Any]) -> Iterator[str]:
    """List where a folder is not what it must be, one line each.

    Args:
        folder: of a kit, such as ``local``.
        tree: what :func:`description` says of it.
    """
    if folder.is_symlink() or not folder.is_dir():
        yield f"{folder}: must be a folder, and no link to one"
        return
    # Nothing else lies in it, and nothing behind a link.
    for path in sorted(folder.iterdir()):
        name = f"{path.name}/" if path.is_dir() else path.name
        is_known = any(fnmatchcase(name, pattern) for pattern in tree)
        if path.is_symlink():
            yield f"{path}: is a link; put the file itself here"
        elif not is_known or not (path.is_dir() or path.is_file()):
            yield f"{path}: not part of a hardened kit; remove it"
    # Each file is what it must be.
    for name, must in tree.items():
        path = folder / name
        if name.endswith("/") and path.is_dir():
            yield from _folder_problems(path, must)
        elif must == "private" and (not path.is_file() or path.stat().st_mode & 0o077):
            yield f"{path}: must be a file that its owner alone may read; chmod 600"
        elif isinstance(must, dict) and not name.endswith("/"):
            yield from _problem_lines(_file_problems(path, must))


def _problem_lines(problems: Iterator[str]) -> Iterator[str]:
    """List problems; where their search cannot go on, what stopped it."""
    try:
        yield from problems
    except InputError as error:
        yield from str(error).splitlines()


def _file_problems(path: Path, must: dict[str, Any]) -> Iterator[str]:
    content, reasons = must.get("absent", {}) | read_document(path), must.get("why", {})
    if template := must.get("template"):
        import nvflare

        templates = Path(nvflare.__file__).parent / "lighter" / "templates" / "master_template.yml"
        required = json.loads(read_yaml(templates)[template])
    else:
        required = must.get("settings") or must["connection"]
    for where, problem in differences(content, required):
        reason = next((f" ({reasons[key]})" for key in where.split(".") if key in reasons), "")
        yield f"{path}: {where}{problem}{reason}"


def _server(kit: Kit) -> Iterator[str]:
    settings = read_settings(kit.settings_path, ServerSettings)
    read_schema(settings.schema_path)
    read_keys([settings.keys])
    if settings.aggregators:
        read_aggregator_folder(settings.aggregators)
    for path in filter(None, (*settings.tests, settings.trusted)):
        if not path.is_file():
            yield f"{path}: no such table"


def _site(kit: Kit) -> Iterator[str]:
    settings = read_site_settings(kit.settings_path)
    read_schema(settings.schema_path)
    key = settings.key
    if not key.exists():
        yield f"{key}: no such key; python -m synthfair keygen makes it, with a public one to give"
    elif key.stat().st_mode & 0o077:
        yield f"{key}: others may read it; chmod 600"
    if isinstance(settings, SiteSettings):
        yield from _table(kit, settings)
        return
    if not settings.limits.most_tasks:
        yield f"{kit.settings_path}: limits allow no task: no job may have a sum"
    read_keys([settings.clients])
    require_records(key.with_suffix(RECORDS), read_aggregator_secret(key))


def _table(kit: Kit, settings: SiteSettings) -> Iterator[str]:
    """List problems of a site's table, of limits that its ledger's limit must bound, of its key."""
    path, limits, ledger = kit.settings_path, settings.limits, Ledger(settings.ledger_file)
    if settings.aggregators:
        read_aggregator_folder(settings.aggregators)
    if not os.access(settings.data, os.R_OK):
        yield f"{settings.data}: no such table, or not readable; data in {path} must name one"
    if not limits.kinds:
        yield f"{path}: limits: kinds allow none: no job may have anything"
    if limits.most_epsilon is not None and limits.without_epsilon:
        yield f"{path}: limits: most_epsilon and without_epsilon exclude each other; set one"
    # most_epsilon is of one answer: without a limit, jobs could have any number of them.
    needs_bound = limits.most_epsilon is not None or limits.least_epsilon_left > 0
    if needs_bound and ledger.spent().limit is None:
        yield f"{ledger.path}: has no limit for all jobs; python -m synthfair ledger sets one"
    read_signing_key(settings.key)

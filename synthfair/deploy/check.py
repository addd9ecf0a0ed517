"""Looks whether a kit is hardened, and ready to join: what is not is said, one line each."""

from __future__ import annotations

import json
import os
import re
import stat
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from typing import Any

from synthfair.data.schema import read_schema
from synthfair.data.tables import count_rows
from synthfair.deploy.aggregator import AggregatorSettings
from synthfair.deploy.hardening import (
    KEY_FOLDERS,
    LOCAL_FILES,
    LOGS,
    PERMISSIONS,
    SCRIPTS,
    SHARED_FILES,
    Role,
    connection,
    resources,
    role_of,
    startup_file,
)
from synthfair.deploy.jobs import read_site_settings
from synthfair.errors import InputError
from synthfair.files import read_bytes, read_document
from synthfair.privacy.ledger import Ledger
from synthfair.release.keys import read_keys, read_signing_key
from synthfair.secure.aggregator_keys import (
    read_aggregator_folder,
    read_aggregator_secret,
    require_records,
)
from synthfair.task.settings import (
    FILE,
    ServerSettings,
    SiteSettings,
    read_settings,
)

EXPIRES_SOON = timedelta(days=14)

KEYS = (".key", ".pub")
"""Endings of a site's own keys, in its folder ``local``."""

MOST_BYTES = 2**20
"""Of a script or a certificate of a kit."""

CODE_FOR_ALL = Path("/local/custom")
"""The engine's scripts put it before everything else that Python imports."""


def problems(kit: Path) -> list[str]:
    """All that speaks against a kit; none if it is hardened and ready.

    Args:
        kit: folder of a server's, a site's or a submitter's kit.

    Raises:
        InputError: it is no kit.
    """
    kit, role = kit.resolve(), role_of(kit)
    parts = [_private(kit, role), _files(kit, role), _startup(kit, role), _certificate(kit, role)]
    if role != "admin":
        parts += [_logs(kit), _resources(kit, role), _permissions(kit)]
        parts.append(_server(kit) if role == "server" else _site(kit))
    return [problem for part in parts for problem in _said(part)]


def _said(part: Iterator[str]) -> Iterator[str]:
    """A part's problems; where it cannot go on, what stopped it."""
    try:
        yield from part
    except InputError as error:
        yield from str(error).splitlines()


def _private(kit: Path, role: Role) -> Iterator[str]:
    """Others on this machine must not read the kit, nor write to what it runs."""
    if kit.stat().st_mode & 0o077:
        yield f"{kit}: others may read it; chmod 700"
    key = kit / "startup" / ("server.key" if role == "server" else "client.key")
    if not key.is_file() or key.stat().st_mode & 0o077:
        yield f"{key}: must be a file that its owner alone may read; chmod 600"
    for path in (kit / "startup", kit / "local"):
        for found in (path, *path.rglob("*")):
            mode = found.lstat().st_mode
            if mode & 0o022 and not stat.S_ISLNK(mode):
                yield f"{found}: others may write to it; chmod go-w"


def _files(kit: Path, role: Role) -> Iterator[str]:
    """Nothing else may lie where the engine looks for settings and code, not behind a link."""
    kind = "server" if role == "server" else "client"
    connecting = {startup_file(kit, role).name, f"{kind}.crt", f"{kind}.key", "rootCA.pem"}
    shared = frozenset() if role == "admin" else SHARED_FILES
    allowed = {
        kit / "startup": connecting | SCRIPTS[role].keys(),
        kit / "local": shared | LOCAL_FILES[role],
    }
    for folder, names in allowed.items():
        for found in sorted(folder.iterdir()):
            is_key = role == "client" and folder.name == "local" and found.suffix in KEYS
            is_folder = found.name in KEY_FOLDERS
            if found.is_symlink():
                yield f"{found}: is a link; put the file itself here"
            elif not (found.name in names or is_key) or found.is_dir() != is_folder:
                yield f"{found}: not part of a hardened kit; remove it"
    for keys in (kit / "local" / name for name in sorted(KEY_FOLDERS & LOCAL_FILES[role])):
        for found in sorted(keys.iterdir()) if keys.is_dir() else ():
            if found.suffix != ".pub" or found.is_symlink() or not found.is_file():
                yield f"{found}: not a public key, NAME.pub; remove it"
    if CODE_FOR_ALL.exists():
        yield f"{CODE_FOR_ALL}: exists, and the engine would import code from it; remove it"


def _startup(kit: Path, role: Role) -> Iterator[str]:
    """Where it connects to, and how: both sides show certificates, and jobs are signed."""
    path = startup_file(kit, role)
    for problem in _differences(read_document(path), connection(role)):
        yield f"{path}: {problem}"
    yield from _scripts(kit, role)
    if role == "admin":
        path = kit / "local" / "resources.json.default"
        if read_document(path) != json.loads(_templates()["default_admin_resources"]):
            yield f"{path}: not the engine's own settings of a submitter"


def _differences(found: Any, wanted: Any, where: str = "") -> Iterator[str]:
    """Where a document is not what it must be."""
    if isinstance(wanted, dict) and isinstance(found, dict):
        for key in sorted(found.keys() | wanted.keys()):
            inner = f"{where}.{key}" if where else key
            if key not in wanted:
                yield f"{inner} is not part of a hardened kit; remove it"
            elif key not in found:
                yield f"{inner} is missing" + _must(wanted[key])
            else:
                yield from _differences(found[key], wanted[key], inner)
    elif isinstance(wanted, list) and isinstance(found, list) and len(found) == len(wanted):
        for number, (one, must) in enumerate(zip(found, wanted, strict=True)):
            yield from _differences(one, must, f"{where}.{number}")
    elif not _fits(found, wanted):
        yield f"{where} is {_short(found)}" + _must(wanted)


def _fits(found: Any, wanted: Any) -> bool:
    if isinstance(wanted, re.Pattern):
        return isinstance(found, str) and wanted.fullmatch(found) is not None
    if wanted is int:
        return type(found) is int
    return type(found) is type(wanted) and found == wanted


def _must(wanted: Any) -> str:
    named = wanted is int or isinstance(wanted, re.Pattern | dict | list)
    return "" if named else f"; must be {wanted!r}"


@cache
def _templates() -> dict[str, str]:
    """What the engine's own files are made of, by name."""
    import nvflare
    import yaml

    path = Path(nvflare.__file__).parent / "lighter" / "templates" / "master_template.yml"
    return yaml.safe_load(path.read_text(encoding="utf-8"))


def _scripts(kit: Path, role: Role) -> Iterator[str]:
    """The scripts that start it must be the engine's own."""
    known = _templates()
    for name, template in SCRIPTS[role].items():
        path = kit / "startup" / name
        fixed = re.split(r"\{~~\w+~~\}", known[template].strip())
        pattern = r"[\w@.=-]*".join(map(re.escape, fixed))
        try:
            text = read_bytes(path, MOST_BYTES).decode().strip()
        except ValueError:  # unreadable, or not UTF-8
            text = ""
        if not re.fullmatch(pattern, text):
            yield f"{path}: not the engine's own script"


def _certificate(kit: Path, role: Role) -> Iterator[str]:
    from cryptography import x509
    from cryptography.exceptions import InvalidSignature

    kind = "server" if role == "server" else "client"
    path, root_path = kit / "startup" / f"{kind}.crt", kit / "startup" / "rootCA.pem"
    try:
        (own,) = x509.load_pem_x509_certificates(read_bytes(path, MOST_BYTES))
        # One more would be trusted as well.
        (root,) = x509.load_pem_x509_certificates(read_bytes(root_path, MOST_BYTES))
        own.verify_directly_issued_by(root)
    except InputError:
        yield f"{path}: it, or {root_path.name}, cannot be read"
        return
    except (ValueError, TypeError, InvalidSignature):
        yield f"{path}: must be one certificate that the one in {root_path.name} has signed"
        return
    now = datetime.now(UTC)
    for file, certificate in ((path, own), (root_path, root)):
        end = certificate.not_valid_after_utc
        if not certificate.not_valid_before_utc <= now < end:
            yield f"{file}: expired, or not valid yet; valid until {end:%Y-%m-%d}"
        elif end - now < EXPIRES_SOON:
            yield f"{file}: expires on {end:%Y-%m-%d}; get another"


def _logs(kit: Path) -> Iterator[str]:
    """Python makes any object that settings of logs name, and could send them anywhere."""
    path = kit / "local" / LOGS
    if read_document(path) != json.loads(_templates()["log_config"]):
        yield f"{path}: not the engine's own settings of logs"


def _resources(kit: Path, role: Role) -> Iterator[str]:
    path = kit / "local" / "resources.json"
    found, wanted = read_document(path), resources(role, kit)
    why = {
        "class_allow_list": "exactly the classes of synthfair: a job must load no others",
        "class_list_enforcement_mode": "else classes that are not listed are loaded as well",
        "app_validator": "else a job may include files and read the environment",
        "allow_log_streaming": "else the error log, which may quote the table, goes to the server",
        "snapshot_persistor": "in this kit: elsewhere, others on the machine may read it",
    }
    for key in sorted(wanted.keys() | found.keys()):
        if key == "components" or found.get(key) == wanted.get(key):
            continue
        reason = f" ({why[key]})" if key in why else ""
        is_, must = _short(found.get(key)), _short(wanted.get(key))
        yield f"{path}: {key} is {is_}; must be {must}{reason}"
    listed = found.get("components")
    components = listed if isinstance(listed, list) else []
    for component in components:
        if component not in wanted["components"]:
            yield f"{path}: components: {_short(component)} is not part of a hardened kit"
    for component in wanted["components"]:
        if component not in components:
            yield f"{path}: components: {_short(component)} is missing"


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 300 else text[:297] + "..."


def _permissions(kit: Path) -> Iterator[str]:
    path = kit / "local" / "authorization.json"
    found = read_document(path).get("permissions")
    if not isinstance(found, dict) or not found:
        yield f"{path}: permissions are missing"
        return
    for role, rights in found.items():
        allowed = PERMISSIONS.get(role)
        if allowed is None or not isinstance(rights, dict):
            yield f"{path}: permissions.{role} must be rights of one of {sorted(PERMISSIONS)}"
            continue
        for right, value in rights.items():
            if value not in ("none", allowed.get(right)):
                yield (
                    f"{path}: permissions.{role}.{right} is {_short(value)}; must be"
                    f" {allowed.get(right, 'none')!r}"
                )


def _server(kit: Path) -> Iterator[str]:
    settings = read_settings(kit / "local" / FILE, ServerSettings)
    read_schema(settings.schema_path)
    read_keys([settings.keys])
    if settings.aggregators:
        read_aggregator_folder(settings.aggregators)
    for path in settings.tests:
        if not path.is_file():
            yield f"{path}: no such test table"


def _site(kit: Path) -> Iterator[str]:
    path = kit / "local" / FILE
    settings = read_site_settings(path)
    read_schema(settings.schema_path)
    if isinstance(settings, AggregatorSettings):
        yield from _aggregator(path, settings)
        return
    if settings.aggregators:
        read_aggregator_folder(settings.aggregators)
    if not settings.data.exists():
        yield f"{settings.data}: no such table; data in {path} must name the site's own"
    elif not os.access(settings.data, os.R_OK):
        yield f"{settings.data}: cannot be read"
    if not settings.key.exists():
        yield (
            f"{settings.key}: no such key; python -m synthfair keygen --output {settings.key}, and"
            f" send the server {settings.key.with_suffix('.pub').name}"
        )
    else:
        read_signing_key(settings.key)
        if settings.key.stat().st_mode & 0o077:
            yield f"{settings.key}: others may read it; chmod 600"
    yield from _limits(path, settings)


def _limits(path: Path, settings: SiteSettings) -> Iterator[str]:
    """What the site's limits allow, and its ledger's limit must bound."""
    limits = settings.limits
    if not limits.kinds:
        yield f"{path}: limits: kinds allow none: no job may have anything"
    least = limits.least_rows or 0
    if least and settings.data.exists() and (n := count_rows(settings.data)) < least:
        yield f"{settings.data}: {n} rows; limits: least_rows is {least}"
    ledger = Ledger(settings.ledger_file)
    if limits.most_epsilon is not None and limits.without_epsilon:
        yield (
            f"{path}: limits: most_epsilon is {limits.most_epsilon:g} and without_epsilon is true;"
            " only one may be set: a ledger with a limit books no answer without an epsilon"
        )
    # most_epsilon is of one answer: without a limit, jobs could have any number of them.
    bounded = limits.most_epsilon is not None or limits.least_epsilon_left > 0
    if bounded and ledger.spent().limit is None:
        yield (
            f"{ledger.path}: has no limit of what all jobs spend together; python -m synthfair"
            f" ledger {ledger.path} --limit-epsilon EPSILON --limit-delta DELTA"
        )


def _aggregator(path: Path, settings: AggregatorSettings) -> Iterator[str]:
    if not settings.key.exists():
        yield (
            f"{settings.key}: no such key; python -m synthfair secure key --output {settings.key},"
            f" and give {settings.key.with_suffix('.pub').name} to the server and to each site"
        )
    else:
        require_records(settings.records, read_aggregator_secret(settings.key))
        if settings.key.stat().st_mode & 0o077:
            yield f"{settings.key}: others may read it; chmod 600"
    read_keys([settings.clients])
    if not settings.limits.most_tasks:
        yield f"{path}: limits allow no task: no job may have a sum"

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
from synthfair.deploy.hardening import (
    LOCAL_FILES,
    LOGS,
    PERMISSIONS,
    SHARED_FILES,
    Role,
    read_document,
    resources,
    role_of,
    startup_file,
)
from synthfair.deploy.settings import (
    FILE,
    AggregatorSettings,
    ServerSettings,
    read_settings,
    read_site_settings,
)
from synthfair.errors import InputError
from synthfair.privacy.ledger import Ledger
from synthfair.release.keys import read_keys, read_signing_key
from synthfair.secure.aggregator_keys import (
    read_aggregator_folder,
    read_aggregator_secret,
    require_records,
)

EXPIRES_SOON = timedelta(days=14)

SCRIPTS: dict[Role, dict[str, str]] = {
    "server": {"start.sh": "start_svr_sh", "sub_start.sh": "sub_start_sh"},
    "client": {"start.sh": "start_cln_sh", "sub_start.sh": "sub_start_sh"},
    "admin": {"fl_admin.sh": "fl_admin_sh"},
}
"""By role: the engine's scripts, and their names among its templates."""

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
    parts = [_private(kit, role), _startup(kit, role), _certificate(kit, role)]
    if role != "admin":
        parts += [_files(kit, role), _resources(kit, role), _permissions(kit)]
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


def _startup(kit: Path, role: Role) -> Iterator[str]:
    path = startup_file(kit, role)
    found = read_document(path)
    if found.get("require_signed_jobs", True) is not True:
        yield f"{path}: require_signed_jobs must be true: jobs are signed by who submits them"
    for where, value in _values(found, "connection_security"):
        if value != "mtls":
            yield f"{path}: {where} is {value!r}; must be 'mtls': both sides show certificates"
    if not any(True for _ in _values(found, "connection_security")):
        yield f"{path}: connection_security is missing; must be 'mtls'"
    yield from _scripts(kit, role)
    if CODE_FOR_ALL.exists():
        yield f"{CODE_FOR_ALL}: exists, and the engine would import code from it; remove it"


def _values(found: Any, key: str, where: str = "") -> Iterator[tuple[str, Any]]:
    """Every value of a key, at any depth, and where it stands."""
    if isinstance(found, dict):
        for name, value in found.items():
            if name == key:
                yield f"{where}{name}", value
            yield from _values(value, key, f"{where}{name}.")
    elif isinstance(found, list):
        for number, value in enumerate(found):
            yield from _values(value, key, f"{where}{number}.")


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
            text = path.read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError):
            text = ""
        if not re.fullmatch(pattern, text):
            yield f"{path}: not the engine's own script"


def _certificate(kit: Path, role: Role) -> Iterator[str]:
    from cryptography import x509
    from cryptography.exceptions import InvalidSignature

    path, root_path = kit / "startup" / f"{_kind(role)}.crt", kit / "startup" / "rootCA.pem"
    try:
        own = x509.load_pem_x509_certificate(path.read_bytes())
        root = x509.load_pem_x509_certificate(root_path.read_bytes())
        own.verify_directly_issued_by(root)
    except OSError:
        yield f"{path}: it, or {root_path.name}, cannot be read"
        return
    except (ValueError, TypeError, InvalidSignature):
        yield f"{path}: not a certificate that {root_path.name} has signed"
        return
    now = datetime.now(UTC)
    for file, certificate in ((path, own), (root_path, root)):
        end = certificate.not_valid_after_utc
        if not certificate.not_valid_before_utc <= now < end:
            yield f"{file}: expired, or not valid yet; valid until {end:%Y-%m-%d}"
        elif end - now < EXPIRES_SOON:
            yield f"{file}: expires on {end:%Y-%m-%d}; get another"


def _kind(role: Role) -> str:
    return "server" if role == "server" else "client"


def _files(kit: Path, role: Role) -> Iterator[str]:
    """Nothing else may lie where the engine looks for settings and code."""
    allowed = SHARED_FILES | LOCAL_FILES[role]
    for found in sorted((kit / "local").iterdir()):
        is_key = role == "client" and found.suffix in (".key", ".pub")
        if found.name not in allowed and not is_key:
            yield f"{found}: not part of a hardened kit; remove it"
    logs = kit / "local" / LOGS
    # Python makes any object that settings of logs name, and could send them anywhere.
    if read_document(logs) != json.loads(_templates()["log_config"]):
        yield f"{logs}: not the engine's own settings of logs"


def _resources(kit: Path, role: Role) -> Iterator[str]:
    path = kit / "local" / "resources.json"
    found, wanted = read_document(path), resources(role, kit)
    why = {
        "class_allow_list": "exactly the classes of synthfair: a job must load no others",
        "class_list_enforcement_mode": "else classes that are not listed are loaded as well",
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
    limits = settings.limits
    if not limits.releases and not limits.most_rounds:
        yield f"{path}: limits allow no release and no round: no job may have anything"
    ledger = Ledger(settings.ledger_file)
    if limits.least_epsilon_left > 0 and ledger.spent().limit is None:
        yield f"{ledger.path}: has no limit, of which least_epsilon_left could be left"


def _aggregator(path: Path, settings: AggregatorSettings) -> Iterator[str]:
    if not settings.key.exists():
        yield (
            f"{settings.key}: no such key; python -m synthfair secure key --output {settings.key},"
            f" and give {settings.key.with_suffix('.pub').name} to the server and to each site"
        )
    else:
        require_records(settings.records, read_aggregator_secret(settings.key).public)
        if settings.key.stat().st_mode & 0o077:
            yield f"{settings.key}: others may read it; chmod 600"
    read_keys([settings.clients])
    if not settings.limits.most_tasks:
        yield f"{path}: limits allow no task: no job may have a sum"

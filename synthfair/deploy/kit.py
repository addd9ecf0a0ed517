"""A party's kit: the party that it is made for, and how the engine starts in it.

``nvflare package`` makes a kit of a private key, which never leaves the party that has made it, and
of the certificate that the hub has signed.
"""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, cast, get_args

from synthfair.errors import InputError
from synthfair.files import read_bytes, read_document

if TYPE_CHECKING:
    from cryptography.x509 import Certificate

MAX_BYTES = 2**20
"""The largest size of a file of a kit."""

Role = Literal["server", "client", "admin"]
"""The engine's name of a party's role; a client is a site, an admin a submitter."""

KEPT_VARIABLES = ("HOME", "OMP_NUM_THREADS", "CUDA_VISIBLE_DEVICES")
"""Variables of the environment that the engine gets: where its user's files are, and what of the
machine it may use."""

PROGRAMS: dict[Role, str] = {"server": "server.server_train", "client": "client.client_train"}
"""The engine's programs, in the package nvflare.private.fed.app."""


def role_of(kit: Path) -> Role:
    """Return the role of the party that a kit is made for.

    Raises:
        InputError: the folder is no kit.
    """
    present: list[Role] = [role for role in get_args(Role) if startup_file(kit, role).is_file()]
    if len(present) != 1:
        raise InputError(f"{kit}: not a kit: must have one of startup/fed_*.json")
    return present[0]


def startup_file(kit: Path, role: Role) -> Path:
    """Return the path of the engine's settings of who the party is, and where it connects to."""
    return kit / "startup" / f"fed_{role}.json"


def address(kit: Path, role: Role) -> tuple[str, int]:
    """Return host and port of the server, as the engine's settings of a kit have them.

    Raises:
        InputError: the settings cannot be read, or have none.
    """
    path = startup_file(kit, role)
    document = read_document(path)
    try:
        if role == "admin":
            target = "{host}:{port}".format_map(document["admin"])
        else:
            target = document["servers"][0]["service"]["target"]
        if parts := re.fullmatch(r"([\w.-]{1,253}):(\d{1,5})", target):
            return parts[1], int(parts[2])
    except (LookupError, TypeError, AttributeError):
        pass
    raise InputError(f"{path}: names no server with its port")


class PartyCertificate(NamedTuple):
    """A certificate of a kit, and what it says.

    Attributes:
        path: of its file.
        content: as it is signed.
        key: the public key in it.
        name: of the party.
        role: server, client or lead; empty in the root's.
        org: the party's organisation; empty in the root's.
        hosts: names under which the party may be connected to.
    """

    path: Path
    content: Certificate
    key: Any
    name: str
    role: str
    org: str
    hosts: list[str]


def certificate(kit: Path, role: Role, *, root: bool = False) -> PartyCertificate:
    """Read a party's certificate, or that of the root which all of them trust.

    Raises:
        InputError: it cannot be read, or the file holds more than one, which would be trusted, too.
    """
    from cryptography import x509
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.x509.oid import NameOID

    own = "server.crt" if role == "server" else "client.crt"
    path = kit / "startup" / ("rootCA.pem" if root else own)
    pem = read_bytes(path, MAX_BYTES)
    try:
        (content,) = x509.load_pem_x509_certificates(pem)
        parts = NameOID.COMMON_NAME, NameOID.UNSTRUCTURED_NAME, NameOID.ORGANIZATION_NAME
        subject = [content.subject.get_attributes_for_oid(part) for part in parts]
        name, role_in_it, org = (", ".join(str(a.value) for a in values) for values in subject)
        names = [e.value for e in content.extensions if e.oid == x509.SubjectAlternativeName.oid]
        hosts = [str(host.value) for extension in names for host in cast(Any, extension)]
        return PartyCertificate(path, content, content.public_key(), name, role_in_it, org, hosts)
    except (ValueError, UnsupportedAlgorithm, x509.DuplicateExtension) as error:
        raise InputError(f"{path}: must be one certificate") from error


def start(kit: Path) -> None:
    """Run the engine in a kit, in the place of this process, with a clean environment.

    The engine's own script would take its folder from NVFL_WORKSPACE and code from PYTHONPATH.

    Args:
        kit: of the server or a site, which :func:`synthfair.deploy.check.problems` has found ready.

    Raises:
        InputError: it is a submitter's.
    """
    kit, role = kit.resolve(), role_of(kit)
    if role == "admin":
        raise InputError(f"{kit}: a submitter's kit; deploy run submits its jobs")
    party = certificate(kit, role)
    uid = [f"uid={party.name}"] if role == "client" else []
    argv = [sys.executable, "-u", "-m", f"nvflare.private.fed.app.{PROGRAMS[role]}"]
    argv += ["-m", str(kit), "-s", startup_file(kit, role).name]
    argv += ["--set", "secure_train=true", *uid, f"org={party.org}", "config_folder="]
    path = os.pathsep.join((str(Path(sys.executable).parent), os.defpath))
    os.umask(0o077)
    (kit / "transfer").mkdir(exist_ok=True)
    # Python must not import from the folder that it is started in, and the engine must not keep
    # large messages where all users of the machine can write.
    clean = {name: value for name in KEPT_VARIABLES if (value := os.environ.get(name))}
    clean |= {"PATH": path, "PYTHONSAFEPATH": "1", "NVFLARE_DATUM_DIR": str(kit / "transfer")}
    os.execve(sys.executable, argv, clean)  # noqa: S606 - our own arguments

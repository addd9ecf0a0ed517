"""A party's kit: the party that it is made for, and how the engine starts in it.

``nvflare package`` makes a kit of a private key, which never leaves the party that has made it, and
of the certificate that the hub has signed.
"""

from __future__ import annotations

import os
import re
import sys
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, cast, get_args

from synthfair.errors import InputError
from synthfair.files import read_bytes, read_document
from synthfair.task.limits import FILE

if TYPE_CHECKING:
    from cryptography.x509 import Certificate

VERSION = "2.9.0"
"""The engine's version, the same at all sites: hardened kits were derived for this one."""

MAX_BYTES = 2**20
"""The largest size of a file of a kit."""

Role = Literal["server", "client", "admin"]
"""The engine's name of a party's role; a client is a site, an admin a submitter."""

KEPT_VARIABLES = ("HOME", "OMP_NUM_THREADS", "CUDA_VISIBLE_DEVICES")
"""Variables of the environment that the engine gets: where its user's files are, and what of the
machine it may use."""

PROGRAMS: dict[Role, str] = {"server": "server.server_train", "client": "client.client_train"}
"""The engine's programs, in the package nvflare.private.fed.app."""


class PartyCertificate(NamedTuple):
    """A certificate of a kit, and what it says.

    Attributes:
        path: of its file.
        content: as it is signed.
        name: of the party.
        role: server, client or lead; empty in the root's.
        org: the party's organisation; empty in the root's.
        hosts: names under which the party may be connected to.
    """

    path: Path
    content: Certificate
    name: str
    role: str
    org: str
    hosts: list[str]


class Kit:
    """A kit, of which files are read when they are asked for, once.

    Attributes:
        folder: absolute.
        role: of the party that it is made for.
        startup: the engine's settings of who the party is, and where it connects to.
        own: the party's own settings.
    """

    def __init__(self, folder: Path) -> None:
        """Find the role. Raises InputError: the folder is no kit."""
        self.folder = folder.resolve()
        startup = {role: self.folder / "startup" / f"fed_{role}.json" for role in get_args(Role)}
        roles = [role for role, path in startup.items() if path.is_file()]
        if len(roles) != 1:
            raise InputError(f"{folder}: not a kit: must have one of startup/fed_*.json")
        self.role: Role = roles[0]
        self.startup, self.own = startup[self.role], self.folder / "local" / FILE

    @cached_property
    def address(self) -> tuple[str, int]:
        """Host and port of the server. Raises InputError: the engine's settings have none."""
        document = read_document(self.startup)
        try:
            if self.role == "admin":
                target = "{host}:{port}".format_map(document["admin"])
            else:
                target = document["servers"][0]["service"]["target"]
            if parts := re.fullmatch(r"([\w.-]{1,253}):(\d{1,5})", target):
                return parts[1], int(parts[2])
        except (LookupError, TypeError, AttributeError):
            pass
        raise InputError(f"{self.startup}: names no server with its port")

    @cached_property
    def party(self) -> PartyCertificate:
        """The party's certificate. Raises InputError: as :func:`read_certificate`."""
        name = "server" if self.role == "server" else "client"
        return read_certificate(self.folder / "startup" / f"{name}.crt")

    @cached_property
    def root(self) -> PartyCertificate:
        """The root's certificate, which all trust. Raises InputError: as above."""
        return read_certificate(self.folder / "startup" / "rootCA.pem")


def read_certificate(path: Path) -> PartyCertificate:
    """Return a certificate.

    Raises:
        InputError: it cannot be read, or the file holds more than one, which would be trusted, too.
    """
    from cryptography import x509
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.x509.oid import NameOID

    pem = read_bytes(path, MAX_BYTES)
    try:
        (content,) = x509.load_pem_x509_certificates(pem)
        parts = NameOID.COMMON_NAME, NameOID.UNSTRUCTURED_NAME, NameOID.ORGANIZATION_NAME
        subject = [content.subject.get_attributes_for_oid(part) for part in parts]
        name, role, org = (", ".join(str(a.value) for a in values) for values in subject)
        names = [e.value for e in content.extensions if e.oid == x509.SubjectAlternativeName.oid]
        hosts = [str(host.value) for extension in names for host in cast(Any, extension)]
        return PartyCertificate(path, content, name, role, org, hosts)
    except (ValueError, UnsupportedAlgorithm, x509.DuplicateExtension) as error:
        raise InputError(f"{path}: must be one certificate") from error


def start(folder: Path) -> None:
    """Run the engine in a kit, in the place of this process, with a clean environment.

    The engine's own script would take its folder from NVFL_WORKSPACE and code from PYTHONPATH.

    Args:
        folder: the kit of the server or a site, which :func:`synthfair.deploy.check.problems` has
            found ready.

    Raises:
        InputError: it is a submitter's.
    """
    kit = Kit(folder)
    if kit.role == "admin":
        raise InputError(f"{folder}: a submitter's kit; deploy run submits its jobs")
    uid = [f"uid={kit.party.name}"] if kit.role == "client" else []
    argv = [sys.executable, "-u", "-m", f"nvflare.private.fed.app.{PROGRAMS[kit.role]}"]
    argv += ["-m", str(kit.folder), "-s", kit.startup.name]
    argv += ["--set", "secure_train=true", *uid, f"org={kit.party.org}", "config_folder="]
    path = os.pathsep.join((str(Path(sys.executable).parent), os.defpath))
    transfer = kit.folder / "transfer"
    os.umask(0o077)
    transfer.mkdir(exist_ok=True)
    # Python must not import from the folder that it is started in, and the engine must not keep
    # large messages where all users of the machine can write.
    clean = {name: value for name in KEPT_VARIABLES if (value := os.environ.get(name))}
    clean |= {"PATH": path, "PYTHONSAFEPATH": "1", "NVFLARE_DATUM_DIR": str(transfer)}
    os.execve(sys.executable, argv, clean)  # noqa: S606 - our own arguments


def require_engine() -> None:
    """Refuse to go on without the engine, or with another version of it.

    Raises:
        InputError: it is not installed; the message names the extra.
    """
    from importlib.metadata import PackageNotFoundError, version

    try:
        installed = version("nvflare")
    except PackageNotFoundError as error:
        raise InputError(
            "deploy: needs the package nvflare: pip install 'synthfair[nvflare]'"
        ) from error
    if installed != VERSION:
        raise InputError(f"deploy: needs nvflare {VERSION} at all sites; found {installed}")

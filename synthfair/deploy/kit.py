"""The kit of a party: a folder of certificates, keys, settings, from which the engine starts.

``nvflare package`` makes a kit of a private key, which never leaves the party that has made it, and
of the certificate that the hub has signed. ``hardened_kit.yml`` says what a hardened kit is, and
whatever it does not name is refused.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Iterator
from functools import cache, cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, cast, get_args

from synthfair.data.schema import read_schema
from synthfair.errors import InputError
from synthfair.files import read_bytes, read_document, write_json, write_text
from synthfair.task.limits import PARTY_FILE

if TYPE_CHECKING:
    from cryptography.x509 import Certificate

    from synthfair.deploy.project import Project

PROGRESS_COMMAND = "synthfair.progress"
"""The command by which a submitter asks a running job for its progress."""

ENGINE_VERSION = "2.9.0"
"""The engine's version, the same at all sites: hardened kits were derived for this one."""

MAX_KIT_FILE_BYTES = 2**20
"""The largest size of a file of a kit, or of a project."""

Role = Literal["server", "client", "admin"]
"""The engine's name of a party's role; a client is a site, an admin a submitter."""

KEPT_VARIABLES = ("HOME", "OMP_NUM_THREADS", "CUDA_VISIBLE_DEVICES")
"""Variables of the environment that the engine gets: where its user's files are, and what of the
machine it may use."""


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
        settings_path: the party's settings, ``local/synthfair.json``.
    """

    def __init__(self, folder: Path) -> None:
        """Find the role. Raises InputError: the folder is no kit, or there is no engine."""
        require_engine()
        self.folder = folder.resolve()
        startup = {role: self.folder / "startup" / f"fed_{role}.json" for role in get_args(Role)}
        roles = [role for role, path in startup.items() if path.is_file()]
        if len(roles) != 1:
            raise InputError(f"{folder}: not a kit: must have one of startup/fed_*.json")
        self.role: Role = roles[0]
        self.startup, self.settings_path = startup[self.role], self.folder / "local" / PARTY_FILE

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

    pem = read_bytes(path, MAX_KIT_FILE_BYTES)
    try:
        (content,) = x509.load_pem_x509_certificates(pem)
        oids = NameOID.COMMON_NAME, NameOID.UNSTRUCTURED_NAME, NameOID.ORGANIZATION_NAME
        subject = [content.subject.get_attributes_for_oid(oid) for oid in oids]
        name, role, org = (", ".join(str(a.value) for a in values) for values in subject)
        names = [e.value for e in content.extensions if e.oid == x509.SubjectAlternativeName.oid]
        hosts = [str(host.value) for extension in names for host in cast(Any, extension)]
        return PartyCertificate(path, content, name, role, org, hosts)
    except (ValueError, UnsupportedAlgorithm, x509.DuplicateExtension) as error:
        raise InputError(f"{path}: must be one certificate") from error


def description(section: str, **values: Any) -> Any:
    """Return a new copy of a section of ``hardened_kit.yml``.

    Args:
        section: a role; or ``classes``, ``proposals`` or ``job``.
        values: what stands for the words in capital letters, by word.
    """
    text = json.dumps(read_yaml(Path(__file__).with_name("hardened_kit.yml"))[section])
    words = "|".join(values) or "$^"

    def filled(word: re.Match[str]) -> str:
        # A text that is one word becomes the value, of whatever type; others have it in them.
        return json.dumps(values[word[1]]) if word[1] else json.dumps(str(values[word[2]]))[1:-1]

    return json.loads(re.sub(f'"({words})"|({words})', filled, text))


@cache
def read_yaml(path: Path) -> dict[str, Any]:
    """Return a document of the project's own, or of the engine's."""
    import yaml

    return yaml.safe_load(path.read_text(encoding="utf-8"))


def harden(folder: Path, project: Project | None = None) -> Path | None:
    """Replace the engine's defaults in a kit, and propose its party's own file.

    The party's file, once it is there, is kept. A server's kit that has moved is hardened again:
    its stores then lie in it.

    Args:
        folder: the kit that ``nvflare package`` has made.
        project: proposes limits, and brings the schema.

    Returns:
        The party's file, if it was proposed; the party reviews it.

    Raises:
        InputError: the folder is no kit, or has links; or the project's schema is refused, or it
            does not name the kit's party.
    """
    kit = Kit(folder)
    local = kit.settings_path.parent
    for path in (local, *local.rglob("*")):
        if path.is_symlink() or not path.exists():
            raise InputError(f"{path}: is missing, or a link; put the file itself here")
    is_new = kit.role != "admin" and not kit.settings_path.exists()
    proposal = _proposal(kit, project) if is_new else {}
    schema = read_schema(project.schema_path).to_json() if proposal and project else ""
    # The engine's defaults are replaced where they are not safe, and what nobody needs is removed.
    tree = description(kit.role, KIT=str(kit.folder))
    kit.folder.chmod(0o700)
    for name, must in tree["local/"].items():
        if isinstance(must, dict) and "settings" in must:
            write_json(local / name, must["settings"])
    for path in [path for pattern in tree["removals"] for path in kit.folder.glob(pattern)]:
        path.unlink()
    # The party's own: its file, the schema, and folders for public keys.
    if not proposal:
        return None
    for key in {"keys", "aggregators", "clients"} & proposal.keys():
        (local / proposal[key]).mkdir(exist_ok=True)
    if schema:
        write_text(local / "schema.json", schema)
    write_json(kit.settings_path, proposal)
    return kit.settings_path


def _proposal(kit: Kit, project: Project | None) -> dict[str, Any]:
    """Return what is proposed for ``local/synthfair.json``."""
    name, proposals = kit.party.name, description("proposals", PARTY=kit.party.name)
    document = proposals[kit.role] | {"org": kit.party.org}
    if project and kit.role == "client":
        parties = {party.name: party for party in (*project.sites, *project.aggregators)}
        if name not in parties:
            raise InputError(f"project: has no {name!r}; its sites are {', '.join(parties)}")
        if parties[name] in project.aggregators:
            document = proposals["aggregator"]
        limits = parties[name].limits.model_dump(mode="json")
        document |= {"org": parties[name].org, "limits": limits}
    if not (project and project.aggregators):
        document.pop("aggregators", None)
    return document if kit.role == "server" else document | {"server": "{}:{}".format(*kit.address)}


def differences(content: Any, must: Any, where: str = "") -> Iterator[tuple[str, str]]:
    """List where a document is not what it must be: keys, joined by dots, and what is wrong there.

    Args:
        content: of JSON.
        must: the same; ANYTHING in it is whatever it is in the content.
        where: keys of the document in another.
    """
    if isinstance(must, list) and isinstance(content, list) and len(content) == len(must):
        must, content = dict(enumerate(must)), dict(enumerate(content))
    if isinstance(must, dict) and isinstance(content, dict):
        for key in sorted(must.keys() | content.keys()):
            inner = f"{where}.{key}" if where else key
            if key not in must:
                yield inner, f": {content[key]!r:.300} does not belong here; remove it"
            elif key not in content:
                yield inner, f" is missing; must be {must[key]!r:.300}"
            else:
                yield from differences(content[key], must[key], inner)
    elif must != "ANYTHING" and (type(content) is not type(must) or content != must):
        yield where, f" is {content!r:.300}; must be {must!r:.300}"


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
    program = f"nvflare.private.fed.app.{kit.role}.{kit.role}_train"
    argv = [sys.executable, "-u", "-m", program, "-m", str(kit.folder), "-s", kit.startup.name]
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
    """Refuse to go on without the engine. Raises InputError: it is missing, or another version."""
    from importlib.metadata import distributions

    versions = [package.version for package in distributions(name="nvflare")]
    if versions[:1] != [ENGINE_VERSION]:  # others further on the path are never loaded
        raise InputError(
            f"deploy: needs nvflare {ENGINE_VERSION} at all sites; pip install"
            f" 'synthfair[nvflare]'; found {', '.join(versions) or 'none'}"
        )

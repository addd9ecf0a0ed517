"""Makes the kits of a federation's parties, hardened, and the folders of its jobs."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from synthfair.data.schema import read_schema
from synthfair.deploy.aggregator import AGGREGATOR
from synthfair.deploy.hardening import harden
from synthfair.deploy.job_files import CLIENT, SERVER, client_config, problem, server_config
from synthfair.deploy.project import Job, Project, needs_aggregators, read_project
from synthfair.errors import InputError
from synthfair.files import read_document, write_json
from synthfair.task.settings import FILE

KITS, JOBS, AUTHORITY = "kits", "jobs", "authority"
"""Folders that are made: one kit a party, one folder a job, and what signs certificates."""


STATE = "cert.json"
"""What the engine has in the authority's folder: the root certificate, and all private keys."""

ROOT = ("root_cert", "root_pri_key")
"""Parts of it."""

ROOT_DAYS = 5 * 360
"""How long a root certificate holds. Those of parties hold 360 days, the engine's own choice."""


def make_kits(project_path: Path, output: Path, authority: Path | None = None) -> list[Path]:
    """Provisions all parties, and writes the jobs.

    With an authority, its root signs new certificates, of new keys. The parties' old ones hold as
    well: a kit of these goes to whoever joins, or renews what ends.

    Args:
        project_path: project.yml.
        output: folder, new or empty: ``kits/NAME`` goes to the party NAME, ``jobs`` to the
            submitters, and ``authority``, with the private key of the root certificate, to nobody.
        authority: of kits that were made before; a new one if not given.

    Returns:
        The kits.

    Raises:
        InputError: the project or the authority is refused, the folder is not empty, or the engine
            fails.
    """
    project = read_project(project_path)
    schema = read_schema(project.schema_path)
    root = {} if authority is None else _root(authority)
    _require_empty(output)
    output.mkdir(mode=0o700, parents=True, exist_ok=True)
    output.chmod(0o700)
    _provision(project, output, root)
    kits = sorted((output / KITS).iterdir())
    for kit in kits:
        harden(kit)
    _write_settings(project, schema.to_json(), output / KITS)
    write_jobs(project, output / JOBS)
    return kits


def make_jobs(project_path: Path, output: Path) -> list[Path]:
    """Writes the jobs alone, for kits that were made before; returns their folders.

    Args:
        project_path: project.yml.
        output: folder, new or empty.

    Raises:
        InputError: the project is refused, or the folder is not empty.
    """
    project = read_project(project_path)
    _require_empty(output)
    write_jobs(project, output)
    return sorted(output.iterdir()) if output.is_dir() else []


def _require_empty(output: Path) -> None:
    if output.is_dir() and any(output.iterdir()):
        raise InputError(f"{output}: exists and is not empty; name another")


def _root(authority: Path) -> dict[str, str]:
    """The root certificate and its key, of the folder ``authority`` of earlier kits."""
    found = read_document(authority / STATE)
    if not all(isinstance(found.get(part), str) for part in ROOT):
        raise InputError(f"{authority / STATE}: must have {' and '.join(ROOT)}")
    return {part: found[part] for part in ROOT}


def _provision(project: Project, output: Path, root: dict[str, str]) -> None:
    """Has the engine make keys, certificates and scripts."""
    with tempfile.TemporaryDirectory() as folder:
        made = Path(folder) / project.name
        if root:
            (made / "state").mkdir(parents=True)
            write_json(made / "state" / STATE, root)
        # JSON is YAML; of another form, the engine's tool says only that it is none.
        path = Path(folder) / "project.yml"
        write_json(path, _engine_project(project))
        argv = [sys.executable, "-m", "nvflare.cli", "provision", "-p", str(path)]
        ended = subprocess.run(  # noqa: S603 - our own arguments
            [*argv, "-w", folder, "--force"], capture_output=True, text=True, check=False
        )
        if ended.returncode != 0 or not (made / "prod_00").is_dir():
            raise InputError(f"provisioning: {ended.stderr.strip()[-500:] or 'nothing was made'}")
        shutil.copytree(made / "prod_00", output / KITS)
        shutil.copytree(made / "state", output / AUTHORITY)
        (output / AUTHORITY).chmod(0o700)


def _engine_project(project: Project) -> dict[str, Any]:
    """The project as the engine reads it."""
    server = project.server
    builders = "nvflare.lighter.impl"
    return {
        "api_version": 3,
        "name": project.name,
        "description": "a federation of synthfair",
        "participants": [
            {
                "name": server.name,
                "type": "server",
                "org": server.org,
                "fed_learn_port": server.port,
            },
            *(
                {"name": site.name, "type": "client", "org": site.org, "allow_log_streaming": False}
                for site in (*project.sites, *project.aggregators)
            ),
            *(
                {"name": one.name, "type": "admin", "org": one.org, "role": "lead"}
                for one in project.submitters
            ),
        ],
        "builders": [
            {
                "path": f"{builders}.workspace.WorkspaceBuilder",
                "args": {"template_file": ["master_template.yml"]},
            },
            {
                "path": f"{builders}.static_file.StaticFileBuilder",
                "args": {"config_folder": "config", "require_signed_jobs": True},
            },
            {
                "path": f"{builders}.cert.CertBuilder",
                "args": {"root_valid_days": ROOT_DAYS},
            },
            {"path": f"{builders}.signature.SignatureBuilder"},
        ],
    }


def _write_settings(project: Project, schema: str, kits: Path) -> None:
    """Every party's own file, to be reviewed by it."""
    server = kits / project.server.name / "local"
    (server / "keys").mkdir()
    document = {"format": "synthfair-server/1", "schema": "schema.json", "keys": "keys"}
    pinned = {"aggregators": "aggregators"} if project.aggregators else {}
    write_json(server / FILE, document | pinned | {"tests": [], "revoked": []})
    (server / "schema.json").write_text(schema, encoding="utf-8")
    for name in [project.server.name, *project.site_names] if pinned else []:
        (kits / name / "local" / "aggregators").mkdir()
    for site in project.sites:
        local = kits / site.name / "local"
        (local / "schema.json").write_text(schema, encoding="utf-8")
        write_json(
            local / FILE,
            {
                "format": "synthfair-site/1",
                "data": "../data/table.csv",
                "schema": "schema.json",
                "key": f"{site.name}.key",
                **pinned,
                "limits": site.limits.model_dump(mode="json"),
            },
        )
    for one in project.aggregators:
        local = kits / one.name / "local"
        (local / "schema.json").write_text(schema, encoding="utf-8")
        (local / "keys").mkdir()
        (kits / one.name / "sums").mkdir(mode=0o700)  # of its key and its answers
        write_json(
            local / FILE,
            {
                "format": AGGREGATOR,
                "schema": "schema.json",
                "key": f"../sums/{one.name}.key",
                "clients": "keys",
                "limits": one.limits.model_dump(mode="json"),
            },
        )


def write_jobs(project: Project, output: Path) -> None:
    """A folder for each job: three small files, and no code."""
    for kind, job in project.jobs:
        if job is not None:
            _write_job(kind, job, project, output / kind)


def _write_job(kind: str, job: Job, project: Project, folder: Path) -> None:
    app = folder / "app"
    (app / "config").mkdir(parents=True)
    least = job.least_answers or len(project.sites)
    aggregators = [one.name for one in project.aggregators] if needs_aggregators(job) else []
    parties = ["server", *project.site_names, *aggregators]
    meta = {"name": kind, "resource_spec": {}, "deploy_map": {"app": parties}}
    needed = {"min_clients": least + len(aggregators), "mandatory_clients": aggregators}
    write_json(folder / "meta.json", meta | needed)
    arguments = {"kind": kind, "sites": project.site_names, "job": job.model_dump(mode="json")}
    write_json(app / SERVER, server_config(arguments | {"aggregators": aggregators}))
    write_json(app / CLIENT, client_config())
    if refused := problem(app):
        raise InputError(f"jobs.{kind}: {refused}")

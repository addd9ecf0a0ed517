"""Makes the kits of a federation's parties, hardened, and the folders of its jobs."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from synthfair.data.schema import read_schema
from synthfair.deploy.hardening import Role, description, harden
from synthfair.deploy.job_files import problem, write_app
from synthfair.deploy.project import Party, Project, needs_aggregators, read_project
from synthfair.errors import InputError
from synthfair.files import read_document, write_json
from synthfair.task.limits import FILE

KITS, JOBS, AUTHORITY = "kits", "jobs", "authority"
"""Folders that are made: one kit a party, one folder a job, and what signs certificates."""

STATE = "cert.json"
"""The engine's file in the authority's folder: the root certificate, and all private keys."""

ROOT = ("root_cert", "root_pri_key")
"""The root's entries in it."""


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
    _write_jobs(project, output / JOBS)
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
    _write_jobs(project, output)
    return sorted(output.iterdir()) if output.is_dir() else []


def _require_empty(output: Path) -> None:
    if output.is_dir() and any(output.iterdir()):
        raise InputError(f"{output}: exists and is not empty; name another")


def _root(authority: Path) -> dict[str, str]:
    """The root certificate and its key, of the folder ``authority`` of earlier kits."""
    state = read_document(authority / STATE)
    if not all(isinstance(state.get(part), str) for part in ROOT):
        raise InputError(f"{authority / STATE}: must have {' and '.join(ROOT)}")
    return {part: state[part] for part in ROOT}


def _provision(project: Project, output: Path, root: dict[str, str]) -> None:
    """Has the engine make keys, certificates and scripts."""
    with tempfile.TemporaryDirectory() as folder:
        result = Path(folder) / project.name
        if root:
            (result / "state").mkdir(parents=True)
            write_json(result / "state" / STATE, root)
        # JSON is YAML; of another form, the engine's tool says only that it is none.
        path = Path(folder) / "project.yml"
        write_json(path, _engine_project(project))
        argv = [sys.executable, "-m", "nvflare.cli", "provision", "-p", str(path)]
        process = subprocess.run(  # noqa: S603 - our own arguments
            [*argv, "-w", folder, "--force"], capture_output=True, text=True, check=False
        )
        if process.returncode != 0 or not (result / "prod_00").is_dir():
            raise InputError(f"provisioning: {process.stderr.strip()[-500:] or 'nothing was made'}")
        shutil.copytree(result / "prod_00", output / KITS)
        shutil.copytree(result / "state", output / AUTHORITY)
        (output / AUTHORITY).chmod(0o700)


def _engine_project(project: Project) -> dict[str, Any]:
    """The project as the engine reads it."""
    server, sites = project.server, (*project.sites, *project.aggregators)

    def participant(party: Party, kind: Role, **more: object) -> dict[str, object]:
        return {"name": party.name, "type": kind, "org": party.org, **more}

    return description("provisioning") | {
        "name": project.name,
        "participants": [
            participant(server, "server", fed_learn_port=server.port),
            *(participant(site, "client", allow_log_streaming=False) for site in sites),
            *(participant(one, "admin", role="lead") for one in project.submitters),
        ],
    }


def _write_settings(project: Project, schema: str, kits: Path) -> None:
    """Every party's own file, to be reviewed by it."""
    documents = {project.server.name: description("proposals")["server"]}
    for site in project.sites:
        changes = {"key": f"{site.name}.key", "limits": site.limits.model_dump(mode="json")}
        documents[site.name] = description("proposals")["site"] | changes
    for one in project.aggregators:
        (kits / one.name / "sums").mkdir(mode=0o700)  # of its key and its answers
        changes = {"key": f"../sums/{one.name}.key", "limits": one.limits.model_dump(mode="json")}
        documents[one.name] = description("proposals")["aggregator"] | changes
    for name, document in documents.items():
        local = kits / name / "local"
        if not project.aggregators:
            document.pop("aggregators", None)
        write_json(local / FILE, document)
        (local / "schema.json").write_text(schema, encoding="utf-8")
        for key in {"keys", "aggregators", "clients"} & document.keys():
            (local / document[key]).mkdir()  # of public keys


def _write_jobs(project: Project, output: Path) -> None:
    """A folder for each job: three small files, and no code."""
    for kind, job in project.jobs:
        if job is None:
            continue
        least = job.least_answers or len(project.sites)
        aggregators = [one.name for one in project.aggregators] if needs_aggregators(job) else []
        meta = {
            "name": kind,
            "resource_spec": {},
            "deploy_map": {"app": ["server", *project.site_names, *aggregators]},
            "min_clients": least + len(aggregators),
            "mandatory_clients": aggregators,
        }
        arguments = {
            "kind": kind,
            "sites": project.site_names,
            "job": job.model_dump(mode="json"),
            "aggregators": aggregators,
        }
        app = output / kind / "app"
        write_app(app, arguments)
        write_json(output / kind / "meta.json", meta)
        if reason := problem(app):
            raise InputError(f"jobs.{kind}: {reason}")

"""What a hardened kit is: the engine's own defaults are not safe.

By default a site of the engine runs code that comes with a job, gives shells to administrators,
loads any of a hundred classes, sends its error log to the server, and stores jobs in a folder that
all users of the machine share.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Literal

from synthfair.errors import InputError
from synthfair.files import write_json

Role = Literal["server", "client", "admin"]
"""As the engine names its parties; a client is a site, an admin a submitter."""

CLASSES: dict[Role, list[str]] = {
    "server": ["synthfair.deploy.engine.JobController"],
    "client": ["synthfair.deploy.engine.SiteExecutor"],
}
"""That a job may have loaded, exactly."""

VALIDATOR = "synthfair.deploy.job_validator.JobValidator"
"""That the engine calls at the server and at sites for every job, before it reads the files."""

PROGRESS = "synthfair.progress"
"""What a submitter may ask of a running job."""

RIGHTS = {
    "submit_job": "any",
    "clone_job": "none",
    "manage_job": "n:submitter",
    "download_job": "n:submitter",
    "view": "any",
    "app_command": "n:submitter",
    "operate": "o:site",
    "shell_commands": "none",
    "byoc": "none",
    "server-predeployed-flwr": "none",
}
"""Of whoever may submit jobs: no code in jobs (byoc), and no shells. A site is operated by its own
organisation alone (o:site). Only its submitter asks a running job how it goes (app_command), and
downloads its results (n:submitter)."""

NOTHING = dict.fromkeys(RIGHTS, "none")

PERMISSIONS = {"lead": RIGHTS, "project_admin": NOTHING, "org_admin": NOTHING, "member": NOTHING}
"""By role; submitters have the role lead."""

LOCAL_FILES: dict[Role, frozenset[str]] = {
    "server": frozenset({"schema.json", "keys", "aggregators"}),
    "client": frozenset({"schema.json", "keys", "aggregators"}),
    "admin": frozenset({"resources.json.default"}),
}
"""In the folder ``local``, beyond what :func:`harden` writes and the engine's settings of logs."""

KEY_FOLDERS = frozenset({"keys", "aggregators"})
"""Those of them that are folders of public keys, NAME.pub."""

LOGS = "log_config.json.default"

SHARED_FILES = frozenset({"authorization.json", "resources.json", "synthfair.json", LOGS})

SCRIPTS: dict[Role, dict[str, str]] = {
    "server": {
        "start.sh": "start_svr_sh",
        "sub_start.sh": "sub_start_sh",
        "stop_fl.sh": "stop_fl_sh",
    },
    "client": {
        "start.sh": "start_cln_sh",
        "sub_start.sh": "sub_start_sh",
        "stop_fl.sh": "stop_fl_sh",
    },
    "admin": {"fl_admin.sh": "fl_admin_sh"},
}
"""By role: the engine's scripts, and their names among its templates."""


def role_of(kit: Path) -> Role:
    """Whose kit a folder is.

    Raises:
        InputError: it is none.
    """
    roles: tuple[Role, ...] = ("server", "client", "admin")
    found: list[Role] = [role for role in roles if startup_file(kit, role).is_file()]
    if len(found) != 1:
        raise InputError(
            f"{kit}: not a kit: must have one of startup/fed_server.json, fed_client.json and"
            " fed_admin.json"
        )
    return found[0]


def startup_file(kit: Path, role: Role) -> Path:
    """The engine's own settings of where to connect to."""
    return kit / "startup" / f"fed_{role}.json"


NAMED = re.compile(r"[\w@.:-]{1,300}")
"""A name, or a host and its port, which differ from kit to kit."""


def connection(role: Role) -> dict[str, Any]:
    """What ``startup/fed_ROLE.json`` must be; names are whatever :data:`NAMED` fits.

    The engine reads classes from such a file where it has them, so nothing else may stand in it.
    """
    service = {"target": NAMED, "scheme": "http"}
    if role == "admin":
        return {
            "format_version": 1,
            "admin": {
                "project_name": NAMED,
                "username": NAMED,
                "server_identity": NAMED,
                "scheme": "http",
                "host": NAMED,
                "port": int,
                "connection_security": "mtls",
                "uid_source": "user_input",
                "with_file_transfer": True,
                "upload_dir": "transfer",
                "download_dir": "transfer",
                "client_key": "client.key",
                "client_cert": "client.crt",
                "ca_cert": "rootCA.pem",
            },
        }
    kind = "server" if role == "server" else "client"
    own = {
        "ssl_private_key": f"{kind}.key",
        "ssl_cert": f"{kind}.crt",
        "ssl_root_cert": "rootCA.pem",
        "connection_security": "mtls",
    }
    shared = {"format_version": 2, "require_signed_jobs": True}
    if role == "server":
        own |= {"name": NAMED, "service": service, "admin_server": NAMED, "admin_port": int}
        return shared | {"servers": [own]}
    servers = [{"name": NAMED, "service": service, "identity": NAMED}]
    return shared | {"servers": servers, "client": own | {"fqsn": NAMED, "is_leaf": True}}


def resources(role: Role, kit: Path) -> dict[str, Any]:
    """What ``local/resources.json`` must be.

    Args:
        role: whose kit it is.
        kit: its folder, absolute: the server's stores lie in it.
    """
    shared = {
        "format_version": 2,
        "class_list_enforcement_mode": "enforce",
        "class_allow_list": CLASSES.get(role, []),
        "app_validator": {"path": VALIDATOR, "args": {}},
    }
    if role == "client":
        return shared | {
            "allow_log_streaming": False,
            "client": {"retry_timeout": 30, "compression": "Gzip"},
            "components": [
                {
                    "id": "resource_manager",
                    "path": "nvflare.app_common.resource_managers.gpu_resource_manager"
                    ".GPUResourceManager",
                    "args": {"num_of_gpus": 0, "mem_per_gpu_in_GiB": 0, "expiration_period": 300},
                },
                {
                    "id": "resource_consumer",
                    "path": "nvflare.app_common.resource_consumers.gpu_resource_consumer"
                    ".GPUResourceConsumer",
                    "args": {},
                },
                {
                    "id": "process_launcher",
                    "path": "nvflare.app_common.job_launcher.client_process_launcher"
                    ".ClientProcessJobLauncher",
                    "args": {},
                },
            ],
        }
    storage = "nvflare.app_common.storages.filesystem_storage.FilesystemStorage"
    return shared | {
        "servers": [
            {
                "admin_storage": "transfer",
                "max_num_clients": 1000,
                "heart_beat_timeout": 600,
                "download_job_url": "http://download.server.com/",
                "admin_timeout": 10.0,
            }
        ],
        "snapshot_persistor": {
            "path": "nvflare.app_common.state_persistors.storage_state_persistor"
            ".StorageStatePersistor",
            "args": {
                "uri_root": "/",
                "storage": {
                    "path": storage,
                    "args": {"root_dir": str(kit / "store" / "snapshots"), "uri_root": "/"},
                },
            },
        },
        "components": [
            {
                "id": "job_scheduler",
                "path": "nvflare.app_common.job_schedulers.job_scheduler.DefaultJobScheduler",
                "args": {"max_jobs": 1},  # a site answers one at a time; others wait in line
            },
            {
                "id": "job_manager",
                "path": "nvflare.apis.impl.job_def_manager.SimpleJobDefManager",
                "args": {"uri_root": str(kit / "store" / "jobs"), "job_store_id": "job_store"},
            },
            {"id": "job_store", "path": storage},
            {
                "id": "process_launcher",
                "path": "nvflare.app_common.job_launcher.server_process_launcher"
                ".ServerProcessJobLauncher",
                "args": {},
            },
        ],
    }


def harden(kit: Path) -> None:
    """Replaces the engine's defaults in a kit; of a server's moved to another place, its stores.

    Raises:
        InputError: the folder is no kit.
    """
    kit, role = kit.resolve(), role_of(kit)
    kit.chmod(0o700)
    local = kit / "local"
    if role == "admin":
        for extra in ("system_info.ipynb", "readme.txt"):
            (kit / "startup" / extra).unlink(missing_ok=True)
        return
    write_json(local / "resources.json", resources(role, kit))
    permissions = {"format_version": "1.0", "permissions": PERMISSIONS}
    write_json(local / "authorization.json", permissions)
    for name in ("resources.json.default", "authorization.json.default", "privacy.json.sample"):
        (local / name).unlink(missing_ok=True)

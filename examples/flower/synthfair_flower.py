"""Flower as the carrier: each site uploads a release once, and the server trains a fair model.

The questions, the answers, a site's limits and ledger, and the server's page are those of the
package. This file carries messages: bytes to the nodes, and bytes back. Run as a script, it
prepares a federation from the files of ``python -m synthfair split``; compare.sh has the commands.
"""
# pyright: reportMissingImports=false

from __future__ import annotations

import json
import logging
import shutil
import sys
import time
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Any

from flwr.app import ConfigRecord, Context, Error, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp

from synthfair.deploy.party import Party
from synthfair.deploy.single_shot import SingleShotJob, run_single_shot
from synthfair.release.keys import make_keys
from synthfair.server.settings import ServerConfig
from synthfair.task import messages
from synthfair.task.job_sites import JobSites, Reply
from synthfair.task.limits import PARTY_FILE, ServerSettings, read_settings

NODE_SECONDS = 300
"""The longest time that the server waits for nodes to connect, and to say their names."""

FAILED = 1
"""The code of a node that failed; Flower would send the text of an error, which may quote rows."""

log = logging.getLogger("synthfair")
client = ClientApp()
server = ServerApp()


# A site


def site_folder(context: Context) -> Path:
    """Return the folder of a node's site; its name is the site's, and its settings name the table.

    The node config names it: ``flower-supernode --node-config 'site="/srv/north"'``. A simulation
    has no such config: there it is the folder of the partition.
    """
    if site := context.node_config.get("site"):
        return Path(str(site))
    return Path(context.run_config["federation"], f"client_{context.node_config['partition-id']}")


@client.query("name")
def name(message: Message, context: Context) -> Message:
    """Return the name of the node's site."""
    record = ConfigRecord({"name": site_folder(context).name})
    return Message(RecordDict({"site": record}), reply_to=message)


@client.query("answer")
def answer(message: Message, context: Context) -> Message:
    """Return the site's signed answer to a question, within its limits and booked in its ledger."""
    try:
        folder = site_folder(context)
        party = Party(folder.name, folder, log.warning)
        question = carried(message) or messages.Message(b"")
        answered = party.answer(question, job=str(context.run_id), submitter="unknown")
        return Message(content_of(answered), reply_to=message)
    except Exception:
        log.exception("no answer")  # in the node's log alone
        return Message(Error(FAILED), reply_to=message)


# The server


@server.main()
def main(grid: Grid, context: Context) -> None:
    """Ask the sites for releases, then run the server's page: model.json and metrics.json."""
    folder = Path(context.run_config["federation"], "server")
    settings = read_settings(folder / "local" / PARTY_FILE, ServerSettings)
    sites = tuple(sorted(path.stem for path in settings.keys.glob("*.pub")))
    run, output = str(context.run_id), folder / str(context.run_id)
    channel = partial(carry, grid, nodes_of(grid, sites))
    federation = JobSites(
        channel, settings, job=run, server=folder.name, sites=sites, log=log.warning
    )
    job = SingleShotJob(
        release={"release": "surrogate", "without_epsilon": True},
        server=ServerConfig(max_gap=float(context.run_config["max-gap"])),
    )
    error = None
    try:
        run_single_shot(federation, job, folder / "releases" / run, output)
    except Exception as caught:
        error = str(caught)
        raise
    finally:
        federation.write(output, error)
    log.warning("wrote %s", output)


def nodes_of(grid: Grid, sites: Iterable[str]) -> dict[str, int]:
    """Return the nodes by the names that they give; whether a name is true, signatures say."""
    end, nodes = time.monotonic() + NODE_SECONDS, [*grid.get_node_ids()]
    while len(nodes) < len([*sites]) and time.monotonic() < end:
        time.sleep(0.2)
        nodes = [*grid.get_node_ids()]
    asked = [Message(RecordDict(), dst_node_id=node, message_type="query.name") for node in nodes]
    named = {}
    for reply in grid.send_and_receive(asked, timeout=NODE_SECONDS):
        if reply.has_content() and (record := reply.content.config_records.get("site")):
            named[str(record.get("name"))] = reply.metadata.src_node_id
    return named


def carry(
    grid: Grid, nodes: dict[str, int], question: messages.Question, sites: tuple[str, ...]
) -> dict[str, Reply]:
    """Return what sites reply to a question: the carrier, see ``synthfair.task.job_sites``."""
    start, content = time.monotonic(), content_of(question.message)
    names = {nodes[site]: site for site in sites if site in nodes}
    replies: dict[str, Reply] = {site: (None, 0.0) for site in sites if site not in nodes}
    asked = [Message(content, dst_node_id=node, message_type="query.answer") for node in names]
    for reply in grid.send_and_receive(asked, timeout=question.timeout):
        answered = carried(reply) if reply.has_content() else None
        replies[names[reply.metadata.src_node_id]] = answered, time.monotonic() - start
    return replies


def content_of(message: messages.Message) -> RecordDict:
    """Return a message as Flower carries it."""
    return RecordDict({"message": ConfigRecord(message._asdict())})


def carried(message: Message) -> messages.Message | None:
    """Return a message as Flower brings it; None where it is none."""
    record: Any = message.content.config_records.get("message", {})
    parts = [record.get(name) for name in messages.Message._fields]
    return messages.Message(*parts) if all(isinstance(part, bytes) for part in parts) else None


# What the parties prepare, each at its place; here in one folder


def prepare(federation: Path) -> None:
    """Make folders of the sites and of the server, around the files of a split table."""
    keys = federation / "server" / "local" / "keys"
    keys.mkdir(parents=True)
    tables = sorted(federation.glob("*_train.csv"))
    for table in tables:
        name = table.name.removesuffix("_train.csv")
        local = federation / name / "local"
        local.mkdir(parents=True)
        public, _ = make_keys(local / f"{name}.key")
        shutil.copy(public, keys)
        limits = {"kinds": ["surrogate"], "without_epsilon": True}
        paths = {"data": f"../../{table.name}", "schema": "../../schema.json", "key": f"{name}.key"}
        (local / PARTY_FILE).write_text(json.dumps(paths | {"limits": limits}))
    tests = [f"../../{table.name.replace('_train', '_test')}" for table in tables]
    settings = {"schema": "../../schema.json", "keys": "keys", "tests": tests}
    (keys.parent / PARTY_FILE).write_text(json.dumps(settings))


if __name__ == "__main__":
    prepare(Path(sys.argv[1]))

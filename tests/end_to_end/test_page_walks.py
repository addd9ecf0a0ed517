"""Pages whose commands need one another, most of them by several parties: run in order.

What differs from the pages: the parties are folders of this machine, where ``running`` starts them,
their tables parts of loanapp with each row several times, and all parties do what a page shows of
one. Other replacements stand where they are made.
"""

import io
import json
import re
import shlex
import shutil

import numpy as np
import page_texts
import pandas as pd
import pytest
from page_texts import ROOT, commands, typed

import synthfair as sf
from synthfair.cli import main
from synthfair.data.datasets import load_dataset
from synthfair.files import write_json

HUB, SERVER, LEAD = "hub.example.org", "localhost", "lead@example.org"
BANKS = ("bank-a", "bank-b")
PATIENCE = 200
"""Seconds of a command."""


def blocks(page, language):
    """Of a page of docs/, with the name of this machine."""
    found = page_texts.blocks(ROOT / "docs" / f"{page}.md", language)
    return [text.replace(HUB, SERVER) for text in found]


class Walk:
    """Runs the commands of pages, in their order."""

    def __init__(self, folder, *pages):
        self.folder, self.left = folder, []
        for page in pages:
            for block in blocks(page, "console"):
                self.left += commands(block)

    def __call__(self, start, *replacements, at=""):
        """The next command, which must start so; what it prints.

        With replacements, each a dict of texts, it is run once for each of them. ``at`` is a folder.
        """
        command, printed = self.left.pop(0), ""
        assert command.startswith(start)
        for replaced in replacements or ({},):
            said = command
            for old, new in replaced.items():
                assert old in said
                said = said.replace(old, new)
            said = said.removeprefix("$ ") if said[0] == "$" else f"python -m synthfair {said}"
            printed += typed(said, self.folder / at, timeout=PATIENCE)
        return printed


def two_parts(folder, *, times):
    """Training and test rows of two clients, with each row several times; and the schema."""
    rows, schema = load_dataset("loanapp")
    (folder / "schema.json").write_text(schema.to_json())
    return sf.partition(pd.concat([rows] * times), clients=2, seed=0), schema


# docs/own-table.md


def test_own_table_page_leads_from_its_table_to_decisions(tmp_path, monkeypatch):
    """Its five commands, on 1,200 rows whose values are drawn from its six."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    few = pd.read_csv(io.StringIO(blocks("own-table", "text")[0]), sep=";", dtype=str)
    table = few.apply(lambda column: rng.choice(column, 1200))
    table = table.assign(id=range(1200), income=rng.uniform(0, 90, 1200).round(1))
    table.to_csv("loans.csv", index=False, sep=";")
    draft, *later = (c for block in blocks("own-table", "console")[:2] for c in commands(block))
    assert main(shlex.split(draft)) == 0
    document = json.loads((tmp_path / "schema.json").read_text())
    del document["draft"]
    write_json(tmp_path / "schema.json", document)
    for command in later:
        assert main(shlex.split(command)) == 0
    assert len(pd.read_csv("scored.csv")) == 1200


# docs/secure.md, and on to docs/postprocess.md


@pytest.mark.slow
def test_secure_pages_lead_from_keys_to_thresholds_and_weights(tmp_path):
    # Rows of two clients, and a model that all have. No client has more than 5,000 rows.
    parts, _ = two_parts(tmp_path, times=5)
    for i, part in enumerate(parts):
        part.train.to_csv(tmp_path / f"rows_{i}.csv", index=False)
    parts[0].test.to_csv(tmp_path / "test.csv", index=False)
    new = parts[0].test.drop(columns="approve")
    new.assign(customer=range(len(new))).to_csv(tmp_path / "new.csv", index=False)
    train = "train loanapp --method fedsgd --rounds 50 --learning-rate 1 --output trained"
    typed(f"python -m synthfair {train} && cp trained/model.json .", tmp_path)

    walk = Walk(tmp_path, "secure", "postprocess")
    walk("keygen --aggregator", {}, {"aggregator_0": "aggregator_1"})
    walk("keygen", {}, {"client_0": "client_1"})
    walk("secure plan")
    walk("answer", {"rows": "rows_0"}, {"rows": "rows_1", "client_0": "client_1"})
    walk("secure add")  # without --output
    walk("secure add", {}, {"aggregator_0": "aggregator_1", "sum_0": "sum_1"})
    walk("secure open")
    # Plan, answer, add, open and server of a surrogate are walked in test_carriers.py.
    del walk.left[:5]

    # The smallest pair has 360 rows, and noise that would refuse fewer than 58.
    walk("thresholds")
    walk("evaluate")
    walk("report")
    assert "uploads" in walk.left.pop(0)  # as in tests/postprocess
    walk("thresholds")
    walk("predict")
    assert len(pd.read_csv(tmp_path / "scored.csv")) == len(pd.read_csv(tmp_path / "new.csv"))

    # A histogram's bins are summed. Instead of Adult, loanapp as it is.
    shutil.copy(tmp_path / "histogram.json", tmp_path / "counts.json")
    walk("thresholds counts.json")
    walk("train", {"adult": "loanapp --rounds 2"})
    assert (tmp_path / "reweighted" / "model.json").exists()
    assert "privfairfl_post" in walk.left.pop(0)  # as in tests/federated
    assert not walk.left


# docs/deploy.md, and on to docs/deploy-jobs.md


class Federation(Walk):
    """Runs the commands of pages by party, each in a folder of its own.

    As an installed package, and not by PYTHONPATH, which `deploy start` keeps from the engine.
    """

    def __call__(self, start, *replacements, at=""):
        self.left[0] = self.left[0].replace(HUB, SERVER)
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(page_texts, "ROOT", "")
            return super().__call__(start, *replacements, at=at)

    def at_each(self, start, *parties, others=None):
        """The next command at each party, with its name in the place of bank-a."""
        command = self.left[0]
        for party in parties:
            own = {"bank-a": party} if "bank-a" in command else {}
            self.left[:1] = [command, command]
            self(start, own | (others or {}), at=party)
        self.left.pop(0)

    def make_kits(self, profile, participant):
        """Keys, certificates and kits, of all parties."""
        hub, types = self.folder / "hub", {SERVER: "type: server", LEAD: "type: admin, role: lead"}
        everyone = (SERVER, LEAD, *BANKS)
        hub.mkdir()
        (hub / "profile.yml").write_text(profile)
        printed = self("$ nvflare cert init", at="hub")
        fingerprint = {"SHA256:0C:F2:E4:…": re.findall("SHA256:[0-9A-F:]+", printed)[0]}
        for name in everyone:
            (self.folder / name).mkdir()
            text = participant.replace("type: client", types.get(name, "type: client"))
            org = name.replace("-", "_") if name in BANKS else "hub"
            text = text.replace("bank-a", name).replace("bank_a", org)
            (self.folder / name / f"{name}.yml").write_text(text)
        self.at_each("$ nvflare cert request", *everyone)
        self.at_each("$ sha256sum", *everyone)
        looks, self.left = [step.removeprefix("$ ") for step in self.left[:4]], self.left[4:]
        assert [look.split()[0] for look in looks] == ["python", "cat", "sha256sum", "nvflare"]
        for name in everyone:
            own = self.folder / name
            shutil.copy(own / name / f"{name}.request.zip", hub)
            said = [typed(look.replace("bank-a", name), hub, timeout=PATIENCE) for look in looks]
            assert f'"name": "{name}"' in said[1]
            shutil.copy(hub / f"{name}.signed.zip", own)
        self.at_each("$ nvflare package", *everyone, others=fingerprint)
        self.at_each("$ mv", *everyone)


def fill_in(folder, parts):
    """What each bank, and the server, put into their kits."""
    from synthfair.task.limits import PARTY_FILE

    (own,) = map(json.loads, blocks("deploy", "json"))
    own["limits"]["kinds"].append("gap")  # as the page on jobs says
    tests = []
    for bank, part in zip(BANKS, parts, strict=True):
        table, test = (folder / f"{bank}{kind}.csv" for kind in ("", "_test"))
        local = folder / bank / "kit/local"
        part.train.to_csv(table, index=False)
        part.test.to_csv(test, index=False)
        its = {"data": str(table), "key": f"{bank}.key", "org": bank.replace("-", "_")}
        its["server"] = json.loads((local / PARTY_FILE).read_text())["server"]  # of another port
        write_json(local / PARTY_FILE, own | its)
        shutil.copy(local / f"{bank}.pub", folder / SERVER / "kit/local/keys")
        tests.append(str(test))
    server = folder / SERVER / "kit/local" / PARTY_FILE
    write_json(server, json.loads(server.read_text()) | {"tests": tests})


def require_results(folder):
    """What both jobs have made is there, and nothing else of them."""
    results, gaps = folder / LEAD / "results", folder / LEAD / "gaps/gaps.json"
    assert {path.name for path in results.iterdir()} == {
        "model.json", "metrics.json", "federation.json"}  # fmt: skip
    sites = json.loads((results / "federation.json").read_text())["sites"]
    assert [(booked["code"], booked["carried_bytes"] > 0) for booked in sites.values()] == [
        ("ok", True)] * 2  # fmt: skip
    assert json.loads(gaps.read_text())["sites"] == sorted(BANKS)


JOINED = f"""
from pathlib import Path
from examples.deployment import wait_for_sites
from synthfair.deploy.session import connect
with connect(Path("{LEAD}/kit"), timeout=60) as session:
    wait_for_sites(session, [{", ".join(map(json.dumps, BANKS))}])
"""
"""Waits until the server knows both banks. In a process of its own: the engine warns, and pytest turns
warnings into errors."""


@pytest.mark.slow
def test_deploy_pages_lead_from_empty_folders_to_a_model_and_its_gaps(tmp_path, monkeypatch):
    """Of the jobs on the second page only the gap's runs; others by ``examples/deployment.py``."""
    pytest.importorskip("nvflare")
    monkeypatch.delenv("PYTHONPATH", raising=False)
    from examples.deployment import free_port, running
    from synthfair.deploy.project import read_project

    walk, port = Federation(tmp_path, "deploy", "deploy-jobs"), free_port()
    assert "pip install" in walk.left.pop(0)
    assert walk.left.pop(0).startswith("$ python examples/deployment.py")  # .ci/run runs it
    # Ten times, so that each bank has 360 rows of the smallest pair: noise leaves out 126 or fewer.
    parts, _ = two_parts(tmp_path, times=10)
    agreed, profile, participant = blocks("deploy", "yaml")
    sites, jobs = agreed.split("jobs:")
    *others, gap, sums = blocks("deploy-jobs", "yaml")

    def project(jobs, *parties):
        """The project, as these parties have it."""
        for folder in (tmp_path, *(tmp_path / party for party in parties)):
            (folder / "project.yml").write_text(sites + jobs)
            if folder != tmp_path:
                shutil.copy(tmp_path / "schema.json", folder)
        return tmp_path / "project.yml"

    for other in others:
        read_project(project(other))

    walk.make_kits(profile.replace("8002", str(port)), participant)
    project(f"jobs:{jobs}", SERVER, LEAD, *BANKS)
    walk.at_each("deploy harden", SERVER, LEAD, *BANKS)

    # Each party's own file; then all start.
    walk.at_each("keygen", *BANKS)
    walk("ledger", *({"/srv/bank/loans.csv": str(tmp_path / f"{bank}.csv")} for bank in BANKS))
    fill_in(tmp_path, parts)
    walk.at_each("deploy check", SERVER, LEAD, *BANKS)
    assert walk.left.pop(0) == "deploy start kit"
    with running([tmp_path / name / "kit" for name in (SERVER, *BANKS)], port):
        typed(f"PYTHONPATH={ROOT} python -c '{JOINED}'", tmp_path, timeout=PATIENCE)
        walk("deploy job", at=LEAD)
        walk("deploy run", at=LEAD)

        del walk.left[:5]  # a certificate is renewed
        shut_out = walk.left.pop(0)

        shutil.copy(tmp_path / LEAD / "results/model.json", tmp_path)
        read_project(project(sums))
        project(gap, LEAD)
        walk("deploy job", at=LEAD)
        walk("deploy run", at=LEAD)
        assert "rejoin_allowed: False" in typed(shut_out.removeprefix("$ "), tmp_path / LEAD)
    require_results(tmp_path)

    # An aggregator's kit: tests/deploy/test_check.py.
    assert walk.left.pop(0).startswith("keygen --aggregator")
    assert walk.left == ["deploy check kit"]

"""Pages whose commands need more than one party: all of them, in order, as they stand.

What differs: the parties are folders of this machine, their tables parts of loanapp, each of its
rows five times, and all parties do what a page shows of one.
"""

import json
import re
import shutil
from itertools import product

import pandas as pd
import pytest
from test_console_examples import ROOT, TEXT, commands, typed

import synthfair as sf
from synthfair.data.datasets import load_dataset
from synthfair.deploy.settings import FILE
from synthfair.files import write_json

HUB, SERVER, LEAD = "hub.example.org", "localhost", "lead@example.org"
BANKS, ADDERS = ("bank-a", "bank-b"), ("sums-a", "sums-b")


def blocks(page, language):
    """Of one language, with the name of this machine."""
    text = TEXT[ROOT / "docs" / f"{page}.md"].replace(HUB, SERVER)
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)


class Walk:
    """Runs the commands of pages, in their order."""

    def __init__(self, folder, *pages):
        self.folder = folder
        self.left = [
            line for page in pages for block in blocks(page, "console") for line in commands(block)
        ]

    def __call__(self, start, *ways):
        """The next command, which must start so; once for each way, texts and their replacements."""
        command = self.left.pop(0)
        assert command.startswith(start)
        printed = ""
        for way in ways or ({},):
            said = command
            for old, new in way.items():
                assert old in said
                said = said.replace(old, new)
            printed += typed(f"python -m synthfair {said}", self.folder)
        return printed


def each(*names):
    """A way for each name: in place of the first one."""
    return [{names[0]: name} for name in names]


def two_parts(folder):
    """Training and test rows of two clients, and what all have agreed on."""
    rows, schema = load_dataset("loanapp")
    (folder / "schema.json").write_text(schema.to_json())
    # Of fewer rows, noise would leave no refused applications with k_min = 50.
    return sf.partition(pd.concat([rows] * 5), clients=2, seed=0), schema


@pytest.mark.slow
def test_sums_of_two_clients_give_fair_thresholds_and_weights(tmp_path):
    parts, _ = two_parts(tmp_path)
    for i, part in enumerate(parts):
        part.train.to_csv(tmp_path / f"rows_{i}.csv", index=False)
    parts[0].test.to_csv(tmp_path / "test.csv", index=False)
    new = parts[0].test.drop(columns="approve")
    new.assign(customer=range(len(new))).to_csv(tmp_path / "new.csv", index=False)
    train = "train loanapp --method fedsgd --rounds 50 --learning-rate 1 --output trained"
    typed(f"python -m synthfair {train} && cp trained/model.json .", tmp_path)

    clients = each("client_0", "client_1")
    walk = Walk(tmp_path, "secure", "postprocess")
    walk("secure key", *each("aggregator_0", "aggregator_1"))
    walk("keygen", *clients)
    walk("secure plan")
    walk("secure share", *(way | {"rows": f"rows_{i}"} for i, way in enumerate(clients)))
    walk("secure add")
    walk("secure add", {}, {"aggregator_0": "aggregator_1", "sum_0": "sum_1"})
    walk("secure open")

    walk("thresholds")
    walk("evaluate")
    walk("report")
    assert (tmp_path / "fair.html").exists()
    walk("thresholds")
    walk("predict")
    assert len(pd.read_csv(tmp_path / "scored.csv")) == len(new)

    shutil.copy(tmp_path / "histogram.json", tmp_path / "counts.json")
    walk("weights")
    quick = {"adult": "loanapp --rounds 2"}
    walk("train", quick)
    walk("train", {"adult --clients 100": "loanapp --clients 2", "--rounds 20": "--rounds 2"})
    assert not walk.left


@pytest.mark.slow
def test_empty_folders_come_to_a_fair_model_and_its_gaps(tmp_path):
    pytest.importorskip("nvflare")
    from synthfair.deploy.demo import running
    from synthfair.deploy.processes import free_port

    walk, port = Walk(tmp_path, "deploy", "deploy-jobs"), free_port()
    assert "pip install" in walk.left.pop(0)
    assert walk.left.pop(0).startswith("deploy demo")  # .ci/run runs it
    parts, schema = two_parts(tmp_path)
    parties, jobs = blocks("deploy", "yaml")[0].replace("8002", str(port)).split("jobs:")
    *_, gap, sums = blocks("deploy-jobs", "yaml")

    def project(jobs):
        (tmp_path / "project.yml").write_text(parties + jobs)

    project(f"jobs:{jobs}")
    walk("deploy kit")
    for name in (SERVER, LEAD, *BANKS):
        shutil.move(tmp_path / "federation" / "kits" / name, tmp_path / name)

    walk("keygen", *each(*BANKS))
    walk("ledger", *({"loans.csv": f"{bank}.csv"} for bank in BANKS))
    (own,) = map(json.loads, blocks("deploy", "json"))
    own["limits"]["kinds"].append("gap")  # as the page on jobs says
    for bank, part in zip(BANKS, parts, strict=True):
        part.train.to_csv(tmp_path / f"{bank}.csv", index=False)
        part.test.to_csv(tmp_path / f"{bank}_test.csv", index=False)
        local = tmp_path / bank / "local"
        filled_in = {"data": str(tmp_path / f"{bank}.csv"), "key": f"{bank}.key"}
        write_json(local / FILE, own | filled_in)
        shutil.copy(local / f"{bank}.pub", tmp_path / SERVER / "local" / "keys")
    server = tmp_path / SERVER / "local" / FILE
    tests = [str(tmp_path / f"{bank}_test.csv") for bank in BANKS]
    write_json(server, json.loads(server.read_text()) | {"tests": tests})

    walk("deploy check")
    walk("deploy check", *each(*BANKS, LEAD))
    with running([tmp_path / name for name in (SERVER, *BANKS)], port):
        said = walk("deploy run")
        assert all(bank in said for bank in BANKS)
        metrics = json.loads((tmp_path / "results" / "metrics.json").read_text())
        assert metrics["accuracy"]["value"] > 0.8

        walk("deploy kit project.yml --authority")
        walk("gap plan", {"female male": " ".join(map(str, schema.groups))})
        project(gap)
        walk("deploy kit project.yml --jobs-only")
        walk("deploy run")
    gaps = json.loads((tmp_path / "gaps" / "gaps.json").read_text())
    assert gaps["reports"] == sum(len(part.train) for part in parts)

    shutil.copy(tmp_path / "results" / "model.json", tmp_path)
    project(sums)
    typed("python -m synthfair deploy kit project.yml --output with-sums", tmp_path)
    for name in ADDERS:
        shutil.move(tmp_path / "with-sums" / "kits" / name, tmp_path / name)
    walk("secure key", *each(*ADDERS))
    for name, bank in product(ADDERS, BANKS):
        shutil.copy(tmp_path / bank / "local" / f"{bank}.pub", tmp_path / name / "local" / "keys")
    walk("deploy check", *each(*ADDERS))
    assert not walk.left

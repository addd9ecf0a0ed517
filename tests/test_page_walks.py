"""Pages whose commands need one another, most of them by several parties: run in order.

What differs from the pages: the parties are folders of this machine, where ``running`` starts them,
their tables parts of loanapp with each row several times, and all parties do what a page shows of
one. Other replacements stand where they are made.
"""

import json
import shutil

import pandas as pd
import pytest
import test_texts
from one_upload import processes_of, require_one_upload
from test_console_examples import ROOT, commands, typed

import synthfair as sf
from synthfair.data.datasets import load_dataset
from synthfair.files import write_json

HUB, SERVER, LEAD = "hub.example.org", "localhost", "lead@example.org"
BANKS, AGGREGATORS = ("bank-a", "bank-b"), ("sums-a", "sums-b")
PATIENCE = 200
"""Seconds of a command."""


def blocks(page, language):
    """Of a page of docs/, with the name of this machine."""
    found = test_texts.blocks(ROOT / "docs" / f"{page}.md", language)
    return [text.replace(HUB, SERVER) for text in found]


class Walk:
    """Runs the commands of pages, in their order."""

    def __init__(self, folder, *pages):
        self.folder, self.left = folder, []
        for page in pages:
            for block in blocks(page, "console"):
                self.left += commands(block)

    def __call__(self, start, *replacements):
        """The next command, which must start so; what it prints.

        With replacements, each a dict of texts, it is run once for each of them.
        """
        command, printed = self.left.pop(0), ""
        assert command.startswith(start)
        for replaced in replacements or ({},):
            said = command
            for old, new in replaced.items():
                assert old in said
                said = said.replace(old, new)
            printed += typed(f"python -m synthfair {said}", self.folder, timeout=PATIENCE)
        return printed


def each(*names):
    """Replacements of the first name by each of them."""
    return [{names[0]: name} for name in names]


def two_parts(folder, *, times):
    """Training and test rows of two clients, with each row several times; and the schema."""
    rows, schema = load_dataset("loanapp")
    (folder / "schema.json").write_text(schema.to_json())
    return sf.partition(pd.concat([rows] * times), clients=2, seed=0), schema


# docs/secure.md, and on to docs/postprocess.md


@pytest.fixture
def clients(tmp_path):
    """Rows of two clients, and a model that all have. No client has more than 5,000 rows."""
    parts, _ = two_parts(tmp_path, times=5)
    for i, part in enumerate(parts):
        part.train.to_csv(tmp_path / f"rows_{i}.csv", index=False)
    parts[0].test.to_csv(tmp_path / "test.csv", index=False)
    new = parts[0].test.drop(columns="approve")
    new.assign(customer=range(len(new))).to_csv(tmp_path / "new.csv", index=False)
    train = "train loanapp --method fedsgd --rounds 50 --learning-rate 1 --output trained"
    typed(f"python -m synthfair {train} && cp trained/model.json .", tmp_path)
    return parts


@pytest.mark.slow
def test_sums_of_two_clients_give_fair_thresholds_and_weights(tmp_path, clients):
    walk = Walk(tmp_path, "secure", "postprocess")
    walk("keygen --aggregator", *each("aggregator_0", "aggregator_1"))
    walk("keygen", *each("client_0", "client_1"))
    walk("secure plan")
    walk("secure share", {"rows": "rows_0"}, {"rows": "rows_1", "client_0": "client_1"})
    walk("secure add")  # --check
    walk("secure add", {}, {"aggregator_0": "aggregator_1", "sum_0": "sum_1"})
    walk("secure open")
    counts = json.loads((tmp_path / "histogram.json").read_text())["counts"]
    total = sum(sum(bins) for by_label in counts for bins in by_label)
    # 404 counts, each with noise of variance 3.7: six standard deviations, a false alarm in 10^9.
    assert abs(total - sum(len(part.train) for part in clients)) < 6 * (404 * 3.7) ** 0.5

    # The smallest pair has 360 rows, and noise that would refuse fewer than 58.
    walk("thresholds")
    walk("evaluate")
    walk("report")
    assert (tmp_path / "fair.html").exists()
    (tmp_path / "uploads").mkdir()
    upload = "client --data rows_0.csv --schema schema.json --release surrogate --without-epsilon"
    typed(f"python -m synthfair {upload} --output uploads/client_0.parquet", tmp_path)
    walk("thresholds uploads", {"fair_model": "by_records"})
    walk("thresholds")
    walk("predict")
    assert len(pd.read_csv(tmp_path / "scored.csv")) == len(pd.read_csv(tmp_path / "new.csv"))

    # A histogram's bins are summed. Instead of Adult, loanapp as it is; few bins for its few rows.
    shutil.copy(tmp_path / "histogram.json", tmp_path / "counts.json")
    walk("thresholds counts.json")
    walk("train", {"adult": "loanapp --rounds 2"})
    walk(
        "train",
        {"adult --clients 100": "loanapp --clients 2 --bins 21", "--rounds 20": "--rounds 2"},
    )
    for made in ("reweighted", "privfairfl"):
        assert (tmp_path / made / "model.json").exists()
    assert not walk.left


# docs/deploy.md, and on to docs/deploy-jobs.md


def fill_in(folder, parts):
    """What each bank, and the server, put into their kits."""
    from synthfair.task.limits import FILE

    (own,) = map(json.loads, blocks("deploy", "json"))
    own["limits"]["kinds"].append("gap")  # as the page on jobs says
    tests = []
    for bank, part in zip(BANKS, parts, strict=True):
        table, test, local = (folder / name for name in (f"{bank}.csv", f"{bank}_test.csv", bank))
        part.train.to_csv(table, index=False)
        part.test.to_csv(test, index=False)
        write_json(local / "local" / FILE, own | {"data": str(table), "key": f"{bank}.key"})
        shutil.copy(local / "local" / f"{bank}.pub", folder / SERVER / "local" / "keys")
        tests.append(str(test))
    server = folder / SERVER / "local" / FILE
    write_json(server, json.loads(server.read_text()) | {"tests": tests})


JOINED = f"""
from pathlib import Path
from examples.deployment import wait_for_sites
from synthfair.deploy.session import connect
with connect(Path("{LEAD}"), timeout=60) as session:
    wait_for_sites(session, [{", ".join(map(json.dumps, BANKS))}])
"""
"""Waits until the server knows both banks. In a process of its own: the engine warns, and pytest turns
warnings into errors."""


@pytest.mark.slow
def test_empty_folders_come_to_a_fair_model_and_its_gaps(tmp_path):
    """Of the jobs on the second page only the gap's runs; others by ``examples/deployment.py``."""
    pytest.importorskip("nvflare")
    from examples.deployment import free_port, running
    from synthfair.deploy.project import read_project

    walk, port = Walk(tmp_path, "deploy", "deploy-jobs"), free_port()
    assert "pip install" in walk.left.pop(0)
    assert walk.left.pop(0).startswith("$ python examples/deployment.py")  # .ci/run runs it
    # Ten times, so that each bank has 360 rows of the smallest pair: noise leaves out 126 or fewer.
    parts, _ = two_parts(tmp_path, times=10)
    parties, jobs = blocks("deploy", "yaml")[0].replace("8002", str(port)).split("jobs:")
    *trainings, gap, sums = blocks("deploy-jobs", "yaml")

    def project(jobs):
        (tmp_path / "project.yml").write_text(parties + jobs)
        return tmp_path / "project.yml"

    for training in trainings:
        read_project(project(training))
    project(f"jobs:{jobs}")
    walk("deploy kit")
    for name in (SERVER, LEAD, *BANKS):
        shutil.move(tmp_path / "federation" / "kits" / name, tmp_path / name)
    walk("keygen", *each(*BANKS))
    walk("ledger", *({"loans.csv": f"{bank}.csv"} for bank in BANKS))
    fill_in(tmp_path, parts)
    walk("deploy check")
    walk("deploy check", *each(*BANKS, LEAD))
    with running([tmp_path / name for name in (SERVER, *BANKS)], port):
        typed(f"python -c '{JOINED}'", tmp_path, timeout=PATIENCE)
        walk("deploy run")
        walk("deploy kit project.yml --authority")
        project(gap)
        walk("deploy kit project.yml --jobs-only")
        walk("deploy run")
    require_one_upload(tmp_path / "results", tmp_path)
    assert not processes_of(tmp_path)
    by_group = json.loads((tmp_path / "results" / "metrics.json").read_text())["by_group"]
    assert all(0 < group["selection_rate"] < 1 for group in by_group.values())
    gaps = json.loads((tmp_path / "gaps" / "gaps.json").read_text())
    assert gaps["sites"] == sorted(BANKS)

    shutil.copy(tmp_path / "results" / "model.json", tmp_path)
    project(sums)
    typed("python -m synthfair deploy kit project.yml --output with-sums", tmp_path)
    for name in AGGREGATORS:
        shutil.move(tmp_path / "with-sums" / "kits" / name, tmp_path / name)
    walk("keygen --aggregator", *each(*AGGREGATORS))
    for name in AGGREGATORS:
        for bank in BANKS:
            public = tmp_path / bank / "local" / f"{bank}.pub"
            shutil.copy(public, tmp_path / name / "local" / "keys")
    walk("deploy check", *each(*AGGREGATORS))
    assert not walk.left

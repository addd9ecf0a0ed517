"""What the benchmark of a federation reads of a run; its processes take minutes, and are left out."""

import pytest

from benchmarks.deploy import DEPLOY, DeploySetting, run_job
from benchmarks.runs import Run, Runs
from examples import deployment
from synthfair.deploy import session
from synthfair.task.federation_file import FederationFile, SiteRecord

BOOKED = SiteRecord(code="ok", rounds=3, seconds=2.0, site_seconds=1.5, carried_bytes=250_000)


def stub(monkeypatch, *, status=session.COMPLETED, clean=True):
    found = FederationFile(job="j", error=None, server="hub", version="1", seconds=9.0, rounds=3,
                           median_round_seconds=0.4, sites={"a": BOOKED, "b": BOOKED})  # fmt: skip
    shown = deployment.JobRun(session.JobResult("j", status, found), 5.0, 10.0, clean)
    monkeypatch.setattr(deployment, "unlike_lenders", dict)
    monkeypatch.setattr(deployment, "demonstrate", lambda *_, **__: shown)


def test_a_run_is_measured_and_shown(monkeypatch):
    stub(monkeypatch)
    setting = DeploySetting("train", 2)
    found = run_job(setting, 0, smoke=False)
    assert found[2:] == (5.0, 10.0, 3, 0.4, 1.5, 0.5)
    page = DEPLOY.summary(Runs([Run(setting, 0, found)]))["deploy.md"]
    assert "| 1.5 | 85% | 0.50 |" in page


@pytest.mark.parametrize("failed", [{"status": "FINISHED:ABORTED"}, {"clean": False}])
def test_a_run_that_failed_is_not_measured(monkeypatch, failed):
    stub(monkeypatch, **failed)
    with pytest.raises(RuntimeError, match="train"):
        run_job(DeploySetting("train", 2), 0, smoke=False)

"""What a submitter takes of a job's results."""

from pathlib import Path
from unittest.mock import Mock

import pytest
from builders import InProcess, World

from synthfair.deploy import session
from synthfair.errors import InputError


class Downloads:
    """A session that downloads what the server of a job has made of it."""

    def __init__(self, **files):
        self.files = files

    def download_job_result(self, job, folder):
        made = Path(folder) / job / "workspace" / "app_server" / "synthfair"
        made.mkdir(parents=True)
        for name, content in self.files.items():
            path = made / name.replace("_", ".")
            if isinstance(content, Path):
                path.symlink_to(content)
            else:
                path.write_bytes(content)
        return str(Path(folder) / job)


@pytest.fixture
def federation(tmp_path):
    """The bytes of a federation.json."""
    World(tmp_path, rows=10).federation(InProcess({})).write(tmp_path / "made", None)
    return (tmp_path / "made" / "federation.json").read_bytes()


def test_result_has_known_files_alone(tmp_path, federation, monkeypatch):
    secret, output = tmp_path / "secret", tmp_path / "results"
    secret.write_text("of the submitter")
    output.mkdir()
    (output / "gaps.json").write_text("of an earlier job")
    monkeypatch.setattr(session, "MAX_RESULT_BYTES", 5000)
    files = {"federation_json": federation, "model_json": bytes(5000), "rounds_csv": bytes(5001),
             "metrics_json": secret, "other_sh": b"rm"}  # fmt: skip
    assert session._fetch(Downloads(**files), "job-1", output).job == "job-1"
    assert {path.name for path in output.iterdir()} == {"federation.json", "model.json"}


def test_result_whose_record_is_large_or_a_link_is_refused(tmp_path, federation, monkeypatch):
    (tmp_path / "other").write_bytes(federation)
    linked = Downloads(federation_json=tmp_path / "other")
    assert session._fetch(linked, "job-1", tmp_path / "out") is None
    monkeypatch.setattr(session, "MAX_METRICS_BYTES", len(federation) - 1)
    with pytest.raises(InputError, match=r"federation\.json"):
        session._fetch(Downloads(federation_json=federation), "job-1", tmp_path / "out")


def test_job_is_aborted_after_its_time_and_one_that_is_unknown_refused(tmp_path):
    pytest.importorskip("nvflare")
    from nvflare.fuel.flare_api.api_spec import JobNotFound

    engine = Mock()
    engine.monitor_job_and_return_job_meta.return_value = None, None
    ended = session.attach(engine, "job-1", tmp_path, print, most_seconds=1)
    assert not ended.completed
    assert not ended._replace(status="FINISHED:EXECUTION_EXCEPTION").completed
    engine.abort_job.assert_called_once_with("job-1")
    engine.monitor_job_and_return_job_meta.side_effect = JobNotFound
    with pytest.raises(InputError, match="no such job"):
        session.attach(engine, "job-1", tmp_path, print)

"""Whatever stands in a run's folder, a report is a page or a refusal that names the file."""

import json
from copy import deepcopy

import pytest
from federation_runs import COURSE
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from report_runs import write_run

from synthfair.cli import main
from synthfair.federated import TrainConfig
from synthfair.metrics_file import Influence, MetricsFile
from synthfair.release.settings import SurrogateConfig
from synthfair.server.settings import ServerConfig

MOVED = dict.fromkeys(Influence._fields, 0.5) | {"outlier": True, "alone": False}
GAP = {"first": "a", "second": "b", "rate": "true_positive_rate", "value": None, "low": -1,
       "high": 1.0}  # fmt: skip
GROUP = {"name": "a", "share": 0.5, "error": 0.1, "mean": None, "low": None, "high": None}
GAPS = {"format": "synthfair-gaps/1", "epsilon": 1.0, "confidence": 0.95, "gaps": [GAP],
        "collection": "0" * 8, "reports": 90, "rejected": {"missing": 1}, "groups": [GROUP],
        "warnings": ["w"], "sites": ["north"],
        "guarantee": {"epsilon": 1.0, "unit": "row", "relation": "add_or_remove"}}  # fmt: skip


HOSTILE = (
    None, True, -1, 0, 2, 10**400, 1e308, 5e-324, float("nan"), float("inf"), "", "0", "\x1b[31m",
    "{}", "x" * 3000, [], {}, [None], {"": 0}, [[[[[[]]]]]], "surrogate", "selection_rate",
)  # fmt: skip
"""What stands in the place of another value."""


@pytest.fixture(scope="module")
def documents(tmp_path_factory):
    """The files of three runs: by surrogates, in rounds, and with decisions by group."""
    folder = write_run(tmp_path_factory.mktemp("runs") / "run")
    metrics = json.loads((folder / "metrics.json").read_text())
    del metrics["table"]
    surrogates = SurrogateConfig().model_dump(mode="json")
    server = metrics | {
        "config": {"a": surrogates, "b": surrogates},
        "server": ServerConfig().model_dump(mode="json"),
        "influence": {"outliers_above": None, "releases": {"a": MOVED, "b": MOVED}},
        "guarantees": {"a": None}, "hides_pairs": ["a"],
        "signed_by": {"a": "b"}, "max_influence": 3.0, "max_spd_influence": 0.5, "rho": 10.0,
        "n_synthetic": 40, "warnings": ["w"], "seconds": None,
    }  # fmt: skip
    train = TrainConfig().model_dump(mode="json")
    rounds = metrics | {"config": {}, "method": "fpfl", "train": {"clients": 2, **train}}
    decided = metrics | {
        "config": {}, "decision": {"notion": "equalized_odds", "alpha": 0.1},
        "method": "thresholds", "counts": {"clients": 2, "guarantees": [None]},
    }  # fmt: skip
    for document in (server, rounds, decided):
        MetricsFile.model_validate_json(json.dumps(document))
    return [{"metrics.json": one, "gaps.json": GAPS, "federation.json": COURSE}
            for one in (server, rounds, decided)]  # fmt: skip


def changed(document, path, value):
    found = deepcopy(document)
    inner = found
    for key in path[:-1]:
        inner = inner[key]
    if value == "removed":
        del inner[path[-1]]
    else:
        inner[path[-1]] = value
    return found


def places(document, path=()):
    """Where something can be changed."""
    inner = document.items() if isinstance(document, dict) else enumerate(document)
    for key, value in inner:
        yield (*path, key)
        if isinstance(value, dict | list):
            yield from places(value, (*path, key))


def reported(folder, files):
    """The exit code of ``report``; an exception is a fault."""
    folder.mkdir(exist_ok=True)
    for name, document in files.items():
        (folder / name).write_text(json.dumps(document))
    return main(["report", str(folder), "--output", str(folder / "report.html"), "--force"])


def test_run_as_it_is_becomes_a_page(documents, tmp_path):
    nobody = documents[0] | {"federation.json": COURSE | {"sites": {}}}  # it ended before that
    assert [reported(tmp_path / "run", files) for files in [*documents, nobody]] == [0] * 4


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(data=st.data())
def test_run_that_is_changed_becomes_a_page_or_a_refusal(documents, tmp_path_factory, data, capsys):
    files = dict(data.draw(st.sampled_from(documents)))
    name = data.draw(st.sampled_from(["metrics.json"] * 4 + ["gaps.json", "federation.json"]))
    for _ in range(data.draw(st.integers(1, 2))):
        path = data.draw(st.sampled_from(list(places(files[name]))))
        files[name] = changed(files[name], path, data.draw(st.sampled_from([*HOSTILE, "removed"])))
    code = reported(tmp_path_factory.getbasetemp() / "changed", files)
    said = capsys.readouterr().err
    assert code == 0 or (code == 2 and name in said)


REFUSED = {
    "config": ("metrics.json", ("server",), None),
    "NaN": ("metrics.json", ("spd", "value"), float("nan")),
    "spd.value": ("metrics.json", ("spd", "value"), True),
    "40 digits": ("metrics.json", ("cost", "rounds"), 10**400),
    "rounds": ("federation.json", ("rounds",), True),
    "reports": ("gaps.json", ("reports",), True),
}


@pytest.mark.parametrize("said", REFUSED)
def test_run_that_is_hostile_is_refused_by_file_and_key(documents, tmp_path, capsys, said):
    name, path, value = REFUSED[said]
    files = documents[0] | {name: changed(documents[0][name], path, value)}
    assert reported(tmp_path / "run", files) == 2
    told = capsys.readouterr().err
    assert f"{name}: " in told
    assert said in told

"""Files that a report reads are refused where they are not what a run writes."""

import pytest
from report_runs import edited, write_run

import synthfair as sf
from synthfair.fairness.metrics import Rates
from synthfair.metrics_file import FrontierLine, Influence, read_frontier
from synthfair.report.results import read_results

RATES = dict.fromkeys(Rates._fields[1:], 0.5) | {"n": 3}
MOVED = dict.fromkeys(Influence._fields, 0.5) | {
    "outlier": False,
    "alone": False,
}

GROUPS = ("town=a", "town=b")

NULL = {"value": None, "low": None, "high": None}
ROWS = {group: {"negative": 1, "positive": 1} for group in GROUPS}


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return write_run(tmp_path_factory.mktemp("runs") / "run")


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"accuracy": 0.9}, "accuracy"),
        ({"surprise": 1}, "surprise: unknown key"),
        (
            {"by_group": {"x=0": RATES | {"n": -1}}},
            "by_group.x=0.n: .*greater than or equal to 0; got -1",
        ),
        (
            {"by_group": {"x=0": RATES | {"error_rate": 2}}},
            "by_group.x=0.error_rate: .*less than or equal to 1; got 2",
        ),
        ({"spd": {"value": "high", "low": 0, "high": 0}}, "spd.value: .*number"),
        ({"spd": {"value": 0, "low": 0}}, "spd.high: missing"),
        (
            {"spd": {"value": 1e300, "low": 0, "high": 0}},
            "spd.value: .*less than or equal to 1; got 1e\\+300",
        ),
        ({"covariance": {"value": float("inf"), "low": 0, "high": 0}}, "not JSON: Infinity"),
        ({"cost": {"users": 2, "rounds": None, "bytes_sent": 1}}, "cost.rounds"),
        (
            {"influence": {"outliers_above": None, "releases": {"a": MOVED | {"spd": 3}}}},
            "influence.releases.a.spd: .*less than or equal to 1",
        ),
        (
            {"influence": {"outliers_above": None, "releases": {"a": {}}}},
            "influence.releases.a.scores: missing",
        ),
        ({"asked": {"by": "charm"}}, "asked.by"),
        ({"asked": {"by": "weight", "amounts": [-1]}}, "asked.amounts.0: .*greater than or equal"),
        ({"asked": {"by": "gap"}}, "asked: amounts: gap needs at least one"),
        ({"asked": {"by": "nothing", "amounts": [1]}}, "asked: amounts: nothing has none"),
        ({"guarantee": {"epsilon": 1}}, "guarantee.relation: missing"),
        ({"config": {}}, "config"),
        ({"per_client": {}}, "per_client"),
        ({"method": "a\x1b[2Jb"}, "method: must be on one line, without control characters"),
        ({"warnings": ["a\nYes."]}, "warnings.0: must be on one line"),
        (
            {"influence": {"outliers_above": None, "releases": {"a\u202e": MOVED}}},
            r"influence.releases.*: must be on one line",
        ),
        ({"schema_hash": "short"}, "schema_hash"),
        ({"client_gaps": {"spd": {"nobody": NULL}}}, "client_gaps: must be of clients in per_cl"),
        ({"asked": {"by": "weight", "client_gap": 2}}, "asked.client_gap"),
        ({"rows": {"nobody": ROWS}}, "rows: must be those of each client"),
        ({"train": {"method": "fpfl", "notion": "x"}}, "train.notion"),
    ],
)
def test_damaged_metrics_are_refused(run, tmp_path, changes, complaint):
    with pytest.raises(sf.InputError, match=f"(?s)metrics.json: .*{complaint}"):
        read_results([edited(run, tmp_path, **changes)])


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("1,0.9,0.1,,,1", None),
        ("1,0.9,0.1,0.9,0.1,1", None),
        ("1,1.9,0.1,0.9,0.1,1", "0.accuracy: .*less than or equal to 1; got 1.9"),
        ("1,,0.1,0.9,0.1,1", "0.accuracy: .*finite number"),
        ("-1,0.9,0.1,0.9,0.1,1", "0.rho: .*greater than or equal to 0"),
        ("inf,0.9,0.1,0.9,0.1,1", "0.rho: .*finite"),
        ("1,0.9,0.1,0.9,-0.1,1", "0.test_gap: "),
        ("1,0.9", "0.converged: "),
        ("1,0.9,0.1,0.9,x,1", "0.test_gap: .*valid number"),
    ],
)
def test_damaged_frontiers_are_refused(line, complaint, tmp_path):
    path = tmp_path / "frontier.csv"
    path.write_text(",".join(FrontierLine._fields) + f"\n{line}\n")
    if complaint is None:
        (found,) = read_frontier(path)
        assert (found.rho, found.accuracy) == (1.0, 0.9)
        return
    with pytest.raises(sf.InputError, match=f"frontier.csv: {complaint}"):
        read_frontier(path)
    path.write_text("rho\n1\n")
    with pytest.raises(sf.InputError, match="frontier.csv: 0.accuracy: missing"):
        read_frontier(path)

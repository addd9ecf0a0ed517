"""No table of a command cuts a number or a title, however narrow the terminal is."""

import json
import re
from pathlib import Path
from types import SimpleNamespace as Any

import numpy as np
import pytest
from rich.console import Group

import synthfair
from synthfair.cli.deploy import shown
from synthfair.data.encode import ClippedColumn
from synthfair.evaluation import Evaluation
from synthfair.fairness.metrics import Metric, Rates
from synthfair.federation_file import Booked, FederationFile
from synthfair.measure.estimate import Estimate, Gap, Interval
from synthfair.measure.simulate import SimulatedGap
from synthfair.privacy.chance import Comparison
from synthfair.privacy.gate import Preview
from synthfair.report import (
    clipping_table,
    evaluation_tables,
    federation_table,
    gaps,
    influence_table,
    inspection_table,
    ledger_table,
    outcomes_table,
    overview_tables,
    plain_text,
    pooled_table,
    postprocess,
    preview_table,
    sums,
    terminal,
    training_table,
)
from synthfair.report.overview import Effort
from synthfair.report.result_table import LONG, ResultTable
from synthfair.run_files import Influence, Influences

CLIENTS = [f"community hospital of the north {i}" for i in range(9)] + ["north_western_bank_branch"]
GROUPS = [f"race=Asian-Pacific islander {i}" for i in range(7)]
METRIC = Metric(-0.0123, -0.1234, 0.0456)
PART = dict.fromkeys(terminal._SHORT_TITLES, METRIC)  # all titles that there are
EVALUATION = Evaluation(PART, dict.fromkeys(CLIENTS, PART), [], [], 1_234_567, 0.876, {}, [])
SCHEMA = Any(label="paid", sensitive="race", groups=[g.split("=")[1] for g in GROUPS])
NANS = (np.nan,) * 3
COLLECTION = Any(
    groups=GROUPS, compared=range(7), lower=-1e4, unit=1e4, epsilon=1.25, epsilon1=1.0,
    epsilon2=0.25, mechanism="randomized",
)  # fmt: skip
GAP = Gap((0, 1), -0.01234, 0.01, Interval(-0.5123, 0.4123), 0.01234, 0.12345)
GUARANTEE = Any(
    epsilon=1.25, delta=1e-6, unit="one user", relation="add_or_remove", condition="no two collude",
    mechanisms=[Any(noise=0.0123, clip=1.5, name="gradients", shares=Any(aggregators=3))],
    holds_against="everybody but the aggregators, of whom one is honest",
)  # fmt: skip


def comparison(found=0.9876):
    return Comparison(found, 0.0123, 0.0045)


def previewed():
    distances = Any(
        held_out_median=1.234, median=1.321, close=comparison(), near=comparison(0.0),
        single=comparison(), linked=comparison(),
    )  # fmt: skip
    attacks = {"membership by the distance to the closest row": comparison()}
    return Preview(800, 99, 1, 2, True, 1.234, distances, attacks)


def booked():
    found = Any(epsilon=1.25, delta=1e-6, relation="add_or_remove")
    whats = [
        Any(kind="release", output=name, guarantee=found, composition=None)
        for name in ("the_release_of_the_northern_lender.parquet", "second.parquet")
    ]
    entries = [Any(what=what, time="2026-01-31T12:34:56+00:00") for what in whats]
    spent = Any(composition=1, limit=Any(epsilon=2.5, delta=1e-6), epsilon=lambda _: 1.25)
    return Any(path="rows.csv.ledger", entries=lambda: entries, spent=lambda: spent)


def moved():
    one = Influence(1.0, 1.234, 0.123, -0.0123, 0.0456, True, True, True, (-0.123,) * 7)
    return Influences(dict.fromkeys(CLIENTS, one), 3.0)


def overview():
    summary = Any(
        method="two-phase; clip = several", setting="gap at most 0.0125", converged=False,
        accuracy=METRIC, accuracy_spread=0.0123, gap=METRIC, gap_spread=0.0456, runs=[1, 2],
        cost=Effort(12_345, 1.234e9, 1234.5), epsilon=1.25,
    )  # fmt: skip
    return Any(gap="equal_opportunity_difference", summaries=[summary] * 3)


def decided():
    decision = Any(
        notion="equalized_odds", alpha=0.0125, n_bins=20,
        steps=[((3, 0.1234), (7, 0.5678), (12, 1.0))] * 7,
    )  # fmt: skip
    share = Any(value=0.8765, error=0.0123)
    return Any(decision=decision, accuracy=share, gap=share, constant_accuracy=share)


def counted():
    counts = np.arange(28).reshape(7, 2, 2) * 123_456
    return Any(array=lambda: counts, groups=GROUPS, variance=1.5)


def outcomes():
    return [
        Any(method=name, rho_o=rho, converged=False, evaluation=EVALUATION)
        for rho in (0, 12.5)
        for name in ("each lender alone", "surrogates")
    ]


def federation():
    sites = {name: Booked(code="uploads", rounds=12, seconds=1234.5) for name in CLIENTS}
    return FederationFile(
        job="b1946ac9-2492-4d23-9eb8-d0e3dbbf1f3a", server="server", version="0", seconds=1,
        rounds=12, median_round_seconds=1, error=None, sites=sites,
    )  # fmt: skip


def inspected():
    header = Any(
        format="synthfair/1", version="0.1", kind="surrogate", schema_hash="a" * 64, model="linear",
        penalty="covariance", config=synthfair.SurrogateConfig(k_min=25),
        privacy=Any(guarantee=None, discloses=["exact counts"], accepted_risks=[]),
    )  # fmt: skip
    release = Any(
        header=header, x=np.ones((4, 2)), s=np.arange(4) % 2, y=np.ones(4), weight=np.ones(4) * 1e4,
        names=["income of a year", "age"],
    )  # fmt: skip
    signature = Any(public_key="c" * 64, sha256="b" * 64)
    return Any(
        path=Path("folder/release.parquet"), size=12_345, sha256="d" * 64, release=release,
        fits=False, client=None, problems=["rows: 4"], signature=signature,
    )  # fmt: skip


def estimated():
    parts = np.full(7, 0.1234)
    found = Estimate(123_456, parts, parts, parts, ((-0.5, 0.5),) * 7, (GAP,) * 21, 0.95)
    return gaps.estimate_tables(found, Any(rejected={"repeated": 1_234}), COLLECTION)


def simulated_model():
    gap = Any(rate="false_positive_rate", groups=GROUPS, measured=GAP, true=-0.1234, pooled=0.1234)
    return gaps.model_table(Any(gaps=[gap] * 4, confidence=0.95, devices=123_456, epsilon=2.5))


def trained():
    cost = Any(users=123_456, rounds=1_234, bytes_sent=1_234_567_890)
    counts = Any(statement={"epsilon": 1.25, "unit": "one row"})
    training = Any(cost=cost, guarantee=GUARANTEE, counts=counts)
    return training_table(training, private=True)


TABLES = {
    "evaluate": lambda: evaluation_tables(EVALUATION, SCHEMA),
    "evaluate, no labels": lambda: evaluation_tables(
        EVALUATION._replace(constant_accuracy=np.nan, by_group=[Rates(99, 0.4321, *NANS)] * 7),
        SCHEMA,
    ),
    "server": lambda: influence_table(moved()),
    "server, surrogates": lambda: pooled_table(Any(rho=1234.5, accuracy=0.8765, gap=0.0123)),
    "demo": lambda: outcomes_table(outcomes()),
    "compare": lambda: overview_tables(overview()),
    "deploy": lambda: federation_table(federation()),
    "train": trained,
    "client": lambda: preview_table(previewed()),
    "client, clipped": lambda: clipping_table(
        Any(clipped=lambda above: [(c, ClippedColumn(-1e5, 1.25e7, 0.123, 0.456)) for c in CLIENTS])
    ),
    "ledger": lambda: ledger_table(booked()),
    "inspect": lambda: inspection_table(inspected()),
    "thresholds": lambda: postprocess.decision_tables(decided(), counted()),
    "weights": lambda: postprocess.weights_table(
        Any(method="kamiran_calders", groups=GROUPS, weights=[(0.8765, 1.2345)] * 7)
    ),
    "secure": lambda: sums.counts_table(counted(), counted().array() + 1),
    "secure, decided": lambda: postprocess.decisions_table(
        dict.fromkeys(("the model's own threshold", "thresholds by group"), EVALUATION)
    ),
    "secure, statement": lambda: sums.statement_table(
        {"epsilon": 1.25, "holds_against": ["everybody but the aggregators"] * 2}
    ),
    "gap plan": lambda: gaps.plan_table(
        Any(clients=123_456, precision=3e4, confidence=0.95, chebyshev=0.1), COLLECTION
    ),
    "gap aggregate": estimated,
    "gap simulate": lambda: gaps.simulation_table(
        [SimulatedGap((0, 1), -0.1, -0.1, 0.1, 0.1, 0.956, 0.1, 0.1)] * 3, COLLECTION, 0.95
    ),
    "gap simulate --model": simulated_model,
}


def tables_of(shown):
    parts = shown.renderables if isinstance(shown, Group) else [shown]
    assert all(isinstance(part, ResultTable) for part in parts)
    return parts


@pytest.mark.parametrize("width", [40, 60, 80, 120])
@pytest.mark.parametrize("name", TABLES)
def test_a_table_is_whole_at_any_width(name, width):
    for table in tables_of(TABLES[name]()):
        text = plain_text(table, width)
        assert "…" not in text
        assert max(map(len, text.splitlines())) <= width
        printed = text.replace("┃", " ").replace("│", " ").split()
        whole = {*printed, *(word.removesuffix(":") for word in printed)}
        for column in table.columns:
            for part in (column.header, *column.cells):
                assert {word for word in str(part).split() if len(word) <= LONG} <= whole
                if column.justify == "right" and part is not column.header:
                    assert str(part) in text, "a number and its interval stand on one line"


def test_wide_enough_a_table_is_that_of_rich():
    table = ResultTable("model", "accuracy", title="two models")
    table.add_row("plain", "0.876")
    assert plain_text(table, 30).splitlines()[1:5] == [
        "┏━━━━━━━┳━━━━━━━━━━┓",
        "┃ model ┃ accuracy ┃",
        "┡━━━━━━━╇━━━━━━━━━━┩",
        "│ plain │    0.876 │",
    ]


def test_nothing_is_markup():
    table = ResultTable("a [b]name[/b]", "x", title="[red]title[/red]", caption="[i]said[/i]")
    table.add_row("[bold]cell[/bold]", "[1, 2]")
    for width in (20, 80):
        text = "".join(plain_text(table, width).split())
        for part in ("[red]title[/red]", "[bold]cell[/bold]", "[i]said[/i]", "[1,2]"):
            assert part in text


def test_the_same_table_is_printed_at_several_widths():
    table = tables_of(evaluation_tables(EVALUATION, SCHEMA))[1]
    before = plain_text(table, 120)
    assert plain_text(table, 40) != before
    assert plain_text(table, 120) == before


@pytest.mark.parametrize("width", [40, 80])
def test_a_jobs_tables_follow_the_terminal(width, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", str(width))
    gap = {"first": GROUPS[0], "second": GROUPS[1], "value": -0.123, "low": -0.456, "high": 0.789}
    found = {"rate": "true_positive_rate", "reports": 123_456, "confidence": 0.95, "gaps": [gap]}
    (tmp_path / "gaps.json").write_text(json.dumps(found))
    shown.tell(Any(federation=federation(), completed=True), tmp_path)
    text = capsys.readouterr().out
    assert "…" not in text
    assert "-0.456 to +0.789" in text


def test_there_is_no_other_table():
    folder = Path(synthfair.__file__).parent
    makers = [p.name for p in folder.rglob("*.py") if re.search(r"rich.table\b", p.read_text())]
    assert makers == ["result_table.py"]

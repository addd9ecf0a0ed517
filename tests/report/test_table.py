"""No table of a command cuts a number or a title, however narrow the terminal is."""

import re
from pathlib import Path
from types import SimpleNamespace as Fake

import numpy as np
import pytest
from printed import plain_text
from rich.console import Group

import synthfair
from synthfair.cli import deploy
from synthfair.data.encode import ClippedColumn
from synthfair.data.schema import RELEASE_COLUMNS
from synthfair.fairness.metrics import Metric, Rates
from synthfair.measure.gaps_file import GapsFile
from synthfair.metrics_file import Evaluation, Influence, Influences, Metrics
from synthfair.report.release_tables import (
    clipping_table,
    inspection_table,
    ledger_table,
)
from synthfair.report.result_tables import (
    decision_tables,
    estimate_tables,
    evaluation_tables,
    federation_table,
    gap_table,
    influence_table,
    outcomes_table,
    overview_tables,
)
from synthfair.report.text_table import MAX_WHOLE_LETTERS, Table
from synthfair.task.federation_file import FederationFile, SiteRecord

CLIENTS = [f"community hospital of the north {i}" for i in range(9)] + ["north_western_bank_branch"]
GROUPS = [f"race=Asian-Pacific islander {i}" for i in range(7)]
METRIC = Metric(-0.0123, -0.1234, 0.0456)
PART = dict.fromkeys(Metrics.model_fields, METRIC) | dict.fromkeys(
    ("accuracy", "equalized_odds_difference"), Metric(0.0123, 0.0012, 0.0456)
)
EVALUATION = Evaluation(
    **PART, per_client=dict.fromkeys(CLIENTS, Metrics(**PART)), n_test=1_234_567, seed=0,
    by_group=dict.fromkeys(GROUPS, Rates(99, 0.4321, *(np.nan,) * 3)), version="0", packages={},
    constant_classifier={"accuracy": 0.876}, schema_hash="a" * 64, resamples=1,
)  # fmt: skip
GAP = {"first": GROUPS[0], "second": GROUPS[1], "value": -0.0123, "low": -0.5, "high": 0.4}


def booked():
    found = Fake(epsilon=1.25, delta=1e-6, relation="add_or_remove")
    whats = [
        Fake(kind="release", output=name, guarantee=found, composition=None)
        for name in ("the_release_of_the_northern_lender.parquet", "second.parquet")
    ]
    entries = [Fake(what=what, time="2026-01-31T12:34:56+00:00") for what in whats]
    spent = Fake(composition=1, limit=Fake(epsilon=2.5, delta=1e-6), epsilon=lambda _: 1.25)
    return Fake(path="rows.csv.ledger", records=lambda: entries, spent=lambda: spent)


def moved():
    one = Influence(1.234, 0.123, 0.0456, outlier=True, alone=True)
    return Influences(dict.fromkeys(CLIENTS, one), 3.0)


def overview():
    effort = {"rounds": 12_345, "bytes sent": 1_234_567_890, "seconds": 1234.5, "epsilon": None,
              "converged": "NO"}  # fmt: skip
    summary = Fake(
        method="two-phase; clip = several", setting="gap at most 0.0125",
        metrics=lambda name: [METRIC, METRIC], runs=[1, 2],
        effort=effort,
    )  # fmt: skip
    return Fake(gap="equal_opportunity_difference", summaries=[summary] * 3)


def decided():
    decision = Fake(
        notion="equalized_odds", alpha=0.0125, n_bins=20,
        steps=[((3, 0.1234), (7, 0.5678), (12, 1.0))] * 7,
    )  # fmt: skip
    share = Fake(value=0.8765, error=0.0123)
    return Fake(decision=decision, accuracy=share, gap=share, constant_accuracy=share)


def outcomes():
    return [
        Fake(method=name, rho_o=rho, converged=False, evaluation=EVALUATION)
        for rho in (0, 12.5)
        for name in ("each lender alone", "surrogates")
    ]


def federation():
    sites = {name: SiteRecord(code="uploads", rounds=12, seconds=1234.5) for name in CLIENTS}
    return FederationFile(
        job="b1946ac9-2492-4d23-9eb8-d0e3dbbf1f3a", server="server", version="0", seconds=1,
        rounds=12, median_round_seconds=1, error=None, sites=sites,
    )  # fmt: skip


def inspected():
    header = Fake(
        format="synthfair/1", version="0.1", kind="surrogate", model="linear",
        penalty="covariance", config=synthfair.SurrogateConfig(k_min=25),
        guarantee=None, hides_pairs=False, names=["income of a year", "age"],
        own_columns=RELEASE_COLUMNS, table_schema=Fake(hash="a" * 64, label="paid", decisions=("no", "yes"), pair=lambda s, y: f"{s}: {y}"),
    )  # fmt: skip
    release = Fake(
        header=header, x=np.ones((4, 2)), s=np.arange(4) % 2, y=np.ones(4), weight=np.ones(4) * 1e4,
    )  # fmt: skip
    signature = Fake(public_key="c" * 64, sha256="b" * 64)
    return Fake(
        path=Path("folder/release.parquet"), size=12_345, sha256="d" * 64, release=release,
        fits=False, client=None, problems=["rows: 4"], signature=signature,
    )  # fmt: skip


def estimated():
    groups = [{"name": name, "share": 0.12, "error": 0.01, "mean": None, "low": None, "high": None}
              for name in GROUPS]  # fmt: skip
    return gaps_file(reports=123_456, rejected={"repeated": 1_234}, groups=groups, gaps=[GAP] * 21)


def gaps_file(**parts):
    document = {"format": "synthfair-gaps/1", "epsilon": 1.0, "confidence": 0.95}
    return GapsFile.model_validate(document | parts)


TABLES = {
    "evaluate": lambda: evaluation_tables(EVALUATION),
    "evaluate, no labels": lambda: evaluation_tables(
        EVALUATION.model_copy(update={"constant_classifier": None})
    ),
    "server": lambda: influence_table(moved()),
    "page": lambda: influence_table(moved(), {CLIENTS[0]: "north"}),
    "demo": lambda: outcomes_table(outcomes()),
    "compare": lambda: overview_tables(overview()),
    "deploy": lambda: federation_table(federation()),
    "client, clipped": lambda: clipping_table(
        Fake(clipped=lambda: dict.fromkeys(CLIENTS, ClippedColumn(-1e5, 1.25e7, 0.123, 0.456)))
    ),
    "ledger": lambda: ledger_table(booked()),
    "inspect": lambda: inspection_table(inspected()),
    "thresholds": lambda: decision_tables(decided(), Fake(groups=GROUPS)),
    "secure, statement": lambda: Table.of_facts(
        {"epsilon": 1.25, "holds_against": ["everybody but the aggregators"] * 2}
    ),
    "gap aggregate": lambda: estimate_tables(estimated()),
    "job of gaps": lambda: gap_table(
        gaps_file(sites=CLIENTS, gaps=[GAP | {"rate": "true_positive_rate"}] * 4)
    ),
}


def tables_of(shown):
    parts = shown.renderables if isinstance(shown, Group) else [shown]
    assert all(isinstance(part, Table) for part in parts)
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
        for cell in (*table.columns, *(cell for row in table.cells for cell in row)):
            assert {word for word in cell.split() if len(word) <= MAX_WHOLE_LETTERS} <= whole
        numbers = [i for i in range(len(table.columns)) if not table.is_text(i)]
        for row in filter(None, table.cells):
            for i in numbers:
                assert row[i] in text, "a number and its interval stand on one line"


def test_wide_enough_a_table_is_that_of_rich():
    table = Table(("model", "accuracy"), [("plain", 0.876), (), ("fair", 0.5)], "two models")
    assert plain_text(table, 30).splitlines()[1:7] == [
        "┏━━━━━━━┳━━━━━━━━━━┓",
        "┃ model ┃ accuracy ┃",
        "┡━━━━━━━╇━━━━━━━━━━┩",
        "│ plain │    0.876 │",
        "├───────┼──────────┤",
        "│ fair  │    0.500 │",
    ]


def test_nothing_is_markup():
    table = Table(("a [b]name[/b]", "x"), [("[bold]cell[/bold]", "[1, 2]")], "[red]title[/red]",
                  "[i]said[/i]")  # fmt: skip
    for width in (20, 80):
        text = "".join(plain_text(table, width).split())
        for part in ("[red]title[/red]", "[bold]cell[/bold]", "[i]said[/i]", "[1,2]"):
            assert part in text


def test_what_cannot_be_printed_is_marked():
    assert "\x1b" not in plain_text(Table.of_facts({"a\x1b": "b\x1b[31m"}))


def test_a_column_without_values_is_left_out():
    records = [{"a": "x", "b": None, "c": ()}, {"a": "y", "b": None, "c": ("z", "w")}]
    table = Table.of(records)
    assert (list(table.columns), table.cells) == (["a", "c"], [["x", ""], ["y", "z, w"]])


def test_the_same_table_is_printed_at_several_widths():
    table = tables_of(evaluation_tables(EVALUATION))[1]
    before = plain_text(table, 120)
    assert plain_text(table, 40) != before
    assert plain_text(table, 120) == before


@pytest.mark.parametrize("width", [40, 80])
def test_a_jobs_tables_follow_the_terminal(width, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", str(width))
    gap = GAP | {"rate": "true_positive_rate"}
    gaps_file(sites=CLIENTS, gaps=[gap]).write(tmp_path / "gaps.json")
    deploy.tell(Fake(federation=federation(), completed=True), tmp_path)
    text = capsys.readouterr().out
    assert "…" not in text
    assert "-0.0123 [-0.5000, 0.4000]" in text


def test_there_is_no_other_table():
    folder = Path(synthfair.__file__).parent
    makers = [p.name for p in folder.rglob("*.py") if re.search(r"rich.table\b", p.read_text())]
    assert makers == ["text_table.py"]

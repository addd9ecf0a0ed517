"""Tables of real records hold their numbers, whole at any width; nothing in them is markup."""

import pytest
from builders import SCHEMA, TABLE, some_model, some_release
from federation_runs import COURSE
from printed import plain_text
from report_runs import write_runs
from score_rows import histogram_of, scored_rows

import synthfair as sf
from synthfair.compare import Outcome
from synthfair.data.encode import Clipping, encode
from synthfair.measure.gaps_file import GapsFile
from synthfair.metrics_file import Influence, Influences, read_metrics
from synthfair.postprocess import choose_decision
from synthfair.privacy.guarantee import Guarantee
from synthfair.privacy.ledger import Ledger, Purchase
from synthfair.release.format import inspect_release
from synthfair.report import release_tables, result_tables
from synthfair.report.results import overviews, read_results
from synthfair.report.text_table import Table, as_text
from synthfair.task.federation_file import FederationFile

LONG = "the community hospital of the northern_islands_and_their_lighthouses"
GAP = {"first": LONG, "second": "b", "value": -0.0123, "low": -0.5, "high": 0.4}
GROUP = {"name": LONG, "share": 0.12, "error": 0.01, "mean": 0.5, "low": 0.4321, "high": 0.6}
GAPS = {"epsilon": 1.0, "confidence": 0.95, "gaps": [GAP], "reports": 123_456, "groups": [GROUP]}


def booked(folder):
    ledger = Ledger.for_table(folder / "rows.csv")
    ledger.set_limit(2.5, 1e-6)
    guarantee = Guarantee(epsilon=1.25, relation="add_or_remove")
    for i in range(2):
        ledger.book(Purchase(output=f"{LONG} {i}", run=f"{i}" * 64, guarantee=guarantee))
    return ledger


@pytest.fixture(scope="module")
def shown(tmp_path_factory):
    """Tables, and numbers of their records as they must read."""
    folder, clipping = tmp_path_factory.mktemp("shown"), Clipping()
    runs = write_runs(folder)
    (overview,) = overviews(read_results(runs))
    metrics = read_metrics(runs[0] / "metrics.json")
    accuracy, spd = as_text(metrics.accuracy), as_text(metrics.spd, "z.2f")
    encode(TABLE.assign(income=TABLE["income"] * 2), SCHEMA, clipping=clipping)
    bare = sf.evaluate(some_model(), TABLE.drop(columns="paid"))
    rate, above = bare.by_group["town=a"].selection_rate, (TABLE["income"] > 50).mean()
    histogram = histogram_of(*scored_rows())
    choice = choose_decision(histogram, "statistical_parity", 0.0125)
    influences = Influences({LONG: Influence(1.234, 0.25, 0.0456, outlier=True, alone=True)}, 3.0)
    federation, gaps = FederationFile.model_validate(COURSE), GapsFile.model_validate(GAPS)
    sf.write_release(some_release(), folder / "r.parquet")
    inspection = inspect_release(folder / "r.parquet")
    estimates = [f"{share.value:.4f}" for share in (choice.accuracy, choice.gap)]
    return [
        (result_tables.evaluation_tables(metrics), [accuracy, f"{metrics.n_test}"]),
        (result_tables.evaluation_tables(bare), [as_text(rate)]),
        (result_tables.outcomes_table([Outcome(LONG, 12.5, metrics, False)]), [spd]),
        (result_tables.overview_tables(overview), ["5,000", "penalty weight 10"]),
        (result_tables.influence_table(influences), ["1.234", "0.250", "0.046", "OUTLIER"]),
        (result_tables.federation_table(federation), ["283,000", "5.500", "suburbs", "releases"]),
        (result_tables.estimate_tables(gaps), ["0.5000 [0.4321, 0.6000]", "123,456",
                                               "-0.0123 [-0.5000, 0.4000]"]),
        (result_tables.decision_tables(choice, histogram), estimates),
        (release_tables.clipping_table(clipping), [f"{above:.1%}", "0 to 100"]),
        (release_tables.ledger_table(booked(folder)), ["1.25", "epsilon = 2.5 at"]),
        (release_tables.inspection_table(inspection), ["2 x 7", "0.25 to 0.25"]),
    ]  # fmt: skip


def test_table_takes_nothing_for_markup_or_control():
    table = Table(("a [b]name[/b]", "x"), [("[bold]c\x1b[31m[/bold]", "[1, 2]")], "[red]t[/red]",
                  "[i]said[/i]")  # fmt: skip
    for width in (20, 80):
        text = "".join(plain_text(table, width).split())
        assert "\x1b" not in text
        for part in ("[b]name[/b]", "[red]t[/red]", "[i]said[/i]", "[1,2]", "[bold]c"):
            assert part in text

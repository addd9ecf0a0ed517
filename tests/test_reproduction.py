"""The committed pages, plots and verdicts: of the committed runs, and by the rules that they state."""

import re

import pytest
from comparison import same_plot, same_text

from benchmarks import registry, reproduction
from benchmarks.harness import RESULTS
from benchmarks.papers import finding
from benchmarks.showing import Mean

PARTS = [(name, one) for name in registry.NAMES for one in registry.experiments(name)]


@pytest.mark.parametrize(("name", "one"), PARTS, ids=[f"{name}-{one.name}" for name, one in PARTS])
def test_the_committed_pages_and_plots_are_of_the_committed_runs(name, one):
    """If not: python -m benchmarks.NAME PART --show."""
    folder = registry.folder_of(name)
    runs = one.current(one.read(folder))
    if one.missing(runs, one.settings, None) and not one.default:
        pytest.skip("not all of its runs are there")
    for file, text in one.summary(runs).items():
        assert agrees(file, (folder / file).read_text(encoding="utf-8"), text), file


def agrees(file, committed, made):
    """Whether a page or a plot is the committed one; versions of matplotlib draw differently."""
    if file.endswith(".svg"):
        versions = {re.search(r"Matplotlib v[\d.]+", plot)[0] for plot in (committed, made)}
        return len(versions) > 1 or same_plot(committed, made)
    return same_text(committed, made)


@pytest.mark.parametrize(
    ("kind", "number"), [("md", r"(?<=\d\.\d\d)\d"), ("svg", r"(?<=\nL )\d+(?=\.)")]
)
def test_a_page_or_plot_with_another_number_is_seen(kind, number):
    """Two units of the third decimal; two points in a plot."""
    for path in sorted(RESULTS.rglob(f"*.{kind}")):
        text = path.read_text(encoding="utf-8")
        altered = re.sub(number, lambda found: str((int(found[0]) + 2) % 1000), text, count=1)
        assert agrees(path.name, text, text)
        assert agrees(path.name, text, altered) is (altered == text), path


@pytest.mark.parametrize(
    ("excesses", "verdict"),
    [
        ([Mean(-0.03, 0.02, 4)], finding.YES),
        ([Mean(-0.02, 0.02, 4)], finding.UNDECIDED),
        ([Mean(0.02, 0.02, 4)], finding.UNDECIDED),
        ([Mean(0.03, 0.02, 4)], finding.NO),
        ([Mean(-0.03, 0.02, 4), Mean(0.03, 0.02, 4)], finding.NO),
        ([Mean(-0.03, 0.02, 4), Mean(0.01, 0.02, 4)], finding.UNDECIDED),
        ([Mean(-0.03, 0.0, 1)], finding.UNDECIDED),
        ([Mean(0.03, 0.0, 1)], finding.UNDECIDED),
        ([], finding.NOT_RUN),
    ],
)
def test_verdicts_regard_the_spread_over_seeds(excesses, verdict):
    assert finding.verdict_of(*excesses) == verdict


def test_a_results_page_lists_what_does_not_reproduce_and_no_more():
    some = [
        finding.Finding(f"claim {i}", "1", "2", verdict, "a.md", ("this",) * (i == 1))
        for i, verdict in enumerate((finding.YES, finding.NO, finding.UNDECIDED, finding.REFUTED))
    ]
    text = finding.what_does_not(some)
    assert [f"claim {i} |" in text for i in range(4)] == [False, True, True, False]
    assert "Of 'claim 1' these do not hold, or not for sure: this." in text
    assert "All does." in finding.what_does_not(some[:1])
    assert "None of the claims was run." in finding.what_does_not([])


def test_claims_of_the_reproduction_do_not_repeat():
    for paper in reproduction.PAPERS:
        claims = [one.claim for one in reproduction.findings_of(paper)]
        assert len(claims) == len(set(claims)) > 2

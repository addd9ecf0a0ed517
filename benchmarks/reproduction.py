"""What five papers claim, and what of it comes out here: from the committed runs and the tests."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from benchmarks.papers import juarez, padala, pentyala, rodriguez, wu
from benchmarks.papers.finding import (
    NO,
    NOT_MEASURED,
    NOT_RUN,
    PARTLY,
    REFUTED,
    RULE,
    UNDECIDED,
    YES,
    Finding,
    Paper,
)
from benchmarks.showing import page, table

PAPERS = (wu.PAPER, rodriguez.PAPER, padala.PAPER, juarez.PAPER, pentyala.PAPER)

VERDICTS = (YES, PARTLY, UNDECIDED, NO, REFUTED, NOT_MEASURED, NOT_RUN)


def findings_of(paper: Paper) -> list[Finding]:
    """All of a paper; one that was not run with the code of today says so."""
    return [one if one.ours else one._replace(verdict=NOT_RUN) for one in paper.findings()]


def findings() -> Iterator[Finding]:
    """Paper by paper."""
    for paper in PAPERS:
        yield from findings_of(paper)


def reproduction_pages() -> str:
    """Counts of verdicts, and a section for each paper."""
    found = {paper: findings_of(paper) for paper in PAPERS}
    sections = (_section(paper, own) for paper, own in found.items())
    return page(_summary(found), RULE, *sections).rstrip()


def _summary(found: dict[Paper, list[Finding]]) -> str:
    rows = []
    for paper, own in found.items():
        counts = Counter(one.verdict for one in own)
        rows.append((paper.name, *(counts[verdict] or "" for verdict in VERDICTS)))
    total = Counter(one.verdict for own in found.values() for one in own)
    rows.append(("all", *(total[verdict] or "" for verdict in VERDICTS)))
    shown = [i for i, verdict in enumerate(VERDICTS) if total[verdict]]
    header = " | ".join(["paper", *(VERDICTS[i] for i in shown)])
    return table(header, [(row[0], *(row[1 + i] for i in shown)) for row in rows])


def _section(paper: Paper, own: Sequence[Finding]) -> str:
    """What the paper's main page shows first, then what others show."""
    parts = [f"## [{paper.name}]({_results(paper.page)})"]
    tested = [one for one in own if one.verdict == REFUTED]
    pages = dict.fromkeys([paper.page, *(one.evidence for one in own if one not in tested)])
    for evidence in pages:
        rows = [one[:4] for one in own if one.evidence == evidence and one not in tested]
        if evidence != paper.page:
            parts.append(f"From [{evidence}]({_results(evidence)}):")
        parts.append(table("claim | published | here | verdict", rows))
    parts += [_refuted(tested)] if tested else []
    return "\n\n".join([*parts, note] if (note := paper.note()) else parts)


def _refuted(tested: Sequence[Finding]) -> str:
    """An item each, with the test that shows it."""
    items = [
        f"- {one.claim}. Published: {one.published}. In truth: {one.ours} (`{one.evidence}`)."
        for one in tested
    ]
    return "Refuted, each by a test:\n\n" + "\n".join(items)


def _results(evidence: str) -> str:
    """From docs/."""
    return f"../benchmarks/results/{evidence}"

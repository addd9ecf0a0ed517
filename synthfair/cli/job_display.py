"""Views of a job of a federation: while it runs, and at its end."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from math import isnan
from pathlib import Path
from typing import TYPE_CHECKING

from synthfair.cli.show import say, stage_bar, warn
from synthfair.report.gaps import gap_table
from synthfair.report.result_tables import NAMES, federation_table
from synthfair.report.text_table import Table
from synthfair.run_files import GapsFile, MetricsFile, read_run_file

if TYPE_CHECKING:
    from synthfair.deploy.session import JobResult, OnProgress
    from synthfair.task.federation_file import FederationFile


@contextmanager
def job_bar() -> Iterator[OnProgress]:
    """Yields a function that shows the engine's status of a job, and who has answered."""
    with stage_bar() as show:
        yield lambda status, federation: show(in_words(status, federation))


def in_words(status: str, federation: FederationFile | None) -> str:
    """The engine's status of a job, its rounds, and who has answered."""
    if federation is None:
        return status.lower()
    answers = sum(site.code == "ok" for site in federation.sites.values())
    return (
        f"{status.lower()}, round {federation.rounds}, {answers} of {len(federation.sites)} sites"
    )


def tell(run: JobResult, output: Path) -> None:
    """Says how a job went, and what its model reaches."""
    if run.federation:
        say(federation_table(run.federation))
    if not run.completed:
        reason = (run.federation and run.federation.error) or "see the server's log"
        warn(f"job {run.job}: {run.status}: {reason}")
        return
    metrics = output / "metrics.json"
    if metrics.exists():
        document = read_run_file(metrics, MetricsFile)
        names = ("accuracy", "spd", "equal_opportunity_difference")
        metrics = {NAMES[name]: getattr(document, name) for name in names}
        rows = [(name, metric) for name, metric in metrics.items() if not isnan(metric.value)]
        say(Table(("all test rows", "value"), rows, caption="95 % intervals"))
    gaps = output / "gaps.json"
    if gaps.exists():
        say(gap_table(read_run_file(gaps, GapsFile)))
    say(f"Wrote {', '.join(str(path) for path in sorted(output.iterdir()))}.")

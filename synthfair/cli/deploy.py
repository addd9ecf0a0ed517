"""``python -m synthfair deploy``: the same client and server between real organisations."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from cyclopts import App

from synthfair.cli.parameters import Force
from synthfair.errors import InputError

if TYPE_CHECKING:
    from synthfair.deploy.session import JobResult
    from synthfair.task.federation_file import FederationFile

deploy = App(
    name="deploy",
    help=r"""
Run clients and server as a federation of organisations, on NVIDIA FLARE.

The client runs at each organisation's own site and the server at a hub, connected by an engine for
federations, NVIDIA FLARE 2.9.0: pip install 'synthfair[nvflare]'.

    # the hub: a kit for each party
    python -m synthfair deploy kit project.yml --output DIR
    # each party, before it joins
    python -m synthfair deploy check KIT
    # the server, then each site
    KIT/startup/start.sh
    python -m synthfair deploy run KIT --job DIR/jobs/single_shot \
        --output RESULTS
""",
)


@deploy.command
def kit(
    project: Path,
    /,
    *,
    output: Path,
    authority: Path | None = None,
    jobs_only: bool = False,
) -> None:
    r"""Make a kit for each party, hardened, and the jobs' folders.

    It makes keys, certificates and scripts for the server, each site and each submitter, takes away
    what a site should not allow, and writes the folders of the jobs.

        python -m synthfair deploy kit project.yml --output DIR

    where project.yml has

        name: lenders
        schema: schema.json
        server: {name: hub.example.org, org: hub, port: 8002}
        sites:
          - name: bank-a
            org: bank_a
            limits: {kinds: [surrogate], most_epsilon: 1, least_epsilon_left: 1}
          - name: bank-b
            org: bank_b
            limits: {kinds: [surrogate], most_epsilon: 1}
        submitters:
          - {name: lead@example.org, org: hub}
        jobs:
          single_shot:
            release: {release: surrogate, epsilon: 1, delta: 1.0e-6}
            server: {rho: 10}
            least_answers: 2

    DIR/kits/NAME goes to the party NAME, by a way that nobody else can read: it holds a private
    key. A measurement of gaps is of a model that is there already. So write its job when it is, for
    the same parties:

        python -m synthfair deploy kit project.yml --jobs-only --output DIR/more

    A site that joins later, and certificates that end after 360 days, need kits of the same root;
    give new ones to these parties alone:

        python -m synthfair deploy kit project.yml --authority DIR/authority \
            --output DIR2

    Limits are a proposal; each site has the last word, in its local/synthfair.json.

    Args:
        project: The project, YAML.
        output: A new folder to write to.
        authority: Folder of that name of earlier kits, whose root certificate signs; else a new
            one.
        jobs_only: Write the jobs' folders, and no kits.
    """
    from synthfair.cli.show import say
    from synthfair.deploy.kit import make_jobs, make_kits

    if jobs_only and authority:
        raise InputError("flags: give one of --authority and --jobs-only")
    folders = make_jobs(project, output) if jobs_only else make_kits(project, output, authority)
    for folder in folders:
        say(str(folder))


@deploy.command
def check(kit: Path, /, *, moved: bool = False) -> None:
    """Refuse a kit that is loosened, or not ready.

    A kit is as it was hardened: no code in jobs, no shells, only synthfair's own classes, no log
    that leaves, stores that nobody else reads, no file in startup and local that is not the
    engine's own or the party's; and it is ready: its certificate, its key, its table, its limits.
    What is not is said, one line each, and the exit code is 2.

        python -m synthfair deploy check KIT
        # the server's, once it is where it stays
        python -m synthfair deploy check KIT --moved

    Args:
        kit: Folder of a kit.
        moved: Harden it anew first: the server's stores then lie in this folder.
    """
    from synthfair.cli.show import say
    from synthfair.deploy.check import problems
    from synthfair.deploy.hardening import harden
    from synthfair.deploy.project import require_engine

    require_engine()
    if moved:
        harden(kit)
    if lines := problems(kit):
        raise InputError("\n".join(lines))
    say(f"{kit}: hardened, and ready.")


@deploy.command
def run(
    kit: Path,
    /,
    *,
    job: Path | None = None,
    attach: str | None = None,
    output: Path,
    force: Force = False,
) -> None:
    r"""Submit a job, show how it goes, and fetch its results.

    A job is submitted with a submitter's kit. The exit code is 0 if the job did all of its work,
    and 1 if it did not.

        python -m synthfair deploy run kits/lead@example.org \
            --job jobs/single_shot --output results

    Interrupted, it leaves the job running; --attach goes on showing it.

    A site that refuses says so by a code, which is shown with what it means. Why, it says in its
    own log alone. The page of python -m synthfair report shows the sites, too.

    Args:
        kit: Folder of a submitter's kit.
        job: Folder of the job that is submitted.
        attach: Id of a job that runs, or has ended.
        output: Folder for the results.
    """
    from synthfair.cli.show import say, stage_bar
    from synthfair.deploy import session as engine
    from synthfair.files import require_free

    if (job is None) == (attach is None):
        raise InputError("flags: give one of --job and --attach")
    require_free(*(output / name for name in sorted(engine.RESULTS)), force=force)
    with engine.connect(kit) as session:
        submitted = engine.submit(session, job) if job else str(attach)
        say(f"Job {submitted}; if this is interrupted, --attach {submitted} goes on showing it.")
        with stage_bar() as show:
            result = engine.attach(
                session, submitted, output, lambda *progress: show(in_words(*progress))
            )
    tell(result, output)
    if not result.completed:
        sys.exit(1)


def in_words(status: str, federation: FederationFile | None) -> str:
    """Return the engine's status of a job, its rounds, and who has answered, in words."""
    if federation is None:
        return status.lower()
    answers = sum(site.code == "ok" for site in federation.sites.values())
    return (
        f"{status.lower()}, round {federation.rounds}, {answers} of {len(federation.sites)} sites"
    )


def tell(run: JobResult, output: Path) -> None:
    """Show how a job went, and what its model reaches."""
    from math import isnan

    from synthfair.cli.show import say, warn
    from synthfair.files import read_as
    from synthfair.report.gaps import gap_table
    from synthfair.report.result_tables import NAMES, federation_table
    from synthfair.report.text_table import Table
    from synthfair.run_files import MAX_BYTES, GapsFile, MetricsFile

    if run.federation:
        say(federation_table(run.federation))
    if not run.completed:
        reason = (run.federation and run.federation.error) or "see the server's log"
        warn(f"job {run.job}: {run.status}: {reason}")
        return
    metrics = output / "metrics.json"
    if metrics.exists():
        document = read_as(metrics, MetricsFile, MAX_BYTES)
        names = ("accuracy", "spd", "equal_opportunity_difference")
        metrics = {NAMES[name]: getattr(document, name) for name in names}
        rows = [(name, metric) for name, metric in metrics.items() if not isnan(metric.value)]
        say(Table(("all test rows", "value"), rows, caption="95 % intervals"))
    gaps = output / "gaps.json"
    if gaps.exists():
        say(gap_table(read_as(gaps, GapsFile, MAX_BYTES)))
    say(f"Wrote {', '.join(str(path) for path in sorted(output.iterdir()))}.")

r"""Run a federation of organisations, on NVIDIA FLARE.

The client runs at each organisation's own site and the server at a hub, connected by an engine for
federations, NVIDIA FLARE 2.9.0: pip install 'synthfair[nvflare]'. With its commands nvflare cert
and nvflare package each party makes its key, which never leaves it, and its kit: a folder of
certificates and settings. docs/deploy.md shows them, party by party.

    # each party: the engine's defaults are not safe
    python -m synthfair deploy harden KIT --project project.yml
    python -m synthfair deploy check KIT
    # the server, then each site
    python -m synthfair deploy start KIT
    # whoever submits jobs
    python -m synthfair deploy job project.yml --output jobs
    python -m synthfair deploy run KIT --job jobs/single_shot \
        --output RESULTS
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from cyclopts import App

from synthfair.cli.parameters import Force
from synthfair.cli.show import say, stage_bar, warn
from synthfair.errors import InputError
from synthfair.files import require_free

if TYPE_CHECKING:
    from synthfair.deploy.session import JobResult
    from synthfair.task.federation_file import FederationFile

deploy = App(name="deploy", help=__doc__)


@deploy.command
def harden(kit: Path, /, *, project: Path | None = None) -> None:
    """Replace what is not safe in a kit, and propose its party's own file.

    By its defaults the engine runs code that comes with a job, lets administrators read files, and
    sends logs away. The file of a site or of the server, local/synthfair.json, is kept if it is
    there. Else it is proposed, with the limits and the schema of the project if one is given; the
    party has the last word.

        python -m synthfair deploy harden KIT --project project.yml
        # the server's, once it is where it stays: its stores lie in it
        python -m synthfair deploy harden KIT

    Args:
        kit: Folder of a kit, of nvflare package.
        project: The project of deploy job, YAML.
    """
    from synthfair.deploy.kit import harden as harden_kit
    from synthfair.deploy.project import read_project

    proposed = harden_kit(kit, project and read_project(project))
    say(f"{kit}: hardened." + (f" Review {proposed}." if proposed else ""))


@deploy.command
def check(kit: Path, /) -> None:
    """Refuse a kit that is loosened, or not ready.

    A kit is as it was hardened: no code in jobs, no shells, only synthfair's own classes, no log
    that leaves, stores that nobody else reads, no file in startup and local that is not the
    engine's own or the party's; key, certificate and settings are of one party; and it is ready:
    its certificate, its key, its table, its limits. What is not is said, one line each, and the
    exit code is 2.

        python -m synthfair deploy check KIT

    Args:
        kit: Folder of a kit.
    """
    require_ready(kit)
    say(f"{kit}: hardened, and ready.")


@deploy.command
def start(kit: Path, /) -> None:
    """Check a kit of the server or of a site, and run the engine in it.

    The engine runs in the foreground, in a clean environment, until it is interrupted (Ctrl-C, or
    the end of a service). Start the server first.

        python -m synthfair deploy start KIT

    Args:
        kit: Folder of a kit.
    """
    from synthfair.deploy.kit import start as start_engine

    require_ready(kit)
    start_engine(kit)


def require_ready(kit: Path) -> None:
    """Refuse a kit that is loosened, or not ready."""
    from synthfair.deploy.check import problems

    if lines := problems(kit):
        raise InputError("\n".join(lines))


@deploy.command
def job(project: Path, /, *, output: Path) -> None:
    """Write the folders of a project's jobs: settings alone, without paths or code.

    The server and the sites refuse a job that holds anything else.

        python -m synthfair deploy job project.yml --output jobs

    where project.yml has

        schema: schema.json
        sites:
          - name: bank-a
            org: bank_a
            limits: {kinds: [surrogate], most_epsilon: 1, least_epsilon_left: 1}
          - name: bank-b
            org: bank_b
            limits: {kinds: [surrogate], most_epsilon: 1}
        jobs:
          single_shot:
            release: {release: surrogate, epsilon: 1, delta: 1.0e-6}
            server: {rho: 10}
            least_answers: 2

    Args:
        project: The sites, what is proposed to them, and the jobs.
        output: A new folder to write to.
    """
    from synthfair.deploy.project import read_project, write_jobs

    for folder in write_jobs(read_project(project), output):
        say(str(folder), whole=True)


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

        python -m synthfair deploy run KIT \
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
    from synthfair.deploy import session as engine

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
    codes = [site.code for site in federation.sites.values()]
    answers = f"{codes.count('ok')} of {len(codes)} sites"
    return f"{status.lower()}, round {federation.rounds}, {answers}"


def tell(run: JobResult, output: Path) -> None:
    """Show how a job went, and what its model reaches."""
    from synthfair.measure.gaps_file import GAPS_NAME, GapsFile
    from synthfair.metrics_file import METRICS, read_metrics
    from synthfair.report.result_tables import evaluation_tables, federation_table, gap_table

    if run.federation:
        say(federation_table(run.federation))
    if not run.completed:
        reason = (run.federation and run.federation.error) or "see the server's log"
        warn(f"job {run.job}: {run.status}: {reason}")
        return
    if (metrics := output / METRICS).exists():
        say(evaluation_tables(read_metrics(metrics)))
    if (gaps := output / GAPS_NAME).exists():
        say(gap_table(GapsFile.read(gaps)))
    say(f"Wrote {', '.join(str(path) for path in sorted(output.iterdir()))}.")

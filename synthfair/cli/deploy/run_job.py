"""``python -m synthfair deploy run``: submits a job, shows it, fetches its results."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

HELP = "submit a job, show how it goes, and fetch its results"

DESCRIPTION = """\
Submit a job with a submitter's kit, show how the sites answer, and download the results.
The exit code is 0 if the job did all of its work, and 1 if it did not.

  python -m synthfair deploy run kits/lead@example.org --job jobs/single_shot --output results

Interrupted, it leaves the job running; --attach goes on showing it, and --abort ends it.

A site that refuses says so by a code, which is shown with what it means. Why, it says in
its own log alone. The page of python -m synthfair report shows the sites, too.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the command's arguments."""
    parser.add_argument("kit", type=Path, help="Folder of a submitter's kit.")
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument("--job", type=Path, help="Folder of the job that is submitted.")
    which.add_argument("--attach", metavar="ID", help="A job that runs, or has ended.")
    which.add_argument("--abort", metavar="ID", help="Ends a job that runs, and nothing else.")
    parser.add_argument("--output", type=Path, help="Folder for the results; not with --abort.")
    parser.add_argument("--force", action="store_true", help="Overwrite results that exist.")


def run(args: argparse.Namespace) -> None:
    """Executes the command."""
    from synthfair.cli.deploy.shown import job_bar, tell
    from synthfair.cli.show import say
    from synthfair.deploy.session import RESULTS, abort, attach, connected, submit
    from synthfair.errors import InputError
    from synthfair.files import require_free

    if args.abort:
        with connected(args.kit) as session:
            abort(session, args.abort)
        return
    if args.output is None:
        raise InputError("--output: must name a folder for the results")
    require_free(*(args.output / name for name in sorted(RESULTS)), force=args.force)
    with connected(args.kit) as session:
        job = args.attach or submit(session, args.job)
        say(f"Job {job}; if this is interrupted, --attach {job} goes on showing it.")
        with job_bar() as show:
            ended = attach(session, job, args.output, show)
    tell(ended, args.output)
    if not ended.completed:
        sys.exit(1)

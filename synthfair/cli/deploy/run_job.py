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

A site that refuses says so by a code, which is shown with what it means. Why, it says in
its own log alone. The page of python -m synthfair report shows the sites, too.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the command's arguments."""
    parser.add_argument("kit", type=Path, help="Folder of a submitter's kit.")
    parser.add_argument("--job", type=Path, required=True, help="Folder of the job.")
    parser.add_argument("--output", type=Path, required=True, help="Folder for the results.")
    parser.add_argument("--force", action="store_true", help="Overwrite results that exist.")


def run(args: argparse.Namespace) -> None:
    """Executes the command."""
    from synthfair.cli.deploy.shown import job_bar, tell
    from synthfair.deploy.session import RESULTS, connected, run_job
    from synthfair.files import require_free

    require_free(*(args.output / name for name in sorted(RESULTS)), force=args.force)
    with connected(args.kit) as session, job_bar() as show:
        ended = run_job(session, args.job, args.output, show)
    tell(ended, args.output)
    if not ended.completed:
        sys.exit(1)

"""``python -m synthfair deploy kit``: makes the kits of all parties, hardened."""

from __future__ import annotations

import argparse
from pathlib import Path

HELP = "make a kit for each party, hardened, and the jobs' folders"

DESCRIPTION = """\
Make keys, certificates and scripts for the server, each site and each submitter, take
away what a site should not allow, and write the folders of the jobs.

  python -m synthfair deploy kit project.yml --output DIR

where project.yml has

  name: lenders
  schema: schema.json
  server: {name: hub.example.org, org: hub, port: 8002}
  sites:
    - name: bank-a
      org: bank_a
      limits: {kinds: [surrogate], most_epsilon: 1, least_epsilon_left: 1}
    - {name: bank-b, org: bank_b, limits: {kinds: [surrogate], most_epsilon: 1}}
  submitters:
    - {name: lead@example.org, org: hub}
  jobs:
    single_shot:
      release: {release: surrogate, epsilon: 1, delta: 1.0e-6}
      server: {rho: 10}
      least_answers: 2

DIR/kits/NAME goes to the party NAME, by a way that nobody else can read: it holds a
private key. A measurement of gaps is of a model that is there already. So write its job when
it is, for the same parties:

  python -m synthfair deploy kit project.yml --jobs-only --output DIR/more

A site that joins later, and certificates that end after 360 days, need kits of the same
root; give new ones to these parties alone:

  python -m synthfair deploy kit project.yml --authority DIR/authority --output DIR2

Limits are a proposal; each site has the last word, in its local/synthfair.json.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the command's arguments."""
    parser.add_argument("project", type=Path, help="The project, YAML.")
    parser.add_argument("--output", type=Path, required=True, help="A new folder to write to.")
    which = parser.add_mutually_exclusive_group()
    which.add_argument(
        "--authority",
        type=Path,
        help="Folder of that name of earlier kits, whose root certificate signs; else a new one.",
    )
    which.add_argument(
        "--jobs-only", action="store_true", help="Write the jobs' folders, and no kits."
    )


def run(args: argparse.Namespace) -> None:
    """Executes the command."""
    from synthfair.cli.show import say
    from synthfair.deploy.kit import make_jobs, make_kits

    if args.jobs_only:
        made = make_jobs(args.project, args.output)
    else:
        made = make_kits(args.project, args.output, args.authority)
    for folder in made:
        say(str(folder))

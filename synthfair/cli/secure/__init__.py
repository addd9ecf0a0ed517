"""``python -m synthfair secure``: sums over clients whose parts nobody sees."""

from __future__ import annotations

import argparse

from synthfair.cli.options import add_commands
from synthfair.cli.secure import add, demo, key, open_sums, plan, share

HELP = "sum counts over clients so that nobody sees a client's part, with noise"

DESCRIPTION = """\
Sum counts of rows by group, label and a model's score over many clients. Each client
cuts its counts into shares, one for each of two or three aggregators, which must not
collude. Each aggregator adds up its shares and adds noise; together their answers give
the noisy total, with differential privacy, and nobody sees any client's counts.

  python -m synthfair secure key --output aggregator_0.key      each aggregator
  python -m synthfair secure plan --model model.json --epsilon 1 --rows-per-client 5000 \\
      --aggregators aggregator_0.pub aggregator_1.pub --clients keys/ \\
      --output task.json                                        anybody; it is public
  python -m synthfair secure share --task task.json --data rows.csv --model model.json \\
      --aggregators aggregator_0.pub aggregator_1.pub --most-epsilon 1 \\
      --sign client_0.key --output DIR                          each client
  python -m synthfair secure add --task task.json --key aggregator_0.key DIR \\
      --most-epsilon 1 --output sum_0.json                      each aggregator, once
  python -m synthfair secure open --task task.json sum_0.json sum_1.json \\
      --output histogram.json                                   anybody

Clients' keys are those of keygen.
"""

COMMANDS = {
    "key": key,
    "plan": plan,
    "share": share,
    "add": add,
    "open": open_sums,
    "demo": demo,
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the commands."""
    add_commands(parser, COMMANDS, COMMANDS)

"""The guarantee of a training in rounds: its mechanisms, and the noise that an epsilon takes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict

from synthfair.errors import InputError
from synthfair.privacy.accounting import DISCRETE, SampledSums, accountant, common_noise
from synthfair.privacy.guarantee import (
    SIMULATED,
    Guarantee,
    SampledMechanism,
    Summed,
    SumOfShares,
    Unit,
)
from synthfair.privacy.mechanism import sensitivity

_NEVER_COVERED = (
    "What was decided by looking at private data: settings tried before, the schema, that a table"
    " is refused because nobody is of some group.",
    "Rows kept for testing: metrics are computed of them without noise.",
    "The settings, the numbers of users and of a cohort among them: they are public.",
    "Other releases about the same persons.",
    SIMULATED,
)

_FLOATING = (
    "Attacks on floating-point arithmetic (Mironov 2012), or on a generator of 64 bits of key: the"
    " noise is not discrete, and is drawn by JAX."
)

NOT_COVERED = (
    *_NEVER_COVERED,
    "Who took part in a round: assumed to be known to nobody who sees the sums; whoever knows it"
    " learns more than epsilon says.",
    "A server, or a third party that sums up, that sees single reports: summing them up securely is"
    " assumed.",
    _FLOATING,
)
"""Limits of guarantees for users, whose reports are summed up before noise is added."""

ROWS_NOT_COVERED = (
    *_NEVER_COVERED,
    "Which rows were in a batch: assumed to be known to nobody but the client; whoever knows it"
    " learns more than epsilon says.",
    "How many rows a client has: the number is public, as it sets the chance of a row to be in a"
    " batch and the client's weight in the mean.",
    _FLOATING,
)
"""Limits of guarantees for rows of clients, who add noise themselves."""

SHARES_NOT_COVERED = (
    *_NEVER_COVERED,
    "Who was drawn: users who were not must send shares of zeros in that round, so that no"
    " aggregator can tell; whoever knows it learns more than epsilon says.",
    "Aggregators that collude: together they see every user's report.",
    "False inputs, timing, memory and files on the machines of users and aggregators.",
)
"""Limits of guarantees for users whose reports are summed by shares, with discrete noise."""


ALL_WHO_SEE_SUMS = "everyone who sees the noisy sums, and nothing else of the reports"
"""The adversary of guarantees for users, whose reports must be summed up securely."""

ALL_WHO_SEE_UPLOADS = (
    "everyone who sees what clients send in the rounds, and the model: the server, and the other"
    " clients"
)
"""The adversary of guarantees for rows of clients: the noise is in what a client sends, and nobody
else needs to add any.
"""

ALL_BUT_ONE = "any single aggregator, together with everyone who sees the noisy sums"
"""The adversary of guarantees for sums by shares: an aggregator knows its own noise, and that of
another one is enough.
"""


def training_guarantee(
    sums: Mapping[Summed, tuple[SampledSums, float]],
    *,
    epsilon: float,
    delta: float,
    shares: SumOfShares | None = None,
    noise: float | None = None,
    condition: str | None = None,
) -> Guarantee:
    """A guarantee for users, whose reports are summed, or for the rows of one client.

    Noise is the least that gives it, and that all kinds of sums share in units of their
    sensitivity. A client adds that for its rows itself, before it sends anything: no trusted
    server, and no secure sum, is assumed.

    Args:
        sums: by name, and the norm that a user's, or a row's, part of a sum is clipped to; of
            ``reports`` alone they are about users, else about rows.
        epsilon: positive, of all together.
        delta: above 0, below 1, of all together.
        shares: how reports are summed, if by shares.
        noise: of shares, standard deviation of what each aggregator adds to each entry.
        condition: what must be so for it to hold, if anything.

    Raises:
        InputError: no noise is enough, or that of shares is less than :func:`noise_for_shares`.
    """
    # The noise, in units of the sensitivity, that all sums share.
    kinds = [kind for kind, _ in sums.values()]
    if shares is None:
        multiplier = common_noise(kinds, epsilon, delta)
    else:
        multiplier = noise_for_shares(kinds[0], epsilon, delta)
    mechanisms = tuple(
        SampledMechanism(
            name=name,
            **asdict(kind),
            clip=clip,
            noise=noise or multiplier * sensitivity(clip, kind.relation),
            shares=shares,
        )
        for name, (kind, clip) in sums.items()
    )
    if shares and mechanisms[0].multiplier < multiplier * (1 - 1e-12):
        raise InputError(
            f"noise: {mechanisms[0].multiplier:g} of the sensitivity; must be at least"
            f" {multiplier:g}"
        )
    # What is said of it: of whom, against whom, and what it does not cover.
    account = accountant().replace("exact Gaussian composition", "sampled Gaussian mechanisms")
    unit: Unit = "one user, with all its rows"
    against, not_covered = ALL_WHO_SEE_SUMS, NOT_COVERED
    if shares:
        account += ", with discrete noise"
        against, not_covered = ALL_BUT_ONE, SHARES_NOT_COVERED
    elif "reports" not in sums:
        unit = "one row of one client"
        against, not_covered = ALL_WHO_SEE_UPLOADS, ROWS_NOT_COVERED
    return Guarantee(
        epsilon=epsilon,
        delta=delta,
        unit=unit,
        relation=kinds[0].relation,
        mechanisms=mechanisms,
        accountant=account,
        condition=condition,
        holds_against=against,
        not_covered=not_covered,
    )


def noise_for_shares(sums: SampledSums, epsilon: float, delta: float) -> float:
    """Discrete noise for users in rounds, in units of the sensitivity.

    Normal noise for an epsilon and a delta that are smaller by what discrete noise adds, see
    :func:`~synthfair.privacy.accounting.discrete_delta_of`, and one part in 10^9 more. That proof
    bounds the ratio of the chances of whatever is released for given reports, and so for reports of
    a random sample, too.

    Args:
        sums: cohorts and rounds.
        epsilon: positive.
        delta: above 0, below 1.

    Raises:
        InputError: no noise is enough.
    """
    return sums.noise(epsilon - DISCRETE, delta * (1 - DISCRETE)) * (1 + 1e-9)

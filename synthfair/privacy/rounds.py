"""The guarantee of a training in rounds: its mechanisms, and the noise that an epsilon takes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict

from synthfair.errors import InputError
from synthfair.privacy.accounting import DISCRETE, SampledSums, accountant, common_noise
from synthfair.privacy.guarantee import (
    Condition,
    Guarantee,
    SampledMechanism,
    Summed,
    SumOfShares,
)
from synthfair.privacy.mechanism import sensitivity


def training_guarantee(
    sums: Mapping[Summed, tuple[SampledSums, float]],
    *,
    epsilon: float,
    delta: float,
    shares: SumOfShares | None = None,
    noise: float | None = None,
    condition: Condition | None = None,
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
    shared = noise_for_shares if shares else common_noise
    multiplier = shared(tuple(kinds), epsilon, delta)
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
    of_users = "reports" in sums
    return Guarantee(
        epsilon=epsilon,
        delta=delta,
        unit="user" if of_users else "row",
        relation=kinds[0].relation,
        adversary="all_but_one" if shares else "sees_sums" if of_users else "sees_uploads",
        condition=condition,
        simulated=True,
        mechanisms=mechanisms,
        accountant=accountant(),
    )


def noise_for_shares(kinds: tuple[SampledSums, ...], epsilon: float, delta: float) -> float:
    """Discrete noise for users in rounds, in units of the sensitivity.

    Normal noise for an epsilon and a delta that are smaller by what discrete noise adds, see
    :func:`~synthfair.privacy.accounting.discrete_delta_of`, and one part in 10^9 more. That proof
    bounds the ratio of the chances of whatever is released for given reports, and so for reports of
    a random sample, too.

    Args:
        kinds: of sums, as for :func:`~synthfair.privacy.accounting.common_noise`.
        epsilon: positive.
        delta: above 0, below 1.

    Raises:
        InputError: no noise is enough.
    """
    return common_noise(kinds, epsilon - DISCRETE, delta * (1 - DISCRETE)) * (1 + 1e-9)

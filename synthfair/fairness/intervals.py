"""Metrics with 95 % intervals that contain their values.

A rate p, such as the share of a group's rows with the decision +1, has the limits l and u of
Clopper and Pearson (1934). Those of the difference of two groups' rates follow (Zou and Donner
2008, who generalise method 10 of Newcombe 1998):

    low  = p_b - p_a - sqrt((p_b - l_b)^2 + (u_a - p_a)^2)
    high = p_b - p_a + sqrt((u_b - p_b)^2 + (p_a - l_a)^2)

The largest size of K differences d_k, of all pairs of groups, and for equalized odds of both
labels, is above 0 by chance alone, and in resampled rows by chance twice: percentiles over
resamples may leave out the estimate itself. Its interval is therefore made of theirs:

    low  = max_k  least |d| between low_k and high_k,    limits of tail 0.025 / 2K
    high = max_k  largest |d| between low_k and high_k,  limits of tail 0.025

Guarantee: an interval contains its value. If no limit of a difference is missed more often than
its tail says, an interval of the largest misses at most once in 20: ``high`` is too low only if the
limit of the one pair is missed that is truly the furthest apart, and ``low`` is too high only if
one of 2K limits is. The limits of differences are approximate; in simulations with groups of 20 to
2,000 rows, rates from 0 to 0.8, and differences from 0 to 0.3, at most 4.9 % of the intervals
missed the truth, and fewer where rates are near 0. Rows count as drawn independently, the groups'
sizes as given.

The covariance of group and score is no rate. The limits of each group's signed covariance are

    covariance -+ t(tail, B - 1) sd,

sd being its standard deviation over B resamples of the rows, and t the quantile of Student's
distribution (Efron and Tibshirani 1993, chapter 12); they are put together in the same way. So few
resamples, or the small tails of many groups, make an interval wider, and not too narrow: between 20
percentiles there is none of a tail of 0.025 / 2K. These limits are less sure than those of rates:
in simulations of eight groups, the smallest with 20 rows, and skewed scores, up to 7 % of the
intervals missed the truth with 10 to 200 resamples; of percentiles 22 to 82 %. One resample gives
no interval.

Everything that is reported of rates, on the terminal, in files and on the page, has the intervals
of this module.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from math import comb
from typing import Literal, NamedTuple

import numpy as np

from synthfair.errors import named
from synthfair.fairness.metrics import CONFIDENCE, NOTION_METRICS, Metric, Scored
from synthfair.settings import Count

MIN_RATE_ROWS = 30
"""A rate of fewer rows is hardly known: its interval is up to 0.37 wide."""

Verdict = Literal["yes", "probably", "probably not", "no", "not measured"]
"""Whether a gap is within a limit: surely where the whole interval says so, else by its value."""

TAIL = (1 - CONFIDENCE) / 2
"""Probability with which a limit may be missed."""

POWER_RATIO = 2.8016 / 1.9600
"""Between what shows a difference in half of all tests, and in 4 of 5: (z_0.975 + z_0.8) / z_0.975
(Fleiss, Levin and Paik 2003, chapter 4)."""

UNDEFINED = Metric(np.nan, np.nan, np.nan)


class LabelCounts(NamedTuple):
    """The rows of one group by label: ``negative`` with y = -1, ``positive`` with y = +1."""

    negative: Count
    positive: Count


class GroupSize(NamedTuple):
    """The numbers of a group's test rows.

    Attributes:
        n: all.
        positive: those with y = +1.
        negative: those with y = -1.
    """

    n: Count
    positive: Count
    negative: Count


def group_sizes(rows: Scored) -> list[GroupSize]:
    """Return the sizes of each group, 0 to n_groups - 1."""
    among = np.full(len(rows.y), True), rows.y > 0, rows.y < 0
    sizes = [np.bincount(rows.s[mask], minlength=rows.n_groups).tolist() for mask in among]
    return [GroupSize(*numbers) for numbers in zip(*sizes, strict=True)]


class Shares(NamedTuple):
    """The shares of rows that count as 1 in some sets of rows, such as groups.

    Attributes:
        hits: [G] numbers of rows that count as 1; sums of probabilities where coins decide.
        size: [G] numbers of rows.
    """

    hits: np.ndarray
    size: np.ndarray

    def of_at_least(self, n: int) -> Shares:
        """Return the sets that have so many rows."""
        counts = self.size >= n
        return Shares(self.hits[counts], self.size[counts])

    def limits(self, tail: float = TAIL) -> np.ndarray:
        """Return [3, G] rates, and limits of Clopper and Pearson (1934) of this tail.

        Probabilities vary less than 0 and 1 with the same mean: their limits are wider than need
        be. Without rows all is not-a-number.
        """
        from scipy.special import betaincinv  # SciPy takes a while

        hits, misses = self.hits.clip(0), (self.size - self.hits).clip(0)
        with np.errstate(invalid="ignore"):
            low = np.where(hits > 0, betaincinv(hits, misses + 1, tail), 0.0)
            high = np.where(misses > 0, betaincinv(hits + 1, misses, 1 - tail), 1.0)
            rate = self.hits / self.size
        return np.array([rate, np.minimum(low, rate), np.maximum(high, rate)])

    def differences(self, tail: float = TAIL) -> np.ndarray:
        """Return [3, K] rate of b minus rate of a, of all pairs of groups a < b, and its limits."""
        a, b = np.triu_indices(len(self.size), 1)
        rates = self.limits(tail)
        return np.array(difference(rates[:, b], rates[:, a]))

    def ratios(self, tail: float = TAIL) -> np.ndarray:
        """Return [3, K] the lower of the rates of all pairs of groups over the higher, with limits.

        Of the logarithms as of a difference. A rate of 0 over another has the low limit 0, and is
        not-a-number over 0.
        """
        a, b = np.triu_indices(len(self.size), 1)
        rates = self.limits(tail)
        first = np.where(rates[0, a] <= rates[0, b], a, b)
        low, high = rates[:, first], rates[:, a + b - first]
        with np.errstate(divide="ignore", invalid="ignore"):
            value, least, most = np.exp(np.array(difference(np.log(low), np.log(high))))
            value = low[0] / high[0]
            most = np.where(low[0] > 0, most, low[2] / high[1])
        return np.array([value, np.where(low[1] > 0, least, 0.0), np.minimum(most, 1.0)])


def rate_interval(hits: float, size: float) -> Metric:
    """Return a share of some rows with its interval, of Clopper and Pearson (1934).

    Args:
        hits: rows that count as 1, from 0 to ``size``; a sum of probabilities where coins decide.
        size: rows; without any, all is not-a-number.

    Example:
        No error among 20 rows does not mean that there are none:

        >>> from synthfair.fairness.intervals import rate_interval
        >>> [round(number, 3) for number in rate_interval(0, 20)]
        [0.0, 0.0, 0.168]
    """
    limits = Shares(np.array([float(hits)]), np.array([size])).limits()
    return Metric(*limits[:, 0].tolist())


MIN_GAIN_SHARE = 0.05
"""Of what a model can gain over the constant classifier, the share below which it is near it."""


def near_constant(accuracy: Metric, constant: float) -> str | None:
    """Return a warning of a model that is near the constant classifier; None if it is not.

    It is near if the interval of its accuracy contains the share of the more frequent label, or if
    its accuracy is less than :data:`MIN_GAIN_SHARE` of the way from that share to 1. One decision
    for everybody has no gap between groups: such a model may be fair because it has learned little.
    A model whose interval lies below that share is said to be less accurate.

    Args:
        accuracy: of the model, with its interval.
        constant: share of the more frequent label; not-a-number where it is not known.

    Example:
        >>> from synthfair.fairness.intervals import near_constant, rate_interval
        >>> said = near_constant(rate_interval(880, 1000), 0.87)
        >>> said[:87]
        'the model is near the constant classifier: its accuracy of 0.880 is not clearly above t'
        >>> near_constant(rate_interval(880, 1000), 0.8)
    """
    above, gain = accuracy.value - constant, MIN_GAIN_SHARE * (1 - constant)
    if not (accuracy.low <= constant or above < gain):
        return None
    is_below = accuracy.high < constant
    where, how = ("less accurate than", "below") if is_below else ("near", "not clearly above")
    return (
        f"the model is {where} the constant classifier: its accuracy of {accuracy.value:.3f} is"
        f" {how} the {constant:.3f} of the more frequent label for everybody, which treats all"
        " groups alike"
    )


def difference(
    first: Metric | np.ndarray, second: Metric | np.ndarray, correlation: float = 0.0
) -> Metric:
    """Return ``first - second`` with limits of the same tail, after Zou and Donner (2008).

    Either may be an array [3, ...], too. Estimates are taken for independent unless a correlation
    is given; of two models on the same test rows, which tend to err together, the limits are then
    too far apart rather than too near.

    Example:
        56 of 70 against 48 of 80, as in Newcombe (1998), who takes other limits of the rates:

        >>> from synthfair.fairness.intervals import difference, rate_interval
        >>> gain = difference(rate_interval(56, 70), rate_interval(48, 80))
        >>> [round(number, 3) for number in gain]
        [0.2, 0.044, 0.344]
    """
    (value, low, high), (other, other_low, other_high) = first, second
    change, apart = value - other, 1 - correlation**2
    x, y = value - low, other_high - other
    below = ((x - correlation * y) ** 2 + apart * y**2) ** 0.5
    x, y = high - value, other - other_low
    above = ((x - correlation * y) ** 2 + apart * y**2) ** 0.5
    return Metric(change, change - below, change + above)


def metrics_with_intervals(
    rows: Scored,
    *,
    resamples: int,
    seed: int,
    min_group_rows: int = 0,
    by: Sequence[Sequence[int]] = (),
    together: int = 1,
) -> dict[str, Metric]:
    """Return the metrics of a model with intervals, by the names of metrics.json.

    Args:
        rows: test rows with scores.
        resamples: behind the interval of the covariance.
        seed: of these.
        min_group_rows: a group with fewer rows among those that a gap compares does not count for
            it; a gap is undefined where fewer than two groups are left. With 0 all groups count,
            and a gap is undefined where one has no such row.
        by: groupings, each the group of every index s, or -1; a gap is the largest of theirs.
            Without any, each index s is a group.
        together: number of sets of rows of which all intervals of a gap are to hold at once.

    Example:
        Two groups of ten, and no difference between them:

        >>> import numpy as np
        >>> from synthfair.fairness.intervals import metrics_with_intervals
        >>> from synthfair.fairness.metrics import Scored
        >>> y, s = np.tile([1.0, -1.0], 10), np.repeat([0, 1], 10)
        >>> spd = metrics_with_intervals(Scored(y, y, s), resamples=10, seed=0)["spd"]
        >>> print(f"{spd.value:.2f} [{spd.low:.2f}, {spd.high:.2f}]")
        0.00 [-0.44, 0.44]
    """
    parts, tail = [rows.grouped(grouping) for grouping in by] or [rows], TAIL / together

    def gap(*labels: float) -> Metric:
        """Return the gap among the rows with a label; among all, where that is 0."""
        shares = [
            _shares(each, each.y * label > 0 if label else each.s >= 0, min_group_rows)
            for each in parts
            for label in labels
        ]
        if parts[0].n_groups != 2 or len(shares) > 1:
            return gap_interval(*shares, tail=tail)
        signed = shares[0].differences(tail)
        return Metric(*signed[:, 0].tolist()) if signed.size else UNDEFINED

    of_all = [_shares(each, each.s >= 0, min_group_rows) for each in parts]
    right = (1 + rows.y * (2 * rows.selected - 1)) / 2
    return {
        "accuracy": rate_interval(right.sum(), len(right)),
        "spd": gap(0),
        "selection_ratio": ratio_interval(*of_all, tail=tail),
        "equal_opportunity_difference": gap(1),
        "equalized_odds_difference": gap(1, -1),
        "covariance": _covariance(rows, by, resamples, seed, min_group_rows),
    }


def client_gaps(
    clients: Mapping[str, Scored], *, min_group_rows: int = 0, by: Sequence[Sequence[int]] = ()
) -> dict[str, dict[str, Metric]]:
    """Return gaps by metric and client, with intervals that hold together.

    Each interval of C clients misses with probability 0.05 / C at most (Bonferroni): in 95 of 100
    cases all contain the truth. A group with fewer than :data:`MIN_RATE_ROWS` rows of those that a
    gap compares, or than ``min_group_rows``, does not count; a client without two such groups is
    left out. Groupings ``by`` are as of :func:`metrics_with_intervals`.

    Example:
        One client selects a third of one group and two thirds of the other:

        >>> import numpy as np
        >>> from synthfair.fairness.intervals import client_gaps
        >>> from synthfair.fairness.metrics import Scored
        >>> y, s = np.tile([1.0, -1.0], 90), np.repeat([0, 1], 90)
        >>> fair, unfair = np.tile([1.0, -1.0], 90), np.tile([1.0, -1.0, -1.0], 60)
        >>> unfair = np.where(s == 1, -unfair, unfair)
        >>> clients = {"a": Scored(y, fair, s), "b": Scored(y, unfair, s)}
        >>> for name, gap in client_gaps(clients)["spd"].items():
        ...     print(f"{name}: {gap.value:z.2f} [{gap.low:.2f}, {gap.high:.2f}]")
        a: 0.00 [-0.17, 0.17]
        b: 0.33 [0.16, 0.49]
    """
    settings = {"resamples": 1, "seed": 0, "min_group_rows": max(MIN_RATE_ROWS, min_group_rows)}

    @cache
    def measured(client: str, together: int) -> dict[str, Metric]:
        return metrics_with_intervals(clients[client], **settings, by=by, together=together)

    gaps = {}
    for name in NOTION_METRICS.values():
        enough = [client for client in clients if not np.isnan(measured(client, 1)[name].value)]
        gaps[name] = {client: measured(client, len(enough))[name] for client in enough}
    return gaps


def unfair_clients(
    overall: Metric, gaps: Mapping[str, Metric], limit: float, parts: str = "clients"
) -> str | None:
    """Return a warning of clients whose gap is clearly above a limit; None if of none.

    Args:
        overall: gap over all clients' rows.
        gaps: of each client, see :func:`client_gaps`, whose intervals hold together.
        limit: the largest gap that is fair enough.
        parts: what the clients are, in words.

    Example:
        >>> from synthfair.fairness.intervals import unfair_clients
        >>> from synthfair.fairness.metrics import Metric
        >>> gaps = {"north": Metric(0.2, 0.12, 0.28), "south": Metric(-0.12, -0.2, -0.04)}
        >>> said = unfair_clients(Metric(0.01, -0.02, 0.04), gaps, 0.1)
        >>> said[:80]
        'fair on average: yes; unfair at 1 of 2 clients with enough test rows: north 0.200'
    """
    sizes = {name: size(gap) for name, gap in gaps.items()}
    unfair = sorted(
        (name for name, gap in sizes.items() if gap.low > limit), key=lambda n: -sizes[n].value
    )
    if len(gaps) < 2 or not unfair:
        return None
    gaps_of = [
        f"{n} {sizes[n].value:.3f} ({sizes[n].low:.3f} to {sizes[n].high:.3f})" for n in unfair
    ]
    return (
        f"fair on average: {verdict(size(overall), limit)}; unfair at {len(unfair)} of {len(gaps)}"
        f" {parts} with enough test rows: {named(gaps_of)}, where at most {limit:g} is fair enough."
        " These intervals hold together with 95 % (Bonferroni)"
    )


def verdict(gap: Metric, limit: float) -> Verdict:
    """Return whether a gap is within a limit, as far as its interval can tell.

    Example:
        >>> from synthfair.fairness.intervals import verdict
        >>> from synthfair.fairness.metrics import Metric
        >>> verdict(Metric(0.03, 0.0, 0.09), 0.1), verdict(Metric(0.03, 0.0, 0.09), 0.05)
        ('yes', 'probably')
        >>> verdict(Metric(0.2, 0.15, 0.25), 0.1)
        'no'
    """
    if np.isnan(gap.value) or np.isnan(gap.low):
        return "not measured"
    if gap.value <= limit:
        return "yes" if gap.high <= limit else "probably"
    return "no" if gap.low > limit else "probably not"


def ratio_verdict(ratio: Metric, least: float) -> Verdict:
    """Return whether a ratio is at least a limit, as far as its interval can tell."""
    return verdict(Metric(-ratio.value, -ratio.high, -ratio.low), -least)


def rows_to_settle(gap: Metric, limit: float, rows: int) -> int | None:
    """Return about how many more test rows would show on which side of a limit a gap is.

    The ends of an interval come nearer to its value as the inverse root of the number of rows n. If
    the true gap is the measured one g, and the limit is between g and an end at the distance d,

        n (d / (limit - g) (z_0.975 + z_0.8) / z_0.975)^2

    rows of the same groups, about twice as many as bring the end to the limit, give an interval on
    one side of it in 4 of 5 tests; z are quantiles of the normal distribution.

    Args:
        gap: between groups, signed or not, with its interval.
        limit: the largest gap that is fair enough.
        rows: test rows that there are.

    Returns:
        The number with two digits; 0 where the interval is on one side already; None where the gap
        is not measured, or is the limit itself.

    Example:
        >>> from synthfair.fairness.intervals import rows_to_settle
        >>> from synthfair.fairness.metrics import Metric
        >>> rows_to_settle(Metric(0.03, -0.01, 0.07), 0.05, 300)
        2200
    """
    answer = verdict(size(gap), limit)
    if answer in ("yes", "no"):
        return 0
    if answer == "not measured" or abs(gap.value) == limit:
        return None
    # Distances to the ends away from 0 and beyond it, and what each may be at most.
    value, low, high = gap if gap.value >= 0 else (-gap.value, -gap.high, -gap.low)
    if value > limit:
        ratio = (value - low) / (value - limit)
    else:
        ratio = max((high - value) / (limit - value), (value - low) / (limit + value))
    more = rows * ((ratio * POWER_RATIO) ** 2 - 1)
    return int(float(f"{max(more, 1):.1e}"))


def gap_interval(*shares: Shares, tail: float = TAIL) -> Metric:
    """Return the largest size of the differences between groups' rates.

    Args:
        shares: of each rate, the rows of each group that counts.
        tail: how often each of the two limits is missed at most.

    Returns:
        Not-a-number where a rate has fewer than two groups, or a group has no rows.

    Example:
        Selected are 20 of 40, 8 of 40 and 27 of 30 rows:

        >>> import numpy as np
        >>> from synthfair.fairness.intervals import Shares, gap_interval
        >>> gap = gap_interval(Shares(np.array([20, 8, 27]), np.array([40, 40, 30])))
        >>> [round(number, 2) for number in gap]
        [0.7, 0.39, 0.83]
    """
    return largest(*_of_pairs(Shares.differences, shares, tail))


def ratio_interval(*shares: Shares, tail: float = TAIL) -> Metric:
    """Return the lowest rate over the highest, four fifths of which is a rule of thumb in the US.

    Its interval is made as that of the largest difference: the high limit is the least of limits
    that all hold at once, the low one is the least of limits of the tail.

    Args:
        shares: of each grouping, the rows of each group that counts.
        tail: how often each of the two limits is missed at most.

    Returns:
        Not-a-number where a grouping has fewer than two groups, a group has no rows, or nobody is
        selected.

    Example:
        Selected are 20 of 40, 8 of 40 and 27 of 30 rows:

        >>> import numpy as np
        >>> from synthfair.fairness.intervals import Shares, ratio_interval
        >>> ratio = ratio_interval(Shares(np.array([20, 8, 27]), np.array([40, 40, 30])))
        >>> [round(number, 2) for number in ratio]
        [0.22, 0.1, 0.48]
    """
    near, far = _of_pairs(Shares.ratios, shares, tail)
    if np.isnan(near[0]).all():
        return UNDEFINED
    value, low, high = np.nanmin(near[0]), np.nanmin(near[1]), np.nanmin(far[2])
    return Metric(float(value), float(low), float(max(high, value)))


def _of_pairs(
    compared: Callable[[Shares, float], np.ndarray], shares: Sequence[Shares], tail: float
) -> list[np.ndarray]:
    """Return [3, K] comparisons of all pairs of groups, with limits of a tail, and that all hold.

    They are not-a-number where a rate has fewer than two groups, or a group has no rows.
    """
    if any(len(share.size) < 2 or not share.size.all() for share in shares):
        return [np.full((3, 1), np.nan)] * 2
    pairs = sum(comb(len(share.size), 2) for share in shares)
    of_pair = tail / (2 * pairs) if pairs > 1 else tail  # one difference cannot be missed twice
    return [np.hstack([compared(share, each) for share in shares]) for each in (tail, of_pair)]


def largest(near: np.ndarray, far: np.ndarray) -> Metric:
    """Return the largest size of some differences.

    Args:
        near: [3, K] them, with limits of the tail that ``high`` may miss.
        far: [3, K] the same differences with limits that all hold at once.
    """
    _, low, high = far
    least = np.maximum(low, -high).max()
    value, high = np.abs(near[0]).max(), np.abs(near[1:]).max()
    return Metric(float(value), float(np.maximum(0.0, least)), float(high))


def size(signed: Metric) -> Metric:
    """Return the absolute value; its interval reaches 0 where the signed one contains 0.

    Also of intervals from files, which may leave out their value.

    Example:
        >>> from synthfair.fairness.intervals import size
        >>> from synthfair.fairness.metrics import Metric
        >>> size(Metric(-0.02, -0.05, 0.01))
        Metric(value=0.02, low=0.0, high=0.05)
    """
    value, low, high = signed
    low, high = min(low, value), max(high, value)
    return Metric(abs(value), float(np.max([0.0, low, -high])), max(-low, high))


def _shares(rows: Scored, among: np.ndarray, least: int) -> Shares:
    """Return the decisions +1 by group among a mask's rows; of groups with ``least`` of them."""
    s = rows.s[among]
    size = np.bincount(s, minlength=rows.n_groups)
    hits = np.bincount(s, weights=rows.selected[among], minlength=rows.n_groups)
    return Shares(hits, size).of_at_least(least)


def _covariance(
    rows: Scored, by: Sequence[Sequence[int]], resamples: int, seed: int, least: int
) -> Metric:
    def covariances(drawn_rows: Scored) -> np.ndarray:
        parts = [drawn_rows.grouped(grouping) for grouping in by] or [drawn_rows]
        return np.concatenate([_covariances(each) for each in parts])

    # Groups with enough rows; of two, whose covariances differ in sign alone, the second.
    parts, of, first = [rows.grouped(grouping) for grouping in by] or [rows], [], 0
    for each in parts:
        counted = np.flatnonzero(np.bincount(each.s, minlength=each.n_groups) >= least)
        if len(counted) < 2:
            return UNDEFINED
        of += (first + (counted[1:] if each.n_groups == 2 else counted)).tolist()
        first += each.n_groups
    value, spread = covariances(rows)[of], np.full(len(of), np.nan)
    if resamples > 1:
        rng, n = np.random.default_rng(seed), len(rows.y)
        drawn = [covariances(rows.take(rng.integers(n, size=n)))[of] for _ in range(resamples)]
        spread = np.std(drawn, axis=0, ddof=1)

    def limits(tail: float) -> np.ndarray:
        from scipy.special import stdtrit  # SciPy takes a while

        half = -stdtrit(resamples - 1, tail) * spread
        return np.array([value, value - half, value + half])

    if len(of) == 1:
        return Metric(*limits(TAIL)[:, 0].tolist())
    return largest(limits(TAIL), limits(TAIL / (2 * len(of))))


def _covariances(rows: Scored) -> np.ndarray:
    """Return [G] covariances of membership in a group and score, Wu et al. (2024) eq. (2), (3)."""
    size = np.bincount(rows.s, minlength=rows.n_groups)
    sums = np.bincount(rows.s, weights=rows.score, minlength=rows.n_groups)
    return sums / len(rows.y) - size / len(rows.y) * (sums.sum() / len(rows.y))

"""Cells that a surrogate leaves out, estimated by its reader from what is public.

A cell is a pair of group and label. Where a group has records of one label alone, a model would be
certain of it, and a penalty would move everybody towards it. So records of the other label are
estimated, from no more than the release itself; see docs/surrogates.md for what that gains and
costs.
"""

from __future__ import annotations

from dataclasses import replace
from typing import cast

import numpy as np

from synthfair.data.encode import encode_records
from synthfair.data.schema import Schema
from synthfair.fairness.penalties import CovariancePenalty
from synthfair.release.format import Release
from synthfair.settings import SurrogateConfig
from synthfair.surrogate.fair import GlobalProblem, Price, ridge_of

MAX_RATIO = 5.0
"""The largest factor by which a record counts more, or less, than the others of its group."""


def filled(release: Release, schema: Schema) -> tuple[Release, tuple[tuple[int, float], ...]]:
    """Return a release with records of its missing cells, and (group, label) of these.

    For a group g whose records all have the label -m, with N_g rows and W(y) those of the groups
    with both labels,

        rows    = min((k_min - 1) / 2, N_g W(m) / W(-m))
        records = those of g with the label m, weighted by p(x | m) / p(x | -m) of the other groups

    Half of what the cell can have is a cap: the middle of what is possible. The ratio is that of
    one ridge regression. With an epsilon, no cell is missing.
    """
    config, weight = release.header.config, release.weight
    if weight is None or config.epsilon is not None:
        return release, ()
    cells = np.zeros((len(schema.groups), 2))
    np.add.at(cells, (release.s, (release.y > 0).astype(int)), weight)
    has = cells > 0
    both = np.asarray(has.all(axis=1))
    alone = np.flatnonzero(has.sum(axis=1) == 1)
    if not (both.any() and len(alone)):
        return release, ()
    a = np.column_stack([encode_records(release.x, schema), np.ones(len(release.y))])
    other, mass = both[release.s], cells[both].sum(axis=0)
    balanced = weight[other] / mass[(release.y[other] > 0).astype(int)] / 2
    problem = GlobalProblem(
        a[other], release.s[other], release.y[other], balanced,
        CovariancePenalty(max(len(schema.groups), 2)),
        ridge_of(1.0, weight[other].sum(), a.shape[1], intercept=True),
    )  # fmt: skip
    theta = problem.newton(problem.zero, Price(0.0)).theta
    estimated, parts = [], []
    for group in alone:
        y, own = 1.0 - 2.0 * has[group, 1], release.s == group
        ratio = np.clip(np.exp(y * (a[own] @ theta)), 1 / MAX_RATIO, MAX_RATIO)
        share, odds = weight[own] * ratio, mass[int(y > 0)] / mass[int(y < 0)]
        rows = min((cast(SurrogateConfig, config).k_min - 1) / 2, cells[group].sum() * odds)
        labels = np.full(own.sum(), y)
        parts.append((release.x[own], release.s[own], labels, share / share.sum() * rows))
        estimated.append((int(group), float(y)))
    old = release.x, release.s, release.y, weight
    x, s, y, w = (np.concatenate(fields) for fields in zip(old, *parts, strict=True))
    return replace(release, x=x, s=s, y=y, weight=w), tuple(estimated)

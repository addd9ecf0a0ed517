"""Pools of releases."""

from dataclasses import replace

import numpy as np
from conftest import make_schema
from some_releases import some_release

SCHEMA = make_schema()


def some_pool(n=4, rows=60, seed=0, schema=SCHEMA):
    """Releases of clients that are alike: random rows whose label follows a common rule.

    Most tests pool 240 rows, or 1800, so that few sizes are compiled.
    """
    rng, releases = np.random.default_rng(seed), {}
    for i in range(n):
        x = rng.random((rows, len(schema.encoded_names)))
        s = rng.integers(len(schema.groups), size=rows)
        y = np.where(rng.random(rows) < 1 / (1 + np.exp(-8 * (x[:, 0] - 0.5))), 1.0, -1.0)
        releases[f"c{i}"] = replace(some_release(), x=x, s=s, y=y)
    return releases


def flipped(release, times=27):
    x, s, y = (np.concatenate([part] * times) for part in (release.x, release.s, -release.y))
    return replace(release, x=x, s=s, y=y)

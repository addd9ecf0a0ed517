"""PrivFairFL-Post as published: one of three MPyC parties, each a process of its own.

    python -m benchmarks.peers.with_mpyc --rows N --thresholds T --scale B -P HOST:PORT ... -I PARTY

Protocols 1, 3 and 4 of Pentyala et al. (2022) on Shamir shares, one party corrupt at most, and
passive. Party 0 also plays the clients: it reads the rows as JSON and shares them. All end with a
line of JSON; party 0's has the opened counts.

Guarantee, for rows added or removed, unit a row: at each threshold a row is in one of the eight
counts, so that noise of scale B = 1 / epsilon gives epsilon up to fixed point, **and all T
thresholds of the same rows T times epsilon**. This is what is published; it is for comparison only.

Left out is the division to rates, after the noise: counts are opened, and their ratios are
post-processing. Only ever a subprocess: MPyC reads the command line when it is imported, and
unpickles what it receives.
"""

# pyright: reportMissingImports=false
# (an optional package: pip install ".[bench]")
from __future__ import annotations

import argparse
import json
import sys
import time
from functools import partial
from typing import Any

import mpyc.runtime
import numpy as np
from numpy.polynomial import Chebyshev, Polynomial

Shared = Any
"""Arrays of shares; MPyC has no types for them."""

mpc: Any = mpyc.runtime.mpc

FRACTION = 16
"""Binary digits of a score, as in the published code."""

FIXED: Any = mpc.SecFxp(36, FRACTION)
"""20 binary digits before the point: counts of up to half a million rows."""

CELLS = 50_000
"""Comparisons at once, for memory: 0.3 GB a party."""

HALVINGS, DEGREE = 40, 5
"""Of the noise: ln u ends at u = 2^-41, and its polynomial is off by less than 2^-16."""


def laplace(n: int, scale: float) -> Shared:
    """[n] noise, -scale * sign * ln(u), protocol 1, from random bits that no party knows.

    ln takes 1 - 2 |u|, here 2^-k (1 - w / 2): k counts the bits before the first 0, and w in [0, 1)
    has fresh ones, so that a polynomial in w is enough. Signs are -1 and +1, where GTE as printed
    gives 0 and 1. Like the published noise it is in fixed point, so that an attack on its last
    digits stays open (Mironov 2012).
    """
    bits = mpc.np_random_bits(FIXED, n * (HALVINGS + FRACTION + 1)).reshape(-1, n)
    k = all_so_far = bits[0]
    for bit in bits[1:HALVINGS]:
        all_so_far = all_so_far * bit
        k = k + all_so_far
    w = np.sum(bits[HALVINGS:-1] * 0.5 ** np.arange(1, FRACTION + 1)[:, None], axis=0)
    fit = Chebyshev.interpolate(lambda w: -np.log(1 - w / 2), DEGREE, [0, 1])
    first, *others = fit.convert(kind=Polynomial).coef.tolist()
    log = w * others.pop()
    while others:
        log = (log + others.pop()) * w
    return (1 - 2 * bits[-1]) * (k * float(np.log(2)) + log + first) * scale


def confusion(y: Shared, s: Shared, accepted: Shared) -> Shared:
    """[8, T] TP, FP, FN and TN, each of s = 1 and s = 0: protocol 3 with the formulas of Table 5.

    Args:
        y: [N, 1] labels, 0 or 1.
        s: [N, 1] groups, 0 or 1.
        accepted: [N, T] predictions, 0 or 1.
    """
    tp, ys, ps = y * accepted, y * s, accepted * s
    found = (y, s, accepted, tp, ys, ps, tp * s)
    n = y.shape[0]
    y, s, p, tp, ys, ps, tps = (np.sum(one, axis=0) for one in found)
    return np.vstack([
        *(tps, tp - tps),
        *(ps - tps, p - ps - tp + tps),
        *(ys - tps, y - tp - ys + tps),
        *(s - ys - ps + tps, n - s - y + ys - p + ps + tp - tps),
    ])  # fmt: skip


async def opened_counts(scores: np.ndarray, flags: np.ndarray, args: argparse.Namespace) -> Any:
    """[8, T] counts with noise, protocol 4, from party 0's scores [N, 1] and y and s [2, N, 1]."""
    shared = mpc.input(FIXED.array(scores, integral=False), senders=0)
    y, s = mpc.input(FIXED.array(flags, integral=True), senders=0)
    found = []
    thresholds = np.linspace(0, 1, args.thresholds)
    for some in np.array_split(thresholds, -(-args.rows * args.thresholds // CELLS)):
        below = mpc.np_sgn(shared - some, l=FRACTION + 2, LT=True)
        counts = confusion(y, s, 1 - below)
        if args.scale:
            counts = counts + laplace(counts.size, args.scale).reshape(counts.shape)
        found.append(await mpc.output(counts))
    return np.hstack(found)


async def main() -> None:
    """One party, from its connections to the opened counts."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, required=True)
    parser.add_argument("--thresholds", type=int, required=True)
    parser.add_argument("--scale", type=float, required=True, help="Of the noise; 0 for none.")
    args = parser.parse_args()
    rows = np.zeros((3, args.rows, 1), int)  # of the other parties: shapes
    if mpc.pid == 0:
        rows = np.reshape(json.load(sys.stdin), rows.shape)
    # MPyC would listen to the whole network, and unpickle what comes.
    mpc._loop.create_server = partial(mpc._loop.create_server, host="127.0.0.1")
    await mpc.start()
    start, busy = time.perf_counter(), time.process_time()
    counts = await opened_counts(rows[0] / 2**FRACTION, rows[1:], args)
    found = {
        "seconds": time.perf_counter() - start,
        "processor": time.process_time() - busy,
        "sent": sum(one.protocol.nbytes_sent for one in mpc.parties if one.pid != mpc.pid),
        "counts": counts.tolist() if mpc.pid == 0 else None,
    }
    await mpc.shutdown()
    print(json.dumps(found))


if __name__ == "__main__":
    mpc.run(main())

"""Numbers in the pages of docs/, read from the committed runs.

A page has blocks, which ``python -m benchmarks texts`` writes anew. A test fails where a block and
the runs disagree:

    <!-- results: table2 -->
    ...
    <!-- end of results -->
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import cache

from benchmarks.blocks import costs, quality
from benchmarks.blocks.reading import Read
from benchmarks.harness import ROOT
from benchmarks.registry import committed, written
from benchmarks.reproduction import reproduction_pages
from synthfair.files import write_text

BLOCK = re.compile(r"(<!-- results: (\w+) -->\n).*?(<!-- end of results -->)", re.DOTALL)

NOT_RUN = "*Not run with the code of today.*"

EARLIER = "*Runs of an earlier version of the code.*"


def write_texts() -> None:
    """All pages of docs/."""
    for path in sorted((ROOT.parent / "docs").glob("*.md")):
        text = path.read_text(encoding="utf-8")
        if (new := with_results(text)) != text:
            write_text(path, new)
            print(f"{path.name}: written")


def with_results(text: str) -> str:
    """A page with its blocks as they should be.

    Raises:
        KeyError: a block of an unknown name.
    """
    return BLOCK.sub(lambda found: f"{found[1]}{block(found[2])}\n{found[3]}", text)


@cache
def block(name: str) -> str:
    """What is to stand in a block: today's runs or, where there are none, earlier ones."""
    if today := BLOCKS[name](committed):
        return today
    earlier = BLOCKS[name](written)
    return f"{EARLIER}\n\n{earlier}" if earlier else NOT_RUN


BLOCKS: Mapping[str, Callable[[Read], str]] = {
    "table2": quality.table2,
    "covariance": quality.covariance,
    "epsilon": quality.epsilon,
    "disclosure": quality.disclosure,
    "trainers": quality.trainers,
    "any_learner": quality.any_learner,
    "methods": quality.methods,
    "fpfl": quality.fpfl,
    "sampling": quality.sampling,
    "two_phase": quality.two_phase,
    "unlike": quality.unlike,
    "proxy": quality.proxy,
    "one_noise": quality.one_noise,
    "devices": quality.devices,
    "cold": costs.cold,
    "speed": costs.speed,
    "scale": costs.scale,
    "gap_speed": costs.gap_speed,
    "secure": costs.secure,
    "deploy": costs.deploy,
    "reproduction": lambda _: reproduction_pages(),
}
"""By name."""

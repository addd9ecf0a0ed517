"""Draw docs/assets/demo.svg: whom the demo's model selects, without a penalty and with it.

python -m synthfair demo && python docs/tools/demo_picture.py synthfair-demo
"""

from __future__ import annotations

import sys
from pathlib import Path

from synthfair.metrics_file import METRICS, MetricsFile, read_metrics

RUNS = {"without_penalty": "without a penalty", "server": "with it"}
COLORS = "#3f51b5", "#00897b"
LEFT, WIDTH, PICTURE = 230, 500, Path("docs/assets/demo.svg")


def picture(runs: dict[str, MetricsFile]) -> str:
    """Return a picture of the groups' selection rates, in people per 100, by run."""
    lines = [
        '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 880 216"'
        ' font-family="system-ui, sans-serif" font-size="15" fill="#222222">',
        '  <rect width="880" height="216" rx="8" fill="#ffffff"/>',
        '  <text x="20" y="30" font-weight="bold">Said to earn at least 10 dollars an hour, of 100'
        " people in the demo's test rows</text>",
    ]
    y = 48
    for title, run in runs.items():
        lines.append(f'  <text x="20" y="{y + 35}">{title}</text>')
        for color, (group, rates) in zip(COLORS, run.by_group.items(), strict=True):
            share = 100 * rates.selection_rate
            end = LEFT + WIDTH * share / 100
            lines += [
                f'  <text x="{LEFT - 10}" y="{y + 19}" text-anchor="end">{group}</text>',
                f'  <rect x="{LEFT}" y="{y}" width="{end - LEFT:.1f}" height="28" fill="{color}"/>',
                f'  <text x="{end + 10:.1f}" y="{y + 19}">{share:.0f}</text>',
            ]
            y += 34
        words = f"accuracy {run.accuracy.value:.2f}"
        lines.append(f'  <text x="860" y="{y - 34}" text-anchor="end">{words}</text>')
        y += 14
    return "\n".join([*lines, "</svg>\n"])


def drawn(folder: Path) -> str:
    """Return the picture of the runs in the demo's folder."""
    return picture({title: read_metrics(folder / run / METRICS) for run, title in RUNS.items()})


if __name__ == "__main__":
    PICTURE.write_text(drawn(Path(sys.argv[1])), encoding="utf-8")

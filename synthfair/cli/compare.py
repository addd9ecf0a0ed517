"""``python -m synthfair compare``: several methods on one table, with a report."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

from synthfair.cli.first_steps import ALIKE, Clients, Sensitive, Table, labelled_table
from synthfair.cli.parameters import Config, SchemaFile, with_settings
from synthfair.cli.show import conclude, opening, say, terminal, warn
from synthfair.errors import InputError
from synthfair.files import open_file
from synthfair.release.settings import DistillConfig, load_release_config
from synthfair.server.settings import ServerConfig
from synthfair.settings import load_settings

if TYPE_CHECKING:
    from synthfair.compare import GridPoint, SurrogateCache

_METHODS = ("single_shot", "surrogate", "central", "local", "fedavg", "constant")


@with_settings(("Settings", DistillConfig, ("notion", "groups_by", "penalty")))
def compare(
    table: Table,
    /,
    *,
    schema: SchemaFile | None = None,
    sensitive: Sensitive | None = None,
    rule: Clients = ALIKE,
    methods: tuple[str, ...] = _METHODS,
    weights: tuple[float, ...] = (0.0, 10.0, 100.0),
    seeds: int = 3,
    config: Config | None = None,
    output: Path,
    min_group_rows: int = 0,
    **settings: Any,
) -> None:
    r"""Compare several methods on one table, over seeds.

    They run on the same clients, splits and seeds; results are written, and a report with a table
    and a plot. Central training, on all rows in one place, shows what can be had; each client
    alone, and the same label for all, what must be beaten. What is done already is not done again:
    after Ctrl-C, the same command goes on. The report is written anew each time. Nothing here is a
    release: it needs all rows in one place.

        python -m synthfair compare loans.csv --schema schema.json --by region \
            --output comparison
        python -m synthfair compare loanapp --methods single_shot central fedavg \
            --weights 0 10 100 --seeds 3 --output comparison

    Tables, and how clients become unlike, are those of python -m synthfair split --help. The
    configuration file can have further keys, which docs/method.md lists.

    Args:
        methods: Of single_shot, surrogate, refine (surrogates and five exchanges of sums), central,
            local, fedavg, constant, fpfl, fedsgd, mmdm, dp_sgd, fair_sgd, two_phase,
            privfairfl_pre, privfairfl_post, exponentiated_gradient (needs fairlearn).
        weights: Values of rho_o to run; methods in rounds take alpha = 1 / rho_o, and no constraint
            up to 1. They replace that of the configuration.
        seeds: Number of seeds, which replace that of the configuration.
        output: Folder to write to.
        min_group_rows: Gaps leave out groups with fewer test rows.
    """
    distill = load_release_config(config, **settings)
    if not isinstance(distill, DistillConfig):
        raise InputError(f"{config}: release: compare makes surrogates as one of the methods")
    least = load_settings(ServerConfig, None, {"min_group_rows": min_group_rows}).min_group_rows
    if distill.max_gap is not None:
        raise InputError(f"{config}: max_gap: compare runs the weights that --weights gives")

    from synthfair.data.partition import Split
    from synthfair.jax_setup import start_jax

    split = Split(**vars(rule))
    rows, table_schema = labelled_table(table, schema, sensitive, check=True)
    start_jax()
    from rich.progress import track

    from synthfair.compare import ComparedTable, is_done, make_grid, run_point

    # What is compared; what cannot be is refused before any work.
    sha256 = None
    if schema:
        with open_file(Path(table)) as file:
            sha256 = hashlib.file_digest(file, "sha256").hexdigest()
    task = ComparedTable(rows, table_schema, table, split, sha256, least)
    parts = split.apply(rows, table_schema, seed=0)
    left_out = split.left_out_warning(rows, parts)
    warn(left_out and f"{left_out} (of seed 0)")
    points = make_grid(methods, weights, seeds, output)

    # What is not done yet. A run that is refused does not stop the others.
    todo = [point for point in points if not is_done(point, task, distill)]
    refusals: dict[GridPoint, str] = {}
    cache: SurrogateCache = {}
    for point in track(todo, description="comparing", console=terminal()):
        try:
            run_point(point, task, distill, shared=cache)
        except InputError as error:
            refusals[point] = str(error)
    if len(refusals) == len(points):
        raise InputError(f"no run can be compared: {refusals[points[0]]}")
    for cause in dict.fromkeys(refusals.values()):
        names = [point.folder.name for point, text in refusals.items() if text == cause]
        warn(f"left out: {', '.join(names)}: {cause}")

    _report([point.folder for point in points if point not in refusals], output)


def _report(runs: list[Path], output: Path) -> None:
    """Write the report of all runs, and say what they have come to."""
    from synthfair.report.answer import answer
    from synthfair.report.page import write_report
    from synthfair.report.result_tables import overview_tables
    from synthfair.report.results import overviews, read_results

    results, page = read_results(runs), output / "report.html"
    write_report(runs, page, force=True)
    comparisons = overviews(results)
    for overview in comparisons:
        say(overview_tables(overview))
    if names := [result.name for result in results if result.metrics.converged is False]:
        warn(f"{len(names)} of {len(results)} runs did not converge: {', '.join(names)}")
    if small := dict.fromkeys(name for result in results for name in result.metrics.small_groups):
        warn(f"in some runs {', '.join(small)}: too few test rows to tell; read the intervals")
    said = "\n".join(answer(overview).sentence for overview in comparisons)
    conclude(said, [f"{len(results)} runs", page], opening(page))

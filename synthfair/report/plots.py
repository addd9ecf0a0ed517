"""Plots of evaluations from Python."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from synthfair.errors import InputError
from synthfair.fairness.intervals import size
from synthfair.fairness.metrics import METRIC_OF
from synthfair.metrics_file import Evaluation
from synthfair.report.answer import COMPARED
from synthfair.report.figures import Figure, group_figure
from synthfair.settings import notion_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Canvas


def plot_groups(evaluation: Evaluation) -> Canvas:
    """Draws the selection rate, true and false positive rate, and error rate of each group.

    Args:
        evaluation: of a model, with 95 % intervals of its rates.

    Returns:
        A figure of matplotlib, of the six largest groups at most.

    Raises:
        InputError: matplotlib is not installed.

    Example:
        >>> import synthfair as sf
        >>> table, schema = sf.load_dataset("loanapp")
        >>> model = sf.pool_and_train([sf.distill_table(table, schema)], schema)
        >>> sf.plot_groups(sf.evaluate(model, table)).axes[0].get_ylabel()
        'rate'
    """
    return group_figure(evaluation).draw()


def plot_tradeoff(
    evaluations: Mapping[str, Evaluation],
    notion: str = "statistical_parity",
    *,
    max_gap: float | None = None,
) -> Canvas:
    """Draws accuracy against the size of the gap, a point with 95 % intervals for each model.

    Args:
        evaluations: by the name of the model, such as its weight of the penalty; on the same rows.
        notion: of fairness, by which the gap is measured.
        max_gap: where a line stands: a gap that is fair enough.

    Returns:
        A figure of matplotlib. One decision for everybody has no gap, and the accuracy of the more
        frequent label.

    Raises:
        InputError: there are no evaluations, no such notion, or matplotlib is not installed.

    Example:
        >>> import synthfair as sf
        >>> table, schema = sf.load_dataset("loanapp")
        >>> sent = [sf.distill_table(table, schema, sf.SurrogateConfig())]
        >>> found = {}
        >>> for rho in (0.0, 10.0):
        ...     model = sf.pool_and_train(sent, schema, sf.ServerConfig(rho=rho))
        ...     found[f"rho = {rho:g}"] = sf.evaluate(model, table)
        >>> sf.plot_tradeoff(found, max_gap=0.05).axes[0].get_ylabel()
        'accuracy'
    """
    metric = METRIC_OF[notion_of(notion)]
    if not evaluations:
        raise InputError("evaluations: there are none")
    gap = f"difference of {COMPARED[metric]}"
    figure = Figure(f"Accuracy against the {gap}", gap, "accuracy", max_gap)
    for name, one in evaluations.items():
        figure.add(name, [size(one.overall[metric])], [one.overall["accuracy"]])
    first = next(iter(evaluations.values()))
    figure.add("one decision for everybody", [0.0], [first.constant_accuracy])
    return figure.draw()

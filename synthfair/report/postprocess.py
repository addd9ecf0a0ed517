"""Decisions by group and weights of rows, as tables."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from rich.console import Group

from synthfair.report.result_table import ResultTable
from synthfair.report.results import shown

if TYPE_CHECKING:
    from synthfair.evaluation import Evaluation
    from synthfair.postprocess import ChosenDecision, RowWeights, ScoreHistogram
    from synthfair.postprocess.decision import GroupDecision
    from synthfair.postprocess.thresholds import NoisyShare


def decision_tables(chosen: ChosenDecision, histogram: ScoreHistogram) -> Group:
    """What was chosen for each group, and what it is estimated to do."""
    decision = chosen.decision
    chance, title = (
        "probability of the decision +1",
        f"{decision.notion}, alpha = {decision.alpha:g}",
    )
    rules = ResultTable("group", chance, text=[chance], title=title)
    for group, words in zip(histogram.groups, _rules(decision), strict=True):
        rules.add_row(shown(group), words)
    estimates = ResultTable("estimated on the histogram", "value", "± noise")
    estimates.add_row("accuracy", *_estimate(chosen.accuracy))
    estimates.add_row("gap", *_estimate(chosen.gap))
    estimates.add_row(
        "accuracy of one decision for everybody", *_estimate(chosen.constant_accuracy)
    )
    estimates.caption = (
        "± noise: standard error by the counts' noise alone. The best on this histogram was chosen,"
        " so expect a little less of new rows, and less again if the model was trained on the rows"
        " counted: count others."
    )
    return Group(rules, estimates)


def gap_warning(chosen: ChosenDecision) -> str | None:
    """That the estimated gap is above alpha by more than noise explains, where it is."""
    gap, alpha = chosen.gap, chosen.decision.alpha
    if gap.value <= alpha + gap.error + 1e-9:  # rounding
        return None
    return (
        f"the estimated gap is {gap.value:.4f}, above alpha = {alpha:g} by more than its standard"
        f" error of {gap.error:.4f}: counts below 0 were taken as 0 to choose. More epsilon or"
        " fewer bins have less noise"
    )


def _rules(decision: GroupDecision) -> list[str]:
    """Of scores as probabilities sigma(z), at whose edges bins begin."""
    return [
        ", ".join(f"{chance:.4g} from {bin_ / decision.n_bins:.4g}" for bin_, chance in steps)
        or "0 everywhere"
        for steps in decision.steps
    ]


def _estimate(share: NoisyShare) -> tuple[str, str]:
    return f"{share.value:.4f}", f"{share.error:.4f}"


def decisions_table(evaluations: Mapping[str, Evaluation]) -> ResultTable:
    """Accuracy and SPD on the same test rows, by what decides."""
    table = ResultTable("decisions by", "accuracy", "SPD")
    for name, found in evaluations.items():
        cells = [found.overall[metric].value for metric in ("accuracy", "spd")]
        table.add_row(name, f"{cells[0]:.3f}", f"{cells[1]:+.3f}")
    first = next(iter(evaluations.values()))  # the others are of the same rows
    table.add_row("one decision for everybody", f"{first.constant_accuracy:.3f}", f"{0:+.3f}")
    table.caption = f"{first.n_test} test rows"
    return table


def weights_table(weights: RowWeights) -> ResultTable:
    """The weight of each group and label."""
    title = f"weights of rows, {weights.method}"
    table = ResultTable("group", "label -1", "label +1", title=title)
    for group, pair in zip(weights.groups, weights.weights, strict=True):
        table.add_row(shown(group), *(f"{weight:.4g}" for weight in pair))
    return table

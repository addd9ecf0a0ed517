from .histogram import (
    GroupDecision,
    RowWeights,
    ScoreHistogram,
    coins,
    count_scores,
    make_weights,
    score_bins,
)
from .thresholds import DecisionChoice, choose_decision, surrogate_histogram

__all__ = [
    "DecisionChoice",
    "GroupDecision",
    "RowWeights",
    "ScoreHistogram",
    "choose_decision",
    "coins",
    "count_scores",
    "make_weights",
    "score_bins",
    "surrogate_histogram",
]

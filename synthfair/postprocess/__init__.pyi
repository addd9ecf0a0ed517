from .histogram import (
    GroupDecision,
    RowWeights,
    ScoreHistogram,
    coins,
    count_scores,
    make_weights,
    read_histogram,
    read_weights,
    score_bins,
    write_histogram,
    write_weights,
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
    "read_histogram",
    "read_weights",
    "score_bins",
    "surrogate_histogram",
    "write_histogram",
    "write_weights",
]

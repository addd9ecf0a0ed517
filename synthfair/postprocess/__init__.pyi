from .decision import GroupDecision, coins
from .histogram import (
    ScoreHistogram,
    count_scores,
    read_histogram,
    score_bins,
    write_histogram,
)
from .surrogates import surrogate_histogram
from .thresholds import DecisionChoice, choose_decision
from .weights import RowWeights, make_weights, read_weights, write_weights

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

from .aggregator import (
    NoisyTotal,
    PartialSum,
    UploadSum,
    answer,
    noisy_sum,
    open_sums,
    receive,
    score_histogram,
)
from .part import count_table
from .summands import ClippedVectors, GroupCounts, OpenedSum, RowSums
from .surrogate import (
    client_sums,
    make_secure_surrogate,
    next_sums,
    opened_sum,
    surrogate_from_sums,
)
from .task import (
    AggregatorKeys,
    AggregatorSecret,
    SumTask,
    make_aggregator_keys,
    make_task,
    new_aggregator_secret,
    read_aggregator_keys,
    read_aggregator_secret,
)
from .upload import make_uploads, read_upload

__all__ = [
    "AggregatorKeys",
    "AggregatorSecret",
    "ClippedVectors",
    "GroupCounts",
    "NoisyTotal",
    "OpenedSum",
    "PartialSum",
    "RowSums",
    "SumTask",
    "UploadSum",
    "answer",
    "client_sums",
    "count_table",
    "make_aggregator_keys",
    "make_secure_surrogate",
    "make_task",
    "make_uploads",
    "new_aggregator_secret",
    "next_sums",
    "noisy_sum",
    "open_sums",
    "opened_sum",
    "read_aggregator_keys",
    "read_aggregator_secret",
    "read_upload",
    "receive",
    "score_histogram",
    "surrogate_from_sums",
]

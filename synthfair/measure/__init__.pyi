from .aggregate import ReportSums, SeenIds, aggregate_reports
from .collection import (
    NO_VALUE,
    Collection,
    Report,
    make_collection,
    perturb_rates,
    perturb_records,
)
from .estimate import Tally, estimate_gaps
from .gaps_file import GapsFile, MeasuredGap, MeasuredGroup
from .mechanisms import LaplaceValue, LocalMechanism, RandomizedValue
from .plan import GapPlan, best_split, plan_gap

__all__ = [
    "NO_VALUE",
    "Collection",
    "GapPlan",
    "GapsFile",
    "LaplaceValue",
    "LocalMechanism",
    "MeasuredGap",
    "MeasuredGroup",
    "RandomizedValue",
    "Report",
    "ReportSums",
    "SeenIds",
    "Tally",
    "aggregate_reports",
    "best_split",
    "estimate_gaps",
    "make_collection",
    "perturb_rates",
    "perturb_records",
    "plan_gap",
]

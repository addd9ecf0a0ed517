from .aggregate import ReportSums, SeenIds, aggregate_reports
from .collection import (
    NO_VALUE,
    Collection,
    Report,
    make_collection,
    perturb_rates,
    perturb_records,
    read_collection,
    write_collection,
)
from .estimate import Estimate, Gap, Tally, diagnose_reports, estimate_gaps
from .mechanisms import LaplaceValue, LocalMechanism, RandomizedValue
from .plan import GapPlan, best_split, plan_gap

__all__ = [
    "NO_VALUE",
    "Collection",
    "Estimate",
    "Gap",
    "GapPlan",
    "LaplaceValue",
    "LocalMechanism",
    "RandomizedValue",
    "Report",
    "ReportSums",
    "SeenIds",
    "Tally",
    "aggregate_reports",
    "best_split",
    "diagnose_reports",
    "estimate_gaps",
    "make_collection",
    "perturb_rates",
    "perturb_records",
    "plan_gap",
    "read_collection",
    "write_collection",
]

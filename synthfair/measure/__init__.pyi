from .aggregate import ReportSums, SeenIds, aggregate_reports
from .collection import NO_VALUE, Collection, make_collection, read_collection, write_collection
from .diagnostics import diagnose_reports
from .estimate import Estimate, Gap, estimate_gaps
from .mechanisms import LaplaceValue, LocalMechanism, RandomizedValue
from .plan import GapPlan, best_split, plan_gap
from .reports import Report, perturb_rates, perturb_records
from .tally import Tally

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

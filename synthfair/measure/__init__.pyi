from .aggregate import aggregate_reports
from .collection import Collection, make_collection, read_collection, write_collection
from .devices import measure_model
from .diagnostics import doubts
from .estimate import Estimate, Gap, estimate_gaps
from .identifiers import SeenIds
from .mechanisms import LaplaceValue, RandomizedValue
from .persons import perturb_rates
from .plan import Plan, plan_clients, plan_epsilon, plan_precision, setting
from .reports import Report, perturb_record, perturb_records
from .simulate import population, simulate_gaps
from .split import best_split
from .tally import Tally, collect
from .variance import Population

__all__ = [
    "Collection",
    "Estimate",
    "Gap",
    "LaplaceValue",
    "Plan",
    "Population",
    "RandomizedValue",
    "Report",
    "SeenIds",
    "Tally",
    "aggregate_reports",
    "best_split",
    "collect",
    "doubts",
    "estimate_gaps",
    "make_collection",
    "measure_model",
    "perturb_rates",
    "perturb_record",
    "perturb_records",
    "plan_clients",
    "plan_epsilon",
    "plan_precision",
    "population",
    "read_collection",
    "setting",
    "simulate_gaps",
    "write_collection",
]

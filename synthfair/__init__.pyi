from .client import Distillation, distill_clients, distill_table
from .config import DistillConfig, ServerConfig, TrainConfig, load_distill_config
from .data.datasets import load_dataset, published_split
from .data.encode import Encoded, decode, encode
from .data.partition import partition
from .data.schema import Schema, read_schema
from .data.tables import read_table
from .errors import InputError
from .evaluation import Evaluation, evaluate
from .fairness.penalties import CovariancePenalty, SelectionRatePenalty
from .federated.cohorts import Cohorts
from .federated.fedavg import FedAvg
from .federated.fpfl import Fpfl
from .federated.networks import Linear, Network, Perceptron
from .federated.parity import Parity
from .federated.private_sum import Protection
from .federated.two_phase import TwoPhase, two_phase
from .federated.users import Users, deal_rows, make_users
from .inspection import Inspection, inspect_release
from .intake import read_release
from .keys import make_keys, read_keys, read_signing_key
from .measure.aggregate import aggregate_reports
from .measure.collection import Collection, make_collection, read_collection, write_collection
from .measure.devices import measure_model
from .measure.doubts import doubts
from .measure.estimate import Estimate, Gap, estimate_gaps
from .measure.identifiers import SeenIds
from .measure.mechanisms import LaplaceValue, RandomizedValue
from .measure.persons import perturb_rates
from .measure.plan import Plan, plan_clients, plan_epsilon, plan_precision, setting
from .measure.reports import Report, perturb_record, perturb_records
from .measure.simulate import population, simulate_gaps
from .measure.split import best_split
from .measure.tally import Tally, collect
from .measure.variance import Population
from .model import LinearModel, Rows
from .privacy.sampled import SampledSums
from .release import Release, write_release
from .server import (
    Influence,
    Influences,
    measure_influence,
    pool_and_train,
    read_releases,
)
from .train import Dealing, TrainFiles, deal, populate, train_rounds, train_table
from .trained import TrainedModel, read_model, write_model

__version__: str

__all__ = [
    "Cohorts",
    "Collection",
    "CovariancePenalty",
    "Dealing",
    "DistillConfig",
    "Distillation",
    "Encoded",
    "Estimate",
    "Evaluation",
    "FedAvg",
    "Fpfl",
    "Gap",
    "Influence",
    "Influences",
    "InputError",
    "Inspection",
    "LaplaceValue",
    "Linear",
    "LinearModel",
    "Network",
    "Parity",
    "Perceptron",
    "Plan",
    "Population",
    "Protection",
    "RandomizedValue",
    "Release",
    "Report",
    "Rows",
    "SampledSums",
    "Schema",
    "SeenIds",
    "SelectionRatePenalty",
    "ServerConfig",
    "Tally",
    "TrainConfig",
    "TrainFiles",
    "TrainedModel",
    "TwoPhase",
    "Users",
    "__version__",
    "aggregate_reports",
    "best_split",
    "collect",
    "deal",
    "deal_rows",
    "decode",
    "distill_clients",
    "distill_table",
    "doubts",
    "encode",
    "estimate_gaps",
    "evaluate",
    "inspect_release",
    "load_dataset",
    "load_distill_config",
    "make_collection",
    "make_keys",
    "make_users",
    "measure_influence",
    "measure_model",
    "partition",
    "perturb_rates",
    "perturb_record",
    "perturb_records",
    "plan_clients",
    "plan_epsilon",
    "plan_precision",
    "pool_and_train",
    "populate",
    "population",
    "published_split",
    "read_collection",
    "read_keys",
    "read_model",
    "read_release",
    "read_releases",
    "read_schema",
    "read_signing_key",
    "read_table",
    "setting",
    "simulate_gaps",
    "train_rounds",
    "train_table",
    "two_phase",
    "write_collection",
    "write_model",
    "write_release",
]

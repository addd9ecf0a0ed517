from . import (
    data,
    fairness,
    federated,
    measure,
    postprocess,
    privacy,
    release,
    secure,
    server,
    sklearn,
    surrogate,
)
from .client import Distillation, distill_table
from .data.datasets import load_dataset
from .data.draft import draft_schema
from .data.encode import Encoded, encode
from .data.partition import partition
from .data.schema import Schema, read_schema
from .data.tables import read_table
from .errors import InputError
from .evaluation import Evaluation, evaluate
from .fairness.penalties import CovariancePenalty, SelectionRatePenalty
from .federated.methods import TrainConfig
from .model import LinearModel, Rows
from .release import Release, write_release
from .release.settings import DistillConfig, SurrogateConfig
from .report.figures import plot_groups, plot_tradeoff
from .report.page import write_report
from .report.shapes import plot_shapes, shapes
from .server import pool_and_train, pool_records, read_releases
from .server.settings import ServerConfig
from .trained import TrainedModel, predict, read_model, write_model

__version__: str

__all__ = [
    "CovariancePenalty",
    "DistillConfig",
    "Distillation",
    "Encoded",
    "Evaluation",
    "InputError",
    "LinearModel",
    "Release",
    "Rows",
    "Schema",
    "SelectionRatePenalty",
    "ServerConfig",
    "SurrogateConfig",
    "TrainConfig",
    "TrainedModel",
    "__version__",
    "data",
    "distill_table",
    "draft_schema",
    "encode",
    "evaluate",
    "fairness",
    "federated",
    "load_dataset",
    "measure",
    "partition",
    "plot_groups",
    "plot_shapes",
    "plot_tradeoff",
    "pool_and_train",
    "pool_records",
    "postprocess",
    "predict",
    "privacy",
    "read_model",
    "read_releases",
    "read_schema",
    "read_table",
    "release",
    "secure",
    "server",
    "shapes",
    "sklearn",
    "surrogate",
    "write_model",
    "write_release",
    "write_report",
]

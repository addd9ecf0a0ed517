from .client import Distillation, distill_clients, distill_table
from .config import DistillConfig, ServerConfig, load_distill_config
from .data.datasets import load_dataset
from .data.encode import Encoded, decode, encode
from .data.partition import partition
from .data.schema import Schema, read_schema
from .data.tables import read_table
from .errors import InputError
from .evaluation import Evaluation, evaluate
from .fairness.penalties import CovariancePenalty, SelectionRatePenalty
from .inspection import Inspection, inspect_release
from .intake import read_release
from .keys import make_keys, read_keys, read_signing_key
from .model import LinearModel, Rows
from .release import Release, write_release
from .server import (
    Influence,
    Influences,
    measure_influence,
    pool_and_train,
    read_releases,
)
from .trained import TrainedModel, read_model, write_model

__version__: str

__all__ = [
    "CovariancePenalty",
    "DistillConfig",
    "Distillation",
    "Encoded",
    "Evaluation",
    "Influence",
    "Influences",
    "InputError",
    "Inspection",
    "LinearModel",
    "Release",
    "Rows",
    "Schema",
    "SelectionRatePenalty",
    "ServerConfig",
    "TrainedModel",
    "__version__",
    "decode",
    "distill_clients",
    "distill_table",
    "encode",
    "evaluate",
    "inspect_release",
    "load_dataset",
    "load_distill_config",
    "make_keys",
    "measure_influence",
    "partition",
    "pool_and_train",
    "read_keys",
    "read_model",
    "read_release",
    "read_releases",
    "read_schema",
    "read_signing_key",
    "read_table",
    "write_model",
    "write_release",
]

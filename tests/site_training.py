"""Trainings in rounds at sites, in one process."""

import numpy as np
from builders import NAMES, InProcess, joined, make_schema, make_table

import synthfair as sf
from synthfair.data.encode import in_content_order
from synthfair.deploy.train_job import TrainJob, run_train
from synthfair.federated import TrainConfig

TRAIN = {"method": "fedavg", "rounds": 6, "learning_rate": 0.5, "local_steps": 3, "momentum": 0.5}


FPFL = {"method": "fpfl", "rounds": 3, "learning_rate": 0.5, "alpha": 0.01, "multiplier_rate": 1.0}


REFINE = {"method": "refine", "rounds": 3, "penalty": "selection_rate", "notion": "equalized_odds"}


ROWS = 120


MANY = 1200
"""Rows of a site whose exact sums tell of no single one."""


SAMPLED = {"method": "dp_sgd", "rounds": 3, "batch": 20, "local_epochs": 0.2, "clip": 1.0}


DP_SGD = SAMPLED | {"batch": ROWS, "local_epochs": 1.0}
"""All rows in each batch: the noise for samples takes seconds to find, for each number of rounds."""


FAIR_SGD = {"method": "fair_sgd", "rounds": 2, "batch": 20, "local_epochs": 0.5, "kappa": 2.0}


TWO_PHASE = DP_SGD | {"method": "two_phase", "teacher_epochs": 2.0, "kappa": 2.0}


END_TO_END = TWO_PHASE | {"end_to_end": True}


PRIVATE = {"clip": 0.5, "epsilon": 2.0, "delta": 1e-3}


def channel_of(world, job="job-1"):
    return InProcess({name: world.site(name) for name in NAMES}, job=job)


def train(world, channel, settings=TRAIN, **changes):
    config = TrainConfig(**settings)
    has_guarantee = config.get("epsilon") is not None and config.get("end_to_end", True)
    for name in NAMES if has_guarantee else ():
        world.bound(name)
    federation = world.federation(channel)
    rows = ROWS if config.local_passes else None
    job = TrainJob(train=settings, least_rows=rows, **({"most_rows": 300} | changes))
    run_train(federation, job, world.folder / "server" / channel.job, world.folder / channel.job)
    return federation, sf.read_model(world.folder / channel.job / "model.json").theta


def in_process(settings=TRAIN, n=ROWS, seeds=(0, 1), **options):
    sites = [in_content_order(sf.encode(make_table(n, seed=i), make_schema())) for i in seeds]
    config, user = TrainConfig(**settings), np.repeat(range(len(seeds)), n)
    data = sf.federated.make_user_data(joined(*sites), user, make_schema(), config)
    return sf.federated.train_rounds(data, config, **options)

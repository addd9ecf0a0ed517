"""What protects people by itself: defaults, and what happens at their border."""

from inspect import signature

import numpy as np
import pytest
from builders import SCHEMA

import synthfair as sf
from synthfair.cli.answer import answer
from synthfair.cli.secure import add
from synthfair.evaluation import evaluate_scores
from synthfair.fairness.metrics import Scored
from synthfair.task.limits import AggregatorLimits, Limits


def test_defaults_that_protect_are_those_of_the_documentation():
    """A change here is a decision about people's rows: say so in the changelog."""
    assert Limits().model_dump() == {
        "kinds": (), "most_epsilon": None, "most_delta": 1e-5, "without_epsilon": False,
        "most_releases": 1, "again": None, "least_epsilon_left": 0.0, "k_min": 50,
        "value_rows": 10, "most_rounds": 0, "most_rounds_of_job": 10_000, "most_width": 1000,
        "least_rows": None, "store_models": False,
    }  # fmt: skip
    assert AggregatorLimits().model_dump() == {
        "most_tasks": 0, "most_epsilon": None, "most_delta": 1e-5, "most_rho": None,
        "without_noise": False, "least_clients": 2,
    }  # fmt: skip
    most = [signature(command).parameters["most_delta"].default for command in (answer, add)]
    assert most == [1e-5, 1e-5]
    release, server = sf.DistillConfig(), sf.ServerConfig()
    kept = release.k_min, release.labels, release.start, release.group_input, release.relation
    assert kept == (50, "balanced", "range", False, "add_or_remove")
    assert (sf.SurrogateConfig().k_min, sf.SurrogateConfig().relation) == (50, "add_or_remove")
    assert (server.group_input, server.max_spd_influence) == (False, 0.5)


@pytest.mark.parametrize("share", [0.25, 0.75])
def test_constant_classifier_decides_the_more_frequent_label(share):
    y = np.where(np.arange(80) < 80 * share, 1.0, -1.0)
    rows = Scored(y, np.linspace(-1, 1, 80), np.arange(80) % 2, 2)
    assert evaluate_scores({"": rows}, schema=SCHEMA).constant_accuracy == 0.75

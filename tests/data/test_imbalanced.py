"""Pipelines of imbalanced-learn, whose samplers change the rows between two steps."""

import numpy as np
import pandas as pd
import pytest
import sklearn
from sklearn.linear_model import LogisticRegression

from synthfair.sklearn import Distiller, FairLogisticRegression

pytest.importorskip("imblearn")
from imblearn.over_sampling import RandomOverSampler
from imblearn.pipeline import make_pipeline

RNG = np.random.default_rng(0)
SEX = np.where(RNG.integers(2, size=400), "woman", "man")
TABLE = pd.DataFrame(
    {"income": RNG.normal(40 + 8 * (SEX == "man"), 10), "trend": RNG.normal(size=400)}
)
Y = TABLE.income / 10 + TABLE.trend + RNG.normal(size=400) > 5.5
BOUNDS = {"income": (0, 100), "trend": (-5, 5)}


def gap(decided):
    return abs(decided[SEX == "man"].mean() - decided[SEX == "woman"].mean())


def test_a_classifier_takes_the_groups_of_rows_that_a_sampler_made():
    sampler, classifier = RandomOverSampler(random_state=0), FairLogisticRegression(rho=100.0)
    model = make_pipeline(sampler, classifier)
    model.fit(TABLE.assign(sex=SEX), Y, fairlogisticregression__sensitive_features="sex")
    decided, plain = model.predict(TABLE), classifier.set_params(rho=0).fit(TABLE, Y)
    assert gap(decided) < gap(plain.predict(TABLE))
    assert decided.mean() > Y.mean() + 0.1  # classes weigh the same


def test_a_distiller_is_a_sampler():
    distiller = Distiller(rho=30, bounds=BOUNDS, n_synthetic=24, steps=400, random_state=0)
    model = make_pipeline(distiller, LogisticRegression(C=1e3, max_iter=1000))
    with sklearn.config_context(enable_metadata_routing=True):
        decided = model.fit(TABLE, Y, sensitive_features=SEX).predict(TABLE)
    assert gap(decided) < gap(LogisticRegression().fit(TABLE, Y).predict(TABLE)) / 2
    assert (decided == Y).mean() > 0.7

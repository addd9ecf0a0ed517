"""One method in a process of its own, from its imports to decisions on test rows.

    python training.py METHOD ROWS.npz SEED STARTED [GAP]

STARTED is when the process was started, in seconds of the system's clock. It prints a JSON object:
seconds from there to decisions, seconds of the same again with fewer rows, accuracy and SPD. Each
method imports what it needs and no more, so that scikit-learn does not wait for JAX.
"""

from __future__ import annotations

import json
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

GAP = 0.02
"""Largest difference of selection rates that is asked for."""

WEIGHT = 10.0
"""Of FedAvg's penalty, which has no search for one."""

REFIT = 0.8
"""Share of the rows that a second fit has: another number, for which JAX compiles anew."""


class Table(NamedTuple):
    """Encoded rows: x [N, d] in [0, 1], groups and labels of 0 and 1, and whose each row is."""

    x: np.ndarray
    s: np.ndarray
    y: np.ndarray
    client: np.ndarray


Fit = Callable[[Table, Table, int], np.ndarray]
"""Of training rows, test rows and a seed: decisions 0 and 1 for the test rows."""


# All rows in one place


def logistic_regression(rows: Table, test: Table, _: int) -> np.ndarray:
    """scikit-learn's, which is not fair."""
    return _plain().fit(rows.x, rows.y).predict(test.x)


def exponentiated_gradient(rows: Table, test: Table, seed: int) -> np.ndarray:
    """fairlearn's, of Agarwal et al. (2018); its decisions are drawn.

    Its bound is of the difference of a group's rate to that of all rows, which of two groups is the
    gap times the share of the other group: so much smaller it must be.
    """
    from fairlearn.reductions import DemographicParity, ExponentiatedGradient

    bound = GAP * max(rows.s.mean(), 1 - rows.s.mean())
    model = ExponentiatedGradient(_plain(), DemographicParity(difference_bound=bound))
    model.fit(rows.x, rows.y, sensitive_features=rows.s)
    return np.asarray(model.predict(test.x, random_state=seed))


def grid_search(rows: Table, test: Table, _: int) -> np.ndarray:
    """fairlearn's, with twenty multipliers: the most accurate model that meets the gap."""
    from fairlearn.reductions import DemographicParity, GridSearch

    search = GridSearch(_plain(), DemographicParity(), grid_size=20)
    search.fit(rows.x, rows.y, sensitive_features=rows.s)

    def rank(model: Any) -> tuple[bool, float]:
        decided = model.predict(rows.x)
        gap = abs(difference(decided, rows.s))
        return (True, gap) if gap > GAP else (False, float(np.mean(decided != rows.y)))

    return min(search.predictors_, key=rank).predict(test.x)


def threshold_optimizer(rows: Table, test: Table, seed: int) -> np.ndarray:
    """fairlearn's, of Hardt et al. (2016): it reads the group of who is decided on, and draws."""
    from fairlearn.postprocessing import ThresholdOptimizer

    model = ThresholdOptimizer(
        estimator=_plain(), constraints="demographic_parity", predict_method="predict_proba"
    ).fit(rows.x, rows.y, sensitive_features=rows.s)
    return model.predict(test.x, sensitive_features=test.s, random_state=seed)


def error_parity(rows: Table, test: Table, seed: int) -> np.ndarray:
    """Thresholds of Cruz and Hardt (2024), with a tolerance: it reads the group, and draws."""
    from error_parity import RelaxedThresholdOptimizer  # pyright: ignore[reportMissingImports]

    model = _plain().fit(rows.x, rows.y)
    thresholds = RelaxedThresholdOptimizer(
        predictor=lambda x: model.predict_proba(x)[:, 1],
        constraint="demographic_parity", tolerance=GAP, seed=seed,
    )  # fmt: skip
    thresholds.fit(X=rows.x, y=rows.y, group=rows.s)
    return thresholds(test.x, group=test.s)


def fair_logistic_regression(rows: Table, test: Table, _: int) -> np.ndarray:
    """Return synthfair's decisions on the test rows, under the smooth selection-rate penalty."""
    from synthfair.sklearn import FairLogisticRegression

    model = FairLogisticRegression(max_gap=GAP)
    return model.fit(rows.x, rows.y, sensitive_features=rows.s).predict(test.x)


# Two clients


def surrogates(rows: Table, test: Table, _: int) -> np.ndarray:
    """Each client uploads records, and FairLogisticRegression is trained on those of both."""
    import synthfair as sf
    from synthfair.sklearn import FairLogisticRegression

    schema, names = _schema(rows), [f"x{i}" for i in range(rows.x.shape[1])]
    releases = [
        sf.distill_table(sf.data.in_memory(part), schema, sf.SurrogateConfig()).release
        for part in _of_clients(rows)
    ]
    records, weights = sf.pool_records(releases, schema)
    model = FairLogisticRegression(max_gap=GAP, bounds=(0.0, 1.0)).fit(
        records[names].to_numpy(),
        records["y"] == "1",
        sensitive_features=records["s"],
        sample_weight=weights,
    )
    return model.predict(test.x).astype(int)


def fair_releases(rows: Table, test: Table, seed: int) -> np.ndarray:
    """Each client uploads rows on which logistic regression is fair."""
    from synthfair.sklearn import Distiller

    made = []
    for client in np.unique(rows.client):
        at = rows.client == client
        distiller = Distiller(max_gap=GAP, bounds=(0.0, 1.0), random_state=seed)
        x, y = distiller.fit_resample(rows.x[at], rows.y[at], sensitive_features=rows.s[at])
        made.append((x, y, distiller.sample_weight_))
    x, y, weight = map(np.concatenate, zip(*made, strict=True))
    return _plain().fit(x, y, sample_weight=weight / len(made)).predict(test.x)


def in_rounds(method: str, rho: float) -> Fit:
    """As ``synthfair.compare`` has it."""

    def fit(rows: Table, test: Table, seed: int) -> np.ndarray:
        import synthfair as sf
        from synthfair import compare

        parts = _of_clients(rows)
        nothing = sf.Encoded(test.x[:0], test.s[:0], test.y[:0].astype(float))
        tests = (sf.Encoded(test.x, test.s, 2.0 * test.y - 1), *[nothing] * (len(parts) - 1))
        names = tuple(map(str, range(len(parts))))
        clients = compare.Federation(_schema(rows), parts, tests, names, parts)
        config = sf.DistillConfig(penalty="selection_rate", rho_o=rho, seed=seed)
        given = {"rounds": 1000, "learning_rate": 3.0, "multiplier_rate": 1.0}
        _, fitted = compare.run_method(
            method, clients, config, sf.ServerConfig(resamples=1),
            rounds=given,
        )  # fmt: skip
        return (fitted.scores[0] > 0).astype(int)

    return fit


CENTRAL: dict[str, Fit] = {
    "LogisticRegression": logistic_regression,
    "ExponentiatedGradient": exponentiated_gradient,
    "GridSearch": grid_search,
    "ThresholdOptimizer": threshold_optimizer,
    "error-parity": error_parity,
    "FairLogisticRegression": fair_logistic_regression,
}
"""On all rows in one place, by name."""

CLIENTS: dict[str, Fit] = {
    "surrogates": surrogates,
    "fair releases": fair_releases,
    "FedAvg": in_rounds("fedavg", WEIGHT),
    "FPFL": in_rounds("fpfl", 1 / GAP),
}
"""On the rows of two clients, by name."""


def _schema(rows: Table) -> Any:
    from synthfair.data.schema import Categorical, Numeric, Schema

    numbers = {f"x{i}": Numeric(lower=0, upper=1) for i in range(rows.x.shape[1])}
    two = Categorical(categories=("0", "1"))
    return Schema(
        name="rows",
        columns={**numbers, "s": two, "y": two},
        label="y",
        positive="1",
        sensitive="s",
        ignored=(),
        missing_values=(),
    )


def _of_clients(rows: Table) -> tuple[Any, ...]:
    """Return the encoded rows of each client."""
    from synthfair.data.encode import Encoded

    parts = [rows.client == client for client in np.unique(rows.client)]
    return tuple(Encoded(rows.x[at], rows.s[at], 2.0 * rows.y[at] - 1) for at in parts)


def _plain() -> Any:
    from sklearn.linear_model import LogisticRegression

    return LogisticRegression(max_iter=1000)


def difference(decided: np.ndarray, s: np.ndarray) -> float:
    """SPD."""
    return float(decided[s == 1].mean() - decided[s == 0].mean())


def main(method: str, file: Path, seed: int, started: float) -> None:
    """Fits, times, and measures on test rows."""
    warnings.simplefilter("ignore")
    with np.load(file) as arrays:
        train, test = (
            Table(*(arrays[f"{part}_{name}"] for name in Table._fields))
            for part in ("train", "test")
        )
    fit = (CENTRAL | CLIENTS)[method]
    decided = fit(train, test, seed)
    end = time.time()
    fit(Table(*(column[: int(REFIT * len(train.y))] for column in train)), test, seed)
    again = time.time() - end
    right = float(np.mean(decided == test.y))
    spd = difference(decided, test.s)
    print(json.dumps([right, spd, end - started, again]))


if __name__ == "__main__":
    GAP = float(sys.argv[5]) if len(sys.argv) > 5 else GAP
    main(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4]))

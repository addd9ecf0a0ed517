"""The methods that are compared."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple, cast

import numpy as np

from synthfair import federated
from synthfair.client.fair_task import Distillation
from synthfair.client.from_table import distill_table
from synthfair.data.batches import in_memory
from synthfair.data.encode import Encoded, content_sha256, encode, expand
from synthfair.data.partition import ClientTable, file_stems
from synthfair.data.schema import Schema
from synthfair.errors import InputError, require
from synthfair.evaluation import evaluate_scores, score_rows
from synthfair.fairness.metrics import Scored
from synthfair.fairness.penalties import SumPenalty, named_penalty
from synthfair.fairness.target import Target
from synthfair.federated.fedavg import safe_rate
from synthfair.metrics_file import Cost, Evaluation
from synthfair.model import Rows
from synthfair.release.format import Release, release_bytes
from synthfair.release.settings import DistillConfig, SurrogateConfig
from synthfair.server.pooling import (
    compared_groupings,
    concatenated,
    pool_and_train,
    trained_model,
)
from synthfair.server.settings import ServerConfig
from synthfair.surrogate.fair import GlobalProblem, WeightedTable, ridge_of
from synthfair.trained import TrainedModel

MAX_DUALITY_GAP = 1e-3
"""Duality gap at which exponentiated gradient stops."""

FEDAVG_ROUNDS = 1000

N_EXCHANGES = 5
"""Of sums after the surrogates, in ``refine``."""

MOMENTUM = 0.98
"""Of FedAvg's server: it settles then where a steep penalty makes its steps short, too."""

SurrogateCache = dict[tuple[Any, ...], tuple[dict[str, Release], float]]
"""The surrogates that were made last, and the seconds that they took; begin with an empty one.

They hold no weight of a penalty, and so serve all weights, with epsilon, too: a private release is
sent once. They are found by their settings and the content of the clients' rows, as each point of a
grid encodes them anew.
"""


class Federation(NamedTuple):
    """The encoded rows of some clients.

    Attributes:
        schema: the same for all.
        train: of each client.
        test: of each client.
        names: of the clients, fit for files: client_0, client_1, ..., or by what they were named.
        plain: the training rows of each client by ``schema.plain``, of which surrogates are made.
    """

    schema: Schema
    train: tuple[Encoded, ...]
    test: tuple[Encoded, ...]
    names: tuple[str, ...]
    plain: tuple[Encoded, ...]

    @property
    def n_groups(self) -> int:
        """Return the number of groups."""
        return len(self.schema.groups)

    def scored(self, scores: Iterable[np.ndarray]) -> tuple[Scored, ...]:
        """Return the test rows of each client with scores [N_test], whose signs decide."""
        pairs = zip(scores, self.test, strict=True)
        return tuple(Scored(rows.y, score, rows.s, self.n_groups) for score, rows in pairs)

    @property
    def user(self) -> np.ndarray:
        """Return [N] the client of each row of the pooled training rows."""
        return np.repeat(np.arange(len(self.train)), [len(rows.y) for rows in self.train])


def federate(
    clients: Sequence[ClientTable] | Mapping[str, ClientTable], schema: Schema
) -> Federation:
    """Return the clients with encoded tables, named by their number or as given.

    Raises:
        InputError: a table does not fit the schema.

    Example:
        >>> import synthfair as sf
        >>> from synthfair.compare import federate
        >>> table, schema = sf.load_dataset("loanapp")
        >>> federation = federate(sf.partition(table, clients=2, seed=0), schema)
        >>> [len(part.y) for part in federation.train], federation.n_groups
        ([795, 795], 2)
    """
    named = clients if isinstance(clients, Mapping) else dict(enumerate(clients))
    plain = [encode(c.train, schema.plain, source=f"client {i}, train") for i, c in named.items()]
    train = [rows._replace(x=expand(rows.x, schema)) for rows in plain]
    test = [encode(c.test, schema, source=f"client {i}, test") for i, c in named.items()]
    names = tuple(file_stems(named))
    return Federation(schema, tuple(train), tuple(test), names, tuple(plain))


class Fitted(NamedTuple):
    """The outcome of a method on a federation.

    Attributes:
        tests: each client's test rows, with their scores.
        converged: whether every problem solved on the way met its tolerance; None: no test.
        cost: what the clients sent, and how often.
        target: how much fairness the method was asked for, by the setting that it reads.
        distillations: one a client, of methods that distil.
        model: of methods that make one for all clients, and no more.
        seconds: wall time, compilation included; of a method alone, those that another weight spent
            on what both share.
    """

    tests: tuple[Scored, ...]
    converged: bool | None
    cost: Cost
    target: Target
    distillations: tuple[Distillation, ...] = ()
    model: TrainedModel | None = None
    seconds: float = 0.0

    @property
    def scores(self) -> tuple[np.ndarray, ...]:
        """Return [N_test] scores of each client's test rows; the decision is +1 where positive."""
        return tuple(rows.score for rows in self.tests)


def round_settings(
    method: str, config: DistillConfig, given: Mapping[str, Any] | None = None
) -> federated.TrainConfig:
    """Return the settings of one run of a method in rounds.

    These methods have no rho but a tolerance alpha, by which a group's rate may differ from all
    rows': here 1 / rho_o, and no constraint for rho_o of at most 1.

    Args:
        method: its name.
        config: of the comparison: notion, alpha, group_input and seed are its own.
        given: settings by their keys, of which each method takes those that it reads; if None,
            some that suit the method.

    Raises:
        InputError: the method does not know the notion, or other settings of the comparison.

    Example:
        >>> import synthfair as sf
        >>> from synthfair.compare import round_settings
        >>> round_settings("fpfl", sf.DistillConfig(rho_o=20.0)).alpha
        0.05
    """
    kind, amounts = federated.METHODS[method], _tolerance(config).amounts
    if given is None:
        given = {} if kind.local_passes else {"rounds": 1000, "learning_rate": 1.0}
    if config.groups_by:
        raise InputError(f"groups_by: {method} compares combinations of attributes alone")
    settings = {
        **given,
        "method": method,
        "notion": config.notion,
        "alpha": amounts[0] if amounts else 0.5,
        "group_input": config.group_input,
        "seed": config.seed,
        **({} if amounts else kind.unconstrained),
    }
    kind = federated.METHODS[settings["method"]]  # without a constraint it may be another's
    return kind(**{key: value for key, value in settings.items() if kind.reads(key)})


def _tolerance(config: DistillConfig) -> Target:
    """Return what methods with a tolerance are asked for: 1 / rho_o, and nothing up to 1."""
    return Target(by="tolerance", amounts=(1.0 / config.rho_o,) if config.rho_o > 1 else ())


# One upload


def single_shot(federation: Federation, config: DistillConfig, **_: Any) -> Fitted:
    """Distil on each client, pool, train once: Wu et al. (2024)."""
    rows = federation.train if config.epsilon is None else federation.plain
    named = dict(zip(federation.names, rows, strict=True))
    clients: tuple[Any, ...] = tuple(
        distill_table(real, federation.schema, config, source=name) for name, real in named.items()
    )
    releases = {name: client.release for name, client in zip(named, clients, strict=True)}
    model = pool_and_train(releases, federation.schema)
    converged = model.converged and all(client.converged for client in clients)
    fitted = _uploaded(model, releases, federation, config.asked)
    return fitted._replace(converged=converged, distillations=clients)


def surrogate(
    federation: Federation, config: DistillConfig, *, shared: SurrogateCache | None = None, **_: Any
) -> Fitted:
    """Make surrogates, and train with the penalty at the server over all of them."""
    settings = config.records.model_copy(update={"seed": config.seed})
    clients = (
        federation.schema.hash,
        federation.names,
        *(content_sha256([rows]) for rows in federation.plain),
    )
    start, before, key = time.perf_counter(), 0.0, (settings.model_dump_json(), clients)
    shared = {} if shared is None else shared
    if key in shared:
        before = shared[key][1]
    else:
        releases = make_surrogates(federation, settings)
        shared.clear()  # a grid goes through its seeds one after the other
        shared[key] = releases, time.perf_counter() - start
    releases, problem = shared[key][0], server_config(config)
    model = pool_and_train(releases, federation.schema, problem)
    return _uploaded(model, releases, federation, problem.asked)._replace(seconds=before)


def refine(federation: Federation, config: DistillConfig, **more: Any) -> Fitted:
    """Make surrogates, then exchange exact sums, see :mod:`synthfair.federated.refine`."""
    if config.epsilon is not None:
        raise InputError("refine: its sums are exact, and no epsilon covers them; leave it out")
    near = surrogate(federation, config, **more)
    start, c = cast(TrainedModel, near.model).theta, server_config(config).C
    method = federated.Refine(
        start=start, rounds=N_EXCHANGES, rho=config.rho_o, C=c, group_input=config.group_input
    )
    data = _user_data(federation, config, method)
    method = method.plan(data).bound(gap=_penalty(federation, config))
    model, _, cost, *_ = federated.train_rounds(data, method)
    cost = Cost(cost.users, 1 + cost.rounds, near.cost.bytes_sent + cost.bytes_sent)
    return _fitted(model, federation, cost, near.target)._replace(seconds=near.seconds)


def make_surrogates(federation: Federation, settings: SurrogateConfig) -> dict[str, Release]:
    """Return a surrogate of each client."""
    return {
        name: distill_table(in_memory(real), federation.schema, settings, source=name).release
        for name, real in zip(federation.names, federation.plain, strict=True)
    }


def server_config(config: DistillConfig) -> ServerConfig:
    """Return the problem over all clients; its ridge is the server's, not that of releases."""
    names = "penalty", "notion", "temperature", "intercept", "group_input", "groups_by"
    return ServerConfig(rho=config.rho_o, **{name: getattr(config, name) for name in names})


def _uploaded(
    model: TrainedModel, releases: Mapping[str, Release], federation: Federation, target: Target
) -> Fitted:
    """Return a model of one release of each client."""
    cost = Cost(len(releases), 1, sum(len(release_bytes(release)) for release in releases.values()))
    return _fitted(model, federation, cost, target)


def _fitted(model: TrainedModel, federation: Federation, cost: Cost, target: Target) -> Fitted:
    """Return what one model for all clients makes of their test rows."""
    tests = tuple(score_rows(model, rows) for rows in federation.test)
    return Fitted(tests, model.converged, cost, target, model=model)


# The ceiling, and what must be beaten


def central(federation: Federation, config: DistillConfig, **_: Any) -> Fitted:
    """Solve the server's problem on all clients' real rows in one place: the ceiling."""
    model = _solved(concatenated(federation.train), federation, config)
    return _fitted(model, federation, _all_rows(federation, config), _weight(config))


def local(federation: Federation, config: DistillConfig, **_: Any) -> Fitted:
    """Train each client alone on its own rows, for its own test rows."""
    models = [_solved(rows, federation, config) for rows in federation.train]
    tests = tuple(map(score_rows, models, federation.test))
    converged = all(model.converged for model in models)
    return Fitted(tests, converged, Cost(len(models), 0, 0), _weight(config))


def constant(federation: Federation, config: DistillConfig, **_: Any) -> Fitted:  # noqa: ARG001
    """Decide the more frequent label for everybody, which any other method must beat."""
    label = 1.0 if concatenated(federation.train).y.mean() > 0 else -1.0
    tests = federation.scored(np.full(len(rows.y), label) for rows in federation.test)
    cost = Cost(len(tests), 1, 16 * len(tests))  # two counts each
    return Fitted(tests, None, cost, Target(by="nothing"))


def exponentiated_gradient(federation: Federation, config: DistillConfig, **_: Any) -> Fitted:
    """Train by Agarwal et al. (2018) as fairlearn has it, on all real rows in one place.

    It has no rho but a tolerance eps, by which a group's rate may differ from the overall one, and
    which bounds the multipliers by 1 / eps; here eps = 1 / rho_o, or 1 where rho_o is below 1. Its
    decisions are random, drawn with the seed; it has no scores, so that what is reported as the
    covariance is that of group and decision.
    """
    from fairlearn import reductions
    from sklearn.linear_model import LogisticRegression

    parity = {
        "statistical_parity": reductions.DemographicParity,
        "equal_opportunity": reductions.TruePositiveRateParity,
        "equalized_odds": reductions.EqualizedOdds,
    }[config.notion]
    rows, eps = concatenated(federation.train), 1.0 / max(config.rho_o, 1.0)
    plain = config.model_copy(update={"intercept": False})  # scikit-learn adds its own
    c, inputs = server_config(config).C, _rows(rows, federation, plain).a
    model = LogisticRegression(C=c, fit_intercept=config.intercept, max_iter=1000)
    mitigator = reductions.ExponentiatedGradient(
        model, parity(difference_bound=eps), eps=eps, nu=MAX_DUALITY_GAP
    )
    with warnings.catch_warnings():  # fairlearn writes to pandas in a way that pandas will give up
        warnings.simplefilter("ignore", DeprecationWarning)
        mitigator.fit(inputs, (rows.y > 0).astype(int), sensitive_features=rows.s)
    decisions = (
        mitigator.predict(_rows(test, federation, plain).a, random_state=config.seed)
        for test in federation.test
    )
    return Fitted(
        federation.scored(np.asarray(decided) * 2.0 - 1.0 for decided in decisions),
        bool(mitigator.best_gap_ <= MAX_DUALITY_GAP),
        _all_rows(federation, config),
        _tolerance(config),
    )


def _solved(real: Encoded, federation: Federation, config: DistillConfig) -> TrainedModel:
    """Return the server's model of real rows."""
    rows, settings = _rows(real, federation, config), server_config(config)
    ridge = ridge_of(settings.C, *rows.a.shape, intercept=config.intercept)
    problem: Any = GlobalProblem(*rows, _penalty(federation, config), ridge)  # type: ignore[arg-type]
    return trained_model(problem.solve(config.rho_o), federation.schema, settings)


def _penalty(federation: Federation, config: DistillConfig) -> SumPenalty:
    """Return the penalty of the settings; small combinations of several attributes are merged."""
    rows = concatenated(federation.train)
    table = WeightedTable(*rows, np.ones(len(rows.y)))
    by, _ = compared_groupings(table, federation.schema, server_config(config))
    return named_penalty(config, n_groups=federation.n_groups, by=by)


def _rows(real: Encoded, federation: Federation, config: DistillConfig) -> Rows:
    """Return rows as the model sees them."""
    n_groups = federation.n_groups if config.group_input else 1
    table = WeightedTable(*real, np.ones(len(real.y)))
    return table.rows(n_groups=n_groups, intercept=config.intercept)


def _weight(config: DistillConfig) -> Target:
    """Return what methods with a weight of the penalty are asked for."""
    return Target(by="weight", amounts=(config.rho_o,))


def _all_rows(federation: Federation, config: DistillConfig) -> Cost:
    """Return what it costs to send all training rows to one place, groups as 32-bit numbers."""
    a, s, y, _ = _rows(concatenated(federation.train), federation, config)
    return Cost(len(federation.train), 1, a.nbytes + 4 * len(s) + y.nbytes)


def _user_data(
    federation: Federation,
    config: DistillConfig,
    method: federated.TrainConfig,
    users: Mapping[str, Any] | None = None,
) -> federated.UserData:
    """Return the training rows as a method in rounds reads them; users are the clients or drawn.

    Raises:
        InputError: the model is to have no intercept.
    """
    if not config.intercept:
        raise InputError(f"intercept = false: {method.method} always has one; leave the method out")
    rows, user = concatenated(federation.train), federation.user
    if users is not None:
        user = federated.draw_users(len(rows.y), seed=method.seed, **users)
    return federated.make_user_data(rows, user, federation.schema, method)


# Rounds


def federated_averaging(federation: Federation, config: DistillConfig, **_: Any) -> Fitted:
    """Train by FedAvg with the same model and penalty, and momentum on the server (FedAvgM).

    The ridge is the server's, but for holding the intercept, too.
    """
    method = federated.FedAvg(
        rounds=FEDAVG_ROUNDS,
        momentum=MOMENTUM,
        group_input=config.group_input,
        penalty=_penalty(federation, config),
        rho=config.rho_o,
    )
    data = _user_data(federation, config, method)
    n_rows, n_inputs = data.users.a.shape
    ridge = n_inputs**2 / (server_config(config).C * n_rows)
    method = method.plan(data).bound(lambda_theta=ridge)
    method = method.bound(learning_rate=float(safe_rate(method, data.users)))
    training = federated.train_rounds(data, method)
    return _fitted(training.model, federation, training.cost, _weight(config))


def in_rounds(
    method: str,
    federation: Federation,
    config: DistillConfig,
    *,
    rounds: Mapping[str, Any] | None = None,
    users: Mapping[str, Any] | None = None,
    **_: Any,
) -> Fitted:
    """Train by a method of ``synthfair.federated``, with the notion of the other methods.

    Raises:
        InputError: the settings do not fit the clients.
    """
    settings = round_settings(method, config, rounds)
    data = _user_data(federation, config, settings, users)
    training = federated.train_rounds(data, settings)
    target = _tolerance(config) if federated.METHODS[method].reads("alpha") else settings.asked
    return _fitted(training.model, federation, training.cost, target)


IN_ROUNDS = [name for name in federated.METHODS if name not in ("fedavg", "refine")]
"""Methods that train as ``synthfair.federated`` has them, by name."""

COMPARED_METHODS: dict[str, Callable[..., Fitted]] = {
    "single_shot": single_shot,
    "surrogate": surrogate,
    "refine": refine,
    "central": central,
    "local": local,
    "fedavg": federated_averaging,
    "constant": constant,
    "exponentiated_gradient": exponentiated_gradient,
    **{name: partial(in_rounds, name) for name in IN_ROUNDS},
}
"""All methods, by name; they take what :func:`run_method` takes."""

_WITHOUT_ALPHA = (name for name in IN_ROUNDS if not federated.METHODS[name].reads("alpha"))
UNWEIGHTED = ("constant", *_WITHOUT_ALPHA)
"""Those that read nothing of rho_o: one run a seed, whatever the weights."""


def require_method(name: str) -> None:
    """Refuse what cannot be run, before anything is.

    Raises:
        InputError: no such method, or it needs a package that is not installed.
    """
    if name not in COMPARED_METHODS:
        raise InputError(f"method {name!r}: must be one of {', '.join(COMPARED_METHODS)}")
    if name == "exponentiated_gradient":
        require("fairlearn", f"method {name}", "compare")


def run_method(
    method: str,
    federation: Federation,
    config: DistillConfig,
    report: ServerConfig | None = None,
    **options: Any,
) -> tuple[Evaluation, Fitted]:
    """Run one method, and return its evaluation on the clients' test rows, and what it has made.

    Args:
        method: its name.
        federation: clients.
        config: settings.
        report: of the intervals.
        **options: ``rounds``, settings of methods in rounds, see :func:`round_settings`; ``users``,
            the rule of :func:`synthfair.federated.draw_users` by which training rows become users,
            which by default are the clients; ``shared``, surrogates of other weights, which are not
            made anew; their time counts.

    Raises:
        InputError: no such method, or it cannot train on these rows.
    """
    require_method(method)
    start = time.perf_counter()
    fitted = COMPARED_METHODS[method](federation, config, **options)
    fitted = fitted._replace(seconds=time.perf_counter() - start + fitted.seconds)
    tests = dict(zip(federation.names, fitted.tests, strict=True))
    return evaluate_scores(tests, report, schema=federation.schema), fitted

"""The job ``train``: rounds in which every site is a user of :mod:`synthfair.federated`.

The sites compute its ``report``, the server its ``update``: the numbers are those of the engine in
one process, to rounding. The server sees each site's report, and where the users are protected it
is the server that adds the noise; so sites agree to that, and to how many rounds, in their limits.
With ``secure``, reports are shared among aggregators, which add the noise; the server sees none.
What server and sites agree on is public knowledge alone, and both compute the same plan from it.

What a method does before the rounds, as ``two_phase`` trains a teacher, the site does when it is
asked for the first time.
"""

from __future__ import annotations

import secrets
import shutil
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from pydantic import Field, model_validator

import synthfair
from synthfair.client.page import Site
from synthfair.data.encode import Clipping, Encoded
from synthfair.data.schema import Schema
from synthfair.deploy.job_sums import make_sum, secure_sum
from synthfair.deploy.site_sums import agreed_task
from synthfair.errors import InputError
from synthfair.files import validated, write_text
from synthfair.metrics_file import METRICS, Evaluation, MetricsFile, RoundSettings, write_metrics
from synthfair.secure.upload import make_uploads
from synthfair.server.settings import ServerConfig
from synthfair.settings import Checked
from synthfair.task.job_sites import JobSites
from synthfair.task.limits import Claim, RefusedError, refused_as
from synthfair.task.messages import Name, Question, sha256
from synthfair.task.protocol import ReadRows, Run, Task, read_rows
from synthfair.trained import TrainedModel, write_model

if TYPE_CHECKING:
    from synthfair.deploy.party import Party, Request
    from synthfair.federated.engine import RunProgress
    from synthfair.federated.method import TrainConfig
    from synthfair.federated.users import Users
    from synthfair.secure.task import SumTask

NOISE_SEED_BYTES = 16
"""The length of a site's seed of noise: whoever reads it can undo the privacy."""

MAX_NORM_EXCESS = 1e-3
"""The share of the clip by which the norm of a report may pass it."""


class TrainJob(Checked):
    """The settings of a job.

    Attributes:
        train: settings of the method, see :class:`synthfair.federated.TrainConfig`.
        least_rows: rows of the smallest site, a public number, on which noise and numbers of steps
            rest; ``dp_sgd``, ``fair_sgd`` and ``two_phase`` need it.
        most_rows: rows of the largest site, a public number, which a job must name where sites
            count by their rows: in fedavg and refine without a clip, dp_sgd, fair_sgd and
            two_phase. A site that claims more is refused.
        least_answers: sites that must answer well in every round; all if not given.
        timeout: seconds to wait for the answers of a round; in the first one of ``two_phase`` sites
            train their teachers as well.
    """

    train: dict[str, Any]
    least_rows: int | None = Field(default=None, ge=1, lt=2**31)
    most_rows: int | None = Field(default=None, ge=1, lt=2**31)
    least_answers: int | None = Field(default=None, ge=1)
    timeout: int = Field(default=600, ge=1, le=7 * 24 * 3600)

    @property
    def config(self) -> TrainConfig:
        """The settings of the method. Raises ValueError: they are none, or not for a job."""
        from synthfair.federated.method import TrainConfig
        from synthfair.federated.methods import METHODS

        config = validated(TrainConfig, self.train)
        if not config.is_job:
            jobs = ", ".join(name for name, method in METHODS.items() if method.is_job)
            raise ValueError(f"method: {config.method!r} is not a job; must be one of {jobs}")
        if config.get("cohort") is not None or config.get("also", ()):
            raise ValueError("cohort, also: a job has none: all sites take part in each round")
        return config

    @model_validator(mode="after")
    def _is_whole(self) -> TrainJob:
        config = self.config
        if config.local_passes and self.least_rows is None:
            raise ValueError(f"least_rows: {config.method} needs the rows of the smallest site")
        if self.most_rows is None and config.counts_by_rows:
            raise ValueError(f"most_rows: {config.method} needs the rows of the largest site")
        if self.most_rows is not None and self.most_rows < (self.least_rows or 1):
            raise ValueError("most_rows: must be at least least_rows")
        return self


class Agreement(TrainJob):
    """The public description of a training, which is the same in the questions of all rounds.

    Attributes:
        sites: all that take part, in the order of their names; each is one user of the method.
    """

    sites: tuple[Name, ...] = Field(min_length=1, max_length=1000)


class AgreedTraining:
    """A training, as its server and its sites compute it from what they agree on.

    Attributes:
        agreement: what was asked for.
        config: the settings of the method.
        run: fingerprint. With an epsilon also of what computes: another version, or another device,
            may compute other numbers, with the same noise.
        data: users that stand in for the sites: shapes and numbers are theirs, and no row is.
        plan: of the method for them.
    """

    def __init__(self, agreement: Agreement, schema: Schema) -> None:
        """Plan it. Raises InputError: the settings do not fit together, or not the schema."""
        from synthfair.jax_setup import start_jax

        start_jax()
        import jax

        from synthfair.federated.users import make_user_data

        self.agreement, self.config = agreement, agreement.config
        config, least, sites, version = self.config, agreement.least_rows, agreement.sites, None
        if config.get("epsilon") is not None:
            version = synthfair.__version__, jax.__version__, jax.default_backend()
        public = version, schema.hash, sites, least, config.model_dump_json()
        self.run = sha256(repr(public).encode())
        n, groups = len(sites), np.arange(len(schema.groups))
        s, y = (grid.ravel() for grid in np.meshgrid(groups, [-1.0, 1.0]))
        x = np.zeros((n * len(s), len(schema.encoded_names)))
        rows, user = Encoded(x, np.tile(s, n), np.tile(y, n)), np.repeat(np.arange(n), len(s))
        self.data = make_user_data(rows, user, schema, config)
        if least is not None:
            users = replace(self.data.users, size=jax.numpy.full(n, least))
            self.data = self.data._replace(users=users)
        self.plan = config.plan(self.data)
        if self.plan.guarantee:  # what is stated, and booked, is not that of a simulation
            deployed = self.plan.guarantee.model_copy(update={"simulated": False})
            self.plan = self.plan.bound(guarantee=deployed)


# The server's side


def run_train(federation: JobSites, job: TrainJob, private: Path, output: Path) -> None:
    """Run the server's side of a job of rounds alone, see :func:`train`."""
    train(federation, job, private, output).unlink()


def train(federation: JobSites, job: TrainJob, private: Path, output: Path) -> Path:
    """Run the rounds, and write checkpoints, a model and its metrics.

    Guarantee: the plan's, for all that a job's result holds; of methods whose noise is the
    server's, the server itself sees what each site sends, unless ``secure`` is set.

    Args:
        federation: of the sites.
        job: what is asked for.
        private: a folder of the server's own, next to which checkpoints lie. With an epsilon they
            hold the seed of the noise: whoever reads them can undo the privacy of the run.
        output: folder for model.json, metrics.json and rounds.csv.

    Returns:
        The checkpoint of the last round. While it is there, the same training asks for no round
        anew; whoever removes it says that the job has come to its end.

    Raises:
        TooFewError: in a round, fewer sites than the job says have answered well.
        InputError: the settings do not fit together, training diverged, or a training with an
            epsilon would go on with other sums than it began with.
    """
    from synthfair.federated import engine
    from synthfair.federated.training import make_model, rounds_csv

    private.parent.mkdir(mode=0o700, exist_ok=True)
    training = ServerTraining(federation, job, private.parent)
    config, plan = training.config, training.plan
    progress = engine.run(
        plan,
        training.data.users,
        plan.cohorts,
        rounds=config.rounds,
        seed=training.first.seed,
        protection=plan.protection,
        totals=training.total,
        progress=training.first,
        on_round=training.save,
    )
    model = make_model(plan, training.data, progress)
    if evaluation := evaluation_of(model, federation, ServerConfig(seed=config.seed)):
        metrics = MetricsFile.of(
            evaluation,
            method=config.method,
            config={},
            train=RoundSettings.model_validate(config.model_dump()),
            asked=config.asked,
            converged=model.converged,
            guarantee=plan.guarantee,
            secure_sums=plan.protection.shares,
        )
        write_metrics(metrics, output / METRICS)
    write_text(output / "rounds.csv", rounds_csv(progress.history))
    write_model(model, output / "model.json")
    return training.checkpoint.path


def evaluation_of(model: TrainedModel, sites: JobSites, report: ServerConfig) -> Evaluation | None:
    """Return the metrics of a model on the server's test tables; None where it has none.

    Raises:
        InputError: a test table does not fit the schema.
    """
    from synthfair.evaluation import evaluate, read_tests

    if not sites.settings.tests:
        return None
    return evaluate(model, read_tests(sites.settings.tests, sites.schema), report)


class ServerTraining(AgreedTraining):
    """A training as its server runs it: sites report, or send shares of sums that nobody sees.

    Attributes:
        checkpoint: the file of its rounds.
        first: the run as it begins, or goes on.
    """

    def __init__(self, federation: JobSites, job: TrainJob, folder: Path) -> None:
        """Plan it, and read where an earlier job has come to.

        Args:
            federation: of the sites.
            job: what is asked for.
            folder: of checkpoints.

        Raises:
            InputError: the settings do not fit together, or a training with an epsilon would go on
                with other sums than it began with.
        """
        agreement = Agreement(sites=tuple(sorted(federation.sites)), **job.model_dump())
        super().__init__(agreement, federation.schema)
        from synthfair.federated.engine import CheckpointFile, start
        from synthfair.federated.training import first_progress

        self._federation, plan = federation, self.plan
        self.checkpoint = CheckpointFile.next_to(folder / "train", self.run)
        self._uploads = self.checkpoint.path.with_suffix(".sums")
        if (vectors := plan.protection.vectors) and plan.guarantee:
            sums = make_sum(federation, vectors, label=self.run, least=job.least_answers)
            self.checkpoint = replace(self.checkpoint, fingerprint=sums.id.hex())
        progress = self.checkpoint.load(start(plan, self.data.users, 0))
        if progress is None and plan.guarantee and self.checkpoint.path.exists():
            raise InputError(
                f"{self.checkpoint.path}: of this training, but with other aggregators, keys or"
                " least_answers, or damaged: go on with the same, or remove the file to begin anew,"
                " which every site books once more"
            )
        self.first = progress or first_progress(plan, self.data)
        self.checkpoint.save(self.first)

    def save(self, progress: RunProgress) -> None:
        """Save the run after a round, then remove the uploads to its sum."""
        self.checkpoint.save(progress)
        shutil.rmtree(self._uploads, ignore_errors=True)

    def total(self, state: Any, t: int) -> tuple[np.ndarray, float]:
        """Return the sum [k] of the reports of a round, and the number of sites to divide it by.

        That is the number of those that answered, so that a missing site does not shorten the step.
        With an epsilon it is the number of all sites: the guarantee is for a public number, and the
        part of a missing site is zero.

        Raises:
            TooFewError: fewer sites than the job says, or nobody, has sent one.
        """
        plan, job, federation = self.plan, self.agreement, self._federation
        settings, carried = job.model_dump(mode="json"), pack(state)
        question = federation.question(
            task="train", round=t, settings=settings, timeout=job.timeout, carried=carried
        )
        if vectors := plan.protection.vectors:
            # With an epsilon, a training that goes on asks for the very sums that it had asked for.
            anew = self.checkpoint.path if plan.guarantee else None
            label = f"{self.run} {self.first.seed if anew else federation.job} {t}"
            task = make_sum(federation, vectors, label=label, least=job.least_answers)
            result = secure_sum(federation, task, question, folder=self._uploads, anew=anew)
            total, count = result.total * vectors.step, len(result.clients)
        else:
            reports = federation.ask(question, self._reader(state), least=job.least_answers)
            total, count = np.sum([*reports.values()], axis=0), len(reports)
        return total, float(count if plan.guarantee is None else len(job.sites))

    def _reader(self, state: Any) -> Callable[[str, bytes], np.ndarray]:
        """Return the function that reads a report, and refuses one that does not fit the round."""
        from synthfair.federated.engine import report_shapes

        like, clip = report_shapes(self.plan, self.data.users, state), self.plan.protection.clip
        bound = np.inf if clip is None else float(clip) * (1 + MAX_NORM_EXCESS)
        least, most = self.agreement.least_rows or 0, self.agreement.most_rows or np.inf

        def read(_site: str, content: bytes) -> np.ndarray:
            report, numbers = unpack(content, like), np.frombuffer(content, "<f8")
            norm = np.linalg.norm(numbers)
            if not np.isfinite(norm) or norm > bound:
                raise ValueError("its numbers are not finite, or larger than the clip allows")
            self.plan.check(report, least, most)
            return numbers

        return read


# The site's side


def answer_train(request: Request) -> bytes:
    """Return the site's clipped report of a round; of sums by shares, its uploads.

    Guarantee: that of the method's plan, for the rounds that one line of cost in the ledger covers.
    These are one question a round: the same question again, after a failure or in a new job, gets
    the very same answer, and another one is bought as a new training. What is bought is the seed
    of the site's noise.

    Raises:
        RefusedError: the question's settings are none, it is of no round of the training, or
            beyond the site's limits.
    """
    party, settings = request.party, dict(request.question.settings)
    settings.pop("task", None)
    with refused_as("settings"):
        agreement = validated(Agreement, settings)
        # What the site remembers is made of public knowledge, where it is not of the last round.
        if party.training is None or party.training.agreement != agreement:
            party.training = SiteTraining(agreement, party)
    if request.question.round >= agreement.config.rounds:
        raise RefusedError("rounds")
    vectors = party.training.plan.protection.vectors
    sums = agreed_task(request) if vectors else None
    if sums and sums.what != vectors:  # the sum of a round is as the site plans it
        raise RefusedError("settings")
    return request.answer(party.training.task(request.question, sums))


class SiteTraining(AgreedTraining):
    """A training as a site remembers it from round to round."""

    def __init__(self, agreement: Agreement, party: Party) -> None:
        """Plan it. Raises ValueError: the settings do not fit, or the site takes no part."""
        super().__init__(agreement, party.schema)
        import jax

        self._party, self._number = party, agreement.sites.index(party.name)
        self._state = jax.eval_shape(self.plan.init, jax.random.key(0))  # its shapes
        self._rows: ReadRows | None = None  # read once for all rounds; private
        self._learns_labels = self.plan.reads("teacher_epochs")
        self._unbought: bytes | None = None  # seed and labels where no epsilon buys any

    def task(self, question: Question, sums: SumTask | None) -> Task:
        """Return what a round asks of the site's rows; with a sum, its uploads."""
        config, plan = self.config, self.plan
        # The guarantee of two_phase holds on no condition end to end alone. It holds against the
        # server, too, where each site adds the noise itself, or aggregators add it to shares.
        epsilon, least_rows = config.get("epsilon"), self.agreement.least_rows or 0
        guaranteed = epsilon is not None and config.get("end_to_end", True)
        claim = Claim(
            "training",
            epsilon if guaranteed else None,
            config.get("delta"),
            least_rows=0 if epsilon is None else least_rows,
            rounds=config.rounds,
            number=question.round,
            seen=not (guaranteed and (config.local_passes or config.get("secure", False))),
            width=max(config.hidden, default=0),
        )
        labels_bytes = (self.agreement.most_rows or 0) // 8 + 1 if self._learns_labels else 0
        return Task(
            claim,
            self.run,
            partial(self._report, question.round, sums),
            plan.guarantee,
            self._buy if plan.guarantee else None,
            NOISE_SEED_BYTES + labels_bytes,
            partial(self._read, question.carried),
            # In another sum the same report would get other noise.
            question=sha256(question.carried + (sums.id if sums else b"")),
        )

    def _read(self, carried: bytes, site: Site, clipping: Clipping) -> ReadRows:
        """Return the site's rows, all of one user, with the state of the round.

        Raises:
            RefusedError: the state is none.
            InputError: the rows do not fit the schema, or are too few.
        """
        from synthfair.federated.users import make_user_data

        with refused_as("message"):
            state = unpack(carried, self._state)
        if self._rows is None:
            rows, sha256 = read_rows(site, clipping)
            # With an epsilon, no answer may depend on how the question compares with the table.
            least, source = self.agreement.least_rows, "the job says"
            if self.config.get("epsilon") is not None and site.limits:
                least, source = site.limits.least_rows, "the site's limits say"
            if len(rows.y) < (least or 0):
                raise InputError(f"{site.data}: {len(rows.y)} rows; {source} at least {least}")
            user = np.zeros(len(rows.y), int)
            data = make_user_data(rows, user, site.schema, self.config, all_groups=False)
            self._rows = ReadRows(data.users, sha256)
        return ReadRows((self._rows.real, state), self._rows.sha256)

    def _buy(self, rows: ReadRows, _run: Run) -> bytes:
        """Return what an epsilon buys: a seed of noise, and the labels that are learned with it.

        A teacher that is trained again, on another machine or by another version of JAX, may decide
        some row differently, and two answers with the same noise would show that row by their
        difference.
        """
        return self._with_labels(secrets.token_bytes(NOISE_SEED_BYTES), rows.real[0])

    def _with_labels(self, seed: bytes, users: Users) -> bytes:
        """Return a seed, and behind it the labels that ``two_phase`` learns with it, as bits."""
        if not self._learns_labels:
            return seed
        taught = self.plan.teach(users, int.from_bytes(seed), [self._number])
        return seed + np.packbits(np.asarray(taught.y) > 0).tobytes()

    def _report(
        self, t: int, sums: SumTask | None, rows: ReadRows, bought: bytes | None, _run: Run
    ) -> bytes:
        """Return the report of round t; of sums by shares, its uploads.

        Raises:
            InputError: exact sums of it would tell single rows.
        """
        import jax
        import jax.numpy as jnp

        from synthfair.federated.engine import key_from, report_of
        from synthfair.federated.single_rows import require_alike

        plan, party, (users, state) = self.plan, self._party, rows.real
        if bought is None:
            seed = self.config.seed.to_bytes(NOISE_SEED_BYTES)
            self._unbought = bought = self._unbought or self._with_labels(seed, users)
            if plan.additive:
                least = party.settings.limits.k_min, party.settings.limits.value_rows
                user_rows, row_weights = users.rows_of(0), jax.jit(type(plan).weights)
                weights = jax.device_get(row_weights(plan, state, user_rows))
                source = str(party.site.data)
                require_alike(weights, user_rows, party.schema, source=source, least=least)
        seed, labels = int.from_bytes(bought[:NOISE_SEED_BYTES]), bought[NOISE_SEED_BYTES:]
        if labels:
            bits = np.unpackbits(np.frombuffer(labels, np.uint8), count=len(users.y))
            users = replace(users, y=jnp.asarray(2.0 * bits - 1.0, users.y.dtype))
        # The key of the round and the site is that of the engine in one process.
        key = jax.random.fold_in(jax.random.fold_in(key_from(seed, 1), t), self._number)
        content = pack(report_of(plan, plan.protection.clip, state, users, key))
        if plan.protection.vectors and sums:
            integers = plan.protection.vectors.integers(np.frombuffer(content, "<f8"))
            content = b"".join(make_uploads(sums, integers, party.key))
        return content


# Numbers on their way


def pack(tree: Any) -> bytes:
    """Return the numbers of a pytree, float64, little-endian."""
    from jax.flatten_util import ravel_pytree

    return np.asarray(ravel_pytree(tree)[0], "<f8").tobytes()


def unpack(content: bytes, like: Any) -> Any:
    """Return a pytree of its numbers, which may be infinite or none.

    Args:
        content: of :func:`pack`.
        like: shapes and types of what it must be.

    Raises:
        ValueError: of another length.
    """
    import jax.numpy as jnp
    from jax import tree
    from jax.flatten_util import ravel_pytree

    size = sum(leaf.size for leaf in tree.leaves(like))
    if len(content) != 8 * size:  # before so much is made room for
        raise ValueError(f"has {len(content)} bytes; must have {8 * size}")
    flat, unravel = ravel_pytree(tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), like))
    return unravel(jnp.asarray(np.frombuffer(content, "<f8"), flat.dtype))

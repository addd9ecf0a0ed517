"""Table 3 of Rodríguez-Gálvez et al. (2021): unfair FEMNIST.

    python -m benchmarks.femnist_fpfl                    # 5 seeds; goes on where it stopped
    python -m benchmarks.femnist_fpfl --seeds 1 --output elsewhere

201 writers instead of 3,383, and shorter runs on fewer images, see :class:`DigitSettings`:
orderings can be compared, not digits after the point. Larger populations exist in the accounts
alone, as in the paper.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.adult_fpfl import CLIPPED, FAIR, FEDERATED, PRIVATE
from benchmarks.digits import GROUPS, SOURCE, Digits, unfair_digits
from benchmarks.harness import Experiment, main, parsed
from benchmarks.runs import Runs
from benchmarks.showing import mark, page, published
from synthfair.federated.engine import Protection, run
from synthfair.federated.fpfl import FedSgd, Fpfl, GradientSteps
from synthfair.federated.networks import draw_layer
from synthfair.federated.parity import Parity
from synthfair.federated.users import Cohorts, Users, make_users
from synthfair.model import Params
from synthfair.privacy.accounting import SampledSums

# The network of section 4.2

SIDE = 5
STRIDE = 2


def convolved(images: jax.Array, weight: jax.Array, bias: jax.Array) -> jax.Array:
    """Convolve with 5 x 5 filters and stride 2, as one product with the images' patches.

    Under a derivative for every user, XLA turns convolutions into grouped ones, which take over
    ten times as long on a CPU.

    Args:
        images: [R, c, s, s].
        weight: [f, 25 c] of the filters.
        bias: [f].

    Returns:
        [R, f, s', s'] with s' = (s - 5) // 2 + 1.
    """
    side = (images.shape[-1] - SIDE) // STRIDE + 1
    reach = STRIDE * (side - 1) + 1
    # [R, 25 c, s' s'] are the pixels under each weight.
    places = [slice(i, i + reach, STRIDE) for i in range(SIDE)]
    patches = jnp.stack([images[:, :, up, across] for up in places for across in places], axis=2)
    product = weight @ patches.reshape(len(images), -1, side * side) + bias[:, None]
    return product.reshape(len(images), -1, side, side)


@dataclass(frozen=True)
class DigitNetwork:
    """Two convolutions with 32 and 64 filters, 100 hidden units, and ten scores."""

    def init(self, key: jax.Array) -> Params:
        """Draw weights and biases of each layer."""
        shapes = (3 * SIDE**2, 32), (32 * SIDE**2, 64), (64 * 4 * 4, 100), (100, 10)
        keys = jax.random.split(key, len(shapes))
        return [draw_layer(*shape, own) for shape, own in zip(shapes, keys, strict=True)]

    def scores(self, params: Params, a: jax.Array) -> jax.Array:
        """Return the scores [R, 10] of images [R, 3, 28, 28]."""
        first, second, (weight, bias), (last, shift) = params
        filtered = jax.nn.relu(convolved(jax.nn.relu(convolved(a, *first)), *second))
        return jax.nn.relu(filtered.reshape(len(a), -1) @ weight.T + bias) @ last.T + shift

    def loss(self, scores: jax.Array, y: jax.Array) -> jax.Array:
        """Return the cross-entropies [R]."""
        log_chance = jax.nn.log_softmax(scores)
        return -jnp.take_along_axis(log_chance, y[:, None].astype(int), axis=1)[:, 0]


# The rows of table 3, and their settings

TIMES = {"K": 1, "100K": 100, "1000K": 1000}
"""How many times as many users the accounts assume, by population."""

PUBLISHED_IMAGES = 101.4
"""Training images of a writer in the paper: 343,099 of 3,383 writers."""

PUBLISHED_COHORT = 2000
"""Of the larger populations."""

CLIP = {False: 250.0, True: 350.0}
"""Published C, by whether there is a constraint; for PUBLISHED_IMAGES of a writer."""

NEVER_CLIPS = 1e6
"""The norm of no report. Summing user by user is faster here than as one user."""

EPSILON = 2.0

CONSTANT = 256 / 2241
"""Accuracy of the constant classifier: so many test images have the digit that is most frequent in
training."""

AT_ONCE = 500
"""Images that are scored together."""


class DigitRow(NamedTuple):
    """A row of the table."""

    algorithm: str
    population: str = "K"


class DigitValues(NamedTuple):
    """On test images: accuracy, and by how much a group's differs from it at most."""

    accuracy: float
    accuracy_gap: float


ROWS = (
    *(DigitRow(name) for name in FEDERATED),
    *(DigitRow(name, population) for population in ("100K", "1000K") for name in ("PFL", "FPFL")),
)


def published_rows() -> dict[DigitRow, DigitValues]:
    """Table 3."""
    lines = published("rodriguez_galvez_2021_table3")
    values = {parsed(DigitRow, line): parsed(DigitValues, line) for line in lines}
    return {row: values[row] for row in ROWS}


class DigitSettings(NamedTuple):
    """What differs from the paper, so that all rows take minutes on one core.

    Attributes:
        rounds: T; published: 2,000.
        cohort: m; published: 100, and 2,000 of the larger populations.
        images: of a writer at most; published: all, about 100.
        learning_rate: eta; published: 0.1.
        memory: see Fpfl; published: none.
        rate_scale: see Fpfl; published: 1.
        multiplier_rate: gamma; published: 0.05.
        damping: c; published: 20.
    """

    rounds: int = 200
    cohort: int = 20
    images: int = 8
    learning_rate: float = 0.3
    memory: float = 0.95
    rate_scale: float = 2.0
    multiplier_rate: float = 0.05
    damping: float = 20.0

    def of(self, row: DigitRow) -> DigitSettings:
        """Those of a row: with noise, a tenth of the constraint's weight and less noise in it.

        With the published weight, the noise of the constraint, divided by the few chalk images of
        a cohort, is larger than all else, and nothing is learned.
        """
        if row.algorithm not in FAIR & PRIVATE:
            return self
        return self._replace(rate_scale=6.0, multiplier_rate=0.005, damping=2.0)


SETTINGS = DigitSettings()


@cache
def load(seed: int) -> Digits:
    """Return the digits with colours scaled from [0, 1] to [-1, 1]; the scaling is public."""
    digits = unfair_digits(seed)
    return digits._replace(images=2 * digits.images - 1)


def run_row(row: DigitRow, seed: int, *, smoke: bool) -> DigitValues:
    """Trains on the training images and measures on those for testing."""
    return trained(row, SETTINGS._replace(rounds=2) if smoke else SETTINGS, seed)


def trained(row: DigitRow, settings: DigitSettings, seed: int) -> DigitValues:
    """Train on the training images, and return accuracy and gap on those for testing."""
    digits, network, settings = load(seed), DigitNetwork(), settings.of(row)
    users = writers_of(digits, settings.images, seed)
    rounds, cohort, _, *rates = settings
    given: dict[str, Any] = dict(zip(DigitSettings._fields[3:], rates, strict=True))
    if row.algorithm in FAIR:
        parity = Parity("accuracy_parity", (3,))
        algorithm: GradientSteps = Fpfl(
            model=network, parity=parity, alpha=0.04, **given
        )  # as published
    else:
        free = {name: value for name, value in given.items() if FedSgd.reads(name)}
        algorithm = FedSgd(model=network, **free)
    cohorts = Cohorts(len(users), cohort, "poisson")
    shield = protection(row, settings, len(users))
    end = run(algorithm, users, cohorts, rounds=rounds, seed=seed, protection=shield)
    params, scores = algorithm.params(end.state), jax.jit(network.scores)
    test = np.flatnonzero(digits.is_test)
    parts = (digits.images[some] for some in np.array_split(test, -(-len(test) // AT_ONCE)))
    decided = [np.argmax(scores(params, jnp.asarray(images)), axis=1) for images in parts]
    right, groups = np.concatenate(decided) == digits.labels[test], digits.groups[test]
    accuracy = float(np.mean(right))
    off = [abs(np.mean(right[groups == group]) - accuracy) for group in range(len(GROUPS))]
    return DigitValues(accuracy, float(max(off)))


def writers_of(digits: Digits, most: int, seed: int) -> Users:
    """Return the training images, a user for each writer, of each at most ``most`` at random."""
    shuffled = np.random.default_rng(seed).permutation(np.flatnonzero(~digits.is_test))
    writer = digits.writers[shuffled]
    chosen = np.concatenate([shuffled[writer == one][:most] for one in np.unique(writer)])
    images, labels, groups, writers, _ = (part[chosen] for part in digits)
    return make_users(images, groups, labels, writers)


def protection(row: DigitRow, settings: DigitSettings, writers: int) -> Protection:
    """Clip in proportion to a writer's images; the noise of a larger population to its cohort.

    A larger population has the paper's cohorts, and with them a larger sum: the noise is scaled
    down with the cohort, so that it weighs as much here as it would there.
    """
    if row.algorithm not in CLIPPED:
        return Protection(NEVER_CLIPS)
    clip = CLIP[row.algorithm in FAIR] * settings.images / PUBLISHED_IMAGES
    if row.algorithm not in PRIVATE:
        return Protection(clip)
    cohort = settings.cohort if row.population == "K" else PUBLISHED_COHORT
    noise = relative_noise(cohort, settings.rounds, writers * TIMES[row.population])
    return Protection(clip, clip * noise * settings.cohort / cohort)


def relative_noise(cohort: int, rounds: int, population: int) -> float:
    """In units of the clip: delta is one over the population, one writer more or less."""
    return SampledSums(population, cohort, rounds, "poisson").noise(EPSILON, 1 / population)


# The published numbers next to ours, and what the paper claims


def show(runs: Runs) -> dict[str, str]:
    """Return the page by file name."""
    own, lines = runs.by(), []
    for row, theirs in published_rows().items():
        if row not in own:
            continue
        accuracy, gap = (own[row].mean(name) for name in ("accuracy", "accuracy_gap"))
        ours = f"{accuracy.text('.3f')}{mark(accuracy, CONSTANT)} | {gap.text('.3f')}"
        lines.append((*row, f"{theirs.accuracy:.3f} | {theirs.accuracy_gap:.3f}", ours))
    text = page(
        "femnist_fpfl/femnist_fpfl",
        runs,
        settings=SETTINGS,
        constant=CONSTANT,
        rows=lines,
    )
    return {"femnist_fpfl.md": text}


FEMNIST = Experiment(
    name="runs", settings=ROWS, run=run_row, summary=show,
    smoke=(DigitRow("FPFL", "1000K"),), seeds=5, sources=lambda _: (SOURCE,),
    behind=lambda row: (SETTINGS.of(row),), float64=False,
)  # fmt: skip

EXPERIMENTS = (FEMNIST,)

if __name__ == "__main__":
    main(__doc__, "femnist_fpfl", *EXPERIMENTS)

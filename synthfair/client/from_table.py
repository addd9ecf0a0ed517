"""The release of a table in memory, which is neither booked nor checked."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import numpy as np

from synthfair.data.batches import Batches, in_memory
from synthfair.data.encode import Encoded, encode_own
from synthfair.data.schema import Schema
from synthfair.errors import InputError
from synthfair.fairness.penalties import Penalty
from synthfair.model import Model
from synthfair.privacy.noise import RandomBytes, system_entropy
from synthfair.release.settings import DistillConfig, SurrogateConfig
from synthfair.settings import PenaltyName
from synthfair.task.protocol import Progress, ReadRows, Run

if TYPE_CHECKING:
    import optax
    import pandas as pd

    from synthfair.client.fair_task import Distillation
    from synthfair.client.surrogate_task import SurrogateRelease


def distill_table(
    table: pd.DataFrame | Encoded | Batches,
    schema: Schema,
    config: DistillConfig | SurrogateConfig | None = None,
    *,
    weight: np.ndarray | None = None,
    model: Model | None = None,
    penalty: Penalty | PenaltyName | None = None,
    optimizer: optax.GradientTransformation | None = None,
    noise: RandomBytes = system_entropy,
    source: str = "table",
    progress: Progress | None = None,
) -> Distillation | SurrogateRelease:
    """Return the release that a private table is distilled into.

    A *fair* release (the default) has synthetic rows on which ``model``, trained without a penalty,
    is accurate and fair on the real ones: Wu et al. (2024) algorithm 1, lines 1 to 16. A
    *surrogate* has weighted records that stand in for the real rows; fairness is chosen at the
    server, over all clients, which may be unlike.

    Without ``config.epsilon`` no guarantee of privacy: the rows are a function of the real ones
    without noise. With it, (epsilon, delta)-differential privacy of the release: a fair one is then
    distilled from the records of a surrogate with this epsilon. Unit: one row.
    Neighbouring relation: ``config.relation``. Releases of one table add up, which only a
    :class:`~synthfair.privacy.ledger.Ledger` keeps account of.

    Where more than a twentieth of a column of a DataFrame lies outside the schema's bounds, and is
    clipped, there is a UserWarning: before an epsilon is spent, and with shares that have no noise.

    Args:
        table: one row a person; for a fair release also its rows as :func:`encode` returns them,
            with epsilon by ``schema.plain``; for a surrogate also batches of rows that are read as
            a stream, encoded by ``schema.plain``.
        schema: public; the same for all clients.
        config: settings of one of the two kinds; the defaults of a fair release if not given.
        weight: [N] of a fair release without epsilon, how much each row counts; all alike if None.
        model: of a fair release, another than the linear model with the logistic loss.
        penalty: of a fair release, another than ``config.penalty``: a name, or a function of scores
            and rows. For a function ``config.notion`` only chooses the covariance that is shown.
        optimizer: of a fair release's synthetic features, such as ``optax.adabelief(1e-2)``, in
            place of Adam with ``config.learning_rate``; clients of one process that are given the
            same object share a compilation.
        noise: where the bytes of noise come from; other than the system's, it protects nothing, and
            the release says so.
        source: what to call the table in errors.
        progress: of a fair release, called between chunks of steps.

    Raises:
        InputError: the table does not fit the schema, or cannot be distilled with these settings,
            or diverges. A fair release of a DataFrame needs 50 rows without epsilon, both labels,
            and two groups by the covariance, all by the selection rate; a surrogate needs
            ``config.k_min`` rows of one pair of group and label, or of two groups and both labels.

    Example:
        >>> import synthfair as sf
        >>> table, schema = sf.load_dataset("loanapp")
        >>> made = sf.distill_table(table, schema, sf.SurrogateConfig())
        >>> round(made.release.weight.sum())  # 1,989 real rows, to a multiple of five
        1990
        >>> private = sf.SurrogateConfig(epsilon=1, delta=1e-6)
        >>> made = sf.distill_table(table, schema, private)
        >>> made.release.header.guarantee.epsilon
        1.0
    """
    run = Run(source, progress)
    if isinstance(config, SurrogateConfig):
        from synthfair.client.surrogate_task import SurrogateTask  # SciPy takes a while

        if any(value is not None for value in (weight, model, penalty, optimizer, progress)):
            raise InputError(
                "weight, model, penalty, optimizer, progress: not used for a surrogate; the server"
                " trains"
            )
        rows = cast(Batches, table)
        if hasattr(table, "columns"):
            rows = in_memory(encode_own(table, schema.plain, source=source))
        return SurrogateTask(schema, config, noise).answer(ReadRows(rows, ""), None, run)
    from synthfair.client.fair_task import FairTask, require_rows  # loads JAX

    config = config or DistillConfig()
    if isinstance(penalty, str):
        config, penalty = config.replace(penalty=penalty), None
    if not isinstance(table, Encoded):
        read_by = schema if config.epsilon is None else schema.plain
        table = encode_own(table, read_by, source=source)
        if config.epsilon is None:
            require_rows(len(table.y), source=source)
    weight = None if weight is None else _row_weights(weight, len(table.y))
    task, rows = FairTask(schema, config, noise, model, penalty, optimizer), (table, weight)
    if config.epsilon is not None:
        if weight is not None:
            raise InputError(f"{source}: rows have weights, of which an epsilon does not know")
        if table.x.shape[1] != (width := len(schema.plain.encoded_names)):
            raise InputError(
                f"{source}: rows of {table.x.shape[1]} columns; with epsilon they must have the"
                f" {width} of schema.plain, of which bases and interactions are computed"
            )
        rows = task.measured(in_memory(table), None, run)
    return task.distill(task.problem(*rows, run), run)


def _row_weights(weight: np.ndarray, n: int) -> np.ndarray:
    """Return n weights of rows as floats. Raises InputError: they are not, or none counts."""
    weight = np.asarray(weight, float)
    if weight.shape != (n,) or not (np.isfinite(weight) & (weight >= 0)).all() or not weight.any():
        raise InputError(f"weight: must be {n} finite numbers of at least 0, not all 0", "weight")
    return weight

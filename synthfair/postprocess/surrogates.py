"""A histogram of scores of surrogates' records: nobody is asked again."""

from __future__ import annotations

import numpy as np

from synthfair.data.encode import encode
from synthfair.postprocess.histogram import Origin, ScoreHistogram, score_bins
from synthfair.server.pooling import Releases, named_releases, pool_records
from synthfair.trained import TrainedModel

N_BINS = 101
"""B, the number of bins of a histogram."""


def surrogate_histogram(releases: Releases, model: TrainedModel) -> ScoreHistogram:
    """Return the weights of surrogates' records in B = 101 equal bins of the probability.

        C(s, y, b) = sum of w_i over records i with group s, label y and floor(B sigma(z_i)) = b,

    rounded so that the sum over the bins from any one on is within 1 of that of the weights. It
    stands in for the histogram of the clients' rows, from which thresholds by group are chosen. It
    is computed from the releases alone, so that their guarantees are those of the thresholds.

    Args:
        releases: surrogates of the model's schema, as :func:`synthfair.pool_and_train` takes them.
        model: that scores the records; whether it was trained on them does not matter.

    Raises:
        InputError: a file is refused, see :func:`synthfair.server.read_releases`; or a release is
            no surrogate.

    Example:
        >>> import synthfair as sf
        >>> table, schema = sf.load_dataset("loanapp")
        >>> releases = [sf.distill_table(table, schema, sf.SurrogateConfig(k_min=10))]
        >>> model = sf.pool_and_train(releases, schema, sf.ServerConfig(rho=0.0))
        >>> histogram = sf.postprocess.surrogate_histogram(releases, model)
        >>> chosen = sf.postprocess.choose_decision(histogram, "statistical_parity", alpha=0.03)
        >>> round(chosen.accuracy.value, 1)
        0.9
    """
    schema = model.schema_
    releases = named_releases(releases, schema)
    records, weight = pool_records(releases, schema)
    rows, shape = encode(records, schema, source="records"), (len(schema.groups), 2, N_BINS)
    entry = (2 * rows.s + (rows.y > 0)) * N_BINS + score_bins(model.scores(rows.x, rows.s), N_BINS)
    counts = np.bincount(entry, weight, minlength=np.prod(shape)).reshape(shape)
    # Running totals are rounded, not counts: errors of a hundred small counts would add up.
    counts = np.diff(np.rint(np.cumsum(counts, axis=-1)), prepend=0.0).astype(int)

    headers = [release.header for release in releases.values()]
    return ScoreHistogram(
        schema_hash=schema.hash,
        model=model.sha256,
        groups=tuple(map(str, schema.groups)),
        counts=counts.tolist(),
        origin=Origin(
            clients=len(headers),
            surrogates=True,
            unpaired=sum(header.hides_pairs for header in headers),
            guarantees=tuple(dict.fromkeys(header.guarantee for header in headers)),
        ),
    )

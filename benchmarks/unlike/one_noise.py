"""Private surrogates with one noise for all clients, next to one noise each.

    python -m benchmarks.unlike.one_noise

Dutch, covariance at rho = 10, moments alone, epsilon = 1, delta = 1e-6; three seeds, four draws of
the noise for each. Differences to central training without privacy, on the same test rows: mean
(largest) of these twelve.
"""

from __future__ import annotations

from itertools import product

import numpy as np

import synthfair as sf
from benchmarks.unlike.clients import CONFIGS, Cut, federation, surrogates
from benchmarks.unlike.comparison import MAIN
from benchmarks.unlike.training import METHODS, Scores, trained
from synthfair.compare.federation import pooled
from synthfair.data.batches import in_memory
from synthfair.fairness.metrics import Scored, metrics

SEEDS, DRAWS = 3, 4


def from_secure_sums(cut: Cut) -> Scores:
    """The global problem on one surrogate of all clients."""
    clients = federation(cut)
    config = CONFIGS["private_moments"].model_copy(update={"seed": cut.seed})
    made = sf.surrogate.make_secure_surrogate(
        [in_memory(rows) for rows in clients.train], config, clients.schema
    )
    return trained(made.surrogate.table, MAIN, clients)


def on_test(cut: Cut, scores: np.ndarray) -> np.ndarray:
    """[2] accuracy and SPD over all clients' test rows."""
    clients = federation(cut)
    test = pooled(clients.test)
    found = metrics(Scored(test.y, scores, test.s, clients.n_groups))
    return np.array([found["accuracy"], found["spd"]])


def from_releases(cut: Cut) -> Scores:
    """The same on the surrogates of each client, with noise of its own."""
    surrogates.cache_clear()  # of an earlier draw
    return METHODS["private_moments"].train(cut, MAIN, smoke=False)


def main() -> None:
    """Prints a table."""
    print("| clients | split | noise | \\|dacc\\| | \\|dSPD\\| |\n|---|---|---|---|---|")
    for number, split in product((4, 20), ("alike", "0.3")):
        away: dict[str, list[np.ndarray]] = {"one each": [], "one for all": []}
        for seed in range(SEEDS):
            cut = Cut("dutch", number, split, seed)
            central = on_test(cut, METHODS["central"].train(cut, MAIN, smoke=False).scores)
            for _ in range(DRAWS):
                each, for_all = from_releases(cut).scores, from_secure_sums(cut).scores
                away["one each"].append(np.abs(on_test(cut, each) - central))
                away["one for all"].append(np.abs(on_test(cut, for_all) - central))
        for noise, found in away.items():
            mean, most = np.mean(found, axis=0), np.max(found, axis=0)
            cells = (f"{a:.4f} ({b:.4f})" for a, b in zip(mean, most, strict=True))
            print(f"| {number} | {split} | {noise} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()

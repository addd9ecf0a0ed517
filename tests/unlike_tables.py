"""Tables of clients that are unlike each other."""

import numpy as np
from conftest import make_table


def unlike_tables(n=600, clients=3):
    """Each client has mostly one group and label: no two are alike."""
    table = make_table(n)
    town, paid = table["town"] == "b", table["paid"] == "yes"
    owner = (2 * town + paid) % clients
    mixed = np.random.default_rng(0).random(n) < 0.2
    owner = np.where(mixed, np.random.default_rng(1).integers(clients, size=n), owner)
    return {f"c{k}": table[owner == k] for k in range(clients)}

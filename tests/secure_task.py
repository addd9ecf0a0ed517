"""Small tasks with their keys, and clients' uploads as files."""

from typing import NamedTuple

import numpy as np
from builders import SCHEMA
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

import synthfair as sf
from synthfair import secure
from synthfair.secure.task import OWNER

PLAIN = {"schema_hash": "0" * 64, "groups": ("f", "m"), "epsilon": 1.0, "rows_per_client": 1000}
COUNTS = secure.GroupCounts(**PLAIN)
ROWS = secure.RowSums(
    config=sf.SurrogateConfig(epsilon=1.0, delta=1e-6), table_schema=SCHEMA, name="histograms",
    length=4, clients=3,
)  # fmt: skip


class Parties(NamedTuple):
    task: secure.SumTask
    secrets: list[secure.AggregatorSecret]
    keys: list[Ed25519PrivateKey]

    def send(self, folder, client, vector, name="c"):
        """Writes a client's uploads; their paths by role."""
        vector = np.asarray(vector, np.int64)
        paths = []
        for role, upload in enumerate(secure.make_uploads(self.task, vector, self.keys[client])):
            paths.append(folder / f"{name}{client}.to_{role}")
            paths[-1].write_bytes(upload)
        return paths

    def records(self, folder, role=0):
        """The folder of an aggregator's answers, made where it is missing."""
        place = folder / f"aggregator_{role}.answers"
        if not place.exists():
            place.mkdir()
            (place / OWNER).write_text(self.secrets[role].records)
        return place

    def answers(self, folder, vectors, sources=None):
        """Every aggregator's answer to these clients' vectors."""
        sent = [self.send(folder, i, vector) for i, vector in enumerate(vectors)]
        received = [secure.receive(self.task, secret, paths)
                    for secret, paths in zip(self.secrets, zip(*sent, strict=True), strict=True)]  # fmt: skip
        named = [{}] * len(received) if sources is None else [{"source": one} for one in sources]
        return [
            secure.answer(self.task, self.secrets[role], got, self.records(folder, role), **source)
            for role, (got, source) in enumerate(zip(received, named, strict=True))
        ]


def parties(what=COUNTS, *, clients=3, aggregators=2, least=2):
    secrets = [secure.new_aggregator_secret() for _ in range(aggregators)]
    keys = [Ed25519PrivateKey.generate() for _ in range(clients)]
    known = [key.public_key().public_bytes_raw().hex() for key in keys]
    task = secure.make_task(what, [one.public for one in secrets], known, least_clients=least)
    return Parties(task, secrets, keys)

"""The commands of a secure sum as users run them, from keys to a histogram."""

import re

import numpy as np
import pytest
from builders import SCHEMA, make_table, some_model

import synthfair as sf
from examples import secure_sums
from synthfair import secure
from synthfair.cli import main
from synthfair.errors import InputError
from synthfair.postprocess.histogram import ScoreHistogram
from synthfair.privacy.ledger import Ledger

USERS = ["--unit", "user", "--rows-per-user", "2"]


class Sum:
    """Three clients and two aggregators, whose files lie in one folder."""

    def __init__(self, folder):
        self.folder, self.schema = folder, ["--schema", f"{folder}/schema.json"]
        sf.write_model(some_model(), folder / "model.json")
        (folder / "schema.json").write_text(SCHEMA.to_json())
        for i in range(3):
            table = make_table(seed=i).assign(id=lambda rows: rows.index // 10)
            table.drop(columns="id").to_csv(folder / f"client_{i}.csv", index=False)
            table.to_csv(folder / f"users_{i}.csv", index=False)
            self.keygen(f"client_{i}")
        for role in range(2):
            self.keygen(f"aggregator_{role}", "--aggregator")

    def keygen(self, name, *flags):
        assert main(["keygen", *flags, "--output", f"{self.folder}/{name}.key"]) == 0

    def public(self, kind, numbers):
        return [f"--{kind}s", *(f"{self.folder}/{kind}_{i}.pub" for i in numbers)]

    def plan(self, *flags, roles=(0, 1), output="task.json"):
        argv = ["secure", "plan", "--epsilon", "2", "--rows-per-client", "500", *flags]
        argv += self.public("aggregator", roles) + self.public("client", range(3))
        return main([*argv, "--output", f"{self.folder}/{output}"])

    def share(self, client, *flags, table="client", most=2.0, roles=(0, 1)):
        argv = ["answer", f"{self.folder}/task.json", *self.public("aggregator", roles)]
        argv += ["--data", f"{self.folder}/{table}_{client}.csv", "--most-epsilon", str(most)]
        argv += ["--sign", f"{self.folder}/client_{client}.key", *(flags or self.schema)]
        return main([*argv, "--output", f"{self.folder}/sent"])

    def add(self, role, *flags, most=2.0):
        argv = ["secure", "add", "--task", f"{self.folder}/task.json", "--most-epsilon", str(most)]
        argv += ["--key", f"{self.folder}/aggregator_{role}.key", f"{self.folder}/sent"]
        return main([*argv, *flags])

    def add_all(self):
        return [self.add(role, "--output", f"{self.folder}/sum_{role}.json") for role in range(2)]

    def open(self, *flags):
        sums = [f"{self.folder}/sum_{role}.json" for role in range(2)]
        argv = ["secure", "open", "--task", f"{self.folder}/task.json", *sums, *flags]
        return main([*argv, "--output", f"{self.folder}/histogram.json"])

    def spent(self, table="client_0"):
        return Ledger.for_table(self.folder / f"{table}.csv").spent()


@pytest.fixture
def some(tmp_path):
    return Sum(tmp_path)


def refused(capsys, code, said):
    assert code == 2
    assert re.search(said, " ".join(capsys.readouterr().err.split()))


def test_sum_of_scores_from_keys_to_a_histogram(some, capsys):
    folder, model = some.folder, ["--model", f"{some.folder}/model.json"]
    assert some.plan(*model, "--bins", "5") == 0
    assert [some.share(client, *model) for client in range(3)] == [0] * 3
    assert [some.add(0), *some.add_all()] == [0] * 3
    private = [*(folder / "sent").iterdir(), *folder.glob("sum_?.json")]
    assert [path.stat().st_mode & 0o777 for path in private] == [0o600] * (3 * 2 + 2)
    assert some.open() == 0
    task, said = secure.SumTask.read(folder / "task.json"), capsys.readouterr().out
    assert said.count(task.id.hex()) == 1 + 3 + 3 + 1  # plan, share, add, open
    partial = secure.PartialSum.read(folder / "sum_0.json")
    assert said.count(partial.clients_hash) == 3
    found, read = ScoreHistogram.read(folder / "histogram.json"), some_model()
    tables = [make_table(seed=i) for i in range(3)]
    exact = sum(secure.count_table(task.what, t, SCHEMA, model=read) for t in tables)
    assert (found.model, found.groups) == (read.sha256, ("a", "b"))
    assert np.abs(found.array().ravel() - exact).max() < 40  # two of scale 1/2: once in 10^30
    assert found.variance == pytest.approx(2 * 0.3620, rel=1e-3)


def test_share_is_booked_once_and_the_same_again(some):
    def sent():
        task = secure.SumTask.read(some.folder / "task.json")
        secret = secure.read_aggregator_secret(some.folder / "aggregator_1.key")
        path = some.folder / "sent" / "client_0.to_1"
        _, nonce, share = secure.read_upload(path.read_bytes(), task, secret)
        return nonce, share.tolist()

    assert [some.plan(*some.schema), some.share(0)] == [0, 0]
    first = sent()
    assert some.share(0, *some.schema, "--force") == 0
    assert sent() == first
    assert (some.spent().releases, some.spent().epsilon(1e-6)) == (1, 2.0)
    data = ["--data", f"{some.folder}/client_0.csv"]
    assert some.share(1, *some.schema, *data) == 0  # as another client of the task
    assert some.spent().epsilon(1e-6) == 4.0


def test_share_of_a_replaced_task_is_neither_made_nor_booked(some, capsys):
    """Somebody puts a task of its own aggregators, or of more epsilon, in the place of the file."""
    for role in (5, 6):
        some.keygen(f"aggregator_{role}", "--aggregator")
    assert some.plan(*some.schema, roles=(5, 6)) == 0
    refused(capsys, some.share(0), "aggregators are not those")
    assert some.plan(*some.schema, "--force") == 0
    refused(capsys, some.share(0, roles=(1, 0)), "aggregators are not those")
    refused(capsys, some.share(0, most=1.9), "epsilon = 2; .* 1.9")
    refused(capsys, some.add(0, most=1.9), "epsilon = 2; .* 1.9")
    Ledger.for_table(some.folder / "client_0.csv").set_limit(1.0, 1e-6)
    refused(capsys, some.share(0), "limit is 1")
    assert not (some.folder / "sent").exists()
    assert some.spent().releases == 0


def test_limits_must_be_given(some, capsys):
    assert some.plan(*some.schema) == 0
    task = f"{some.folder}/task.json"
    argv = ["answer", task, "--data", f"{some.folder}/client_0.csv", *some.schema]
    refused(capsys, main([*argv, "--output", f"{some.folder}/sent"]), "--most-epsilon")
    argv = ["secure", "add", "--task", task, "--key", f"{some.folder}/aggregator_0.key"]
    refused(capsys, main([*argv, f"{some.folder}/sent"]), "--most-epsilon")


def test_sum_of_users_is_answered_once_by_whatever_name(some, capsys):
    assert some.plan(*some.schema, *USERS) == 0
    refused(capsys, some.share(0, table="users"), "user column")
    by = [*some.schema, "--user-column", "id"]
    assert some.share(0, *by, table="users") == 0
    refused(capsys, some.add(0), "1 clients; .* 3")
    assert [some.share(client, *by, table="users") for client in (1, 2)] == [0, 0]
    assert [*some.add_all(), some.open()] == [0] * 3
    total = ScoreHistogram.read(some.folder / "histogram.json")
    assert abs(total.array().sum() - 3 * 12 * 2) < 150  # 8 of scale 1
    assert total.origin.guarantees[0].rows_per_user == 2
    (some.folder / "aggregator_5.key").symlink_to(some.folder / "aggregator_0.key")
    assert some.add(5, "--output", f"{some.folder}/again.json") == 0
    first = (some.folder / "sum_0.json").read_text()
    assert (some.folder / "again.json").read_text() == first


def test_sums_are_compared_with_the_commitments(some, capsys):
    assert some.plan(*some.schema) == 0
    assert [some.share(client) for client in range(3)] + some.add_all() == [0] * 5
    found = re.findall("Commitment: ([0-9a-f]{64})", capsys.readouterr().out)
    refused(capsys, some.open("--commitments", *found[::-1]), "commitments")
    assert some.open("--commitments", *found) == 0


PLANS = [
    ([], "--model"),
    (["SCHEMA", "--epsilon", "0"], "epsilon"),
    (["SCHEMA", "--rows-per-user", "3"], "rows_per_user"),
]


@pytest.mark.parametrize(("flags", "key"), PLANS)
def test_plan_that_cannot_be_is_refused(some, capsys, flags, key):
    schema = [] if not flags else some.schema
    refused(capsys, some.plan(*schema, *flags[1:]), key)
    assert not (some.folder / "task.json").exists()


@pytest.mark.parametrize(("kind", "name"), [("model", "model.json"), ("schema", "schema.json")])
def test_plan_does_not_destroy_what_it_reads(some, capsys, kind, name):
    path = some.folder / name
    before = path.read_bytes()
    refused(capsys, some.plan(f"--{kind}", str(path), "--force", output=name), "twice")
    assert path.read_bytes() == before


@pytest.mark.filterwarnings("ignore:.*were clipped to them")
def test_example_runs(tmp_path):
    secure_sums.main(output=tmp_path / "demo", epsilon=4)
    found = ScoreHistogram.read(tmp_path / "demo" / "histogram.json")
    assert found.origin.guarantees[0].simulated
    assert found.variance == pytest.approx(0.276**2, rel=1e-2)
    assert abs(found.array().sum() - 790) < 100  # half of the training rows: the others trained
    with pytest.raises(InputError, match=str(tmp_path / "demo")):
        secure_sums.main(output=tmp_path / "demo")

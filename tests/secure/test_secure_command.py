"""The commands of a secure sum as users run them, from keys to a histogram."""

import re
from pathlib import Path

import pytest
from builders import NAMES, make_table, some_model
from sum_world import ADDERS, ByCommands, SumWorld

import synthfair as sf
from examples import secure_sums
from synthfair.cli import main
from synthfair.errors import InputError
from synthfair.postprocess.histogram import ScoreHistogram
from synthfair.privacy.ledger import Ledger


class Sum(ByCommands):
    """A sum of counts over two clients, by commands, whose task can be found."""

    def __init__(self, folder):
        super().__init__(SumWorld(folder))
        self.task, self.model = self.folder / "task.json", self.folder / "model.json"
        sf.write_model(some_model(), self.model)

    def ledger(self, _name):
        return f"{self.folder}/ledger"

    def start(self, *flags, epsilon="2"):
        counts = ["--epsilon", epsilon, "--rows-per-client", "500", *(flags or self.schema)]
        return self.plan(*counts, output="task.json")

    def share(self, name, *flags):
        return self.answer(name, self.task, *(flags or self.schema))

    def add(self, role, *flags):
        argv = ["secure", "add", "--task", str(self.task), f"{self.folder}/task", "--most-epsilon"]
        key = f"{self.world.folder}/{ADDERS[role]}/sums/{ADDERS[role]}.key"
        return main([*argv, *(flags or ("2",)), "--key", key])

    def spent(self):
        return Ledger(Path(self.ledger("north"))).spent()


@pytest.fixture
def some(tmp_path):
    return Sum(tmp_path)


def refused(capsys, code, said):
    assert code == 2
    assert re.search(said, " ".join(capsys.readouterr().err.split()))


def test_share_is_booked_once_and_the_same_again(some):
    sent = some.folder / "task" / "north.to_1"
    assert some.start(*some.schema, "--bins", "9") == 2  # of scores, and there is no model
    assert [some.start(), some.share("north")] == [0, 0]
    first = sent.read_bytes()
    assert some.share("north", *some.schema, "--force") == 0
    assert sent.read_bytes()[:100] == first[:100]  # with the nonce, which follows from the seed
    assert (some.spent().releases, some.spent().epsilon(1e-6)) == (1, 2.0)
    same = ["--data", f"{some.world.folder}/north/rows.csv"]
    assert some.share("south", *some.schema, *same) == 0  # as another client of the task
    assert some.spent().epsilon(1e-6) == 4.0


def test_share_of_a_replaced_task_is_neither_made_nor_booked(some, capsys):
    """Somebody puts a task of its own aggregators, or of more epsilon, in the place of the file."""
    ours, some.keys = some.keys, some.keys[::-1]
    assert some.start() == 0
    some.keys = ours
    refused(capsys, some.share("north"), "aggregators are not those")
    assert some.start(*some.schema, "--force", epsilon="2.1") == 0
    refused(capsys, some.share("north"), "epsilon = 2.1; .* 2")
    refused(capsys, some.add(0), "epsilon = 2.1; .* 2")
    assert some.start(*some.schema, "--force") == 0
    Ledger(Path(some.ledger("north"))).set_limit(1.0, 1e-6)
    refused(capsys, some.share("north"), "limit is 1")
    assert not (some.folder / "task").exists()
    assert some.spent().releases == 0


def test_sum_of_users_is_answered_once_by_whatever_name(some, capsys):
    for name in NAMES:
        table = make_table(300).assign(id=lambda rows: rows.index // 10)
        table.to_csv(some.world.folder / name / "rows.csv", index=False)
    assert some.start(*some.schema, "--unit", "user", "--rows-per-user", "2") == 0
    refused(capsys, some.share("north"), "user column")
    by = [*some.schema, "--user-column", "id"]
    assert some.share("north", *by) == 0
    assert some.share("south", *by) == 0
    some.add_and_open(some.task, some.folder / "histogram.json")
    total = ScoreHistogram.read(some.folder / "histogram.json")
    assert abs(total.array().sum() - 2 * 30 * 2) < 150  # 8 of scale 1
    assert total.origin.guarantees[0].rows_per_user == 2
    key, again = some.world.folder / ADDERS[0] / "sums" / "again.key", some.folder / "again"
    key.symlink_to(key.with_name(f"{ADDERS[0]}.key"))
    assert some.add(0, "2", "--output", str(again)) == 0
    assert again.read_text() == (some.folder / "task.sum_0").read_text()


def test_sums_are_compared_with_the_commitments(some, capsys):
    assert [some.start(), *map(some.share, NAMES)] == [0, 0, 0]
    some.add_and_open(some.task, some.folder / "histogram.json")
    found = re.findall("Commitment: ([0-9a-f]{64})", capsys.readouterr().out)
    argv = ["secure", "open", *map(str, sorted(some.folder.glob("task.sum_?"))), "--commitments"]
    more = ["--task", str(some.task), "--output", f"{some.folder}/again.json"]
    refused(capsys, main([*argv, *found[::-1], *more]), "commitments")
    assert main([*argv, *found, *more]) == 0


@pytest.mark.filterwarnings("ignore:.*were clipped to them")
def test_example_runs(tmp_path):
    secure_sums.main(output=tmp_path / "demo", epsilon=4)
    found = ScoreHistogram.read(tmp_path / "demo" / "histogram.json")
    assert found.origin.guarantees[0].simulated
    assert found.variance == pytest.approx(0.276**2, rel=1e-2)
    assert abs(found.array().sum() - 2703) < 100  # half of the training rows: the others trained
    with pytest.raises(InputError, match=str(tmp_path / "demo")):
        secure_sums.main(output=tmp_path / "demo")

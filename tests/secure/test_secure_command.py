"""The commands of a secure sum as users run them, from keys to a histogram."""

import json
import re
import shutil

import numpy as np
import pytest
from builders import make_schema, make_table

import synthfair as sf
from examples import secure_sums
from synthfair.cli import main
from synthfair.errors import InputError
from synthfair.postprocess.histogram import ScoreHistogram
from synthfair.privacy.ledger import Ledger
from synthfair.trained import input_names

EPSILON = 2.0


@pytest.fixture
def folder(tmp_path):
    schema = make_schema()
    names = input_names(schema, intercept=True)
    theta = tuple(np.linspace(-1, 1, len(names)).tolist())
    model = sf.TrainedModel(
        schema=schema, version="0", loss="logistic", intercept=True, inputs=names, theta=theta,
        gradient_norm=None, converged=None,
    )  # fmt: skip
    sf.write_model(model, tmp_path / "model.json")
    (tmp_path / "schema.json").write_text(schema.to_json())
    for i in range(3):
        make_table(seed=i).to_csv(tmp_path / f"client_{i}.csv", index=False)
        assert main(["keygen", "--output", f"{tmp_path}/client_{i}.key"]) == 0
    for role in range(2):
        assert (
            main(["keygen", "--aggregator", "--output", f"{tmp_path}/aggregator_{role}.key"]) == 0
        )
    return tmp_path


def plan(folder, *flags):
    argv = ["secure", "plan", "--epsilon", str(EPSILON), "--rows-per-client", "500"]
    if "--aggregators" not in flags:
        argv += ["--aggregators", *(f"{folder}/aggregator_{role}.pub" for role in range(2))]
    argv += ["--clients", *(f"{folder}/client_{i}.pub" for i in range(3))]
    return main([*argv, "--output", f"{folder}/task.json", *flags])


def share(folder, client, *flags, roles=(0, 1)):
    argv = ["answer", f"{folder}/task.json"]
    argv += ["--aggregators", *(f"{folder}/aggregator_{role}.pub" for role in roles)]
    argv += ["--data", f"{folder}/client_{client}.csv", "--sign", f"{folder}/client_{client}.key"]
    argv += ["--most-epsilon", str(EPSILON)]
    return main([*argv, "--output", f"{folder}/sent", *flags])


def add(folder, role, *flags, most=("--most-epsilon", str(EPSILON))):
    argv = ["secure", "add", "--task", f"{folder}/task.json", *most]
    return main([*argv, "--key", f"{folder}/aggregator_{role}.key", f"{folder}/sent", *flags])


def open_both(folder, *flags):
    argv = ["secure", "open", "--task", f"{folder}/task.json"]
    argv += [f"{folder}/sum_{role}.json" for role in range(2)]
    return main([*argv, "--output", f"{folder}/histogram.json", *flags])


def test_from_keys_to_a_histogram_of_scores(folder, capsys):
    model = ["--model", f"{folder}/model.json"]
    assert plan(folder, *model, "--bins", "5") == 0
    said = capsys.readouterr().out
    assert "20 numbers over 3 clients" in said
    assert "a standard deviation of 0.851 rows" in said
    assert "more than 5.71 rows" in said  # 3 sqrt(5) times as many
    assert f"Task {sf.secure.SumTask.read(folder / 'task.json').id.hex()}\n" in said
    for client in range(3):
        assert share(folder, client, *model) == 0
    for role in range(2):
        assert add(folder, role) == 0
        assert add(folder, role, "--output", f"{folder}/sum_{role}.json") == 0
    private = [*(folder / "sent").iterdir(), *folder.glob("sum_?.json")]
    assert [path.stat().st_mode & 0o777 for path in private] == [0o600] * (3 * 2 + 2)
    assert open_both(folder) == 0
    said = capsys.readouterr().out
    for words in ("3 clients", "Nothing was answered", "epsilon", "one row", "collude"):
        assert words in said
    task = sf.secure.SumTask.read(folder / "task.json").id.hex()
    assert said.count(f"Task {task}\n") == 3 + 2 * 2 + 1  # share, add twice, open
    assert said.count("holds against") == 3 + 2 * 2 + 1
    partial = sf.secure.PartialSum.read(folder / "sum_0.json")
    assert said.count(f"list has the hash {partial.clients_hash}") == 2 * 2
    found = ScoreHistogram.read(folder / "histogram.json")
    exact = sum(
        sf.secure.count_table(
            sf.secure.SumTask.read(folder / "task.json").what,
            make_table(seed=i), make_schema(), model=sf.read_model(folder / "model.json"),
        )
        for i in range(3)
    )  # fmt: skip
    assert (found.model, found.groups) == (sf.read_model(folder / "model.json").sha256, ("a", "b"))
    assert np.abs(found.array().ravel() - exact).max() < 40  # two of scale 1/2: once in 10^30
    assert found.variance == pytest.approx(2 * 0.3620, rel=1e-3)
    assert found.array().shape == (2, 2, 5)
    assert share(folder, 0, *model, "--force") == 0
    booked = Ledger.for_table(folder / "client_0.csv").spent()
    assert (booked.releases, booked.epsilon(1e-6)) == (1, EPSILON)


def test_nothing_is_written_beyond_the_budget(folder, capsys):
    assert plan(folder, "--schema", f"{folder}/schema.json") == 0
    Ledger.for_table(folder / "client_0.csv").set_limit(EPSILON / 2, 1e-6)
    assert share(folder, 0, "--schema", f"{folder}/schema.json") == 2
    assert "the limit is 1" in "".join(capsys.readouterr().err.split("\n"))
    assert not (folder / "sent").exists()


def test_counts_of_users_and_a_second_answer(folder, capsys):
    for i in range(3):
        make_table(seed=i).assign(id=lambda t: t.index // 10).to_csv(
            folder / f"client_{i}.csv", index=False
        )
    users = ["--unit", "user", "--rows-per-user", "2"]
    assert plan(folder, "--schema", f"{folder}/schema.json", *users) == 0
    assert share(folder, 0, "--schema", f"{folder}/schema.json") == 2
    assert "needs a user column" in capsys.readouterr().err
    for client in range(3):
        by = ["--user-column", "id", "--schema", f"{folder}/schema.json"]
        assert share(folder, client, *by) == 0
    for role in range(2):
        assert add(folder, role, "--output", f"{folder}/sum_{role}.json") == 0
    assert open_both(folder) == 0
    total = ScoreHistogram.read(folder / "histogram.json")
    assert abs(total.array().sum() - 3 * 12 * 2) < 150  # 8 of scale 1
    assert total.origin.guarantees[0].rows_per_user == 2
    assert add(folder, 0, "--output", f"{folder}/again.json") == 0
    assert (folder / "again.json").read_text() == (folder / "sum_0.json").read_text()


def test_a_key_answers_once_by_whatever_name_and_not_without_its_folder(folder, capsys):
    assert plan(folder, "--schema", f"{folder}/schema.json") == 0
    for client in range(3):
        assert share(folder, client, "--schema", f"{folder}/schema.json") == 0
    assert add(folder, 0, "--output", f"{folder}/sum_0.json") == 0
    (folder / "aggregator_5.key").symlink_to(folder / "aggregator_0.key")
    assert add(folder, 5, "--output", f"{folder}/other.json") == 0
    assert (folder / "other.json").read_text() == (folder / "sum_0.json").read_text()
    shutil.rmtree(folder / "aggregator_0.answers")
    assert add(folder, 0, "--output", f"{folder}/again.json") == 2
    assert "nobody knows what this key has answered" in capsys.readouterr().err
    shutil.copytree(folder / "aggregator_1.answers", folder / "aggregator_0.answers")
    assert add(folder, 0, "--output", f"{folder}/again.json") == 2
    assert "not the folder of this key's answers" in capsys.readouterr().err
    assert not (folder / "again.json").exists()


def test_a_replaced_task_gets_no_shares(folder, capsys):
    """Somebody puts a task of its own aggregators, or of more epsilon, in the place of the file."""
    schema = ["--schema", f"{folder}/schema.json"]
    for role in (5, 6):
        assert main(["keygen", "--aggregator", "--output", f"{folder}/aggregator_{role}.key"]) == 0
    theirs = [f"{folder}/aggregator_{role}.pub" for role in (5, 6)]
    assert plan(folder, *schema, "--aggregators", *theirs) == 0
    assert share(folder, 0, *schema) == 2
    assert "its aggregators are not those that were given" in capsys.readouterr().err
    assert plan(folder, *schema, "--force") == 0
    assert share(folder, 0, *schema, roles=(1, 0)) == 2
    assert share(folder, 0, *schema, "--most-epsilon", "1.9") == 2
    assert add(folder, 0, "--most-epsilon", "1.9") == 2
    assert capsys.readouterr().err.count("epsilon = 2; must be at most 1.9") == 2
    assert not (folder / "sent").exists()
    assert not Ledger.for_table(folder / "client_0.csv").path.exists()
    assert share(folder, 0, *schema) == 0
    assert add(folder, 0) == 2
    assert "of 1 clients; the task asks for 3" in capsys.readouterr().err


def test_without_a_limit_nothing_is_shared_or_answered(folder, capsys):
    schema = ["--schema", f"{folder}/schema.json"]
    assert plan(folder, *schema) == 0
    argv = ["answer", f"{folder}/task.json", "--sign", f"{folder}/client_0.key"]
    argv += ["--data", f"{folder}/client_0.csv", *schema, "--output", f"{folder}/sent"]
    argv += ["--aggregators", *(f"{folder}/aggregator_{role}.pub" for role in range(2))]
    assert main(argv) == 2
    assert "needs --sign, --aggregators and --most-epsilon" in capsys.readouterr().err
    assert add(folder, 0, most=()) == 2
    assert "--most-epsilon requires" in capsys.readouterr().err


def test_groups_other_than_the_schemas_are_neither_sent_nor_booked(folder, capsys):
    schema = ["--schema", f"{folder}/schema.json"]
    assert plan(folder, *schema) == 0
    path = folder / "task.json"
    task = json.loads(path.read_text())
    task["what"]["groups"] = ["b", "a"]
    path.write_text(json.dumps(task))
    assert share(folder, 0, *schema) == 2
    assert "groups ('a', 'b'); the task's is ('b', 'a')" in capsys.readouterr().err
    assert not (folder / "sent").exists()
    assert not Ledger.for_table(folder / "client_0.csv").path.exists()


def test_check_lists_all_files_that_are_refused(folder, capsys):
    schema = ["--schema", f"{folder}/schema.json"]
    assert plan(folder, *schema) == 0
    for i in range(3):
        assert share(folder, i, *schema) == 0
    wrong = [folder / "sent" / f"client_{i}.to_0" for i in (0, 2)]
    for path in wrong:
        path.write_bytes(path.read_bytes()[:-1] + b"x")
    assert add(folder, 0) == 2
    lines = capsys.readouterr().err.removeprefix("error: ").splitlines()
    assert [line.split(": ")[0] for line in lines] == list(map(str, wrong))
    assert all("not signed by" in line for line in lines)


def test_a_table_shared_by_two_clients_of_a_task_is_booked_twice(folder):
    schema = ["--schema", f"{folder}/schema.json"]
    assert plan(folder, *schema) == 0
    data = ["--data", f"{folder}/client_0.csv"]
    assert share(folder, 0, *schema) == 0
    assert share(folder, 0, *schema, "--force") == 0
    assert share(folder, 1, *schema, *data) == 0
    assert Ledger.for_table(folder / "client_0.csv").spent().epsilon(1e-6) == 2 * EPSILON


def test_sums_are_compared_with_the_commitments(folder, capsys):
    assert plan(folder, "--schema", f"{folder}/schema.json") == 0
    for client in range(3):
        assert share(folder, client, "--schema", f"{folder}/schema.json") == 0
    for role in range(2):
        assert add(folder, role, "--output", f"{folder}/sum_{role}.json") == 0
    found = re.findall("Commitment: ([0-9a-f]{64})", capsys.readouterr().out)
    assert open_both(folder, "--commitments", *found[::-1]) == 2
    assert "chosen after another was known" in capsys.readouterr().err
    assert open_both(folder, "--commitments", *found) == 0


def test_a_plan_does_not_destroy_its_model(folder, capsys):
    model = f"{folder}/model.json"
    before = (folder / "model.json").read_bytes()
    assert plan(folder, "--model", model, "--output", model, "--force") == 2
    assert "is named twice" in capsys.readouterr().err
    schema = f"{folder}/schema.json"
    assert plan(folder, "--schema", schema, "--output", schema, "--force") == 2
    assert (folder / "model.json").read_bytes() == before


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ([], "one of --model and --schema"),
        (["--schema", "SCHEMA", "--epsilon", "0"], "epsilon"),
        (["--model", "MODEL", "--bins", "2049"], "bins"),
        (["--schema", "SCHEMA", "--rows-per-user", "3"], "rows_per_user"),
        (
            ["--schema", "SCHEMA", "--aggregators", "PUB"],
            "aggregators: Tuple should have at least 2",
        ),
        (
            ["--schema", "SCHEMA", "--aggregators", *["PUB"] * 4],
            "aggregators: Tuple should have at most 3",
        ),
        (["--schema", "SCHEMA", "--aggregators", "PUB", "PUB"], "must have keys of its own"),
    ],
)
def test_plans_that_are_refused(folder, capsys, flags, message):
    places = {
        "SCHEMA": f"{folder}/schema.json",
        "MODEL": f"{folder}/model.json",
        "PUB": f"{folder}/aggregator_0.pub",
    }
    assert plan(folder, *(places.get(flag, flag) for flag in flags)) == 2
    said = capsys.readouterr().err
    assert message in said
    assert "got {" not in said
    assert not (folder / "task.json").exists()


def test_shares_and_answers_that_are_refused(folder, capsys):
    assert plan(folder, "--model", f"{folder}/model.json") == 0
    assert share(folder, 0, "--schema", f"{folder}/schema.json") == 2
    assert "model (none); the task's is" in capsys.readouterr().err
    (folder / "sent").mkdir(exist_ok=True)
    assert add(folder, 0, "--output", f"{folder}/sum_0.json") == 2
    assert "a folder without files for aggregator 0" in capsys.readouterr().err
    assert share(folder, 0, "--model", f"{folder}/model.json") == 0
    assert add(folder, 0, "--output", f"{folder}/sum_0.json") == 2
    assert "of 1 clients; the task asks for 3" in capsys.readouterr().err
    assert not (folder / "sum_0.json").exists()
    assert not [*(folder / "aggregator_0.answers").glob("*.json")]


@pytest.mark.filterwarnings("ignore:.*were clipped to them")
def test_the_example_runs(tmp_path, capsys):
    secure_sums.main(output=tmp_path / "demo", epsilon=4)
    said = capsys.readouterr().out
    assert "stated 0.276" in said
    assert "10" in said
    found = ScoreHistogram.read(tmp_path / "demo" / "histogram.json")
    assert found.origin.guarantees[0].simulated
    assert "a simulation" in " ".join(said.split())
    assert abs(found.array().sum() - 790) < 100  # half of the training rows: the others trained
    with pytest.raises(InputError, match="not empty"):
        secure_sums.main(output=tmp_path / "demo")

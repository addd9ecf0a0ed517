"""Exact refinement by files: what a client answers, and which answers and questions are believed."""

import hashlib
import json
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from builders import SCHEMA, make_table, unlike_tables

import synthfair as sf
from synthfair.cli import main
from synthfair.client.page import Site, distill_file
from synthfair.errors import InputError
from synthfair.fairness.penalties import SelectionRatePenalty
from synthfair.federated.refine_files import answer_question
from synthfair.privacy.ledger import Ledger
from synthfair.release.keys import make_keys, read_signing_key
from synthfair.surrogate.fair import GlobalProblem, ridge_of

NAMES = "c0", "c1", "c2"


def serve(folder, *more, names=NAMES, asked=("--rho", "30")):
    """Run the server's command, whose output is the folder."""
    releases = [str(folder / f"{name}.parquet") for name in names]
    flags = {"schema": "schema.json", "output": "", "refine": "refine"}
    paths = [word for flag, name in flags.items() for word in (f"--{flag}", str(folder / name))]
    problem = "--penalty", "selection_rate", "--force"
    return main(["server", *releases, *paths, *problem, *asked, *more])


def refusal(capsys, *args, **options):
    """What the server says when it refuses."""
    capsys.readouterr()
    assert serve(*args, **options) == 2
    return " ".join(capsys.readouterr().err.split())


def answer(folder, name, number=1, *, k_min=5, signer=None, again=False):
    data, place = folder / f"{name}.csv", folder / "refine" / str(number)
    key = signer and read_signing_key(folder / f"{signer}.key")
    site = Site(data, SCHEMA, Ledger(Ledger.for_table(data).path, again=again))
    output = place / f"{name}.json"
    return answer_question(site, place / "question.json", output, k_min=k_min, key=key, force=True)


def change(path, **changes):
    """Write other content, whose digest is right if it is an answer."""
    document = json.loads(path.read_text()) | changes
    if "numbers" in document:
        content = (
            bytes.fromhex(document["question"]) + np.array(document["numbers"], "<f8").tobytes()
        )
        document["signature"]["sha256"] = hashlib.sha256(content).hexdigest()
    path.write_text(json.dumps(document))


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Tables, surrogates and keys of three clients, who have answered the first question."""
    folder = tmp_path_factory.mktemp("refine")
    (folder / "schema.json").write_text(SCHEMA.to_json())
    for name, table in unlike_tables(5000).items():
        table.fillna({"age": 50.0}).to_csv(folder / f"{name}.csv", index=False)
        make_keys(folder / f"{name}.key")
        rows = pd.read_csv(folder / f"{name}.csv")
        release = sf.distill_table(rows, SCHEMA, sf.SurrogateConfig(k_min=5)).release
        key = read_signing_key(folder / f"{name}.key")
        sf.write_release(release, folder / f"{name}.parquet", key=key)
    assert serve(folder) == 0
    for name in NAMES:
        answer(folder, name)
    return folder


@pytest.fixture
def there(made, tmp_path):
    return Path(shutil.copytree(made, tmp_path / "there"))


@pytest.fixture
def first(there):
    """The folder of the first exchange."""
    return there / "refine" / "1"


def test_refine_by_files_leads_to_the_central_model(there):
    shutil.rmtree(there / "refine")
    Ledger.for_table(there / "c0.csv").path.unlink()
    keys = "--keys", *(str(there / f"{name}.pub") for name in NAMES)
    for number in range(1, 6):
        assert serve(there, *keys) == 0
        for name in NAMES:
            output = there / "refine" / str(number) / f"{name}.json"
            given = {"data": f"{name}.csv", "schema": "schema.json", "sign": f"{name}.key",
                     "output": output, "ledger": f"{name}.csv.ledger.jsonl"}  # fmt: skip
            flags = [w for flag, path in given.items() for w in (f"--{flag}", str(there / path))]
            question = str(output.with_name("question.json"))
            assert main(["answer", question, *flags, "--k-min", "5", "--again"]) == 0
            assert output.stat().st_mode & 0o777 == 0o600
    make_table(300, seed=8).to_csv(there / "test.csv", index=False)
    assert serve(there, *keys, "--test", str(there / "test.csv")) == 0

    tables = pd.concat([pd.read_csv(there / f"{name}.csv") for name in NAMES])
    x, s, y = sf.encode(tables, SCHEMA)
    a, weights = np.c_[x, np.ones(len(y))], np.ones(len(y))
    ridge = ridge_of(1.0, *a.shape, intercept=True)
    central = GlobalProblem(a, s, y, weights, SelectionRatePenalty(), ridge).solve(30.0)
    np.testing.assert_allclose(sf.read_model(there / "model.json").theta, central.theta, atol=1e-5)
    metrics = json.loads((there / "metrics.json").read_text())
    assert metrics["refinement"]["exchanges"] == 5
    assert metrics["refinement"]["objective"] == pytest.approx(central.objective)
    # All rounds are booked as one job without an epsilon.
    book = Ledger.for_table(there / "c0.csv")
    assert [record.what.round for record in book.records()] == [1, 2, 3, 4, 5]
    assert (book.spent().releases, book.spent().composition) == (1, None)


# Answers


@pytest.mark.parametrize(
    ("changed", "complaint"),
    [
        (lambda _: {"question": "0" * 64}, "is no answer to"),
        (lambda n: {"numbers": n[:-1]}, "numbers; must be"),
        (lambda n: {"numbers": [-1.0, *n[1:]]}, "counts of rows"),
        (lambda n: {"numbers": [n[0], 1e9, *n[2:]]}, "counts of rows"),
        (None, "altered"),
    ],
)
def test_refine_answer_that_is_none_is_refused(there, first, capsys, changed, complaint):
    path = first / "c1.json"
    document = json.loads(path.read_text())
    if changed is None:
        path.write_text(json.dumps(document | {"numbers": [*document["numbers"][:-1], 1.0]}))
    else:
        change(path, **changed(document["numbers"]))
    said = refusal(capsys, there)
    assert "c1.json" in said
    assert complaint in said


def test_refine_answers_are_one_of_each_client(there, first, capsys):
    shutil.copy(first / "c0.json", first / "copy.json")
    assert "4 answers; must be 3" in refusal(capsys, there)
    (first / "c1.json").unlink()
    assert "copy.json: has the same sums" in refusal(capsys, there)
    (first / "copy.json").unlink()
    keys = "--keys", *(str(there / f"{name}.pub") for name in NAMES)
    for name, signer in zip(NAMES, (None, "c1", "c1"), strict=True):
        answer(there, name, signer=signer)
    assert "c0.json: not signed" in refusal(capsys, there, *keys)
    answer(there, "c0", signer="c0")
    assert "c2.json: signed by 'c1'" in refusal(capsys, there, *keys)
    change(
        first / "c0.json",
        numbers=[*json.loads((first / "c0.json").read_text())["numbers"][:-1], 1.0],
    )
    assert "c0.json: its signature" in refusal(capsys, there, *keys)


def test_refine_client_who_claims_too_many_rows_counts_as_fewer(there, first):
    after, found = there / "refine" / "2" / "question.json", []
    numbers = np.array(json.loads((first / "c1.json").read_text())["numbers"])
    most = json.loads((first / "question.json").read_text())["max_rows"]
    assert most == pytest.approx(20 * 1400, rel=0.1)  # of the releases' claims, as of weights
    for rows in (1e6, most, most / 2):
        change(first / "c1.json", numbers=(numbers * rows / numbers[0]).tolist())
        assert serve(there) == 0
        found.append(json.loads(after.read_text())["candidates"])
        after.unlink()
    np.testing.assert_allclose(found[0], found[1], rtol=1e-6, atol=1e-9)
    assert not np.allclose(found[0], found[2], rtol=1e-3)


# Questions


def test_refine_folder_is_of_one_problem(there, capsys):
    """Releases, weight of the penalty and number of answers."""
    for changed in (
        {"asked": ("--rho", "7")},
        {"asked": ("--rho", "30", "--answers", "2")},
        {"asked": ("--rho", "30", "--answers", "3"), "names": NAMES[:2]},
    ):
        assert "1/question.json: is not the question" in refusal(capsys, there, **changed)
    shutil.rmtree(there / "refine")
    for _ in range(2):
        assert serve(there, asked=("--max-gap", "0.05")) == 0
    assert "1/question.json: is not" in refusal(capsys, there, asked=("--max-gap", "0.3"))


def test_refine_questions_that_follow_are_checked_too(there, first, capsys):
    """Who writes them chooses what clients answer."""
    assert serve(there) == 0
    path = there / "refine" / "2" / "question.json"
    good = json.loads(path.read_text())
    far, short = [[9.0] * len(theta) for theta in good["candidates"]], good["candidates"][0][:1]
    for changes in (
        {"candidates": far},
        {"candidates": [short, *good["candidates"][1:]]},
        {"max_rows": 1.0},
        {"rho": 31.0},
    ):
        change(path, **good | changes)
        assert "2/question.json: is not the question" in refusal(capsys, there)
    change(path, **good)
    halves = np.array(json.loads((first / "c2.json").read_text())["numbers"]) / 2
    change(first / "c2.json", numbers=halves.tolist())  # another answer leads to another question
    assert "2/question.json: is not the question" in refusal(capsys, there)


# Clients


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"schema_hash": "0" * 64}, "schema_hash 0000"),
        ({"candidates": [[0.0]] * 5}, "candidates: must have"),
        ({"candidates": [[1e308] * 8] * 5}, "candidates: are so large"),
    ],
)
def test_refine_question_that_does_not_fit_is_not_answered(there, first, changes, complaint):
    change(first / "question.json", **changes)
    (first / "c0.json").unlink()
    with pytest.raises(InputError, match=complaint):
        answer(there, "c0")
    assert not (first / "c0.json").exists()


@pytest.mark.parametrize(("few", "refused"), [(4, True), (5, False), (0, False)])
def test_refine_sums_no_few_rows_with_one_label_of_a_large_group(there, first, few, refused):
    """Else the sums over both labels, and their differences, give those of the few."""
    table = make_table(1200, seed=3)
    pair = (table["town"] == "b") & (table["paid"] == "no")
    table[~pair | (pair.cumsum() <= few)].to_csv(there / "few.csv", index=False)
    if refused:
        with pytest.raises(InputError, match="town=b with paid=no: 4, must be none or 5"):
            answer(there, "few")
    else:
        answer(there, "few")
    assert (first / "few.json").exists() != refused
    assert bool(Ledger.for_table(there / "few.csv").records()) != refused


def test_refine_after_an_epsilon_needs_consent_for_each_job(there, first):
    """The job's next question needs none, another job's does."""
    Ledger.for_table(there / "c0.csv").path.unlink()
    private = sf.SurrogateConfig(k_min=5, epsilon=1.0, delta=1e-6)
    distill_file(there / "c0.csv", there / "schema.json", there / "p.parquet", private)
    with pytest.raises(InputError, match="epsilon"):
        answer(there, "c0")
    answer(there, "c0", again=True)
    change(first / "question.json", exchange=2, follows="0" * 64)
    answer(there, "c0")
    change(first / "question.json", rho=1.0)
    with pytest.raises(InputError, match="epsilon"):
        answer(there, "c0")


def test_refine_rows_of_a_job_must_not_change(there):
    """Else the differences of the sums at the same params are those of the newcomer."""
    table = pd.read_csv(there / "c0.csv")
    table[::-1].to_csv(there / "c0.csv", index=False)
    answer(there, "c0")
    table[1:].to_csv(there / "c0.csv", index=False)
    with pytest.raises(InputError, match="two jobs"):
        answer(there, "c0")

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
from synthfair.client.page import Site
from synthfair.errors import InputError
from synthfair.fairness.penalties import SelectionRatePenalty
from synthfair.federated.refine_files import SumsQuestion, answer_question
from synthfair.privacy.ledger import Ledger
from synthfair.release.keys import make_keys, read_signing_key
from synthfair.surrogate.fair import GlobalProblem, ridge_of

NAMES = "c0", "c1", "c2"


def serve(first, *more, names=NAMES, asked="--rho=30"):
    """Run the server's command, whose output is the folder of the tables."""
    folder = first.parents[1]
    releases = [str(folder / f"{name}.parquet") for name in names]
    files = f"--schema={folder}/schema.json", f"--output={folder}", f"--refine={folder}/refine"
    return main(["server", *releases, *files, "--penalty=selection_rate", "--force", asked, *more])


def refusal(capsys, *args, **options):
    """What the server says when it refuses."""
    capsys.readouterr()
    assert serve(*args, **options) == 2
    return " ".join(capsys.readouterr().err.split())


def answer(exchange, name, *, signer=None, again=False):
    """Write a client's answer into the folder of an exchange."""
    folder = exchange.parents[1]
    key = signer and read_signing_key(folder / f"{signer}.key")
    site = Site(folder / f"{name}.csv", SCHEMA, Ledger.for_table(folder / f"{name}.csv"))
    site.ledger.again = again
    question, output = exchange / "question.json", exchange / f"{name}.json"
    return answer_question(site, question, output, k_min=5, key=key, force=True)


def numbers_of(path):
    return json.loads(path.read_text())["numbers"]


def second(first):
    """The question that follows."""
    return first.with_name("2") / "question.json"


def change(path, **changes):
    """Write other content, whose digest is right if it is an answer, unless one is given."""
    document = json.loads(path.read_text()) | changes
    if "numbers" in document and "signature" not in changes:
        question, numbers = bytes.fromhex(document["question"]), np.array(document["numbers"])
        digest = hashlib.sha256(question + numbers.astype("<f8").tobytes()).hexdigest()
        document["signature"]["sha256"] = digest
    path.write_text(json.dumps(document))


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Tables, surrogates and keys of three clients, who have answered the first question."""
    folder = tmp_path_factory.mktemp("refine")
    (folder / "schema.json").write_text(SCHEMA.to_json())
    for name, table in unlike_tables(5000).items():
        table.fillna({"age": 50.0}).to_csv(folder / f"{name}.csv", index=False)
        make_keys(folder / f"{name}.key")
        rows, key = pd.read_csv(folder / f"{name}.csv"), read_signing_key(folder / f"{name}.key")
        release = sf.distill_table(rows, SCHEMA, sf.SurrogateConfig(k_min=5)).release
        sf.write_release(release, folder / f"{name}.parquet", key=key)
    first = folder / "refine" / "1"
    assert serve(first) == 0
    for name in NAMES:
        answer(first, name)
    return folder


@pytest.fixture
def first(made, tmp_path):
    """The folder of the first exchange, in a copy."""
    return Path(shutil.copytree(made, tmp_path / "copy")) / "refine" / "1"


def test_refine_by_files_leads_to_the_central_model(first):
    there = first.parents[1]
    shutil.rmtree(first)
    Ledger.for_table(there / "c0.csv").path.unlink()
    keys = "--keys", *(str(there / f"{name}.pub") for name in NAMES)
    for number in range(1, 5):
        assert serve(first, *keys) == 0
        for name in NAMES:
            output = first.with_name(str(number)) / f"{name}.json"
            files = f"--data={there}/{name}.csv", f"--schema={there}/schema.json"
            files += f"--output={output}", f"--sign={there}/{name}.key"
            question = str(output.with_name("question.json"))
            assert main(["answer", question, *files, "--k-min=5"]) == 0
            assert output.stat().st_mode & 0o777 == 0o600
    assert serve(first, *keys, f"--test={there}/c0.csv") == 0
    tables = pd.concat([pd.read_csv(there / f"{name}.csv") for name in NAMES])
    x, s, y = sf.encode(tables, SCHEMA)
    a, ridge = np.c_[x, np.ones(len(y))], ridge_of(1.0, len(y), 1 + x.shape[1], intercept=True)
    central = GlobalProblem(a, s, y, a[:, -1], SelectionRatePenalty(), ridge).solve(30.0)
    model = sf.read_model(there / "model.json")
    np.testing.assert_allclose(model.theta, central.theta, atol=1e-5)
    assert model.converged
    found = json.loads((there / "metrics.json").read_text())["refinement"]
    assert (found["exchanges"], found["objective"]) == (4, pytest.approx(central.objective))
    # All rounds are booked as one job without an epsilon.
    book = Ledger.for_table(there / "c0.csv")
    assert [record.what.round for record in book.records()] == [1, 2, 3, 4]
    assert (book.spent().releases, book.spent().composition) == (1, None)


# Answers


@pytest.mark.parametrize(("changed", "complaint"), [
    (lambda _: {"question": "0" * 64}, "is no answer to"),
    (lambda n: {"numbers": n[:-1]}, "numbers; must be"),
    (lambda n: {"numbers": [n[0], 1e9, *n[2:]]}, "counts of rows"),
    (lambda n: {"numbers": [*n[:-1], 1.0], "signature": {"sha256": "0" * 64}}, "altered"),
])  # fmt: skip
def test_refine_answer_that_is_none_is_refused(first, capsys, changed, complaint):
    change(first / "c1.json", **changed(numbers_of(first / "c1.json")))
    said = refusal(capsys, first)
    assert "c1.json" in said
    assert complaint in said


def test_refine_answers_are_one_of_each_client(first, capsys):
    shutil.copy(first / "c0.json", first / "copy.json")
    assert "4 answers; must be 3" in refusal(capsys, first)
    (first / "c1.json").unlink()
    assert "copy.json: has the same sums" in refusal(capsys, first)
    (first / "copy.json").unlink()
    keys = "--keys", *(str(first.parents[1] / f"{name}.pub") for name in NAMES)
    for name, signer in zip(NAMES, (None, "c1", "c1"), strict=True):
        answer(first, name, signer=signer)
    assert "c0.json: not signed" in refusal(capsys, first, *keys)
    answer(first, "c0", signer="c0")
    assert "c2.json: signed by 'c1'" in refusal(capsys, first, *keys)
    change(first / "c0.json", numbers=[*numbers_of(first / "c0.json")[:-1], 1.0])
    assert "c0.json: its signature" in refusal(capsys, first, *keys)


def test_refine_client_who_claims_too_many_rows_counts_as_fewer(first):
    numbers, found = np.array(numbers_of(first / "c1.json")), []
    most = json.loads((first / "question.json").read_text())["max_rows"]
    assert most == pytest.approx(20 * 1400, rel=0.1)  # of the releases' claims, as of weights
    for rows in (1e6, most, most / 2):
        change(first / "c1.json", numbers=(numbers * rows / numbers[0]).tolist())
        assert serve(first) == 0
        assert not sf.read_model(first.parents[1] / "model.json").converged
        found.append(json.loads(second(first).read_text())["candidates"])
        second(first).unlink()
    np.testing.assert_allclose(found[0], found[1], rtol=1e-6, atol=1e-9)
    assert not np.allclose(found[0], found[2], rtol=1e-3)


# Questions


def test_refine_folder_is_of_one_problem(first, capsys):
    """Releases, weight of the penalty or gap, and number of answers."""
    changed = {"--rho=7": NAMES, "--answers=2": NAMES, "--answers=3": NAMES[:2]}
    for flag, names in changed.items():
        assert "1/question.json: is not" in refusal(capsys, first, flag, names=names)
    shutil.rmtree(first)
    for _ in range(2):
        assert serve(first, asked="--max-gap=0.005") == 0
    question = SumsQuestion.model_validate_json((first / "question.json").read_text())
    assert question.exchange_of(SCHEMA).free == question.free > 0
    assert "1/question.json: is not" in refusal(capsys, first, asked="--max-gap=0.3")


def test_refine_questions_that_follow_are_checked_too(first, capsys):
    """Who writes them chooses what clients answer."""
    assert serve(first) == 0
    good = json.loads(second(first).read_text())
    theta, *others = good["candidates"]
    far, short = [[9.0] * len(theta), *others], [theta[:1], *others]
    changes = [("candidates", far), ("candidates", short), ("max_rows", 1.0), ("rho", 31.0)]
    for key, value in changes:
        change(second(first), **good | {key: value})
        assert "2/question.json: is not the question" in refusal(capsys, first)
    change(second(first), **good)
    assert serve(first) == 0
    halves = np.array(numbers_of(first / "c2.json")) / 2
    change(first / "c2.json", numbers=halves.tolist())
    assert "2/question.json: is not the question" in refusal(capsys, first)


# Clients


def test_refine_question_that_does_not_fit_is_not_answered(first):
    (first / "c0.json").unlink()
    good = json.loads((first / "question.json").read_text())
    large = [[1e308] * len(theta) for theta in good["candidates"]]
    for key, value in (("schema_hash", "0" * 64), ("candidates", [[0.0]]), ("candidates", large)):
        change(first / "question.json", **good | {key: value})
        with pytest.raises(InputError, match=key):
            answer(first, "c0")
    assert not (first / "c0.json").exists()


@pytest.mark.parametrize(("few", "answered"), [(4, False), (5, True), (0, True)])
def test_refine_sums_no_few_rows_with_one_label_of_a_large_group(first, few, answered):
    """Else the sums over both labels, and their differences, give those of the few."""
    table, data = make_table(1200, seed=3), first.parents[1] / "few.csv"
    pair = (table["town"] == "b") & (table["paid"] == "no")
    table[~pair | (pair.cumsum() <= few)].to_csv(data, index=False)
    if answered:
        answer(first, "few")
    else:
        with pytest.raises(InputError, match="town=b with paid=no: 4, must be none or 5"):
            answer(first, "few")
    assert (first / "few.json").exists() == answered
    assert bool(Ledger.for_table(data).records()) == answered


def test_refine_answers_of_another_job_or_of_other_rows_need_consent(first):
    """Two jobs' exact sums tell whole rows; differences of one job's, those of a newcomer."""
    question, data = first / "question.json", first.parents[1] / "c0.csv"
    change(question, exchange=2, follows="0" * 64)
    answer(first, "c0")
    pd.read_csv(data)[1:].to_csv(data, index=False)
    with pytest.raises(InputError, match="two jobs"):
        answer(first, "c0")
    answer(first, "c0", again=True)
    change(question, rho=1.0)
    with pytest.raises(InputError, match="two jobs"):
        answer(first, "c0")

"""Exact refinement: its objective, where it ends, and what leaves a client."""

import hashlib
import json
import shlex
import shutil

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
from builders import make_schema, make_table, unlike_tables
from small_problem import make_rows

import synthfair as sf
from synthfair.cli import main, make_app
from synthfair.data.encode import encode
from synthfair.fairness.penalties import CovariancePenalty, SelectionRatePenalty
from synthfair.federated.engine import run
from synthfair.federated.exchange import DAMPING, ExchangeSums
from synthfair.federated.networks import LogisticRegression
from synthfair.federated.refine import Refine
from synthfair.federated.single_rows import UserRows
from synthfair.federated.users import Cohorts, make_users
from synthfair.model import Rows
from synthfair.privacy.ledger import Ledger
from synthfair.release.keys import make_keys, read_signing_key
from synthfair.surrogate.fair import GlobalProblem, Price, ridge_of

NOTIONS = "statistical_parity", "equal_opportunity", "equalized_odds"
KINDS = CovariancePenalty, SelectionRatePenalty
RHO, C = 10.0, 1.5


def some_rows(n_groups, n=240, seed=0):
    """Three clients, none of which is like another."""
    rng = np.random.default_rng(seed)
    s = rng.integers(n_groups, size=n)
    x = rng.random((n, 3)) + 0.2 * s[:, None]
    y = np.where(x[:, 0] + 0.3 * s + 0.4 * rng.normal(size=n) > 0.8, 1.0, -1.0)
    a = np.column_stack([x, *(s == g for g in range(1, n_groups)), np.ones(n)])
    user = np.where(rng.random(n) < 0.6, s % 3, 2 * (y > 0))
    return Rows(a, s, y), user


def refine(rows, penalty, start=None, **settings):
    model, start = LogisticRegression(rows.a.shape[1]), () if start is None else tuple(start)
    return Refine(start=start, model=model, gap=penalty, **{"rho": RHO, "C": C, **settings})


def pooled(rows, penalty, c=C):
    """The problem of all rows in one place, in NumPy."""
    a, s, y = (np.asarray(part) for part in rows[:3])
    n, p = a.shape
    return GlobalProblem(a, s, y, np.ones(n), penalty, ridge_of(c, n, p, intercept=True))


def central_of(rows, penalty, rho, c=C):
    return pooled(rows, penalty, c).solve(rho)


def total_at(algorithm, rows, user, candidates):
    """The sum of the clients' reports."""
    users = make_users(*map(np.asarray, rows[:3]), user)
    state = algorithm.init(None)._replace(candidates=candidates)
    report = jax.jit(lambda own: algorithm.report(state, own, None))
    reports = [report(users.rows_of(i)) for i in range(len(users))]
    return jax.tree.map(lambda *parts: sum(map(np.asarray, parts)), *reports)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("notion", NOTIONS)
@pytest.mark.parametrize("n_groups", [2, 3])
def test_sums_give_the_pooled_objective_with_its_derivatives(kind, notion, n_groups):
    """Those of the problem in one place are compared with JAX's where it is tested."""
    rows, user = some_rows(n_groups)
    penalty, p, price = kind(n_groups, notion), rows.a.shape[1], Price(RHO)
    algorithm = refine(rows, penalty)
    thetas = np.random.default_rng(1).normal(size=(len(DAMPING), p))
    sums = total_at(algorithm, rows, user, jnp.asarray(thetas))
    for i, theta in enumerate(thetas):
        sums_there = ExchangeSums(sums.rows, *(part[i] for part in sums[1:]))
        found = algorithm.derivatives(theta, sums_there)
        whole = pooled(rows, penalty)
        expected = whole.value(theta, price), *whole.hessian(theta, price)
        for own, other in zip(found, expected, strict=True):
            np.testing.assert_allclose(own, other, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("rho", [1.0, 100.0])
def test_exchanges_end_at_the_central_optimum(kind, rho):
    rows, user = some_rows(3)
    penalty = kind(3, "equalized_odds")
    central = central_of(rows, penalty, rho)
    start = central.theta + 0.1 * np.random.default_rng(2).normal(size=6)
    users = make_users(*rows[:3], user)
    algorithm = refine(rows, penalty, start, rho=rho)
    end = run(algorithm, users, Cohorts(len(users), len(users)), rounds=22, seed=0)
    np.testing.assert_allclose(end.state.theta, central.theta, atol=1e-6)
    assert end.history.gradient_norm[-1] < 1e-7
    # No exchange is worse than the one before, and the first is at the start.
    assert (np.diff(end.history.objective) <= 0).all()
    assert end.history.step[0] == 0


def test_near_the_optimum_an_exchange_squares_the_error():
    rows, user = some_rows(3)
    users, penalty = make_users(*rows[:3], user), SelectionRatePenalty(3, "equalized_odds")
    central = central_of(rows, penalty, RHO)
    algorithm = refine(rows, penalty, central.theta + 1e-3)
    history = run(algorithm, users, Cohorts(len(users), len(users)), rounds=3, seed=0).history
    first, second, third = history.gradient_norm
    assert second < 0.02 * first
    assert third < 0.02**2 * first


def test_a_step_that_is_too_long_is_tried_again_shorter():
    rows, user = some_rows(2)
    algorithm = refine(rows, SelectionRatePenalty())
    state = algorithm.init(None)._replace(objective=jnp.array(0.0))  # below all that there is
    offered = jnp.arange(5 * len(DAMPING), dtype=float).reshape(len(DAMPING), 5)
    state = state._replace(candidates=offered)
    total = total_at(algorithm, rows, user, offered)
    after, record = jax.jit(algorithm.update)(state, total, 3.0)
    np.testing.assert_array_equal(after.theta, state.theta)
    np.testing.assert_allclose(after.candidates, 0.1 * offered)
    assert (record.step, record.objective) == (0.0, 0.0)


def test_rows_of_weight_0_do_not_enter():
    rows, _ = some_rows(2)
    algorithm = refine(rows, SelectionRatePenalty(2, "equalized_odds"), np.ones(5))
    s, weight = rows.s[:, None], np.ones(len(rows.y))
    weight[100:] = 0.0
    everyone = UserRows(*map(jnp.asarray, (rows.a, s, rows.y, weight)))
    few = UserRows(*(part[:100] for part in everyone))
    report = jax.jit(lambda own: algorithm.report(algorithm.init(None), own, None))
    for own, other in zip(report(everyone), report(few), strict=True):
        np.testing.assert_allclose(own, other, rtol=1e-12)


def test_a_group_that_nobody_has_leaves_the_start():
    rows, user = some_rows(3)
    users = make_users(rows.a, np.minimum(rows.s, 1), rows.y, user)
    algorithm = refine(rows, SelectionRatePenalty(3, "equalized_odds"), np.ones(6))
    end = run(algorithm, users, Cohorts(len(users), len(users)), rounds=2, seed=0)
    np.testing.assert_array_equal(end.state.theta, np.ones(6))
    assert np.isinf(end.history.objective).all()


def renewed(answer, **changes):
    """An answer with other content, whose digest is right."""
    answer = answer | changes
    content = bytes.fromhex(answer["question"]) + np.array(answer["numbers"], "<f8").tobytes()
    signature = answer["signature"] | {"sha256": hashlib.sha256(content).hexdigest()}
    return answer | {"signature": signature}


class TestFiles:
    """Questions and answers that people carry."""

    @pytest.fixture(scope="class")
    @classmethod
    def there(cls, tmp_path_factory):
        """Tables, surrogates and keys of three clients."""
        folder = tmp_path_factory.mktemp("refine")
        tables, schema = unlike_tables(5000), make_schema()
        tables = {name: table.fillna({"age": 50.0}) for name, table in tables.items()}
        (folder / "schema.json").write_text(schema.to_json())
        for name, table in tables.items():
            table.to_csv(folder / f"{name}.csv", index=False)
            make_keys(folder / f"{name}.key")
            key = read_signing_key(folder / f"{name}.key")
            config = sf.SurrogateConfig(k_min=5)
            release = sf.distill_table(table, schema, config).release
            sf.write_release(release, folder / f"{name}.parquet", key=key)
        make_table(300, seed=8).to_csv(folder / "test.csv", index=False)
        return folder

    NAMES = "c0", "c1", "c2"

    def serve(self, there, output, *more):
        releases = [str(there / f"{name}.parquet") for name in self.NAMES]
        return main(["server", *releases, "--schema", str(there / "schema.json"), "--test",
                     str(there / "test.csv"), "--output", str(output), "--force", "--rho", "30",
                     "--penalty", "selection_rate", "--refine", str(output / "refine"),
                     *more])  # fmt: skip

    def answer(self, there, output, number, name, *more):
        folder = output / "refine" / str(number)
        return main(["answer", str(folder / "question.json"), "--data", str(there / f"{name}.csv"),
                     "--schema", str(there / "schema.json"),
                     "--output", str(folder / f"{name}.json"), "--k-min", "5",
                     "--ledger", str(output / f"{name}.ledger.jsonl"), *more])  # fmt: skip

    def test_the_same_command_again_leads_to_the_central_model(self, there, tmp_path, capsys):
        keys = [str(there / f"{name}.pub") for name in self.NAMES]
        for number in range(1, 6):
            assert self.serve(there, tmp_path, "--keys", *keys) == 0
            for name in self.NAMES:
                signed = "--sign", str(there / f"{name}.key")
                assert self.answer(there, tmp_path, number, name, *signed) == 0
                written = tmp_path / "refine" / str(number) / f"{name}.json"
                assert written.stat().st_mode & 0o777 == 0o600
        assert self.serve(there, tmp_path, "--keys", *keys, "--report") == 0
        assert "and 5 exchanges of sums" in (tmp_path / "report.html").read_text()
        said = " ".join(capsys.readouterr().out.split())
        assert "Exchanges: 5; objective" in said
        assert "the optimum" in said

        tables = [pd.read_csv(there / f"{name}.csv") for name in self.NAMES]
        rows = make_rows(encode(pd.concat(tables), make_schema()), n_groups=1, intercept=True)
        central = central_of(rows, SelectionRatePenalty(), 30.0, c=1.0)
        model = sf.read_model(tmp_path / "model.json")
        np.testing.assert_allclose(model.theta, central.theta, atol=1e-5)
        metrics = json.loads((tmp_path / "metrics.json").read_text())
        found = sf.evaluate(model, {"test": pd.read_csv(there / "test.csv")}).overall
        assert metrics["spd"]["value"] == pytest.approx(found["spd"].value)
        assert metrics["refinement"]["exchanges"] == 5
        assert metrics["refinement"]["objective"] == pytest.approx(central.objective)
        # An answer is booked as what has no epsilon.
        book = Ledger(tmp_path / "c0.ledger.jsonl")
        assert [record.what.round for record in book.records()] == [1, 2, 3, 4, 5]
        assert (book.spent().releases, book.spent().composition) == (1, None)  # one job

    @pytest.fixture
    def answered(self, there, tmp_path, capsys):
        """After the first question, that all have answered."""
        assert self.serve(there, tmp_path) == 0
        said = " ".join(capsys.readouterr().out.split())
        assert "3 answers to" in said
        asked = shlex.split(said.split("Next: python -m synthfair ")[1])
        _, found, _ = make_app().parse_args(asked, exit_on_error=False, print_error=False)
        assert found.args == (tmp_path / "refine" / "1" / "question.json",)
        assert all(self.answer(there, tmp_path, 1, name) == 0 for name in self.NAMES)
        return tmp_path

    def test_answers_that_are_none(self, there, answered, capsys):
        path = answered / "refine" / "1" / "c1.json"
        good = json.loads(path.read_text())
        numbers = good["numbers"]
        for document, complaint in (
            (renewed(good, question="0" * 64), "is no answer to"),
            (renewed(good, numbers=numbers[:-1]), "numbers; must be"),
            (renewed(good, numbers=[-1.0, *numbers[1:]]), "its counts of rows are none"),
            (renewed(good, numbers=[numbers[0], 1e9, *numbers[2:]]), "its counts of rows"),
            (good | {"numbers": [*numbers[:-1], 1.0]}, "altered since it was written"),
            (good | {"numbers": [*numbers[:-1], "1"]}, "numbers"),
        ):
            path.write_text(json.dumps(document))
            assert self.serve(there, answered) == 2
            assert complaint in " ".join(capsys.readouterr().err.split())
        path.write_text(json.dumps(good).replace(str(numbers[-1]), "1e999"))
        assert self.serve(there, answered) == 2
        assert "not a finite number" in " ".join(capsys.readouterr().err.split())
        path.with_name("one_more.json").write_text(json.dumps(good))
        assert self.serve(there, answered) == 2
        assert "4 answers; must be 3" in " ".join(capsys.readouterr().err.split())

    def test_with_keys_each_client_answers_once(self, there, answered, capsys):
        keys = [str(there / f"{name}.pub") for name in self.NAMES]
        assert self.serve(there, answered, "--keys", *keys) == 2
        assert "c0.json: not signed; must be signed by 'c0', 'c1', 'c2'" in " ".join(
            capsys.readouterr().err.split()
        )
        for name, signer in zip(self.NAMES, ("c0", "c1", "c1"), strict=True):
            more = "--sign", str(there / f"{signer}.key"), "--force"
            assert self.answer(there, answered, 1, name, *more) == 0
        assert self.serve(there, answered, "--keys", *keys) == 2
        assert "signed by 'c1', as is" in " ".join(capsys.readouterr().err.split())
        path = answered / "refine" / "1" / "c0.json"
        good = json.loads(path.read_text())
        changed = [*good["numbers"][:-1], 1.0]
        path.write_text(json.dumps(renewed(good, numbers=changed)))
        assert self.serve(there, answered, "--keys", *keys) == 2
        assert "does not fit" in " ".join(capsys.readouterr().err.split())

    def test_few_rows_with_one_label_of_a_large_group_are_not_summed(self, there, tmp_path, capsys):
        """Else the sums over both labels, and their differences, give those of the few."""
        assert self.serve(there, tmp_path) == 0
        table = make_table(400, seed=3)
        few = (table["town"] == "b") & (table["paid"] == "no")
        table[~few | (few.cumsum() <= 3)].to_csv(tmp_path / "few.csv", index=False)
        question = tmp_path / "refine" / "1" / "question.json"
        assert main(["answer", str(question), "--data", str(tmp_path / "few.csv"), "--schema",
                     str(there / "schema.json"), "--output", str(tmp_path / "few.json"),
                     "--k-min", "5"]) == 2  # fmt: skip
        said = " ".join(capsys.readouterr().err.split())
        assert "rows with town=b with paid=no: 3, must be none or 5" in said
        assert not (tmp_path / "few.json").exists()

    def test_after_an_epsilon_nobody_answers_by_accident(self, there, tmp_path, capsys):
        assert self.serve(there, tmp_path) == 0
        book = tmp_path / "c0.ledger.jsonl"
        private = "--release", "surrogate", "--epsilon", "1", "--delta", "1e-6"
        files = "--data", str(there / "c0.csv"), "--schema", str(there / "schema.json")
        assert main(["client", *files, *private, "--ledger", str(book), "--output",
                     str(tmp_path / "c0.parquet")]) == 0  # fmt: skip
        assert self.answer(there, tmp_path, 1, "c0", "--ledger", str(book)) == 2
        said = " ".join(capsys.readouterr().err.split())
        assert "an exact answer undoes what the epsilon protects" in said
        assert said.endswith("(--again)")
        more = "--ledger", str(book)
        assert self.answer(there, tmp_path, 1, "c0", *more, "--again") == 0
        # That is consent for the job: its next question needs none, another job's does.
        path = tmp_path / "refine" / "1" / "question.json"
        asked = json.loads(path.read_text())
        path.write_text(json.dumps(asked | {"exchange": 2, "follows": "0" * 64}))
        assert self.answer(there, tmp_path, 1, "c0", *more, "--force") == 0
        path.write_text(json.dumps(asked | {"rho": 1.0}))
        assert self.answer(there, tmp_path, 1, "c0", *more, "--force") == 2

    def test_the_rows_of_a_job_must_not_change(self, there, tmp_path, capsys):
        """Else the differences of the sums at the same params are those of the newcomer."""
        assert self.serve(there, tmp_path) == 0
        table, book = pd.read_csv(there / "c0.csv"), str(tmp_path / "one.jsonl")
        table.to_csv(tmp_path / "next.csv", index=False)
        more = "--ledger", book, "--force", "--data", str(tmp_path / "next.csv")
        for rows, code in ((table, 0), (table[::-1], 0), (table[1:], 2)):
            rows.to_csv(tmp_path / "next.csv", index=False)
            assert self.answer(there, tmp_path, 1, "c0", *more) == code
        assert "exact sums of two jobs together tell whole rows" in " ".join(
            capsys.readouterr().err.split()
        )

    def test_fewer_answers_complete_an_exchange_and_a_copy_is_none(self, there, tmp_path, capsys):
        assert self.serve(there, tmp_path, "--answers", "2") == 0
        assert self.answer(there, tmp_path, 1, "c0") == 0
        folder = tmp_path / "refine" / "1"
        shutil.copy(folder / "c0.json", folder / "c0 copy.json")
        assert self.serve(there, tmp_path, "--answers", "2") == 2
        assert "has the same sums as" in " ".join(capsys.readouterr().err.split())
        (folder / "c0 copy.json").unlink()
        assert self.answer(there, tmp_path, 1, "c2") == 0
        assert self.serve(there, tmp_path, "--answers", "2") == 0
        assert "Exchanges: 1; objective" in " ".join(capsys.readouterr().out.split())
        # Another answer to a question that others follow leads to others.
        assert self.answer(there, tmp_path, 1, "c2", "--force") == 0
        document = json.loads((folder / "c2.json").read_text())
        halves = [number / 2 for number in document["numbers"]]
        (folder / "c2.json").write_text(json.dumps(renewed(document, numbers=halves)))
        assert self.serve(there, tmp_path, "--answers", "2") == 2
        assert "2/question.json: is not the question" in " ".join(capsys.readouterr().err.split())

    def test_another_problem_needs_another_folder(self, there, answered, capsys, monkeypatch):
        def refused():
            said = " ".join(capsys.readouterr().err.split())
            return "is not the question that these releases" in said

        assert self.serve(there, answered, "--rho", "7") == 2
        assert refused()
        assert self.serve(there, answered, "--answers", "2") == 2
        assert refused()
        assert self.serve(there, answered, "--answers", "0") == 2
        assert "Must be >= 1" in capsys.readouterr().err
        # Later questions are checked, too: who writes them chooses what clients answer.
        assert self.serve(there, answered) == 0
        path = answered / "refine" / "2" / "question.json"
        good = json.loads(path.read_text())
        for change in (
            {"candidates": [[9.0] * len(theta) for theta in good["candidates"]]},
            {"candidates": [good["candidates"][0][:1], *good["candidates"][1:]]},
            {"max_rows": 1.0},
            {"rho": 31.0},
        ):
            path.write_text(json.dumps(good | change))
            assert self.serve(there, answered) == 2
            assert refused()
        path.write_text(json.dumps(good))
        monkeypatch.setattr(type(self), "NAMES", ("c0", "c1"))
        assert self.serve(there, answered, "--answers", "3") == 2
        assert refused()

    def test_a_folder_is_of_one_gap(self, there, tmp_path, capsys):
        releases = [str(there / f"{name}.parquet") for name in self.NAMES]
        argv = ["server", *releases, "--schema", str(there / "schema.json"), "--output",
                str(tmp_path), "--force", "--refine", str(tmp_path / "refine")]  # fmt: skip
        assert main([*argv, "--max-gap", "0.05"]) == 0
        assert main([*argv, "--max-gap", "0.05"]) == 0
        assert main([*argv, "--max-gap", "0.3"]) == 2
        assert "is not the question that" in " ".join(capsys.readouterr().err.split())

    def test_a_client_who_claims_too_many_rows_counts_as_fewer(self, there, answered):
        folder = answered / "refine"
        path, after = folder / "1" / "c1.json", folder / "2" / "question.json"
        numbers = {name: np.array(json.loads((folder / "1" / f"{name}.json").read_text())["numbers"])
                   for name in self.NAMES}  # fmt: skip
        most = json.loads((folder / "1" / "question.json").read_text())["max_rows"]
        assert most == pytest.approx(20 * 1400, rel=0.1)  # of the releases' claims, as of weights
        found = []
        for rows in (1e6, most, most / 2):
            scaled = numbers["c1"] * rows / numbers["c1"][0]
            document = renewed(json.loads(path.read_text()), numbers=scaled.tolist())
            path.write_text(json.dumps(document))
            assert self.serve(there, answered) == 0
            found.append(json.loads(after.read_text())["candidates"])
            after.unlink()
        np.testing.assert_allclose(found[0], found[1], rtol=1e-6, atol=1e-9)
        assert not np.allclose(found[0], found[2], rtol=1e-3)

    def test_tables_that_do_not_answer(self, there, answered, capsys):
        assert self.answer(there, answered, 1, "c0", "--force", "--k-min", "4") == 2
        assert "Must be >= 5" in " ".join(capsys.readouterr().err.split())
        more = "--force", "--k-min", "1000"
        assert self.answer(there, answered, 1, "c0", *more) == 2
        said = " ".join(capsys.readouterr().err.split())
        assert "rows with town=" in said
        assert "must be none or 1000" in said
        assert "Take part in secure sums with noise, which need none of this, or in none" in said
        path = answered / "refine" / "1" / "question.json"
        question = json.loads(path.read_text())
        for change, complaint in (
            ({"schema_hash": "0" * 64}, "is of another schema than"),
            ({"candidates": [[0.0]] * 5}, "candidates: must have"),
            ({"candidates": [[1e308] * len(question["candidates"][0])] * 5}, "are no numbers"),
        ):
            path.write_text(json.dumps(question | change))
            assert self.answer(there, answered, 1, "c0", "--force") == 2
            assert complaint in " ".join(capsys.readouterr().err.split())

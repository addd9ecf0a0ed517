"""Gaps without an engine: counts with noise, estimates that hold, limits, and one answer."""

import base64
import json
import shutil
from fractions import Fraction

import numpy as np
import pytest
from builders import NAMES, InProcess, World, make_schema, make_table, resigned
from report_runs import write_run

import synthfair as sf
from synthfair.cli import main
from synthfair.deploy.gap_job import GapJob, GapQuestion, run_gap
from synthfair.evaluation import pooled_scores
from synthfair.fairness.metrics import Scored, group_rates
from synthfair.files import write_json
from synthfair.measure.gaps_file import gaps_of_counts, noisy_counts
from synthfair.privacy.ledger import Ledger
from synthfair.privacy.noise import discrete_laplace, seeded
from synthfair.report.page import write_report
from synthfair.task.job_sites import TooFewError
from synthfair.task.messages import Message
from synthfair.trained import TrainedModel, input_names, write_model

ROWS = 1500
EPSILON = 1.0


def make_model(schema=None, step=-0.5):
    schema = schema or make_schema()
    names = input_names(schema, intercept=True, group_input=True)
    theta = {"income": 1.0, "town=b": step, "(intercept)": -0.3}
    return TrainedModel(
        schema=schema, version="0", loss="logistic", intercept=True, inputs=names, group_input=True,
        theta=tuple(theta.get(name, 0.0) for name in names), gradient_norm=0.0, converged=True,
    )  # fmt: skip


@pytest.fixture
def world(tmp_path):
    found = World(tmp_path, rows=ROWS)
    for name in NAMES:
        found.limit(name, kinds=["gap"], most_epsilon=5.0)
        found.bound(name)
    write_model(make_model(), tmp_path / "model.json")
    return found


def make_job(world, **changes):
    content = (world.folder / "model.json").read_bytes()
    document = {"epsilon": EPSILON, "model": base64.b64encode(content).decode()}
    return GapJob.model_validate_json(json.dumps(document | changes))


def channel_of(world, job="job-1"):
    return InProcess({name: world.site(name) for name in NAMES}, job=job)


def measure(world, channel, **changes):
    federation = world.federation(channel)
    folder = world.folder / channel.job
    run_gap(federation, make_job(world, **changes), world.folder / "private", folder)
    return federation, json.loads((folder / "gaps.json").read_text())


def ask(world, job="job-1", **changes):
    settings = GapQuestion(epsilon=EPSILON).model_dump(mode="json") | changes
    text = world.ask(settings, task="gap", job=job).text
    return Message(text, (world.folder / "model.json").read_bytes())


def answer(world, message, job="job-1", name="north"):
    found = world.site(name).answer(message, job=job, submitter="lead@hub.org")
    return json.loads(found.text)["code"], found.carried


def ledger_of(world, name="north"):
    return Ledger.for_table(world.folder / name / "rows.csv")


def counted(carried):
    return np.frombuffer(carried, "<i8").reshape(2, 2, 2)


def true_counts(tables):
    """Rows by group, label and decision, one row at a time."""
    rows, counts = pooled_scores(make_model(), tables), np.zeros((2, 2, 2), int)
    for y, score, s in zip(rows.y, rows.score, rows.s, strict=True):
        counts[int(s), int(y > 0), int(score > 0)] += 1
    return counts


def test_an_answer_is_the_counts_with_the_noise_of_its_epsilon(world):
    """Mean and variance of the noise in 50 answers of 8 counts; 4.5 standard errors."""
    true, noise = true_counts({"north": make_table(ROWS, seed=0)}), []
    world.limit("north", kinds=["gap"], most_epsilon=5.0)
    for i in range(50):
        write_model(make_model(step=-0.5 - 1e-12 * i), world.folder / "model.json")
        code, carried = answer(world, ask(world, f"job-{i}", epsilon=0.5), f"job-{i}")
        assert code == "ok"
        noise.append(counted(carried) - true)
    ratio = np.exp(-0.5)  # P(k) is proportional to ratio^|k|
    variance = 2 * ratio / (1 - ratio) ** 2
    assert abs(np.mean(noise)) < 4.5 * np.sqrt(variance / 400)
    assert np.mean(np.square(noise)) == pytest.approx(
        variance, abs=4.5 * variance * np.sqrt(5 / 400)
    )
    assert ledger_of(world).spent().epsilon(1e-6) == pytest.approx(25)


def test_intervals_hold_the_gaps_of_all_sites_rows(world, monkeypatch):
    """By the confidence, one seed in a million would not do; a gap of 0 is rejected."""
    monkeypatch.setattr("synthfair.deploy.gap_job.GAP_CONFIDENCE", 1 - 1e-6)
    monkeypatch.setattr("os.urandom", seeded(0))
    tables = {name: make_table(ROWS, seed=i) for i, name in enumerate(NAMES)}
    first, second = group_rates(pooled_scores(make_model(), tables))
    _, found = measure(world, channel_of(world))
    for gap, rate in zip(found["gaps"], ("true_positive_rate", "false_positive_rate"), strict=True):
        assert (gap["rate"], gap["first"], gap["second"]) == (rate, "a", "b")
        true = getattr(second, rate) - getattr(first, rate)
        assert gap["low"] < true < gap["high"]
        assert abs(gap["value"] - true) < 0.05
    assert found["gaps"][0]["high"] < 0
    assert found["model"] == make_model().sha256
    assert (found["epsilon"], found["sites"]) == (EPSILON, [*NAMES])
    assert found["guarantee"] == {
        "epsilon": EPSILON, "delta": 0, "unit": "row", "relation": "add_or_remove",
        "adversary": "anyone",
    }  # fmt: skip


@pytest.mark.parametrize("sites", [1, 4])
@pytest.mark.parametrize("epsilon", [0.1, 1.0])
@pytest.mark.parametrize("confidence", [0.9, 0.99])
def test_as_many_intervals_hold_as_they_say(sites, epsilon, confidence):
    """Of samples of a population, with the noise of each site; 4.5 standard errors of 1,000."""
    rng, source = np.random.default_rng(1), seeded(1)
    size, rates, held = 250, np.array([0.1, 0.4]), []
    for _ in range(500):
        hits = rng.binomial(size, [rates, rates], (sites, 2, 2)).sum(axis=0).T  # [group, label]
        counts = np.stack([sites * size - hits, hits], axis=2)
        scale = Fraction(1) / Fraction(repr(epsilon))
        noise = discrete_laplace(scale, sites * counts.size, source).reshape(sites, 2, 2, 2)
        found = gaps_of_counts(
            counts + noise.sum(axis=0), ("a", "b"), epsilon=epsilon, sites=sites,
            confidence=confidence,
        )  # fmt: skip
        held += [gap.low <= 0.3 <= gap.high for gap in found]
        assert all(gap.low <= gap.value <= gap.high for gap in found)
    miss = 1 - confidence
    assert np.mean(held) > confidence - 4.5 * np.sqrt(miss * confidence / 1000)


def test_without_noise_and_rows_enough_an_interval_is_the_normal_one():
    counts = np.array([[[9000, 1000], [8000, 2000]], [[6000, 4000], [5000, 5000]]]) * 100
    found = gaps_of_counts(counts, ("a", "b"), epsilon=100.0, sites=99, confidence=0.95)
    for gap, (p, q) in zip(found, ((0.2, 0.5), (0.1, 0.4)), strict=True):
        half = 1.96 * np.sqrt((p * (1 - p) + q * (1 - q)) / 10**6)
        assert gap.value == pytest.approx(q - p)
        assert (gap.low, gap.high) == pytest.approx((q - p - half, q - p + half), abs=0.02 * half)


def test_a_group_that_may_be_noise_leaves_all_open():
    counts = np.array([[[900, 100], [800, 200]], [[3, -2], [1, 4]]])
    for gap in gaps_of_counts(counts, ("a", "b"), epsilon=0.5, sites=2, confidence=0.95):
        assert np.isnan(gap.value)
        assert gap.model_dump(mode="json")["value"] is None
        assert (gap.low, gap.high) == (-1, 1)


def test_decisions_of_coins_are_drawn():
    rows = Scored(np.ones(4000), np.ones(4000), np.zeros(4000, int), 2, np.full(4000, 0.25))
    counts = noisy_counts(rows, 100.0, seeded(0))
    assert counts[0, 1].sum() == 4000
    assert counts[0, 1, 1] == pytest.approx(1000, abs=4.5 * np.sqrt(4000 * 0.25 * 0.75))


def test_one_question_has_one_answer_that_is_booked_once(world):
    code, first = answer(world, ask(world))
    assert code == "ok"
    _, booked = ledger_of(world).records()
    assert booked.what.guarantee.epsilon == EPSILON
    assert not booked.what.seen
    (stored,) = (world.folder / "north").glob("*.bought")
    assert stored.stat().st_mode & 0o077 == 0
    assert answer(world, ask(world, "job-2"), "job-2") == ("ok", first)
    assert ledger_of(world).spent().releases == 1


def test_a_damaged_answer_is_no_matter_of_the_budget(world):
    answer(world, ask(world))
    (stored,) = (world.folder / "north").glob("*.bought")
    stored.write_bytes(b"damaged")
    assert answer(world, ask(world, "job-2"), "job-2") == ("failed", b"")
    assert "damaged, or of another version" in world.said[-1]


def test_the_same_rows_in_another_order_get_the_same_counts(world):
    path = world.folder / "north" / "rows.csv"
    first = answer(world, ask(world))
    make_table(ROWS, seed=0).sample(frac=1, random_state=1).to_csv(path, index=False)
    assert answer(world, ask(world, "job-2"), "job-2") == first


@pytest.mark.parametrize("what", ["epsilon", "model", "rows"])
def test_another_question_is_booked_anew(world, what):
    _, first = answer(world, ask(world))
    changes = {}
    if what == "epsilon":
        changes = {"epsilon": 1.5}
    elif what == "model":  # which decides all rows alike
        write_model(make_model(step=-0.5 - 1e-12), world.folder / "model.json")
    else:
        make_table(ROWS, seed=5).to_csv(world.folder / "north" / "rows.csv", index=False)
    code, second = answer(world, ask(world, "job-2", **changes), "job-2")
    assert code == "ok"
    assert first != second
    assert ledger_of(world).spent().releases == 2


def test_nobody_can_repeat_the_noise(world):
    _, first = answer(world, ask(world, epsilon=0.01))
    (stored,) = (world.folder / "north").glob("*.bought")
    stored.unlink()
    _, second = answer(world, ask(world, "job-2", epsilon=0.01), "job-2")
    assert first != second
    assert ledger_of(world).spent().releases == 2


@pytest.mark.parametrize(
    ("limits", "changes", "code"),
    [
        ({"kinds": ["surrogate", "fair"]}, {}, "kind"),
        ({"most_epsilon": 0.9}, {}, "epsilon"),
        ({"most_epsilon": None}, {}, "epsilon"),
        ({"least_epsilon_left": 99.5}, {}, "budget"),
        ({}, {"epsilon": 0}, "settings"),
        ({}, {"epsilon": "1"}, "settings"),
        ({}, {"epsilon": 101}, "settings"),
        ({}, {"seed": 1}, "settings"),
    ],
)
def test_sites_limit_measurements(world, limits, changes, code):
    world.limit("north", **({"kinds": ["gap"], "most_epsilon": 1.0} | limits))
    assert answer(world, ask(world, **changes)) == (code, b"")
    assert ledger_of(world).spent().releases == 0


@pytest.mark.parametrize("model", [b"", b"{}", b"\xff", b"[" * 10**5, "other schema"])
def test_a_model_that_is_none_or_anothers_is_refused(world, model):
    if model == "other schema":
        write_model(make_model(make_schema(3)), world.folder / "model.json")
        model = (world.folder / "model.json").read_bytes()
    assert answer(world, Message(ask(world).text, model)) == ("settings", b"")


def test_limits_come_before_what_came_with_the_question(world):
    """A site that allows nothing does not look at a model."""
    world.limit("north", kinds=[])
    message = ask(world)._replace(carried=b"no model")
    assert answer(world, message)[0] == "kind"


def test_what_fails_on_the_rows_is_not_said_to_be_the_budget(world, monkeypatch):
    def fail(*_, **__):
        raise ValueError("a value of some row")

    monkeypatch.setattr("synthfair.measure.gaps_file.noisy_counts", fail)
    assert answer(world, ask(world)) == ("failed", b"")


def test_measurements_add_up_to_the_ledgers_limit(world):
    ledger_of(world).set_limit(2.5, 1e-6)
    assert answer(world, ask(world))[0] == "ok"
    assert answer(world, ask(world, "job-2", epsilon=1.6), "job-2") == ("budget", b"")
    assert answer(world, ask(world, "job-3"), "job-3")[0] == "ok"  # the same, at no cost
    assert answer(world, ask(world, "job-4", epsilon=1.4), "job-4")[0] == "ok"
    assert ledger_of(world).spent().epsilon(1e-6) == pytest.approx(2.4)
    world.limit("north", kinds=["gap"], most_epsilon=5.0, least_epsilon_left=0.2)
    assert answer(world, ask(world, "job-5", epsilon=0.05), "job-5") == ("budget", b"")


@pytest.mark.parametrize(
    "carried",
    [b"", bytes(63), bytes(65), bytes(7) + b"\x01" + bytes(56), bytes(7) + b"\x80" + bytes(56)],
)
def test_what_no_site_would_send_is_refused(world, carried):
    channel = channel_of(world)
    channel.on_way = lambda name, m: resigned(world, name, m, carried) if name == "north" else m
    federation, found = measure(world, channel, least_answers=1)
    assert federation.booked["north"].code == "refused"
    assert found["sites"] == ["south"]
    again = channel_of(world, job="job-2")
    again.on_way = channel.on_way
    with pytest.raises(TooFewError, match="north: refused"):
        measure(world, again)


def test_the_page_of_a_report_shows_the_jobs_gaps(world, tmp_path):
    _, found = measure(world, channel_of(world))
    folder = write_run(tmp_path / "run")
    shutil.copy(world.folder / "job-1" / "gaps.json", folder)
    write_report(folder, folder / "r.html")
    page = (folder / "r.html").read_text()
    assert "2 sites, epsilon = 1 each" in page
    assert "Each site has counted the model" in page
    for gap in found["gaps"]:
        assert f"{gap['value']:z.4f}" in page
    write_report(world.folder / "job-1", tmp_path / "alone.html")
    assert "2 sites, epsilon = 1 each" in (tmp_path / "alone.html").read_text()


def test_a_server_does_not_ask_with_what_does_not_fit(world):
    channel = channel_of(world)
    write_model(make_model(make_schema(3)), world.folder / "model.json")
    with pytest.raises(sf.InputError, match="of the schema"):
        measure(world, channel)
    assert channel.asked == []


def test_a_project_names_files_and_a_job_holds_them(world):
    pytest.importorskip("nvflare")
    folder = world.folder
    project = {
        "schema": "schema.json",
        "sites": [{"name": name, "org": "bank"} for name in NAMES],
        "jobs": {"gap": {"epsilon": EPSILON, "model": "model.json"}},
    }  # fmt: skip
    write_json(folder / "project.yml", project)
    argv = ["deploy", "job", str(folder / "project.yml"), "--output"]
    assert main([*argv, str(folder / "jobs")]) == 0
    assert main([*argv, str(folder / "jobs")]) == 2
    config = json.loads((folder / "jobs/gap/app/config/config_fed_server.json").read_text())
    arguments = config["workflows"][0]["args"]
    assert GapJob.model_validate_json(json.dumps(arguments["job"])) == make_job(world)
    assert str(folder) not in json.dumps(arguments)


def test_a_job_names_no_file(world):
    assert (world.folder / "model.json").exists()
    with pytest.raises(ValueError, match="model"):
        make_job(world, model=str(world.folder / "model.json"))


@pytest.mark.parametrize(
    ("name", "said"), [("none.json", "cannot read"), ("schema.json", "not a model file")]
)
def test_a_projects_files_are_validated(world, name, said):
    document = {"epsilon": EPSILON, "model": name}
    with pytest.raises(ValueError, match=said):
        GapJob.model_validate_json(json.dumps(document), context={"folder": world.folder})

"""Gaps without an engine: the command line's reports and estimates, limits, and one answer."""

import base64
import json

import pytest
from conftest import make_schema, make_table
from two_sites import NAMES, InProcess, World, resigned

import synthfair as sf
from synthfair.cli import main
from synthfair.deploy.gap_job import GapJob, GapQuestion, run_gap
from synthfair.evaluation import pooled_scores
from synthfair.fairness.metrics import group_rates
from synthfair.files import write_json
from synthfair.measure.collection import NO_VALUE, make_collection, write_collection
from synthfair.privacy.ledger import Ledger
from synthfair.privacy.noise import seeded
from synthfair.task.job_sites import TooFewError
from synthfair.task.messages import Message, sha256
from synthfair.trained import TrainedModel, input_names, write_model

ROWS = 1500
RATE = "true_positive_rate"


def make_plan(epsilon=1.0, groups=("a", "b", NO_VALUE), **options):
    mechanism = sf.measure.best_split("randomized", groups=len(groups), epsilon=epsilon)
    return make_collection(groups, mechanism, **options)


def make_model(schema=None, step=-0.5):
    schema = schema or make_schema()
    names = input_names(schema, intercept=True)
    theta = {"income": 1.0, "town=b": step, "(intercept)": -0.3}
    return TrainedModel(
        schema=schema, version="0", loss="logistic", intercept=True, inputs=names,
        theta=tuple(theta.get(name, 0.0) for name in names), gradient_norm=0.0, converged=True,
    )  # fmt: skip


PLAN = make_plan()


@pytest.fixture
def world(tmp_path):
    found = World(tmp_path, rows=ROWS)
    for name in NAMES:
        found.limit(name, kinds=["gap"], most_epsilon=5.0)
        found.bound(name)
    write_model(make_model(), tmp_path / "model.json")
    write_collection(PLAN, tmp_path / "gap.json")
    return found


def make_job(world, plan=PLAN, rate=RATE, **changes):
    content = (world.folder / "model.json").read_bytes()
    document = {"collection": plan.model_dump(mode="json"), "rate": rate,
                "model": base64.b64encode(content).decode()}  # fmt: skip
    return GapJob.model_validate_json(json.dumps(document | changes))


def channel_of(world, job="job-1"):
    return InProcess({name: world.site(name) for name in NAMES}, job=job)


def measure(world, channel, **changes):
    federation = world.federation(channel)
    folder = world.folder / channel.job
    run_gap(federation, make_job(world, **changes), world.folder / "private", folder)
    return federation, json.loads((folder / "gaps.json").read_text())


def ask(world, job="job-1", *, plan=PLAN, **changes):
    settings = GapQuestion(collection=plan, rate=RATE).model_dump(mode="json") | changes
    text = world.ask(settings, task="gap", job=job).text
    return Message(text, (world.folder / "model.json").read_bytes())


def answer(world, message, job="job-1", name="north"):
    found = world.site(name).answer(message, job=job, submitter="lead@hub.org")
    return json.loads(found.text)["code"], found.carried


def ledger_of(world, name="north"):
    return Ledger.for_table(world.folder / name / "rows.csv")


def test_reports_and_gaps_are_those_of_the_command_line(world, monkeypatch, capsys):
    folder = world.folder

    def one_noise(seed):
        monkeypatch.setattr("os.urandom", seeded(seed))

    channel = channel_of(world)
    answers = dict(zip(NAMES, (1, 2), strict=True))
    for name, site in channel.sites.items():
        own = site.answer
        site.answer = lambda *a, own=own, name=name, **k: one_noise(answers[name]) or own(*a, **k)
    _, found = measure(world, channel)
    for name in NAMES:
        one_noise(answers[name])
        assert main(["gap", "perturb", str(folder / "gap.json"), "--header",
                     "--model", str(folder / "model.json"), "--rate", RATE,
                     "--table", str(folder / name / "rows.csv")]) == 0  # fmt: skip
        reports = capsys.readouterr().out
        assert (folder / "private" / f"{name}.csv").read_text() == reports
        (folder / f"{name}.csv").write_text(reports)
    monkeypatch.undo()
    assert main(["gap", "aggregate", *(str(folder / name) for name in
                 ("gap.json", "north.csv", "south.csv")), "--output", str(folder / "g")]) == 0  # fmt: skip
    by_hand = json.loads((folder / "g").read_text())
    assert {key: found[key] for key in by_hand} == by_hand
    assert found["sites"] == dict.fromkeys(NAMES, ROWS)
    assert found["guarantee"] == {
        "epsilon": PLAN.epsilon, "delta": 0, "unit": "one row", "relation": "add_or_remove"
    }  # fmt: skip


def test_intervals_hold_the_gap_of_all_sites_rows(world, monkeypatch):
    """By the confidence, one seed in a million would not do; a gap of 0 is rejected."""
    monkeypatch.setattr("os.urandom", seeded(0))
    tables = {name: make_table(ROWS, seed=i) for i, name in enumerate(NAMES)}
    rates = group_rates(pooled_scores(make_model(), tables))
    true = rates[1].true_positive_rate - rates[0].true_positive_rate
    assert true < -0.3
    _, found = measure(world, channel_of(world), plan=make_plan(5.0), confidence=1 - 1e-6)
    (gap,) = found["gaps"]
    assert (gap["first"], gap["second"]) == ("a", "b")
    assert gap["low"] < true < gap["high"] < 0
    assert found["rate"] == RATE
    assert found["model"] == make_model().sha256
    assert found["warnings"] == []


def test_one_question_has_one_answer_that_is_booked_once(world):
    code, first = answer(world, ask(world))
    assert code == "ok"
    _, booked = ledger_of(world).entries()
    assert booked.what.guarantee.epsilon == PLAN.epsilon
    (event,) = world.site("north").trace.events()
    assert (event.epsilon, event.sha256) == (PLAN.epsilon, sha256(first))
    (stored,) = (world.folder / "north" / "synthfair" / "gaps").iterdir()
    assert stored.stat().st_mode & 0o077 == 0
    assert answer(world, ask(world, "job-2"), "job-2") == ("ok", first)
    assert ledger_of(world).spent().releases == 1


def test_a_site_that_ended_before_its_answer_was_saved_books_once(world, monkeypatch):
    def full(_):
        raise OSError("no space left")

    with monkeypatch.context() as patch:
        patch.setattr("synthfair.task.answer_store._sync", full)
        for job in ("job-1", "job-2"):
            assert answer(world, ask(world, job), job) == ("failed", b"")
            assert ledger_of(world).spent().releases == 1
    code, first = answer(world, ask(world, "job-3"), "job-3")
    assert code == "ok"
    assert answer(world, ask(world, "job-4"), "job-4") == ("ok", first)
    assert ledger_of(world).spent().releases == 1


def test_reports_are_made_once_there_is_room_and_a_booking(world, monkeypatch):
    spent = []

    def end(*_, **__):
        spent.append(ledger_of(world).spent().releases)
        raise SystemExit

    monkeypatch.setattr("synthfair.deploy.gap_job.perturb_rates", end)
    with pytest.raises(SystemExit):
        answer(world, ask(world))
    assert spent == [1]
    (room,) = (world.folder / "north" / "synthfair" / "gaps").iterdir()
    assert room.stat().st_size > 200 * ROWS


def test_a_damaged_answer_is_no_matter_of_the_budget(world):
    answer(world, ask(world))
    (stored,) = (world.folder / "north" / "synthfair" / "gaps").iterdir()
    stored.write_bytes(b"damaged")
    assert answer(world, ask(world, "job-2"), "job-2") == ("failed", b"")
    assert "damaged, or of another version" in world.said[-1]


def test_the_same_rows_in_another_order_get_the_same_reports(world):
    path = world.folder / "north" / "rows.csv"
    first = answer(world, ask(world))
    make_table(ROWS, seed=0).sample(frac=1, random_state=1).to_csv(path, index=False)
    assert answer(world, ask(world, "job-2"), "job-2") == first


@pytest.mark.parametrize("what", ["plan", "rate", "model", "rows"])
def test_another_question_is_booked_anew(world, what):
    _, first = answer(world, ask(world))
    changes = {}
    if what == "plan":
        changes = {"plan": make_plan(1.5)}
    elif what == "rate":
        changes = {"rate": "false_positive_rate"}
    elif what == "model":  # which decides all rows alike
        write_model(make_model(step=-0.5 - 1e-12), world.folder / "model.json")
    else:
        make_table(ROWS, seed=5).to_csv(world.folder / "north" / "rows.csv", index=False)
    code, second = answer(world, ask(world, "job-2", **changes), "job-2")
    assert code == "ok"
    assert not set(first.splitlines()[1:]) & set(second.splitlines()[1:])
    assert ledger_of(world).spent().releases == 2


def test_nobody_can_repeat_the_noise(world):
    _, first = answer(world, ask(world))
    (stored,) = (world.folder / "north" / "synthfair" / "gaps").iterdir()
    stored.unlink()
    _, second = answer(world, ask(world, "job-2"), "job-2")
    reports = [[line.split(b",") for line in one.splitlines()[1:]] for one in (first, second)]
    ids, noisy = zip(*(({r[0] for r in one}, [r[2:] for r in one]) for one in reports), strict=True)
    assert not ids[0] & ids[1]
    assert noisy[0] != noisy[1]
    assert ledger_of(world).spent().releases == 2


@pytest.mark.parametrize(
    ("limits", "changes", "code"),
    [
        ({"kinds": ["surrogate", "fair"]}, {}, "kind"),
        ({"most_epsilon": 0.9}, {}, "epsilon"),
        ({"most_epsilon": None}, {}, "epsilon"),
        ({"least_epsilon_left": 99.5}, {}, "budget"),
        ({}, {"plan": make_plan(groups=("a", "b"))}, "settings"),
        ({}, {"plan": make_plan(lower=0.2)}, "settings"),
        ({}, {"plan": make_plan(upper=0.8)}, "settings"),
        ({}, {"collection": PLAN.model_dump(mode="json") | {"epsilon": 0.5}}, "settings"),
        ({}, {"collection": "gap.json"}, "settings"),
        ({}, {"rate": "accuracy"}, "settings"),
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

    monkeypatch.setattr("synthfair.deploy.gap_job.perturb_rates", fail)
    assert answer(world, ask(world)) == ("failed", b"")


def test_measurements_add_up_to_the_ledgers_limit(world):
    ledger_of(world).set_limit(2.5, 1e-6)
    assert answer(world, ask(world))[0] == "ok"
    other = make_plan(1.6)
    assert answer(world, ask(world, "job-2", plan=other), "job-2") == ("budget", b"")
    assert answer(world, ask(world, "job-3"), "job-3")[0] == "ok"  # the same, at no cost
    other = make_plan(1.4)
    assert answer(world, ask(world, "job-4", plan=other), "job-4")[0] == "ok"
    assert ledger_of(world).spent().epsilon(1e-6) == pytest.approx(2.4)
    world.limit("north", kinds=["gap"], most_epsilon=5.0, least_epsilon_left=0.2)
    last = make_plan(0.05)
    assert answer(world, ask(world, "job-5", plan=last), "job-5") == ("budget", b"")


HEAD = b"report,collection,group,value\n"
LINE = b"%032x," + PLAN.fingerprint.encode() + b",a,1.0\n"


@pytest.mark.parametrize(
    "carried",
    [b"", HEAD, b"\x00\xff", b"PAR1junk", HEAD + b"1,2\n", HEAD + LINE % 1 + b"\xff\n",
     HEAD + (LINE % 1).replace(b",a,", b",c,"), HEAD + (LINE % 1).replace(b"1.0", b"5.0"),
     HEAD + (LINE % 1).replace(PLAN.fingerprint.encode(), b"00000000")],
)  # fmt: skip
def test_what_no_site_would_send_is_refused(world, carried):
    channel = channel_of(world)
    channel.on_way = lambda name, m: resigned(world, name, m, carried) if name == "north" else m
    federation, found = measure(world, channel, least_answers=1)
    assert federation.booked["north"].code == "refused"
    assert found["sites"] == {"south": ROWS}
    assert found["reports"] == ROWS
    again = channel_of(world, job="job-2")
    again.on_way = channel.on_way
    with pytest.raises(TooFewError, match="north: refused"):
        measure(world, again)


def test_reports_of_another_site_count_once(world):
    channel = channel_of(world)
    sent = {}
    channel.on_way = lambda name, m: resigned(
        world, name, m, sent.setdefault("first", m.carried)
    )  # fmt: skip
    _, found = measure(world, channel)
    assert (found["reports"], found["rejected"]["repeated report"]) == (ROWS, ROWS)


def test_a_server_does_not_ask_with_what_does_not_fit(world):
    channel = channel_of(world)
    with pytest.raises(sf.InputError, match="no value"):
        measure(world, channel, plan=make_plan(groups=("a", "b")))
    write_model(make_model(make_schema(3)), world.folder / "model.json")
    with pytest.raises(sf.InputError, match="of the schema"):
        measure(world, channel)
    assert channel.asked == []


def test_a_project_names_files_and_a_job_holds_them(world):
    pytest.importorskip("nvflare")
    folder = world.folder
    project = {
        "name": "lenders", "schema": "schema.json",
        "server": {"name": "localhost", "org": "hub"},
        "sites": [{"name": name, "org": "bank"} for name in NAMES],
        "submitters": [{"name": "lead@hub.org", "org": "hub"}],
        "jobs": {"gap": {"collection": "gap.json", "model": "model.json", "rate": RATE}},
    }  # fmt: skip
    write_json(folder / "project.yml", project)
    argv = ["deploy", "kit", str(folder / "project.yml"), "--jobs-only", "--output"]
    assert main([*argv, str(folder / "jobs")]) == 0
    assert main([*argv, str(folder / "jobs")]) == 2
    config = json.loads((folder / "jobs/gap/app/config/config_fed_server.json").read_text())
    arguments = config["workflows"][0]["args"]
    assert GapJob.model_validate_json(json.dumps(arguments["job"])) == make_job(world)
    assert str(folder) not in json.dumps(arguments)


@pytest.mark.parametrize("key", ["collection", "model"])
def test_a_job_names_no_file(world, key):
    assert (world.folder / "model.json").exists()
    with pytest.raises(ValueError, match=key):
        make_job(world, **{key: str(world.folder / "model.json")})


@pytest.mark.parametrize(
    ("key", "name", "said"),
    [("collection", "none.json", "cannot read"), ("model", "none.json", "cannot read"),
     ("model", "schema.json", "not a model file"), ("collection", "schema.json", "unknown key")],
)  # fmt: skip
def test_a_projects_files_are_validated(world, key, name, said):
    document = {"collection": "gap.json", "model": "model.json", "rate": RATE} | {key: name}
    with pytest.raises(ValueError, match=said):
        GapJob.model_validate_json(json.dumps(document), context={"folder": world.folder})


@pytest.mark.parametrize("batch", [ROWS // 2, ROWS, ROWS + 1, ROWS + 2])
def test_reports_come_in_batches(world, batch):
    """The same reports, booked once, also where the last batch is full."""
    whole, found = measure(world, channel_of(world))
    sent = {name: (world.folder / "private" / f"{name}.csv").read_bytes() for name in NAMES}
    assert whole.booked["north"].rounds == 1
    federation, again = measure(world, channel_of(world, job="job-2"), batch=batch)
    assert federation.booked["north"].rounds == (ROWS + 1) // batch + 1
    assert {n: (world.folder / "private" / f"{n}.csv").read_bytes() for n in NAMES} == sent
    assert again["gaps"] == found["gaps"]
    assert ledger_of(world).spent().releases == 1


@pytest.mark.parametrize("wrong", ["lines", "bytes", "no end"])
def test_what_is_no_batch_is_refused(world, wrong, monkeypatch):
    size = ROWS // 2
    lines = HEAD + (size - 1) * (LINE % 1)
    answers = {"lines": lines + LINE % 1, "bytes": bytes(size * 200 + 1), "no end": lines}
    monkeypatch.setattr("synthfair.deploy.gap_job.MOST_BATCHES", 3)
    channel = channel_of(world)
    channel.on_way = lambda name, m: (
        resigned(world, name, m, answers[wrong]) if name == "north" else m
    )
    federation, found = measure(world, channel, batch=size, least_answers=1)
    assert federation.booked["north"].code == "refused"
    assert set(found["sites"]) == {"south"}

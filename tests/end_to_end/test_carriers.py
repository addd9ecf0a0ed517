"""A task has one answer, is booked alike and refused alike: by files, and by messages."""

import json

import numpy as np
import pytest
from builders import NAMES, PRIVATE, RELEASE, World
from sum_world import ADDERS, SumWorld

import synthfair as sf
from synthfair.cli import main
from synthfair.client import distill_file
from synthfair.deploy.project import needs_aggregators
from synthfair.deploy.single_shot import SingleShotJob, release_config, run_single_shot
from synthfair.errors import InputError
from synthfair.privacy.ledger import BudgetError, Ledger
from synthfair.release.keys import read_signing_key
from synthfair.secure import GroupCounts, RowSums
from synthfair.task.job_sites import TooFewError

FAIR = {"release": "fair", "n_synthetic": 24, "steps": 20}
TASKS = {
    "fair": FAIR,
    "surrogate": RELEASE,
    "private fair": FAIR | {"epsilon": 1.0, "delta": 1e-6, "k_min": 5},
    "private surrogate": PRIVATE,
}


@pytest.fixture
def world(tmp_path):
    return World(tmp_path)


def by_file(world, settings, ledger, **options):
    folder, key = world.folder / "north", world.folder / "north" / "local" / "north.key"
    paths = folder / "rows.csv", world.folder / "schema.json", world.folder / "by_file.parquet"
    options |= {"key": read_signing_key(key), "ledger": ledger}
    distill_file(*paths, release_config(settings), **options)
    return paths[-1].read_bytes()


def by_message(world, settings, job="job-1"):
    return world.site("north").answer(world.ask(settings, job=job), job=job, submitter="x").carried


def booked(ledger):
    fields = {"kind", "run", "guarantee", "round", "question", "seen"}
    purchases = [record.what for record in Ledger(ledger).records()]
    return [what.model_dump(include=fields) for what in purchases if what.kind != "limit"]


@pytest.mark.parametrize("task", TASKS)
def test_a_release_is_the_same_by_files_and_by_messages(world, task):
    settings, place = TASKS[task], Ledger.for_table(world.folder / "north" / "rows.csv").path
    if "epsilon" in settings:
        world.bound("north")
        assert by_message(world, settings) == by_file(world, settings, place) != b""
        assert len(booked(place)) == 1  # what one has bought is the other's, too
        return
    assert by_message(world, settings) == by_file(world, settings, world.folder / "other") != b""
    assert booked(place) == booked(world.folder / "other")


@pytest.mark.parametrize("first", [by_file, by_message])
def test_what_left_by_one_way_stops_what_would_leave_by_the_other(world, first):
    place = Ledger.for_table(world.folder / "north" / "rows.csv").path
    (by_message(world, RELEASE) if first is by_message else by_file(world, RELEASE, place))
    other = RELEASE | {"seed": 1}
    assert world.code(world.ask(other, job="job-2"), job="job-2") == "budget"
    with pytest.raises(BudgetError, match="again = true is consent"):
        by_file(world, other, place, force=True)
    world.limit("north", again=1)
    assert world.code(world.ask(other, job="job-2"), job="job-2") == "ok"
    by_file(world, other, place, force=True)  # the very same answer tells nothing new
    assert len(booked(place)) == 2


# Sums by shares: counts, and one surrogate of all sites' rows

SHARED = RELEASE | {"epsilon": 2.0, "delta": 1e-5}
SUMS = "histograms", "column_moments", "tables", "pairs", "anchors"


@pytest.fixture
def sums(tmp_path):
    world = SumWorld(tmp_path)
    for name in ADDERS:
        world.allow(name, least_clients=1)
    for name in NAMES:
        world.bound(name)
    return world


@pytest.fixture
def no_noise(monkeypatch):
    """So that totals are those of any run."""
    for kind in (GroupCounts, RowSums):
        monkeypatch.setattr(kind, "noise", lambda what, *_: np.zeros(what.length, np.int64))


class ByCommands:
    """The sites and aggregators of a world, by files and commands, with ledgers of their own."""

    def __init__(self, world):
        self.world, self.folder = world, world.folder / "by_files"
        self.folder.mkdir()
        self.keys = [f"{world.folder}/aggregators/{name}.pub" for name in ADDERS]
        (self.folder / "settings.toml").write_text(
            "\n".join(f"{key} = {json.dumps(value)}" for key, value in SHARED.items())
        )

    def plan(self, *flags, clients="keys", output="tasks"):
        parties = ["--aggregators", *self.keys, "--clients", f"{self.world.folder}/{clients}"]
        return main(["secure", "plan", *parties, *flags, "--output", f"{self.folder}/{output}"])

    def plan_surrogate(self, *flags, **places):
        asked = ["--surrogate", f"{self.folder}/settings.toml", "--opened", f"{self.folder}/opened"]
        return self.plan(*asked, *self.schema, *flags, **places)

    @property
    def schema(self):
        return ["--schema", f"{self.world.folder}/schema.json"]

    def answer(self, name, task, *flags):
        site = self.world.folder / name
        own = ["--data", f"{site}/rows.csv", "--sign", f"{site}/local/{name}.key", *flags]
        agreed = ["--aggregators", *self.keys, "--most-epsilon", "2", "--ledger", self.ledger(name)]
        return main(["answer", str(task), *own, *agreed, "--output", f"{self.folder}/{task.stem}"])

    def ledger(self, name):
        return f"{self.folder}/{name}.ledger"

    def add_and_open(self, task, output):
        """Both aggregators' answers, opened."""
        files = []
        for role, name in enumerate(ADDERS):
            files.append(f"{self.folder}/{task.stem}.sum_{role}")
            add = ["--task", str(task), "--key", f"{self.world.folder}/{name}/sums/{name}.key"]
            add += [f"{self.folder}/{task.stem}", "--most-epsilon", "2", "--output", files[-1]]
            assert main(["secure", "add", *add]) == 0
        assert main(["secure", "open", *files, "--task", str(task), "--output", str(output)]) == 0

    def exchange(self, name):
        """A sum of a surrogate, which all sites answer."""
        task = self.folder / "tasks" / f"{name}.json"
        for site in NAMES:
            assert self.answer(site, task, *self.schema) == 0
        (self.folder / "opened").mkdir(exist_ok=True)
        self.add_and_open(task, self.folder / "opened" / f"{name}.json")


def by_job(world, job="job-1", channel=None, **changes):
    """A job with one noise for all sites."""
    settings = {"release": SHARED, "shared_noise": True, "server": {"max_influence": 5.0}}
    federation = world.federation(channel or world.channel(job))
    output = world.folder / job
    job_settings = SingleShotJob(**settings | changes)
    run_single_shot(federation, job_settings, world.folder / "server" / job, output)
    return federation


def kept(ledger):
    """What is booked, but for the questions, which name their task."""
    return [{k: v for k, v in one.items() if k != "question"} for one in booked(ledger)]


@pytest.mark.usefixtures("no_noise")
def test_one_noise_for_all_is_the_same_by_files_and_by_messages(sums):
    by_job(sums)
    files = ByCommands(sums)
    for names in (SUMS[:2], SUMS[2:3], SUMS[3:4], SUMS[4:]):
        assert files.plan_surrogate() == 0
        for name in names:
            files.exchange(name)
    assert files.plan_surrogate() == 0
    release = files.folder / "tasks" / "surrogate.parquet"
    theirs = sums.folder / "server" / "job-1" / "surrogate.parquet"
    assert release.read_bytes() == theirs.read_bytes()
    guarantee = sf.release.inspect_release(release).release.header.guarantee
    assert (guarantee.epsilon, guarantee.adversary, guarantee.aggregators) == (
        2.0,
        "all_but_one",
        2,
    )
    # It is pooled like any other.
    server = ["server", str(release), "--schema", f"{sums.folder}/schema.json"]
    server += ["--test", *(f"{sums.folder}/{name}_test.csv" for name in NAMES)]
    assert main([*server, "--output", f"{files.folder}/out"]) == 0
    model = (files.folder / "out" / "model.json").read_bytes()
    assert model == (sums.folder / "job-1" / "model.json").read_bytes()
    # It is booked alike: once, the whole of it, in five rounds.
    for name in NAMES:
        ledger = Ledger.for_table(sums.folder / name / "rows.csv")
        assert kept(ledger.path) == kept(files.ledger(name))
        assert (ledger.spent().releases, ledger.spent().answers) == (1, 5)
        assert ledger.spent().epsilon(1e-5) == pytest.approx(2.0, abs=1e-3)


@pytest.mark.usefixtures("no_noise")
def test_counts_are_the_same_by_files_and_by_messages(sums):
    sums.post(sums.channel(), send_back=False)
    files, model = ByCommands(sums), ["--model", f"{sums.folder}/given.json"]
    counts = [*model, "--bins", "11", "--epsilon", "2", "--rows-per-client", "500"]
    assert files.plan(*counts, output="counts.json") == 0
    for name in NAMES:
        assert files.answer(name, files.folder / "counts.json", *model) == 0
    files.add_and_open(files.folder / "counts.json", files.folder / "histogram.json")
    theirs = sums.folder / "job-1" / "histogram.json"
    assert (files.folder / "histogram.json").read_bytes() == theirs.read_bytes()
    own, others = kept(sums.ledger().path)[0], kept(files.ledger("north"))[0]
    assert own | {"run": None} == others | {"run": None}  # which names the task


def test_the_same_question_again_gets_the_same_shares_and_costs_nothing(sums):
    channel = sums.channel()
    by_job(sums, channel=channel)
    asked = [m for m in channel.asked if json.loads(m.text)["task"] == "single_shot"]
    before = sums.ledger().path.read_bytes()
    first, again = (
        sums.site("north").answer(asked[2], job="job-1", submitter="x").carried for _ in range(2)
    )
    task = sf.secure.SumTask.model_validate_json(
        json.dumps(json.loads(asked[2].text)["settings"]["task"])
    )
    secret = sf.secure.read_aggregator_secret(sums.site(ADDERS[0]).settings.key)
    half = len(first) // 2
    (_, nonce, share), (_, same, theirs) = (
        sf.secure.read_upload(content[:half], task, secret) for content in (first, again)
    )
    assert nonce == same
    assert share.tolist() == theirs.tolist()
    assert sums.ledger().path.read_bytes() == before


def test_another_question_in_a_round_is_another_purchase(sums):
    files = ByCommands(sums)
    for output, total in (("one", 1), ("two", 2)):
        assert files.plan_surrogate(output=output) == 0
        for name in SUMS[:2]:
            task = files.folder / output / f"{name}.json"
            assert files.answer("north", task, *files.schema, "--force") == 0
        spent = Ledger(files.folder / "north.ledger").spent()
        assert (spent.releases, spent.answers) == (total, 2 * total)


@pytest.mark.parametrize(
    ("limits", "code"),
    [
        ({"most_epsilon": 1.9}, "epsilon"),
        ({"most_delta": 1e-6}, "epsilon"),
        ({"k_min": 6}, "k_min"),
        ({"kinds": ["fair", "counts", "training"]}, "kind"),
        ({"least_epsilon_left": 100.0}, "budget"),
    ],
)
def test_a_site_refuses_what_is_beyond_its_limits(sums, limits, code):
    sums.limit("north", **limits)
    with pytest.raises(TooFewError, match=f"north: {code}"):
        by_job(sums)
    assert sums.left("north") == []


def test_by_files_a_client_refuses_more_than_was_agreed(sums, capsys):
    files = ByCommands(sums)
    path = files.folder / "settings.toml"
    path.write_text(path.read_text().replace("1e-05", "1e-04"))
    assert files.plan_surrogate() == 0
    assert files.answer("north", files.folder / "tasks" / "histograms.json", *files.schema) == 2
    assert "delta = 0.0001; must be at most 1e-05" in capsys.readouterr().err
    assert not (files.folder / "north.ledger").exists()


@pytest.mark.parametrize(
    ("planned", "answered", "message"),
    [
        (["--epsilon", "0.1"], [], "a surrogate's epsilon is in its settings"),
        (["--unit", "user", "--rows-per-user", "3"], [], "its unit is one row"),
        (["--rows-per-client", "500"], [], "are of counts"),
        ([], ["--user-column", "town"], "unit of a surrogate's sums is one row"),
        ([], ["--k-min", "100"], "its k_min is not at least 100"),
    ],
)
def test_no_flag_about_privacy_is_passed_over(sums, capsys, planned, answered, message):
    files = ByCommands(sums)
    assert files.plan_surrogate(*planned) == (2 if planned else 0)
    if answered:
        task = files.folder / "tasks" / "histograms.json"
        assert files.answer("north", task, *files.schema, *answered) == 2
    assert message in " ".join(capsys.readouterr().err.split())
    assert not (files.folder / "north.ledger").exists()


def test_tasks_that_every_answer_refuses_are_not_planned(sums, capsys):
    files = ByCommands(sums)
    with (files.folder / "settings.toml").open("a") as file:
        file.write('\nrelation = "replace"\n')
    assert files.plan_surrogate() == 2
    assert "relation = replace; must be add_or_remove" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("limits", "label", "code"),
    [({"kinds": ["counts"]}, "paid", "kind"), ({}, "other", "failed"), ({}, "paid", "failed")],
)
def test_a_site_works_on_no_plan_beyond_its_limits_or_of_another_schema(
    sums, limits, label, code, monkeypatch
):
    """What is asked is computed from totals that a planner wrote, which takes a while."""
    files = ByCommands(sums)
    assert files.plan_surrogate() == 0
    task = json.loads((files.folder / "tasks" / "histograms.json").read_text())
    schema = task["what"]["table_schema"]
    task["what"]["table_schema"] = json.loads(json.dumps(schema).replace("paid", label))
    worked = []

    def refuse(what):
        worked.append(what)
        raise InputError("another sum than the totals before ask for")

    monkeypatch.setattr("synthfair.secure.part.client_sums", refuse)
    sums.limit("north", **limits)
    assert sums.code(sums.ask({"task": task})) == code
    assert len(worked) == (not limits and label == "paid")
    assert sums.left("north") == []


def gone_after(world, sums):
    """A channel by which the site south answers so many sums, and is gone then."""
    channel, left = world.channel(), [sums]
    answer = channel.sites["south"].answer

    def until_gone(message, **options):
        left[0] -= 1
        return answer(message, **options) if left[0] >= 0 else None

    channel.sites["south"].answer = until_gone
    return channel


def test_who_is_gone_before_the_first_sum_is_in_none(sums):
    federation = by_job(sums, channel=gone_after(sums, 0), least_answers=1)
    assert federation.sites == ("north",)
    assert sums.left("south") == []
    assert len(sums.left("north")) == 5


@pytest.mark.parametrize("answered", [1, 2, 3, 4])
def test_who_drops_out_after_the_first_sum_is_named_before_any_total_lacks_it(sums, answered):
    channel = gone_after(sums, answered)
    with pytest.raises(TooFewError, match=r"of the 2 needed \(south: lost\)"):
        by_job(sums, channel=channel, least_answers=1)
    added = [m for m in channel.asked if json.loads(m.text)["task"] == "add"]
    assert len(added) == 2 * answered
    by_job(sums, job="job-2", least_answers=1)  # it is back: nobody pays twice
    assert sums.ledger().spent().releases == 1


def test_who_comes_back_is_not_asked_for_sums_that_lack_it(sums):
    """It would pay, and be in none: aggregators answer once."""
    channel = sums.channel()
    del channel.sites["south"]
    channel.on_way = lambda name, m: None if name == "sums-b" and len(channel.asked) > 3 else m
    with pytest.raises(TooFewError, match="sums-b: lost"):
        by_job(sums, channel=channel, least_answers=1)
    federation = by_job(sums, job="job-2", least_answers=1)
    assert federation.sites == ("north",)
    assert sums.left("south") == []
    assert len(sums.left("north")) == 5


def test_a_job_whose_server_has_failed_goes_on_with_its_sums_whatever_else_it_says(sums):
    table = sums.folder / "north_test.csv"
    table.rename(sums.folder / "away")
    with pytest.raises(InputError, match="north_test"):
        by_job(sums)
    (sums.folder / "away").rename(table)
    channel = sums.channel("job-2")
    by_job(sums, job="job-2", channel=channel, timeout=99, server={"max_influence": 4.0})
    assert {json.loads(m.text)["task"] for m in channel.asked} == {"add"}
    assert sums.ledger().spent().answers == 5
    assert not list((sums.folder / "server").glob("*.sums"))
    by_job(sums, job="job-3")  # a new job: new sums
    assert sums.ledger().spent().answers == 10


def test_by_files_who_drops_out_is_named_when_the_next_sums_are_planned(sums, capsys):
    files = ByCommands(sums)
    assert files.plan_surrogate("--least-clients", "1") == 0
    files.exchange("histograms")
    task = files.folder / "tasks" / "column_moments.json"
    assert files.answer("north", task, *files.schema) == 0
    files.add_and_open(task, files.folder / "opened" / "column_moments.json")
    assert files.plan_surrogate() == 2
    said = " ".join(capsys.readouterr().err.split())
    assert "clients: south dropped out: not in all sums that were opened" in said
    assert "begin anew without these" in said
    # Nor does a plan go on without a client whose rows are in what was opened.
    (files.folder / "opened" / "column_moments.json").unlink()
    (sums.folder / "keys" / "south.pub").unlink()
    assert files.plan_surrogate() == 2
    assert "dropped out: not in all sums" in " ".join(capsys.readouterr().err.split())


def test_a_job_with_one_noise_needs_an_epsilon(sums):
    for release in (RELEASE, FAIR | {"epsilon": 1.0, "delta": 1e-6}):
        with pytest.raises(ValueError, match="shared_noise: is for a surrogate with epsilon"):
            SingleShotJob(release=release, shared_noise=True)


def test_a_job_with_one_noise_needs_aggregators():
    assert needs_aggregators(SingleShotJob(release=SHARED, shared_noise=True))
    assert not needs_aggregators(SingleShotJob(release=SHARED))

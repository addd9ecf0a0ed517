"""One noise for the surrogate of all sites: who may ask, and what holds where parties drop out."""

import json

import pytest
from builders import RELEASE
from sum_world import SHARED, SUMS, ByCommands, by_job

from synthfair.deploy.project import needs_aggregators
from synthfair.deploy.single_shot import SingleShotJob
from synthfair.errors import InputError
from synthfair.privacy.ledger import Ledger
from synthfair.task.job_sites import TooFewError


@pytest.mark.parametrize(("limits", "code"), [
    ({"most_epsilon": 1.9}, "epsilon"), ({"kinds": ["fair", "counts", "training"]}, "kind"),
    ({"k_min": 6}, "k_min"), ({"least_epsilon_left": 100.0}, "budget"),
])  # fmt: skip
def test_job_beyond_a_sites_limits_is_refused_and_nothing_leaves(sums, limits, code):
    sums.limit("north", **limits)
    with pytest.raises(TooFewError, match=f"north: {code}"):
        by_job(sums)
    assert sums.left("north") == []


@pytest.mark.parametrize(("settings", "planned", "answered", "word"), [
    ('relation = "replace"', [], None, "relation"), ("", ["--epsilon", "0.1"], None, "epsilon"),
    ("", ["--unit", "user", "--rows-per-user", "3"], None, "unit"),
    ("", ["--rows-per-client", "500"], None, "--rows-per-client"),
    ("", [], ["--user-column", "town"], "unit"), ("", [], ["--k-min", "100"], "k_min"),
    ("", [], ["--most-delta", "1e-6"], "delta"),
])  # fmt: skip
def test_task_whose_privacy_is_not_as_asked_is_refused(  # noqa: PLR0917
    sums, capsys, settings, planned, answered, word
):
    files = ByCommands(sums)
    with (files.folder / "settings.toml").open("a") as file:
        file.write(f"\n{settings}\n")
    assert files.plan_surrogate(*planned) == (2 if answered is None else 0)
    if answered:
        task = files.folder / "tasks" / "histograms.json"
        assert files.answer("north", task, *files.schema, *answered) == 2
    assert word in capsys.readouterr().err
    assert not (files.folder / "north.ledger").exists()


@pytest.mark.parametrize(("limits", "label", "code"), [
    ({"kinds": ["counts"]}, "paid", "kind"), ({}, "other", "failed"), ({}, "paid", "failed"),
])  # fmt: skip
def test_plan_is_worked_on_only_within_a_sites_limits_and_schema(
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


def test_site_gone_before_the_first_sum_is_in_none(sums):
    federation = by_job(sums, channel=gone_after(sums, 0), least_answers=1)
    assert federation.sites == ("north",)
    assert sums.left("south") == []
    assert len(sums.left("north")) == 5


@pytest.mark.parametrize("answered", [1, 4])
def test_site_gone_after_the_first_sum_is_named_before_any_total_lacks_it(sums, answered):
    channel = gone_after(sums, answered)
    with pytest.raises(TooFewError, match=r"south: lost"):
        by_job(sums, channel=channel, least_answers=1)
    added = [m for m in channel.asked if json.loads(m.text)["task"] == "add"]
    assert len(added) == 2 * answered
    by_job(sums, job="job-2", least_answers=1)  # it is back: nobody pays twice
    assert sums.ledger().spent().releases == 1


def test_site_back_after_the_first_sum_is_not_asked_for_what_lacks_it(sums):
    """It would pay, and be in none: aggregators answer once."""
    channel = sums.channel()
    del channel.sites["south"]
    channel.on_way = lambda name, m: None if name == "sums-b" and len(channel.asked) > 3 else m
    with pytest.raises(TooFewError, match="sums-b: lost"):
        by_job(sums, channel=channel, least_answers=1)
    assert by_job(sums, job="job-2", least_answers=1).sites == ("north",)
    assert sums.left("south") == []
    assert len(sums.left("north")) == 5


def test_job_whose_server_failed_goes_on_with_its_sums(sums):
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


def test_plan_after_a_client_dropped_out_names_it(sums, capsys):
    files = ByCommands(sums)
    assert files.plan_surrogate("--least-clients", "1") == 0
    files.exchange("histograms")
    task = files.folder / "tasks" / "column_moments.json"
    assert files.answer("north", task, *files.schema) == 0
    files.add_and_open(task, files.folder / "opened" / "column_moments.json")
    assert files.plan_surrogate() == 2
    assert "south" in capsys.readouterr().err
    # Nor does a plan go on without a client whose rows are in what was opened.
    (files.folder / "opened" / "column_moments.json").unlink()
    (sums.folder / "keys" / "south.pub").unlink()
    assert files.plan_surrogate() == 2
    assert "dropped out" in capsys.readouterr().err


def test_plan_asked_anew_is_another_purchase(sums):
    files = ByCommands(sums)
    for output, total in (("one", 1), ("two", 2)):
        assert files.plan_surrogate(output=output) == 0
        for name in SUMS[:2]:
            task = files.folder / output / f"{name}.json"
            assert files.answer("north", task, *files.schema, "--force") == 0
        spent = Ledger(files.folder / "north.ledger").spent()
        assert (spent.releases, spent.answers) == (total, 2 * total)


def test_job_with_shared_noise_needs_an_epsilon_and_aggregators():
    for release in (RELEASE, {"release": "fair", "epsilon": 1.0, "delta": 1e-6}):
        with pytest.raises(ValueError, match="shared_noise"):
            SingleShotJob(release=release, shared_noise=True)
    assert needs_aggregators(SingleShotJob(release=SHARED, shared_noise=True))
    assert not needs_aggregators(SingleShotJob(release=SHARED))

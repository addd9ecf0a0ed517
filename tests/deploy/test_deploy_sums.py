"""Sums by shares over sites and aggregators, without an engine: PrivFairFL's thresholds."""

import json

import numpy as np
import pandas as pd
import pytest
from builders import NAMES, make_schema, make_table, resigned
from scipy import stats
from sum_world import ADDERS, JOB, SumWorld

import synthfair as sf
from synthfair.cli import main
from synthfair.deploy.privfairfl_job import PrivFairFLJob
from synthfair.errors import InputError
from synthfair.files import write_json
from synthfair.release.keys import read_signing_key
from synthfair.secure import (
    GroupCounts,
    SumTask,
    make_aggregator_keys,
    new_aggregator_secret,
    read_aggregator_secret,
    read_upload,
)
from synthfair.secure.task import OWNER
from synthfair.task.job_sites import TooFewError
from synthfair.task.messages import Message

DP_SGD = {"method": "dp_sgd", "rounds": 3, "batch": 120, "clip": 1.0, "epsilon": 2.0,
          "delta": 1e-3}  # fmt: skip


@pytest.fixture
def world(tmp_path):
    return SumWorld(tmp_path)


@pytest.fixture
def known_noise(monkeypatch):
    """Noise that anybody can repeat: the same at each aggregator."""

    def noise(what, source=None):
        return np.random.default_rng(3).integers(-9, 10, what.length)

    monkeypatch.setattr(GroupCounts, "noise", noise)


def by_hand(world, folder):
    """The same sum by the commands and files of ``secure`` and ``thresholds``."""
    folder.mkdir()
    aggregators = [str(world.folder / "aggregators" / f"{name}.pub") for name in ADDERS]
    model, task = str(world.folder / "given.json"), str(folder / "task.json")
    plan = ["plan", "--model", model, "--bins", "11", "--epsilon", "2", "--rows-per-client", "500"]
    plan += ["--aggregators", *aggregators, "--clients", str(world.folder / "keys")]
    assert main(["secure", *plan, "--output", task]) == 0
    limit = ["--most-epsilon", "2"]
    for name in NAMES:
        share = ["--data", str(world.folder / name / "rows.csv"), "--model", model]
        share += ["--aggregators", *aggregators, "--ledger", str(folder / name), *limit]
        share += ["--sign", str(world.folder / name / "local" / f"{name}.key")]
        assert main(["answer", task, *share, "--output", str(folder)]) == 0
    sums = []
    for role, name in enumerate(ADDERS):
        key = str(world.folder / name / "sums" / f"{name}.key")
        sums.append(str(folder / f"sum_{role}.json"))
        add = ["--task", task, "--key", key, str(folder), "--output", sums[-1], *limit]
        assert main(["secure", "add", *add]) == 0
    histogram, fair = str(folder / "histogram.json"), str(folder / "fair_model.json")
    assert main(["secure", "open", "--task", task, *sums, "--output", histogram]) == 0
    choice = ["--notion", "statistical_parity", "--alpha", "0.1", "--model", model]
    assert main(["thresholds", histogram, *choice, "--output", fair]) == 0


@pytest.mark.usefixtures("known_noise")
def test_the_numbers_are_those_of_the_files_route(world):
    _, output = world.post(world.channel())
    by_hand(world, world.folder / "hand")
    for file in ("histogram.json", "fair_model.json"):
        assert (output / file).read_text() == (world.folder / "hand" / file).read_text()
    metrics = json.loads((output / "metrics.json").read_text())
    assert metrics["decision"]["notion"] == "statistical_parity"
    assert metrics["counts"]["guarantees"][0]["epsilon"] == 2.0
    for name in NAMES:
        sent = world.folder / name / "synthfair" / "models" / "job-1.json"
        assert sent.read_bytes() == (output / "fair_model.json").read_bytes()


def histogram(world, channel, answered=lambda site, m: m, **changes):
    channel.on_way = answered
    world.post(channel, **changes)
    return json.loads((world.folder / channel.job / "histogram.json").read_text())


def test_a_sum_is_booked_once_and_says_what_it_guarantees(world):
    origin = histogram(world, world.channel())["origin"]
    (stated,) = origin["guarantees"]
    assert (stated["epsilon"], stated["unit"], origin["clients"]) == (2.0, "row", 2)
    assert (stated["adversary"], stated["aggregators"]) == ("all_but_one", 2)
    _, booked = world.ledger().records()
    assert stated == booked.what.guarantee.model_dump(mode="json")
    assert booked.what.kind == "secure_sum"
    assert world.ledger().spent().epsilon(1e-9) == 2.0


def test_the_noise_is_of_both_aggregators(world, monkeypatch):
    """Known noise of 1 and then 3 in each count moves each by twice that."""
    found = []
    for job, steps in (("job-1", 1), ("job-2", 3)):
        monkeypatch.setattr(GroupCounts, "noise", lambda what, *_, s=steps: np.full(what.length, s))
        found.append(np.array(histogram(world, world.channel(job))["counts"]))
    assert np.unique(found[1] - found[0]).tolist() == [4]


class TestWhatIsSeen:
    """Of a site's part by the server, and by one aggregator that colludes with it."""

    @pytest.fixture
    def view(self, world, monkeypatch):
        """Both uploads of a site as they pass the server, with their task and the part."""
        # Noise comes later, and would drown so few rows in so many bins.
        monkeypatch.setattr(GroupCounts, "noise", lambda what, *_: np.zeros(what.length, int))
        seen, channel = {}, world.channel()
        model = world.model()
        histogram(world, channel, lambda s, m: (seen.setdefault(s, m.carried) and m) or m, bins=1000,
                  model=model)  # fmt: skip
        task = SumTask.model_validate(json.loads(channel.asked[0].text)["settings"]["task"])
        rows = pd.read_csv(world.folder / "north" / "rows.csv")
        given = sf.read_model(world.folder / "given.json")
        part = sf.secure.count_table(task.what, rows, make_schema(), model=given)
        return task, seen["north"], part

    def share(self, world, task, content, role):
        size = len(content) // 2
        secret = read_aggregator_secret(world.site(ADDERS[role]).settings.key)
        return read_upload(content[role * size : (role + 1) * size], task, secret)[2]

    def test_all_aggregators_together_see_it(self, world, view):
        task, content, part = view
        both = self.share(world, task, content, 0) + self.share(world, task, content, 1)
        assert np.array_equal(both.view(np.int64), part)

    @pytest.mark.parametrize("role", [0, 1])
    def test_one_sees_random_bytes(self, world, view, role):
        """Chi-squared over byte values, at a level of 1e-6; it rejects the part itself."""
        task, content, part = view
        share = self.share(world, task, content, role)

        def uniform(values):
            counts = np.bincount(np.frombuffer(values.tobytes(), np.uint8), minlength=256)
            return stats.chisquare(counts).pvalue

        assert uniform(share) > 1e-6
        assert uniform(part) < 1e-6

    def test_the_server_can_read_no_upload(self, world, view):
        """Not even as who has put a key of its own into the place of the aggregator's."""
        task, content, _ = view
        stranger, known = new_aggregator_secret(), task.id
        posed = task.model_copy(update={"aggregators": (stranger.public, task.aggregators[1])})
        assert posed.id == known  # as it was computed before
        with pytest.raises(InputError, match="another key"):
            read_upload(content[: len(content) // 2], posed, stranger)

    def test_uploads_say_nothing_by_their_length(self, world, view):
        _, content, _ = view
        make_table(3).to_csv(world.folder / "north" / "rows.csv", index=False)
        seen, channel = {}, world.channel("job-2")
        histogram(
            world, channel, lambda s, m: (seen.setdefault(s, m.carried) and m) or m, bins=1000
        )
        assert len(seen["north"]) == len(content)


@pytest.mark.parametrize(
    ("limits", "code"),
    [
        ({"most_epsilon": 1.9}, "epsilon"),
        ({"kinds": ["surrogate", "fair", "gap", "training"]}, "kind"),
        ({"least_epsilon_left": 1.5}, "budget"),
    ],
)
def test_sites_limit_sums(world, limits, code):
    world.ledger().set_limit(3.0, 1e-6)
    world.limit("north", **limits)
    with pytest.raises(TooFewError, match=f"north: {code}"):
        world.post(world.channel())
    assert world.ledger().spent().releases == 0


def test_a_second_task_beyond_the_ledgers_limit_is_refused(world):
    world.ledger().set_limit(3.0, 1e-6)
    world.post(world.channel())
    with pytest.raises(TooFewError, match="north: budget"):
        world.post(world.channel("job-2"))
    assert world.ledger().spent().releases == 1


@pytest.mark.parametrize("pinned", ["others", "swapped", "none"])
def test_a_task_with_other_aggregators_is_refused(world, pinned, tmp_path):
    folder = tmp_path / "pinned"
    for i, name in enumerate(ADDERS):
        public, _ = make_aggregator_keys(folder / f"{name}.key")
        if pinned == "swapped":
            own = world.folder / "aggregators" / f"{ADDERS[1 - i]}.pub"
            public.write_bytes(own.read_bytes())
    world.pinned = {"aggregators": None if pinned == "none" else str(folder)}
    world.limit("north")
    with pytest.raises(TooFewError, match="north: aggregators"):
        world.post(world.channel())
    assert world.ledger().spent().releases == 0


@pytest.mark.parametrize(
    ("limits", "code"),
    [({"most_tasks": 0}, "tasks"), ({"most_epsilon": 1.0}, "epsilon"),
     ({"most_epsilon": None}, "epsilon"), ({"least_clients": 3}, "settings")],
)  # fmt: skip
def test_aggregators_limit_sums(world, limits, code):
    world.allow("sums-b", **limits)
    with pytest.raises(TooFewError, match=f"sums-b: {code}"):
        world.post(world.channel())


def test_an_aggregator_adds_up_known_clients_alone(world, tmp_path):
    """Else whoever makes tasks could add clients of its own, and learn what is left of the sum."""
    known = tmp_path / "known"
    known.mkdir()
    (known / "north.pub").write_bytes((world.folder / "keys" / "north.pub").read_bytes())
    path = world.folder / "sums-a" / "local" / "synthfair.json"
    write_json(path, json.loads(path.read_text()) | {"clients": str(known)})
    with pytest.raises(TooFewError, match="sums-a: settings"):
        world.post(world.channel())


def add_question(world, channel, **changes):
    """What the server asked the first aggregator, for another job."""
    found = next(m for m in channel.asked if json.loads(m.text)["task"] == "add")
    return Message(found.text.replace(b"job-1", b"job-2"), changes.get("carried", found.carried))


def test_an_aggregator_answers_once_for_a_task(world):
    first, channel = {}, world.channel()
    histogram(world, channel, lambda s, m: (first.setdefault(s, m.carried) and m) or m)
    again = add_question(world, channel, carried=b"")  # whatever comes with it
    answer = world.site("sums-a").answer(again, job="job-2", submitter="x")
    assert answer.carried == first["sums-a"]
    (record,) = world.records("sums-a").glob("*.answer")
    record.write_bytes(b"")
    text = again.text.replace(b"job-2", b"job-3")
    assert world.code(Message(text, again.carried), "sums-a", job="job-3") == "failed"
    record.unlink()
    (record.parent / OWNER).unlink()  # a folder that was lost, and may be found again
    text = again.text.replace(b"job-2", b"job-4")
    assert world.code(Message(text, again.carried), "sums-a", job="job-4") == "failed"


def test_uploads_are_refused_as_by_files(world):
    channel = world.channel()
    channel.on_way = lambda name, m: None if name == "sums-a" else m
    with pytest.raises(TooFewError, match="sums-a: lost"):
        world.post(channel)
    (record,) = world.records("sums-a").glob("*.answer")
    record.unlink()  # as if it were not answered
    found = add_question(world, channel)
    half = len(found.carried) // 2
    for number, content in enumerate(
        (b"", found.carried[:-1], found.carried[half:], found.carried[half:] * 2)
    ):
        text = found.text.replace(b"job-2", b"job-%d" % (number + 5))
        code = world.code(Message(text, content), "sums-a", job=f"job-{number + 5}")
        assert code == "uploads"


def unreadable(world, name, message, role):
    """What the site would send that encrypts to another key than the aggregator's of a role."""
    content = message.carried
    half, key = len(content) // 2, read_signing_key(world.folder / name / "local" / f"{name}.key")
    parts = [content[:half], content[half:]]
    body = bytearray(parts[role][:-64])
    body[-1] ^= 1
    parts[role] = bytes(body) + key.sign(bytes(body))
    return resigned(world, name, message, b"".join(parts))


def with_a_bad_upload(world, role, job="job-1"):
    channel = world.channel(job)
    channel.on_way = lambda n, m: unreadable(world, n, m, role) if n == "south" else m
    return channel


def test_uploads_that_the_first_aggregator_refuses_are_asked_for_again(world):
    with pytest.raises(
        TooFewError, match=r"sums-a: uploads.*same job again, which asks the sites again"
    ):
        world.post(with_a_bad_upload(world, 0))
    assert world.key("south") in "".join(world.said)
    assert world.key("north") not in "".join(world.said)
    world.post(world.channel("job-2"))
    assert world.ledger().spent().releases == 1


def test_what_the_second_aggregator_refuses_is_sent_again_as_it_was(world):
    """A site's uploads are bought once: the first aggregator has answered for these very ones."""
    with pytest.raises(TooFewError, match=r"sums-b: uploads.*same job again") as refused:
        world.post(with_a_bad_upload(world, 1))
    assert world.key("south") in "".join(world.said)
    assert str(world.folder) not in str(refused.value)
    world.post(world.channel("job-2"))
    assert world.ledger().spent().releases == 1


def test_where_one_aggregator_has_answered_its_senders_alone_are_asked_again(world):
    """The other would pay, and be in no sum: an aggregator answers once."""
    for name in ADDERS:
        world.allow(name, least_clients=1)
    channel = with_a_bad_upload(world, 1)
    north = channel.sites.pop("north")
    with pytest.raises(TooFewError, match="sums-b: uploads"):
        world.post(channel, least_answers=1, send_back=False)
    channel = world.channel("job-2")
    channel.sites["north"] = north
    world.post(channel, least_answers=1, send_back=False)
    origin = json.loads((world.folder / "job-2" / "histogram.json").read_text())["origin"]
    assert origin["clients"] == 1
    assert world.left("north") == []
    assert len(world.left("south")) == 1


def test_a_job_with_another_timeout_and_notion_goes_on_with_its_count(world):
    channel = world.channel()
    channel.on_way = lambda name, m: None if name == "sums-b" else m
    with pytest.raises(TooFewError, match="sums-b: lost"):
        world.post(channel)
    world.post(world.channel("job-2"), timeout=99, notion="equalized_odds")
    assert world.ledger().spent().releases == 1


@pytest.mark.parametrize("what", ["junk", "short", "swapped", "the other site's"])
def test_a_part_that_is_none_is_refused_by_the_server(world, what):
    channel, sent = world.channel(), {}

    def altered(name, message):
        sent.setdefault(name, message.carried)
        content = sent["north"]
        if name != "south" or not message.carried:
            return message
        half = len(message.carried) // 2
        found = {"junk": bytes(2 * half), "short": message.carried[:-1], "the other site's": content,
                 "swapped": message.carried[half:] + message.carried[:half]}  # fmt: skip
        return resigned(world, name, message, found[what])

    channel.on_way = altered
    with pytest.raises(TooFewError, match="south: refused"):
        world.post(channel)
    world.post(channel.__class__(channel.sites, job="job-2"), send_back=False)


def test_a_job_goes_on_without_some_sites_if_it_says_so(world):
    world.allow("sums-a", least_clients=1)
    world.allow("sums-b", least_clients=1)
    channel = world.channel()
    del channel.sites["north"]
    federation, output = world.post(channel, least_answers=1)
    assert federation.booked["north"].code == "late"
    assert json.loads((output / "histogram.json").read_text())["origin"]["clients"] == 1


def test_roles_do_not_mix(world):
    """A site adds nothing up, and an aggregator has no table."""
    task = {"task": {}}
    assert world.code(world.ask(task, task="add")) == "message"
    for name in ("single_shot", "train", "privfairfl", "deliver"):
        assert world.code(world.ask(task, task=name), "sums-a") == "message"


def test_models_that_are_sent_back_are_read_first(world):
    ask = world.ask({}, task="deliver")
    assert world.code(Message(ask.text, b"{}")) == "message"
    assert not list((world.folder / "north" / "synthfair").glob("models/*"))


def test_a_site_stores_no_model_unless_it_says_so(world):
    world.limit("north", store_models=False)
    with pytest.raises(TooFewError, match="north: kind"):
        world.post(world.channel())
    assert not list((world.folder / "north" / "synthfair").glob("models/*"))
    assert list((world.folder / "south" / "synthfair").glob("models/*"))


def test_a_job_that_ended_early_goes_on_and_nobody_pays_twice(world):
    """Trained, counted, and one aggregator is gone; the same job submitted again needs that one."""
    changes = {"model": None, "train": {"train": DP_SGD, "least_rows": 120, "most_rows": 300}}
    channel = world.channel()
    del channel.sites["sums-b"]
    with pytest.raises(TooFewError, match="sums-b: late"):
        world.post(channel, **changes)
    assert not (world.folder / "job-1" / "histogram.json").exists()
    booked = world.ledger().path.read_bytes()
    later = world.channel("job-2")
    asked, answer = [], later.sites["north"].answer
    later.sites["north"].answer = lambda m, **more: (
        asked.append(json.loads(m.text)["task"]) or answer(m, **more)
    )
    _, output = world.post(later, **changes)
    assert asked == ["deliver"]
    assert world.ledger().path.read_bytes() == booked
    assert sf.read_model(output / "fair_model.json").decision is not None
    world.post(world.channel("job-3"), **changes)  # the same training, and a new count
    assert world.ledger().spent().releases == 3


def test_a_training_comes_first_if_the_job_says_so(world):
    train = {"train": DP_SGD, "least_rows": 120, "most_rows": 300}
    federation, output = world.post(world.channel(), model=None, train=train)
    assert federation.booked["north"].rounds == 5
    trained, fair = (sf.read_model(output / f"{n}.json") for n in ("model", "fair_model"))
    assert trained.theta == fair.theta
    assert fair.decision is not None
    assert json.loads((output / "metrics.json").read_text())["guarantee"]["epsilon"] == 2.0
    assert main(["report", str(output), "--output", str(world.folder / "page.html")]) == 0


def test_a_training_without_an_epsilon_fits_no_count_with_one(world):
    for name in NAMES:
        world.limit(name, most_rounds=3)
    with pytest.raises(TooFewError, match="north: budget"):
        world.post(
            world.channel(),
            model=None,
            train={"train": {"method": "fedavg", "rounds": 3}, "most_rows": 300},
        )


@pytest.mark.parametrize("given", [{"model": None}, {"train": {"train": {}}}, {"model": "@"}])
def test_a_job_has_one_model(world, given):
    with pytest.raises(ValueError, match="model"):
        PrivFairFLJob(**({"model": world.model()} | JOB | given))

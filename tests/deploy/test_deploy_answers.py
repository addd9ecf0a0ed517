"""Answers count for one question of one site, with a key that counts."""

import json
from pathlib import Path

import pytest
from builders import NAMES, PRIVATE, RELEASE, InProcess, World, resigned

from synthfair.deploy import session
from synthfair.errors import InputError
from synthfair.files import write_json
from synthfair.release.keys import make_keys, read_keys, read_signing_key, sign_bytes
from synthfair.task import messages
from synthfair.task.limits import RefusedError
from synthfair.task.messages import Message, Question, read_answer


def question(world, settings=RELEASE, **changes):
    return Question.model_validate_json(world.ask(settings, **changes).text)


@pytest.fixture
def world(tmp_path):
    return World(tmp_path)


@pytest.fixture
def channel(world):
    return InProcess({name: world.site(name) for name in NAMES})


@pytest.fixture
def answered(world):
    """A question, a site's good answer, and the keys."""
    ask = question(world)
    answer = world.site("north").answer(ask.message, job="job-1", submitter="x")
    keys = {name: key for key, name in read_keys([world.folder / "keys"]).items()}
    return ask, answer, keys


def test_an_answer_counts_for_its_own_question_alone(world, answered):
    ask, answer, keys = answered
    assert read_answer(answer, ask, site="north", keys=keys).code == "ok"
    settings = RELEASE | {"seed": 1}
    changed = [{"job": "job-2"}, {"round": 1}, {"recipient": "hub2"}, {"settings": settings}]
    for other in (question(world, **changes) for changes in changed):
        with pytest.raises(RefusedError, match="signature"):
            read_answer(answer, other, site="north", keys=keys)


def test_a_refusal_for_another_schema_counts_as_one(world, answered):
    ask, keys = question(world, round=3, schema_hash="0" * 64), answered[2]
    answer = world.site("north").answer(ask.message, job="job-1", submitter="x")
    assert read_answer(answer, ask, site="north", keys=keys).code == "schema"


def test_an_answer_counts_for_its_own_site_alone(world, answered):
    ask, answer, keys = answered
    with pytest.raises(RefusedError, match="signature"):
        read_answer(answer, ask, site="south", keys=keys)
    with pytest.raises(RefusedError, match="signature"):  # with the key under another name
        read_answer(answer, ask, site="south", keys={"south": keys["north"]})
    with pytest.raises(RefusedError, match="signature"):
        read_answer(answer, ask, site="east", keys=keys)


def doubled(message, key):
    """The same with another value before that of a key."""
    text = message.text.replace(b"{", b'{"' + key + b'":"' + b"0" * 64 + b'",', 1)
    return message._replace(text=text)


def test_a_question_with_a_key_twice_is_not_answered(world):
    ask = world.ask()
    assert world.code(doubled(ask, b"schema_hash")) == "message"
    assert world.code(ask) == "ok"


def test_an_answer_with_a_key_twice_does_not_count(world, answered):
    ask, answer, keys = answered
    twice = doubled(answer, b"asked")
    key = read_signing_key(world.folder / "north" / "local" / "north.key")
    digests = messages._digests(twice.text, twice.carried)
    signed = twice._replace(signature=sign_bytes(messages.ANSWER_DOMAIN, digests, key))
    with pytest.raises(RefusedError, match="refused"):
        read_answer(signed, ask, site="north", keys=keys)


@pytest.mark.parametrize("part", Message._fields)
def test_an_altered_answer_does_not_count(answered, part):
    ask, answer, keys = answered
    altered = bytearray(getattr(answer, part))
    altered[len(altered) // 2] ^= 1
    with pytest.raises(RefusedError, match="signature"):
        read_answer(answer._replace(**{part: bytes(altered)}), ask, site="north", keys=keys)
    with pytest.raises(RefusedError, match="signature"):
        read_answer(answer._replace(**{part: b""}), ask, site="north", keys=keys)


def test_a_revoked_key_does_not_count(world, channel):
    keys = {name: key for key, name in read_keys([world.folder / "keys"]).items()}
    federation = world.federation(channel, revoked=(keys["north"],))
    good = federation.ask(
        federation.question(task="single_shot", round=0, settings=RELEASE, timeout=10), least=0
    )
    assert set(good) == {"south"}
    assert federation.booked["north"].code == "revoked"


def test_a_job_may_say_that_it_has_no_epsilon(world, channel):
    federation = world.run(channel, settings=RELEASE | {"without_epsilon": True})
    assert [booked.code for booked in federation.booked.values()] == ["ok", "ok"]


@pytest.mark.parametrize("what", ["junk", "another site's", "other settings"])
def test_a_release_that_was_not_asked_for_is_refused(world, channel, what):
    author, settings = (
        ("south", RELEASE) if what == "another site's" else ("north", RELEASE | {"seed": 5})
    )
    world.limit("north", again=1)  # this one, and then that of the job
    channel.sites["north"] = world.site("north")
    ask = world.ask(settings, job="job-9")
    other = channel.sites[author].answer(ask, job="job-9", submitter="x").carried
    carried = b"PAR1junk" if what == "junk" else other
    channel.on_way = lambda name, m: resigned(world, name, m, carried) if name == "north" else m
    federation = world.run(channel, least_answers=1)
    assert [booked.code for booked in federation.booked.values()] == ["refused", "ok"]


def test_a_large_answer_is_carried_and_one_too_large_refused(answered, world, monkeypatch):
    """One too large is not even hashed, which its signature would need."""
    ask, answer, keys = answered
    large = resigned(world, "north", answer, bytes(50_000_000))
    assert read_answer(large, ask, site="north", keys=keys).code == "ok"
    monkeypatch.setattr(messages, "MAX_CARRIED_BYTES", 10**6)
    monkeypatch.delattr(messages, "_digests")
    with pytest.raises(RefusedError, match="refused"):
        read_answer(large, ask, site="north", keys=keys)


def test_a_release_of_another_job_is_not_used_again(world, channel):
    """Not by a site, whose answer it came with; and not by who carries messages."""
    for name in NAMES:
        world.bound(name)
    old = channel.sites["north"].answer(world.ask(PRIVATE), job="job-1", submitter="x")
    later = InProcess(channel.sites, job="job-2")
    later.on_way = lambda name, m: m._replace(carried=old.carried) if name == "north" else m
    # The same settings would get the same release, which may be used again.
    federation = world.run(later, settings=PRIVATE | {"k_min": 60}, least_answers=1)
    assert [booked.code for booked in federation.booked.values()] == ["signature", "ok"]
    assert [path.name for path in (world.folder / "private").iterdir()] == ["south.parquet"]


def rotate(world):
    """A new key for the site in the north; the old one is revoked, by the server's list."""
    local, keys = world.folder / "north" / "local", world.folder / "keys"
    (old,) = [key for key, name in read_keys([keys]).items() if name == "north"]
    (local / "north.key").rename(local / "old.key")
    (local / "north.pub").unlink()
    public, _ = make_keys(local / "north.key")
    (keys / "north.pub").write_bytes(public.read_bytes())
    revoke(world, old)


def revoke(world, key):
    server = json.loads((world.folder / "server.json").read_text())
    write_json(world.folder / "server.json", server | {"revoked": [key]})


def test_a_key_is_replaced_while_the_old_one_is_revoked(world):
    before = world.site("north")
    rotate(world)
    sites = {"north": world.site("north"), "south": world.site("south")}
    federation = world.run(InProcess(sites))
    assert [booked.code for booked in federation.booked.values()] == ["ok", "ok"]
    metrics = json.loads((world.folder / "out" / "metrics.json").read_text())
    assert set(metrics["signed_by"].values()) == {"north", "south"}
    late = InProcess({"north": before, "south": sites["south"]}, job="job-2")  # with the old key
    federation = world.federation(late)
    assert set(
        federation.ask(
            federation.question(task="single_shot", round=0, settings=RELEASE, timeout=10), least=0
        )
    ) == {"south"}
    assert federation.booked["north"].code == "signature"


def test_a_release_with_the_old_key_does_not_count(world):
    old = world.site("north").answer(world.ask(job="job-1"), job="job-1", submitter="x").carried
    rotate(world)
    channel = InProcess({name: world.site(name) for name in NAMES}, job="job-2")
    channel.on_way = lambda name, m: resigned(world, name, m, old) if name == "north" else m
    federation = world.run(channel, least_answers=1)
    assert [booked.code for booked in federation.booked.values()] == ["refused", "ok"]


def test_a_revoked_key_under_another_name_does_not_count(world, channel):
    keys = world.folder / "keys"
    (revoked,) = [key for key, name in read_keys([keys]).items() if name == "north"]
    revoke(world, revoked)
    (keys / "north.pub").rename(keys / "south.pub")
    federation = world.federation(channel)
    assert (
        federation.ask(
            federation.question(task="single_shot", round=0, settings=RELEASE, timeout=10), least=0
        )
        == {}
    )
    assert {booked.code for booked in federation.booked.values()} == {"revoked", "signature"}


class Downloads:
    """A session that downloads what the server of a job has made of it."""

    def __init__(self, *files):
        self.files = files

    def download_job_result(self, job, folder):
        made = Path(folder) / job / "workspace" / "app_server" / "synthfair"
        made.mkdir(parents=True)
        for name, content in self.files:
            if isinstance(content, Path):
                (made / name).symlink_to(content)
            else:
                (made / name).write_bytes(content)
        return str(Path(folder) / job)


@pytest.fixture
def federation(world, channel):
    """The bytes of a federation.json."""
    world.federation(channel).write(world.folder / "made", None)
    return (world.folder / "made" / "federation.json").read_bytes()


def test_only_known_files_of_a_result_are_taken(tmp_path, federation, monkeypatch):
    secret, output = tmp_path / "secret", tmp_path / "results"
    secret.write_text("of the submitter")
    monkeypatch.setattr(session, "MAX_RESULT_BYTES", 5000)
    files = [("federation.json", federation), ("model.json", b"{}"), ("other.sh", b"rm"),
             ("metrics.json", secret), ("rounds.csv", bytes(5001))]  # fmt: skip
    found = session._fetch(Downloads(*files), "job-1", output)
    assert found.job == "job-1"
    assert {path.name for path in output.iterdir()} == {"federation.json", "model.json"}


def test_a_federation_file_may_not_be_large_or_a_link(tmp_path, federation, monkeypatch):
    (tmp_path / "other.json").write_bytes(federation)
    linked = Downloads(("federation.json", tmp_path / "other.json"))
    assert session._fetch(linked, "job-1", tmp_path / "out") is None
    monkeypatch.setattr(session, "MAX_METRICS_BYTES", len(federation) - 1)
    with pytest.raises(InputError, match="larger than"):
        session._fetch(Downloads(("federation.json", federation)), "job-1", tmp_path / "out")

"""The server's questions to sites: whose answers count, and how they are booked."""

import json

import pytest
from builders import NAMES, InProcess, World

from synthfair.errors import InputError
from synthfair.release.keys import make_keys, read_keys, read_signing_key
from synthfair.task.job_sites import TooFewError
from synthfair.task.messages import Answer, make_answer, sha256


class Site:
    """A site that answers with a code and its own name, signed."""

    def __init__(self, world, name):
        self.name, self.code, self.key = name, "ok", world.folder / name / "local" / f"{name}.key"

    def answer(self, message, **_):
        asked = {"asked": sha256(message.text), "site": self.name}
        answer = Answer(**asked, code=self.code, seconds=2.0, version="1")
        return make_answer(answer, self.name.encode(), read_signing_key(self.key))


@pytest.fixture
def world(tmp_path):
    return World(tmp_path, rows=10)


@pytest.fixture
def channel(world):
    return InProcess({name: Site(world, name) for name in NAMES})


def key_of(world, name):
    return next(k for k, n in read_keys([world.folder / "keys"]).items() if n == name)


def ask(federation, read=lambda _, content: content, **more):
    question = federation.question(task="gap", round=0, settings={}, timeout=10)
    answers = federation.ask(question, read, **more)
    return answers, {name: booked.code for name, booked in federation.booked.items()}


def test_sites_answers_are_read_and_booked(world, channel):
    federation = world.federation(channel)
    for _ in range(2):
        answers, codes = ask(federation)
    assert answers == {"north": b"north", "south": b"south"}
    assert codes == dict.fromkeys(NAMES, "ok")
    assert [*ask(federation, sites=NAMES[::-1])[0]] == [*NAMES]  # of the same round
    channel.sites["north"].code = "budget"
    ask(federation, sites=NAMES, least=1)
    federation.write(world.folder / "out", "stopped\n" + "x" * 2000)
    document = json.loads((world.folder / "out" / "federation.json").read_text())
    assert document["sites"]["north"] == {
        "code": "budget", "rounds": 3, "seconds": 0.4, "site_seconds": 8.0, "carried_bytes": 20,
        "version": "1",
    }  # fmt: skip
    assert (document["rounds"], document["error"]) == (2, "stopped " + "x" * 992)


@pytest.mark.parametrize("code", ["late", "lost", "revoked", "signature", "budget", "refused"])
def test_site_without_a_good_answer_is_booked_by_its_code(world, channel, code):
    revoked = [key_of(world, "north")] * (code == "revoked")
    if code == "late":
        del channel.sites["north"]
    elif code == "lost":
        channel.on_way = lambda name, message: None if name == "north" else message
    elif code == "signature":
        channel.sites["north"].key = channel.sites["south"].key
    elif code == "budget":
        channel.sites["north"].code = code

    def read(site, content):
        if code == "refused" and site == "north":
            raise InputError("north: junk")
        return content

    federation = world.federation(channel, revoked=tuple(revoked))
    answers, codes = ask(federation, read, least=1)
    assert answers == {"south": b"south"}
    assert codes == {"north": code, "south": "ok"}
    for least in (None, 2):
        with pytest.raises(TooFewError, match=rf"1 .* 2 .*\(north: {code}\)"):
            ask(federation, read, least=least)


def test_key_revoked_is_replaced_and_does_not_count_under_another_name(world, channel):
    old, keys = key_of(world, "north"), world.folder / "keys"
    (keys / "north.pub").rename(keys / "south.pub")
    federation = world.federation(channel, revoked=(old,))
    assert ask(federation, least=0) == ({}, {"north": "signature", "south": "revoked"})
    public, _ = make_keys(world.folder / "north.key")
    (keys / "north.pub").write_bytes(public.read_bytes())
    channel.sites["north"].key = world.folder / "north.key"
    assert set(ask(world.federation(channel, revoked=(old,)), least=0)[0]) == {"north"}

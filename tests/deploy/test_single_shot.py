"""The job ``single_shot``: releases that were asked for, and the server's model of them."""

import json

import pytest
from builders import NAMES, RELEASE, InProcess, World

from synthfair.server.page import serve
from synthfair.server.settings import ServerConfig


@pytest.fixture
def world(tmp_path):
    return World(tmp_path)


@pytest.fixture
def channel(world):
    return InProcess({name: world.site(name) for name in NAMES})


def codes(federation):
    return [booked.code for booked in federation.booked.values()]


def test_upload_gives_what_the_servers_command_gives(world, channel):
    federation = world.run(channel, settings=RELEASE | {"without_epsilon": True})
    assert codes(federation) == ["ok", "ok"]
    releases, hand = sorted((world.folder / "private").iterdir()), world.folder / "hand"
    assert [path.stat().st_mode & 0o077 for path in releases] == [0, 0]
    serve(releases, world.folder / "schema.json",
          [world.folder / f"{name}_test.csv" for name in NAMES], hand,
          ServerConfig(rho=1.0, max_influence=5.0), keys=[world.folder / "keys"])  # fmt: skip
    for file in ("model.json", "metrics.json"):
        assert (world.folder / "out" / file).read_bytes() == (hand / file).read_bytes()
    document = json.loads((world.folder / "out" / "federation.json").read_text())
    assert document["sites"]["north"]["carried_bytes"] == releases[0].stat().st_size


@pytest.mark.parametrize("what", ["junk", "another site's", "other settings"])
def test_release_that_was_not_asked_for_is_refused(world, what):
    author = "south" if what == "another site's" else "north"
    settings = RELEASE | {"seed": 5 * (what == "other settings")}
    world.limit("north", again=1)  # this one, and then that of the job
    ask = world.ask(settings, job="job-9")
    _, carried = world.answer(ask, author, job="job-9")
    channel = InProcess({name: world.site(name) for name in NAMES})
    other = b"PAR1junk" if what == "junk" else carried
    channel.on_way = world.altering("north", lambda _: other)
    federation = world.run(channel, least_answers=1)
    assert codes(federation) == ["refused", "ok"]
    metrics = json.loads((world.folder / "out" / "metrics.json").read_text())
    assert (set(metrics["config"]), set(metrics["signed_by"].values())) == ({"south"}, {"south"})

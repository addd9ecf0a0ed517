"""One upload without an engine: sites and server in one process, messages as bytes."""

import json

import pytest
from builders import NAMES, RELEASE, InProcess, World, make_table

from synthfair.client.page import distill_file
from synthfair.deploy.single_shot import release_config
from synthfair.errors import InputError
from synthfair.privacy.ledger import Ledger
from synthfair.release.keys import read_signing_key
from synthfair.server.page import serve
from synthfair.server.settings import ServerConfig
from synthfair.task.job_sites import TooFewError
from synthfair.task.limits import SiteSettings, read_settings
from synthfair.task.messages import Message


@pytest.fixture
def world(tmp_path):
    return World(tmp_path)


@pytest.fixture
def channel(world):
    return InProcess({name: world.site(name) for name in NAMES})


def test_an_upload_gives_what_the_command_line_gives(world, channel, tmp_path):
    federation = world.run(channel)
    assert [booked.code for booked in federation.booked.values()] == ["ok", "ok"]
    hand = tmp_path / "hand"
    hand.mkdir()
    for name in NAMES:
        key = read_signing_key(world.folder / name / "local" / f"{name}.key")
        distill_file(world.folder / name / "rows.csv", world.folder / "schema.json",
                     hand / f"{name}.parquet", release_config(RELEASE),
                     key=key, ledger=hand / f"{name}.ledger")  # fmt: skip
    serve([hand / f"{name}.parquet" for name in NAMES], world.folder / "schema.json",
          [world.folder / f"{name}_test.csv" for name in NAMES], hand / "out",
          ServerConfig(rho=1.0, max_influence=5.0), keys=[world.folder / "keys"])  # fmt: skip
    for file in ("model.json", "metrics.json"):
        assert (world.folder / "out" / file).read_bytes() == (hand / "out" / file).read_bytes()


def test_what_left_is_booked(world, channel):
    world.run(channel)
    (left,) = world.left("north")
    sent = (world.folder / "private" / "north.parquet").read_bytes()
    assert (left.output, left.submitter, left.guarantee) == ("job-1", "lead@hub.org", None)
    assert Ledger.for_table(world.folder / "north" / "rows.csv").spent().releases == 1
    document = json.loads((world.folder / "out" / "federation.json").read_text())
    assert document["sites"]["north"]["carried_bytes"] == len(sent)


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"version": "0.0.0"}, "ok"),  # of the package: what is said is of the same format
        ({"format": "synthfair-ask/2"}, "message"),
        ({"schema_hash": "0" * 64}, "schema"),
        ({"job": "job-2"}, "message"),
        ({"task": "shell"}, "message"),
        ({"round": -1}, "message"),
        ({"extra": 1}, "message"),
    ],
)
def test_questions_that_do_not_fit_are_refused(world, changes, code):
    assert world.code(world.ask(**changes)) == code


@pytest.mark.parametrize("job", ["", "..", "a/b", "a.b", "a\n", "a" * 65])
def test_a_job_by_a_name_that_could_be_a_path_is_refused(world, job):
    assert world.code(world.ask(job=job), job=job) == "message"
    assert not list(world.folder.rglob("*.parquet"))


@pytest.mark.parametrize("text", [b"", b"{", b"[]", b"\xff", b"[" * 10**5, b" " * 200_000])
def test_hostile_questions_are_refused(world, text):
    assert world.code(Message(text)) == "message"


def test_a_question_that_is_repeated_has_the_same_answer_and_is_booked_once(world):
    first, again = (
        world.site("north").answer(world.ask(), job="job-1", submitter="x") for _ in range(2)
    )
    assert first.carried == again.carried != b""
    assert len(world.left("north")) == 1


def test_a_stopped_job_leaves_nothing(world):
    assert world.code(world.ask(), stopped=lambda: True) == "stopped"
    assert not world.left("north")


SECRET = "secret-of-a-person"


@pytest.mark.parametrize("broken", ["town", "income", "short", "missing"])
def test_no_text_of_a_table_leaves(world, channel, broken):
    path = world.folder / "north" / "rows.csv"
    rows = make_table(300).astype(object)
    if broken == "missing":
        path.unlink()
    elif broken == "short":
        rows.iloc[:3].to_csv(path, index=False)
    else:
        rows.loc[7, broken] = SECRET
        rows.to_csv(path, index=False)
    sent = []
    channel.on_way = lambda name, message: sent.append((name, message)) or message
    with pytest.raises(TooFewError, match="north: table"):
        world.run(channel)
    answer = dict(sent)["north"]
    assert SECRET.encode() not in b"".join(answer)
    assert answer.carried == b""
    if broken in ("town", "income"):
        assert SECRET in "".join(world.said)  # the site's own log
    if broken == "short":  # how many rows each pair has is said there alone, too
        assert "has 1" in "".join(world.said)
        assert json.loads(answer.text)["code"] == "table"
        assert b"has 1" not in answer.text
    for file in (world.folder / "out").iterdir():
        assert SECRET not in file.read_text()


def test_an_unexpected_error_is_a_code(world):
    site = world.site("north")

    def fails(_):
        raise ValueError(SECRET)

    site._routines = {"single_shot": fails}
    message = site.answer(world.ask(), job="job-1", submitter="x")
    assert json.loads(message.text)["code"] == "failed"
    assert SECRET.encode() not in b"".join(message)


@pytest.mark.parametrize(("least", "goes_on"), [(1, True), (None, False), (2, False)])
def test_a_job_goes_on_without_some_sites_if_it_says_so(world, channel, least, goes_on):
    del channel.sites["north"]
    if goes_on:
        world.run(channel, least_answers=least)
        metrics = json.loads((world.folder / "out" / "metrics.json").read_text())
        assert set(metrics["config"]) == {"south"}
    else:
        with pytest.raises(TooFewError, match=r"1 sites .* of the 2 needed \(north: late\)"):
            world.run(channel, least_answers=least)
        assert not (world.folder / "out" / "model.json").exists()


def test_a_site_that_the_engine_lost_is_named(world, channel):
    channel.on_way = lambda name, m: None if name == "north" else m
    federation = world.run(channel, least_answers=1)
    assert federation.booked["north"].code == "lost"


@pytest.mark.parametrize(
    ("text", "said"),
    [("{", "not JSON"), ('{"data": "x", "shell": 1}', "shell: unknown key"),
     ("{}", "data: missing"), (" " * 2_000_000, "larger")],
)  # fmt: skip
def test_settings_name_what_is_wrong(tmp_path, text, said):
    (tmp_path / "synthfair.json").write_text(text)
    with pytest.raises(InputError, match=said):
        read_settings(tmp_path / "synthfair.json", SiteSettings)

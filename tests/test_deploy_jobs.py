"""One upload without an engine: sites and server in one process, messages as bytes."""

import json
import subprocess
import sys
import time

import pytest
from conftest import make_schema, make_table

import synthfair
from synthfair.client.from_file import Options, distill_file
from synthfair.config import ServerConfig
from synthfair.deploy import messages
from synthfair.deploy.federation import Federation, Reply, TooFewError
from synthfair.deploy.jobs import KINDS
from synthfair.deploy.messages import BadAnswerError, Message, read_answer
from synthfair.deploy.settings import ServerSettings, SiteSettings, read_settings
from synthfair.deploy.single_shot import SingleShotJob, release_config, run_single_shot
from synthfair.deploy.site import Site
from synthfair.deploy.trace import Trace
from synthfair.errors import InputError
from synthfair.files import write_json
from synthfair.privacy.ledger import Ledger
from synthfair.release.keys import make_keys, read_keys, read_signing_key
from synthfair.server.routine import serve

RELEASE = {"release": "surrogate", "k_min": 5, "moments_only": True}
LIMITS = {
    "releases": ["surrogate", "fair"],
    "without_epsilon": True,
    "k_min": 5,
    "most_epsilon": 2.0,
}
NAMES = ("north", "south")


class InProcess:
    """A channel that asks sites of this process; some may fail, or be silent."""

    def __init__(self, sites, job="job-1"):
        self.sites, self.job, self.asked, self.on_way = sites, job, [], lambda site, m: m

    def send(self, task, message, sites, *, timeout):
        self.asked.append(message)
        found = {}
        for name in sites:
            if name in self.sites:
                answer = self.sites[name].answer(message, job=self.job, submitter="lead@hub.org")
                found[name] = Reply(self.on_way(name, answer), 0.1)
        return found


class World:
    """Two sites and a server in one folder."""

    def __init__(self, folder, rows=300):
        self.folder, self.said = folder, []
        (folder / "keys").mkdir()
        (folder / "schema.json").write_text(make_schema().to_json())
        for i, name in enumerate(NAMES):
            local = folder / name / "local"
            local.mkdir(parents=True)
            make_table(rows, seed=i).to_csv(folder / name / "rows.csv", index=False)
            make_table(200, seed=9 + i).to_csv(folder / f"{name}_test.csv", index=False)
            public, _ = make_keys(local / f"{name}.key")
            (folder / "keys" / public.name).write_bytes(public.read_bytes())
            self.limit(name)
        write_json(folder / "server.json", {"schema": "schema.json", "keys": "keys",
                   "tests": [f"{name}_test.csv" for name in NAMES]})  # fmt: skip

    def limit(self, name, **limits):
        write_json(self.folder / name / "local" / "synthfair.json", {
            "data": "../rows.csv", "schema": "../../schema.json", "key": f"{name}.key",
            "limits": LIMITS | limits})  # fmt: skip

    def site(self, name):
        routines = {kind: found.routine() for kind, found in KINDS.items()}
        return Site(name, self.folder / name, routines, self.said.append)

    def federation(self, channel, **changes):
        settings = read_settings(self.folder / "server.json", ServerSettings)
        return Federation(
            channel, settings.model_copy(update=changes), job=channel.job, server="hub",
            sites=NAMES, log=self.said.append)  # fmt: skip

    def run(self, channel, *, settings=RELEASE, **changes):
        federation = self.federation(channel)
        job = SingleShotJob(release=settings, server={"rho": 1.0, "max_influence": 5.0}, **changes)
        output = self.folder / "out"
        try:
            run_single_shot(federation, job, self.folder / "private", output)
        finally:
            federation.write(output, None)
        return federation

    def ask(self, settings=RELEASE, **changes):
        ask = {"task": "single_shot", "job": "job-1", "round": 0, "recipient": "hub",
               "version": synthfair.__version__, "schema_hash": make_schema().hash,
               "settings": settings} | changes  # fmt: skip
        return Message(json.dumps(ask).encode())

    def code(self, message, name="north", **changes):
        options = {"job": "job-1", "submitter": "lead@hub.org"} | changes
        return json.loads(self.site(name).answer(message, **options).text)["code"]


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
                     Options(key=key, ledger=hand / "ledger"))  # fmt: skip
    serve([hand / f"{name}.parquet" for name in NAMES], world.folder / "schema.json",
          [world.folder / f"{name}_test.csv" for name in NAMES], hand / "out",
          ServerConfig(rho=1.0, max_influence=5.0), keys=[world.folder / "keys"])  # fmt: skip
    for file in ("model.json", "fair_table.parquet", "metrics.json"):
        assert (world.folder / "out" / file).read_bytes() == (hand / "out" / file).read_bytes()


def test_what_left_is_traced_and_booked(world, channel):
    world.run(channel)
    (event,) = world.site("north").trace.events()
    sent = (world.folder / "private" / "north.parquet").read_bytes()
    assert (event.job, event.submitter, event.code) == ("job-1", "lead@hub.org", "ok")
    assert (event.sha256, event.carried_bytes) == (messages.sha256(sent), len(sent))
    assert event.epsilon is None
    assert Ledger.for_table(world.folder / "north" / "rows.csv").spent().releases == 1
    document = json.loads((world.folder / "out" / "federation.json").read_text())
    assert document["sites"]["north"]["carried_bytes"] == len(sent)


PRIVATE = RELEASE | {"epsilon": 1.0, "delta": 1e-6}


@pytest.mark.parametrize(
    ("limits", "settings", "code"),
    [
        ({"releases": ["fair"]}, RELEASE, "kind"),
        ({"releases": []}, RELEASE, "kind"),
        ({"releases": ["surrogate"]}, {"release": "fair"}, "kind"),
        ({"k_min": 6}, RELEASE, "k_min"),
        ({"without_epsilon": False}, RELEASE, "epsilon"),
        ({"most_epsilon": 0.5}, PRIVATE, "epsilon"),
        ({"most_epsilon": None}, PRIVATE, "epsilon"),
        ({"least_epsilon_left": 0.5}, PRIVATE, "budget"),
        ({}, {"release": "surrogate", "k_min": 0}, "settings"),
        ({}, {"release": "other"}, "settings"),
        ({}, {}, "settings"),
        ({}, RELEASE | {"noise_seed": 1}, "settings"),
        ({}, RELEASE | {"accept_risk": True}, "settings"),
        ({}, RELEASE | {"data": "/etc/passwd"}, "settings"),
    ],
)
def test_no_job_exceeds_a_sites_limits(world, limits, settings, code):
    world.limit("north", **limits)
    assert world.code(world.ask(settings)) == code
    (event,) = world.site("north").trace.events()
    assert (event.code, event.sha256, event.carried_bytes) == (code, None, 0)
    assert not Ledger.for_table(world.folder / "north" / "rows.csv").path.exists()


def test_epsilon_is_left_for_other_uses(world):
    ledger = Ledger.for_table(world.folder / "north" / "rows.csv")
    ledger.set_limit(3.0, 1e-6)
    world.limit("north", least_epsilon_left=1.9)
    assert world.code(world.ask(PRIVATE)) == "ok"
    assert world.code(world.ask(PRIVATE | {"seed": 1}, job="job-2"), job="job-2") == "budget"
    assert ledger.spent().releases == 1
    assert world.site("north").trace.events()[0].epsilon == 1.0
    world.limit("north")
    assert world.code(world.ask(PRIVATE | {"seed": 1}, job="job-2"), job="job-2") == "ok"


def test_a_ledgers_limit_holds_for_jobs(world):
    Ledger.for_table(world.folder / "north" / "rows.csv").set_limit(0.5, 1e-6)
    assert world.code(world.ask(PRIVATE)) == "budget"
    assert world.code(world.ask()) == "budget"


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"version": "0.0.0"}, "version"),
        ({"schema_hash": "0" * 64}, "schema"),
        ({"job": "job-2"}, "message"),
        ({"task": "shell"}, "message"),
        ({"round": -1}, "message"),
        ({"extra": 1}, "message"),
    ],
)
def test_questions_that_do_not_fit_are_refused(world, changes, code):
    assert world.code(world.ask(**changes)) == code


@pytest.mark.parametrize("text", [b"", b"{", b"[]", b"\xff", b"[" * 10**5, b" " * 200_000])
def test_hostile_questions_are_refused(world, text):
    assert world.code(Message(text)) == "message"


def test_a_question_is_answered_once(world):
    assert world.code(world.ask()) == "ok"
    assert world.code(world.ask()) == "answered"
    assert [event.code for event in world.site("north").trace.events()] == ["ok", "answered"]


def test_a_site_works_for_one_job_at_a_time(world):
    from filelock import FileLock

    site = world.site("north")
    with FileLock(site.folder / ".busy.lock"):
        assert world.code(world.ask()) == "busy"


def test_a_stopped_job_leaves_nothing(world):
    assert world.code(world.ask(), stopped=lambda: True) == "stopped"
    assert not list((world.folder / "north" / "synthfair" / "releases").glob("*.parquet"))


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


def test_what_cannot_be_traced_does_not_leave(world):
    assert world.code(world.ask({"release": "other"})) == "settings"
    trace = world.folder / "north" / "synthfair" / "trace.jsonl"
    trace.write_text(trace.read_text().replace('"settings"', '"kind"') + trace.read_text())
    answer = world.site("north").answer(world.ask(), job="job-1", submitter="x")
    assert (json.loads(answer.text)["code"], answer.carried) == ("failed", b"")


def test_a_trace_shows_lines_that_are_lost_or_altered(world):
    for i in range(3):
        world.code(world.ask(round=i, version="0"))
    path = world.folder / "north" / "synthfair" / "trace.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    assert path.stat().st_mode & 0o077 == 0
    path.write_bytes(b"".join(lines[1:]))
    with pytest.raises(InputError, match="line 1: a line before it is lost"):
        Trace(path).events()
    path.write_bytes(b"".join([lines[0].replace(b"lead", b"head"), *lines[1:]]))
    with pytest.raises(InputError, match="line 2: a line before it is lost"):
        Trace(path).events()


@pytest.fixture
def answered(world):
    """A question, a site's good answer, and the keys."""
    ask = world.ask()
    answer = world.site("north").answer(ask, job="job-1", submitter="x")
    keys = {name: key for key, name in read_keys([world.folder / "keys"]).items()}
    return ask, answer, keys


def test_an_answer_counts_for_its_own_question_alone(world, answered):
    ask, answer, keys = answered
    assert read_answer(answer, ask, site="north", keys=keys).code == "ok"
    others = [world.ask(job="job-2"), world.ask(round=1), world.ask(recipient="hub2"),
              world.ask(RELEASE | {"seed": 1})]  # fmt: skip
    for other in others:
        with pytest.raises(BadAnswerError, match="signature"):
            read_answer(answer, other, site="north", keys=keys)


def test_an_answer_counts_for_its_own_site_alone(world, answered):
    ask, answer, keys = answered
    with pytest.raises(BadAnswerError, match="signature"):
        read_answer(answer, ask, site="south", keys=keys)
    with pytest.raises(BadAnswerError, match="signature"):  # with the key under another name
        read_answer(answer, ask, site="south", keys={"south": keys["north"]})
    with pytest.raises(BadAnswerError, match="signature"):
        read_answer(answer, ask, site="east", keys=keys)


@pytest.mark.parametrize("part", Message._fields)
def test_an_altered_answer_does_not_count(answered, part):
    ask, answer, keys = answered
    altered = bytearray(getattr(answer, part))
    altered[len(altered) // 2] ^= 1
    with pytest.raises(BadAnswerError, match="signature"):
        read_answer(answer._replace(**{part: bytes(altered)}), ask, site="north", keys=keys)
    with pytest.raises(BadAnswerError, match="signature"):
        read_answer(answer._replace(**{part: b""}), ask, site="north", keys=keys)


def test_an_answer_of_another_job_is_not_used_again(world, channel):
    old = channel.sites["north"].answer(world.ask(), job="job-1", submitter="x")
    later = InProcess(channel.sites, job="job-2")
    later.on_way = lambda name, m: old if name == "north" else m
    with pytest.raises(TooFewError, match=r"\(north: signature\)"):
        world.run(later)


def test_a_revoked_key_does_not_count(world, channel):
    keys = {name: key for key, name in read_keys([world.folder / "keys"]).items()}
    federation = world.federation(channel, revoked=(keys["north"],))
    good = federation.ask("single_shot", 0, RELEASE, timeout=10)
    assert set(good) == {"south"}
    assert federation.booked["north"].code == "revoked"


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


def resigned(world, name, message, carried):
    """What a site would send that carries something else."""
    answer = messages.Answer.model_validate_json(message.text)
    key = read_signing_key(world.folder / name / "local" / f"{name}.key")
    return messages.make_answer(answer, carried, key)


@pytest.mark.parametrize("what", ["junk", "another site's", "other settings"])
def test_a_release_that_was_not_asked_for_is_refused(world, channel, what):
    author, settings = (
        ("south", RELEASE) if what == "another site's" else ("north", RELEASE | {"seed": 5})
    )
    ask = world.ask(settings, job="job-9")
    other = channel.sites[author].answer(ask, job="job-9", submitter="x").carried
    carried = b"PAR1junk" if what == "junk" else other
    channel.on_way = lambda name, m: resigned(world, name, m, carried) if name == "north" else m
    federation = world.run(channel, least_answers=1)
    assert [booked.code for booked in federation.booked.values()] == ["refused", "ok"]


@pytest.mark.parametrize(
    ("text", "said"),
    [("{", "Invalid JSON"), ('{"data": "x", "shell": 1}', "shell: unknown key"),
     ("{}", "data: missing"), (" " * 2_000_000, "larger")],
)  # fmt: skip
def test_settings_name_what_is_wrong(tmp_path, text, said):
    (tmp_path / "synthfair.json").write_text(text)
    with pytest.raises(InputError, match=said):
        read_settings(tmp_path / "synthfair.json", SiteSettings)


def test_a_large_answer_is_carried_and_one_too_large_refused(answered, world, monkeypatch):
    ask, answer, keys = answered
    large = resigned(world, "north", answer, bytes(50_000_000))
    began = time.monotonic()
    assert read_answer(large, ask, site="north", keys=keys).code == "ok"
    assert time.monotonic() - began < 5
    monkeypatch.setattr(messages, "MAX_CARRIED", 10**6)
    with pytest.raises(BadAnswerError, match="refused"):
        read_answer(large, ask, site="north", keys=keys)


def test_importing_synthfair_does_not_import_the_engine():
    code = "import synthfair, synthfair.cli, sys; sys.exit('nvflare' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0

"""The engine's classes: bytes in, bytes out, and of an error no more than a code."""

import base64
import json
import logging
from types import SimpleNamespace

import pytest
from builders import RELEASE, World, some_model

pytest.importorskip("nvflare")

from nvflare.apis.fl_constant import FLContextKey, ReturnCode
from nvflare.apis.fl_context import FLContextManager
from nvflare.apis.shareable import Shareable, make_reply
from nvflare.apis.signal import Signal
from nvflare.apis.workspace import Workspace

from synthfair.deploy.flare import JobController, SiteExecutor
from synthfair.files import write_json
from synthfair.task.messages import Message
from synthfair.trained import write_model

SECRET, PARTY_FILE = "secret-of-a-person", "local/synthfair.json"


class Engine:
    """What an executor asks of the engine."""

    def __init__(self, folder):
        self.folder, self.fired = folder, []

    def get_workspace(self):
        return Workspace(str(self.folder), "north")

    def fire_event(self, event, fl_ctx):
        self.fired.append(event)

    def get_clients(self):
        return [SimpleNamespace(name=name) for name in ("north", "south", "stranger")]


@pytest.fixture
def world(tmp_path):
    found = World(tmp_path, rows=300)
    (tmp_path / "north" / "startup").mkdir()
    return found


def execute(world, stopped=False, **changes):
    """The reply, whose errors fire no event: that would carry their text to the server."""
    engine = Engine(world.folder / "north")
    manager = FLContextManager(engine=engine, identity_name="north", job_id="job-1")
    fl_ctx = manager.new_context()
    fl_ctx.set_prop(FLContextKey.JOB_META, {"submitter_name": "lead@hub.org\n"}, private=True)
    asked = Shareable(world.ask(RELEASE)._asdict() | changes)
    abort = SimpleNamespace(triggered=stopped)
    found = SiteExecutor().execute("single_shot", asked, fl_ctx, abort)
    assert engine.fired == []
    return found


def test_executor_answers_with_bytes_unless_the_job_is_stopped(world):
    assert json.loads(execute(world, stopped=True)["text"])["code"] == "stopped"
    found = execute(world)
    answer = json.loads(found["text"])
    assert (answer["code"], answer["site"]) == ("ok", "north")
    assert found["carried"].startswith(b"PAR1")
    assert Shareable.from_bytes(found.to_bytes())["carried"] == found["carried"]
    assert world.left("north")[0].submitter == "lead@hub.org"


def test_executors_errors_stay_at_the_site(world, caplog):
    rows = world.folder / "north" / "rows.csv"
    rows.write_text(rows.read_text().replace(",own,", f",{SECRET},"))
    with caplog.at_level(logging.ERROR):
        found = execute(world)
    assert json.loads(found["text"])["code"] == "table"
    assert SECRET in caplog.text
    assert SECRET.encode() not in found.to_bytes()


def test_executor_that_cannot_start_says_no_more_than_that(world):
    (world.folder / "north" / PARTY_FILE).write_text(SECRET)
    found = execute(world)
    assert found.get_return_code() == ReturnCode.EXECUTION_EXCEPTION
    assert SECRET.encode() not in found.to_bytes()


@pytest.mark.parametrize(
    "change", [{"text": None}, {"text": "text"}, {"carried": 3}, {"signature": ["x"]}]
)
def test_executor_refuses_what_is_no_message(world, change):
    assert execute(world, **change).get_return_code() == ReturnCode.BAD_TASK_DATA


@pytest.mark.parametrize("name", ["{$HOME}", "../a", "", "a" * 100])
def test_controller_takes_names_alone(name):
    for names in ((["a", name], {}), (["a"], {}, [name])):
        with pytest.raises(ValueError, match="should match"):
            JobController("train", *names)


class Controller(JobController):
    """One whose sites answer here: the north well, the south with an error of the engine."""

    panic = None

    def broadcast_and_wait(self, task, fl_ctx, **options):
        self.asked = options["targets"], options["min_responses"], task.timeout
        message = Message(*(task.data[name] for name in Message._fields))
        answer = self.north.answer(message, job="job-1", submitter="lead")._asdict()
        failed = make_reply(ReturnCode.EXECUTION_EXCEPTION)
        failed.update(answer)
        for name, result in zip(("north", "south"), (Shareable(answer), failed), strict=True):
            client = SimpleNamespace(name=name)
            task.result_received_cb(SimpleNamespace(client=client, result=result), fl_ctx)

    def system_panic(self, reason, fl_ctx):
        self.panic = reason


@pytest.mark.parametrize("least", [1, 2])
def test_controller_takes_good_replies_alone_and_tells_the_engine_what_fails(world, least):
    world.limit("north", kinds=["gap"])
    world.bound("north")
    write_model(some_model(), world.folder / "model.json")
    model = base64.b64encode((world.folder / "model.json").read_bytes()).decode()
    settings = {"epsilon": 1.0, "model": model, "least_answers": least, "timeout": 77}
    controller = Controller("gap", ["north", "south", "west"], settings)
    controller.north, hub = world.site("north"), world.folder / "hub"
    (hub / "startup").mkdir(parents=True)
    write_json(hub / PARTY_FILE, {"schema": "../../schema.json", "keys": "../../keys"})
    manager = FLContextManager(engine=Engine(hub), identity_name="hub", job_id="job-1")
    controller.control_flow(Signal(), manager.new_context())
    assert controller.asked == (["north", "south"], 2, 77)
    (written,) = hub.rglob("federation.json")
    document = json.loads(written.read_text())
    codes = [site["code"] for site in document["sites"].values()]
    assert (codes, document.get("error")) == (["ok", "lost", "lost"], controller.panic)
    assert (controller.panic is None) == (written.parent / "gaps.json").exists() == (least == 1)

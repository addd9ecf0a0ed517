"""The engine's classes: bytes in, bytes out, and of an error no more than a code."""

import json
import logging

import pytest
from builders import RELEASE, World

pytest.importorskip("nvflare")

from nvflare.apis.fl_constant import FLContextKey, ReturnCode
from nvflare.apis.fl_context import FLContextManager
from nvflare.apis.shareable import Shareable
from nvflare.apis.signal import Signal
from nvflare.apis.workspace import Workspace

from synthfair.deploy.flare import JobController, SiteExecutor

SECRET = "secret-of-a-person"


class Engine:
    """What an executor asks of the engine."""

    def __init__(self, folder):
        self.folder, self.fired = folder, []

    def get_workspace(self):
        return Workspace(str(self.folder), "north")

    def fire_event(self, event, fl_ctx):
        self.fired.append(event)


@pytest.fixture
def world(tmp_path):
    found = World(tmp_path, rows=300)
    (tmp_path / "north" / "startup").mkdir()
    return found


def execute(world, **changes):
    """The reply, whose errors fire no event: that would carry their text to the server."""
    engine = Engine(world.folder / "north")
    manager = FLContextManager(engine=engine, identity_name="north", job_id="job-1")
    fl_ctx = manager.new_context()
    fl_ctx.set_prop(FLContextKey.JOB_META, {"submitter_name": "lead@hub.org\n"}, private=True)
    asked = Shareable(world.ask(RELEASE)._asdict() | changes)
    found = SiteExecutor().execute("single_shot", asked, fl_ctx, Signal())
    assert engine.fired == []
    return found


def test_executor_answers_with_bytes(world):
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
    (world.folder / "north" / "local" / "synthfair.json").write_text(SECRET)
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

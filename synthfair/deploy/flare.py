"""The carrier of messages: an executor at the sites, a controller at the server, of NVIDIA FLARE.

A job names these classes; they turn what the engine hands them into messages, and answers back.
They are the only classes that a hardened kit allows a job to load.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, cast

from nvflare.apis.controller_spec import ClientTask, Task
from nvflare.apis.executor import Executor
from nvflare.apis.fl_constant import FLContextKey, ReturnCode
from nvflare.apis.fl_context import FLContext
from nvflare.apis.impl.controller import Controller
from nvflare.apis.shareable import Shareable, make_reply
from nvflare.apis.signal import Signal
from pydantic import TypeAdapter

from synthfair.deploy.job_sums import read_aggregators
from synthfair.deploy.kit import PROGRESS_COMMAND
from synthfair.deploy.party import JOB_KINDS, Party
from synthfair.files import validated
from synthfair.task.job_sites import JobSites, Reply
from synthfair.task.limits import PARTY_FILE, ServerSettings, read_settings
from synthfair.task.messages import Message, Name, Question, TaskName

_NAMES = TypeAdapter(tuple[Name, ...])

CHECK_SECONDS = 0.02
"""Seconds between two checks by the engine of which sites have answered; by default 0.2."""


class SiteExecutor(Executor):
    """An executor of the engine by which a :class:`synthfair.deploy.party.Party` answers."""

    def __init__(self) -> None:
        """Make the executor; a job sets nothing of it."""
        super().__init__()
        self._party: Party | None = None

    def execute(
        self, task_name: str, shareable: Shareable, fl_ctx: FLContext, abort_signal: Signal
    ) -> Shareable:
        """Return the answer to a question; of an error, only a return code leaves."""
        # Without fire_event=False, the engine would send the text to the server.
        log = partial(self.log_error, fl_ctx, fire_event=False)
        try:
            folder = Path(_workspace(fl_ctx).get_root_dir()).resolve()
            self._party = self._party or Party(str(fl_ctx.get_identity_name()), folder, log)
            if (message := _message(shareable)) is None:
                return make_reply(ReturnCode.BAD_TASK_DATA)
            job, submitter = str(fl_ctx.get_job_id()), _submitter(fl_ctx)
            answer = self._party.answer(
                message, job=job, submitter=submitter, stopped=lambda: bool(abort_signal.triggered)
            )
            return Shareable(answer._asdict())
        except Exception as error:
            log(f"{task_name}: {error!r}")
            return make_reply(ReturnCode.EXECUTION_EXCEPTION)


class JobController(Controller):
    """A controller of the engine that runs a job of :data:`JOB_KINDS` at the server."""

    def __init__(
        self, kind: TaskName, sites: list[str], job: dict[str, Any], aggregators: Sequence[str] = ()
    ) -> None:
        """Make the controller as the job's file says.

        Args:
            kind: of job.
            sites: that are asked.
            job: its settings.
            aggregators: sites that add up shares, if it needs any.

        Raises:
            ValueError: a site's name is none.
        """
        super().__init__()
        self._kind, self._job = kind, job
        self._sites = _NAMES.validate_python(sites)
        self._aggregators = _NAMES.validate_python(aggregators)
        self._federation: JobSites | None = None

    def start_controller(self, fl_ctx: FLContext) -> None:
        """Prepare the job; the engine calls it before the job runs."""
        # The engine's loader drops the argument of that name.
        cast(Any, self.communicator)._task_check_period = CHECK_SECONDS
        cast(Any, fl_ctx.get_engine()).register_app_command(PROGRESS_COMMAND, self._progress)

    def control_flow(self, abort_signal: Signal, fl_ctx: FLContext) -> None:
        """Run the job; what lies in ``synthfair`` then is what the submitter downloads."""
        workspace, job = _workspace(fl_ctx), str(fl_ctx.get_job_id())
        root = Path(workspace.get_root_dir()).resolve()
        output = Path(workspace.get_app_dir(job)) / "synthfair"
        error = None
        try:
            kind = JOB_KINDS[self._kind]
            settings = validated(kind.settings, self._job)
            server = read_settings(root / "local" / PARTY_FILE, ServerSettings)
            self._federation = JobSites(
                partial(self._carry, fl_ctx, abort_signal),
                server,
                job=job,
                server=str(fl_ctx.get_identity_name()),
                sites=self._sites,
                aggregators=read_aggregators(server.aggregators, self._aggregators),
                log=partial(self.log_warning, fl_ctx),
            )
            kind.run(self._federation, settings, root / "synthfair" / job, output)
        except Exception as caught:  # the engine goes on unless it hears of it
            error = str(caught) or repr(caught)
            self.system_panic(error, fl_ctx)
        if self._federation:
            self._federation.write(output, error)

    def stop_controller(self, fl_ctx: FLContext) -> None:
        """Do nothing at the end, when the engine calls it."""

    def _progress(self, topic: str, data: Any, fl_ctx: FLContext) -> dict[str, Any]:  # noqa: ARG002
        return self._federation.document().model_dump(mode="json") if self._federation else {}

    def _carry(
        self, fl_ctx: FLContext, abort_signal: Signal, question: Question, sites: tuple[str, ...]
    ) -> dict[str, Reply]:
        """Carry a question to sites as a task of the engine, and their replies back."""
        start, lock = time.monotonic(), threading.Lock()
        present = {client.name for client in cast(Any, fl_ctx.get_engine()).get_clients()}
        replies: dict[str, Reply] = {site: (None, 0.0) for site in sites if site not in present}

        def on_result(client_task: ClientTask, fl_ctx: FLContext) -> None:  # noqa: ARG001
            result = client_task.result
            well = result is not None and result.get_return_code() == ReturnCode.OK
            with lock:
                message = _message(result) if well else None
                replies[client_task.client.name] = message, time.monotonic() - start
            client_task.result = None

        targets = [site for site in sites if site in present]
        if targets:
            content, timeout = Shareable(question.message._asdict()), question.timeout
            self.broadcast_and_wait(
                Task(question.task, content, timeout=timeout, result_received_cb=on_result),
                fl_ctx,
                targets=cast(Any, targets),
                min_responses=len(targets),
                abort_signal=abort_signal,
            )
        with lock:
            return dict(replies)


def _message(content: Any) -> Message | None:
    """Return a message as the engine brings it; None where it is none."""
    if not isinstance(content, dict):
        return None
    parts = [value for name in Message._fields if isinstance(value := content.get(name), bytes)]
    return Message(*parts) if len(parts) == len(Message._fields) else None


def _submitter(fl_ctx: FLContext) -> str:
    meta = fl_ctx.get_prop(FLContextKey.JOB_META)
    name = meta.get("submitter_name") if isinstance(meta, dict) else None
    return "".join(c for c in str(name or "unknown")[:100] if c.isprintable())


def _workspace(fl_ctx: FLContext) -> Any:
    return cast(Any, fl_ctx.get_engine()).get_workspace()

"""NVIDIA FLARE's classes: an executor at the sites, a controller at the server, and no more.

A job names them; they turn what the engine hands them into messages, and answers back. They are the
only classes that a hardened kit allows a job to load.
"""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

from nvflare.apis.client import Client
from nvflare.apis.controller_spec import ClientTask, Task
from nvflare.apis.executor import Executor
from nvflare.apis.fl_constant import FLContextKey, ReturnCode
from nvflare.apis.fl_context import FLContext
from nvflare.apis.impl.controller import Controller
from nvflare.apis.shareable import Shareable, make_reply
from nvflare.apis.signal import Signal

from synthfair.deploy.federation import Federation, Reply
from synthfair.deploy.hardening import PROGRESS
from synthfair.deploy.messages import Message, TaskName
from synthfair.deploy.settings import FILE, ServerSettings, read_settings
from synthfair.deploy.single_shot import SingleShotJob, answer_single_shot, run_single_shot
from synthfair.deploy.site import Site

CHECK_PERIOD = 0.02
"""Seconds between the engine's looks at who has answered; by default 0.2."""


def _wrapped(message: Message) -> Shareable:
    """A message as the engine carries it."""
    return Shareable(dict(message._asdict()))


def _message(found: Any) -> Message | None:
    """A message as the engine brings it; None where it is none."""
    if not isinstance(found, dict):
        return None
    parts = [found.get(name) for name in Message._fields]
    return Message(*parts) if all(isinstance(part, bytes) for part in parts) else None


def _workspace(fl_ctx: FLContext) -> Path:
    return Path(fl_ctx.get_engine().get_workspace().get_root_dir()).resolve()


class SiteExecutor(Executor):
    """Answers tasks at a site, as :class:`synthfair.deploy.site.Site` does."""

    def __init__(self) -> None:
        """A job sets nothing."""
        super().__init__()
        self._site: Site | None = None

    def execute(
        self, task_name: str, shareable: Shareable, fl_ctx: FLContext, abort_signal: Signal
    ) -> Shareable:
        """The answer to a question; of an error, only a return code leaves."""
        try:
            return self._answer(shareable, fl_ctx, abort_signal)
        except Exception as error:  # noqa: BLE001 - whatever it says must not leave
            # Without fire_event=False, the engine would send the text to the server.
            self.log_error(fl_ctx, f"{task_name}: {error!r}", fire_event=False)
            return make_reply(ReturnCode.EXECUTION_EXCEPTION)

    def _answer(self, shareable: Shareable, fl_ctx: FLContext, abort: Signal) -> Shareable:
        if self._site is None:
            routines = {"single_shot": answer_single_shot}

            def log(text: str) -> None:
                self.log_error(fl_ctx, text, fire_event=False)

            self._site = Site(fl_ctx.get_identity_name(), _workspace(fl_ctx), routines, log)  # type: ignore[arg-type]
        message = _message(shareable)
        if message is None:
            return make_reply(ReturnCode.BAD_TASK_DATA)
        meta = fl_ctx.get_prop(FLContextKey.JOB_META) or {}
        answer = self._site.answer(
            message,
            job=fl_ctx.get_job_id(),
            submitter=str(meta.get("submitter_name", "unknown"))[:100],
            stopped=lambda: bool(abort.triggered),
        )
        return _wrapped(answer)


class _EngineChannel:
    """Carries messages as tasks of the engine."""

    def __init__(self, controller: Controller, fl_ctx: FLContext, abort_signal: Signal) -> None:
        self._controller, self._fl_ctx, self._abort = controller, fl_ctx, abort_signal
        self._lock = threading.Lock()

    def send(
        self, task: TaskName, message: Message, sites: tuple[str, ...], *, timeout: int
    ) -> dict[str, Reply]:
        replies: dict[str, Reply] = {}
        begun = time.monotonic()

        def received(client_task: ClientTask, fl_ctx: FLContext) -> None:  # noqa: ARG001
            result = client_task.result
            well = result is not None and result.get_return_code() == ReturnCode.OK
            found = _message(result) if well else None
            with self._lock:
                replies[client_task.client.name] = Reply(found, time.monotonic() - begun)
            client_task.result = None

        here = {client.name for client in self._fl_ctx.get_engine().get_clients()}
        targets = [site for site in sites if site in here]
        if targets:
            self._controller.broadcast_and_wait(
                Task(task, _wrapped(message), timeout=timeout, result_received_cb=received),
                self._fl_ctx,
                targets=targets,  # type: ignore[arg-type]
                min_responses=len(targets),
                abort_signal=self._abort,
            )
        with self._lock:
            gone = {site: Reply(None, 0.0) for site in sites if site not in here}
            return gone | replies


class SingleShot(Controller):
    """One upload, as :func:`synthfair.deploy.single_shot.run_single_shot` asks for it."""

    def __init__(self, sites: list[str], job: dict[str, Any]) -> None:
        """As the job's file says.

        Args:
            sites: that are asked.
            job: see :class:`synthfair.deploy.single_shot.SingleShotJob`.
        """
        super().__init__(task_check_period=CHECK_PERIOD)
        self._sites, self._job = tuple(map(str, sites)), job
        self._federation: Federation | None = None

    def start_controller(self, fl_ctx: FLContext) -> None:
        """Called by the engine before the job runs."""
        # The engine's loader drops the argument above.
        self.communicator._task_check_period = CHECK_PERIOD  # noqa: SLF001 # type: ignore[union-attr]
        fl_ctx.get_engine().register_app_command(PROGRESS, self._progress)

    def control_flow(self, abort_signal: Signal, fl_ctx: FLContext) -> None:
        """Runs the job; what it writes is what the submitter downloads."""
        workspace, job_id = _workspace(fl_ctx), fl_ctx.get_job_id()
        engine_workspace = fl_ctx.get_engine().get_workspace()
        output = Path(engine_workspace.get_app_dir(job_id)) / "synthfair"
        try:
            job = SingleShotJob.model_validate(self._job)
            self._federation = Federation(
                _EngineChannel(self, fl_ctx, abort_signal),
                read_settings(workspace / "local" / FILE, ServerSettings),
                job=job_id,
                server=fl_ctx.get_identity_name(),
                sites=self._sites,
                log=lambda text: self.log_warning(fl_ctx, text),
            )
            run_single_shot(
                self._federation, job, private=workspace / "synthfair" / job_id, output=output
            )
            error = None
        except Exception as caught:  # noqa: BLE001 - the engine goes on unless it is told
            error = str(caught) or repr(caught)
            self.system_panic(error, fl_ctx)
        if self._federation:
            self._federation.write(output, error)

    def stop_controller(self, fl_ctx: FLContext) -> None:
        """Called by the engine at the end."""

    def process_result_of_unknown_task(
        self,
        client: Client,
        task_name: str,
        client_task_id: str,
        result: Shareable,  # noqa: ARG002
        fl_ctx: FLContext,
    ) -> None:
        """An answer that came too late does not count."""
        self.log_warning(fl_ctx, f"{client.name}: too late with {task_name} {client_task_id}")

    def _progress(self, topic: str, data: Any, fl_ctx: FLContext) -> dict[str, Any]:  # noqa: ARG002
        return self._federation.document(None) if self._federation else {}

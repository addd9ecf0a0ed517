"""A server and sites as processes of this machine, which end by their own ids."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from synthfair.errors import InputError

CONSOLE = "console.log"
"""What a process says, in its kit."""

PATIENCE = 20.0
"""Seconds that a process has to end by itself."""


def free_port() -> int:
    """A port of this machine that nobody listens at now."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


class Party:
    """The process of one kit, and those that it starts for jobs."""

    def __init__(self, kit: Path) -> None:
        """Starts it, with the kit's own script."""
        python = str(Path(sys.executable).parent)
        path = os.pathsep.join((python, os.environ.get("PATH", "")))
        self.name = kit.name
        with (kit / CONSOLE).open("ab") as console:
            # The once of --once: no loop that would start it again.
            self._process = subprocess.Popen(  # noqa: S603 - the engine's script, of a kit just made
                [str(kit / "startup" / "sub_start.sh"), "--once"],
                stdin=subprocess.DEVNULL,
                stdout=console,
                stderr=subprocess.STDOUT,
                env=os.environ | {"PATH": path},
                start_new_session=True,
            )

    @property
    def running(self) -> bool:
        """Whether it has not ended."""
        return self._process.poll() is None

    def stop(self) -> bool:
        """Ends it and all that it has started; true if none had to be killed."""
        import psutil

        try:
            own = psutil.Process(self._process.pid)
            family = [own, *own.children(recursive=True)]
        except psutil.NoSuchProcess:
            return True
        for process in family:
            _signal(process.pid, signal.SIGTERM)
        _, left = psutil.wait_procs(family, timeout=PATIENCE)
        for process in left:
            _signal(process.pid, signal.SIGKILL)
        self._process.wait()
        return not left

    def wait(self, seconds: float) -> bool:
        """Whether it ends by itself within some time."""
        try:
            self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            return False
        return True


def _signal(pid: int, number: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, number)


def wait_for_port(port: int, parties: Sequence[Party], *, seconds: float = 60.0) -> None:
    """Until somebody listens at a port of this machine.

    Raises:
        InputError: nobody does, or a process has ended.
    """
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        for party in parties:
            if not party.running:
                raise InputError(f"{party.name}: ended; its {CONSOLE} says why")
        with socket.socket() as one:
            if one.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.2)
    raise InputError(f"port {port}: nobody listens after {seconds:g} seconds")

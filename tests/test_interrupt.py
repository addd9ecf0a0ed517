"""Ctrl-C is one line and exit code 130, whatever the process does just then."""

import subprocess
import sys

import pytest

HEADER = """
import gc, os, signal, sys, time
from synthfair.interrupt import exit_on_interrupt, interrupt_raises
def press(): os.kill(os.getpid(), signal.SIGINT)
exit_on_interrupt()
"""

AT_START = HEADER + "press()\ntime.sleep(5)"
IN_AN_IMPORT = (
    HEADER
    + """
try:
    press()
    import json
except BaseException:
    raise ImportError("half made")
"""
)
IN_AN_IMPORT_OF_A_COMMAND = (
    HEADER
    + """
class Press:
    def find_spec(self, name, *_):
        if name == "wave": press()
sys.meta_path.insert(0, Press())
with interrupt_raises():
    try:
        import wave
    except BaseException:
        raise ImportError("half made")
"""
)
IN_A_COMMAND = (
    HEADER
    + """
try:
    with interrupt_raises():
        press()
        time.sleep(5)
except KeyboardInterrupt:
    os.write(2, b"interrupted\\n")
    sys.exit(130)
"""
)
IN_A_CALLBACK = (
    HEADER
    + """
def collected(phase, info):
    gc.callbacks.clear()
    press()
    for _ in range(1000): pass
gc.callbacks.append(collected)
try:
    with interrupt_raises():
        gc.collect()
        time.sleep(5)
except KeyboardInterrupt:
    os.write(2, b"interrupted\\n")
    sys.exit(130)
"""
)
AFTER_A_COMMAND = HEADER + "with interrupt_raises(): pass\npress()\ntime.sleep(5)"


@pytest.mark.parametrize(
    "code",
    [
        AT_START,
        IN_AN_IMPORT,
        IN_AN_IMPORT_OF_A_COMMAND,
        IN_A_COMMAND,
        IN_A_CALLBACK,
        AFTER_A_COMMAND,
    ],
)
def test_one_line_and_130(code):
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (130, "interrupted\n")


def test_little_is_imported_before_it_is_cared_for():
    code = (
        "import sys; before = set(sys.modules)\n"
        "import synthfair.__main__\n"
        "late = {'typing', 're', 'argparse', 'pydantic', 'numpy'} - before\n"
        "assert not late & set(sys.modules), late & set(sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_a_process_that_ignores_it_goes_on():
    """As in the background of a script, or under nohup."""
    code = "import signal\nsignal.signal(signal.SIGINT, signal.SIG_IGN)" + HEADER
    done = subprocess.run([sys.executable, "-c", code + "press()"], check=False)
    assert done.returncode == 0


@pytest.mark.parametrize("module", ["synthfair", "synthfair.client", "synthfair.server"])
def test_commands_care_for_it_before_they_import_others(module):
    """The first module of the command line presses it."""
    code = (
        "import os, runpy, signal, sys\n"
        "class Press:\n"
        "    def find_spec(self, name, *_):\n"
        "        if name == 'synthfair.cli': os.kill(os.getpid(), signal.SIGINT)\n"
        "sys.meta_path.insert(0, Press())\n"
        f"runpy.run_module('{module}', run_name='__main__')\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (130, "interrupted\n")

"""What is shown: progress on a terminal alone, gone at its end; names that steer nothing."""

import io
import re
import time

import pytest
from rich.console import Console

from synthfair.cli import show
from synthfair.errors import InputError


@pytest.fixture
def terminal(monkeypatch):
    """What is drawn on a terminal of 80 columns."""
    drawn = io.StringIO()
    console = Console(file=drawn, force_terminal=True, force_interactive=True, width=80)
    monkeypatch.setattr(show, "terminal", lambda: console)
    return drawn


def shown(text):
    return " ".join(re.sub(r"\x1b\[[\d;?]*[a-zA-Z]", "", text).split())


def test_bar_shows_what_is_done_and_is_gone_at_the_end(terminal):
    with show.stage_bar() as update:
        update("reading [the] rows")
    with show.counting_bar("training") as update:
        update(50, 1000, "loss 1")
    with pytest.raises(InputError), show.stage_bar("beginning"):
        raise InputError("column 'town': missing")
    for words in ("reading [the] rows", "training 50/1,000 loss 1", "beginning"):
        assert words in shown(terminal.getvalue())
    last = terminal.getvalue().rsplit("\x1b[2K", 1)[-1]  # which clears a line
    assert shown(last) == ""


def test_long_command_says_on_a_terminal_what_it_does(terminal):
    with show.saying("It reads rows.", after=0.0):
        for _ in range(3000):
            if said := shown(terminal.getvalue()):
                break
            time.sleep(0.01)
    assert said == "It reads rows."


def test_warnings_of_one_kind_are_one_and_sentences_are_wrapped(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    columns = [f"a.csv: column '{name}': 7.5% of the values lie outside" for name in "bcd"]
    path = "/" + "long" * 30
    show.warn(*columns, None, "another")
    show.say(f"{'word ' * 20}{path}")
    show.conclude(None, [], f"{'word ' * 20}{path}")
    found = capsys.readouterr()
    *first, last = found.err.split("warning: ")[1:]
    assert " ".join(" ".join(first).split()).startswith(columns[0])
    assert re.findall(r"\b2\b|'\w'", first[0]) == ["'b'", "2", "'c'", "'d'"]
    assert last == "another\n"
    said, end, following, _ = found.out.rsplit("\n", 3)
    assert all(len(line) <= 80 for line in said.splitlines())
    assert end == path
    assert following == f"Next: {'word ' * 20}{path}"


def test_names_from_a_file_do_not_steer_the_terminal(capsys):
    show.say("a method called \x1b[2J, in two\nlines")
    show.warn("\x9bnobody", "a name that is no text: \udce9")
    found = capsys.readouterr()
    assert found.out == "a method called \\x1b[2J, in two\nlines\n"
    assert found.err == "warning: \\x9bnobody\nwarning: a name that is no text: \\udce9\n"

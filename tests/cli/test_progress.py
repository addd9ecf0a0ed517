"""The progress bar: there when work starts, gone at its end."""

import io
import re

import pytest
from rich.console import Console

from synthfair.cli import show
from synthfair.errors import InputError

DRAWN_ANEW = "\x1b[2K"
"""Clears a line of a terminal, before the bar is drawn again or removed."""


@pytest.fixture
def terminal(monkeypatch):
    """What is drawn on a terminal of 80 columns."""
    drawn = io.StringIO()
    console = Console(file=drawn, force_terminal=True, force_interactive=True, width=80)
    monkeypatch.setattr(show, "terminal", lambda: console)
    return drawn


def without_codes(text):
    return " ".join(re.sub(r"\x1b\[[\d;?]*[a-zA-Z]", "", text).split())


def last_drawn(terminal):
    return without_codes(terminal.getvalue().rsplit(DRAWN_ANEW, 1)[-1])


@pytest.mark.parametrize(
    ("bar", "now", "said"),
    [
        (show.stage_bar, ("reading [the] rows",), "reading [the] rows"),
        (lambda: show.counting_bar("training"), (50, 1000, "loss 1"), "training 50/1,000 loss 1"),
    ],
)
def test_what_is_done_is_shown_and_gone_at_the_end(bar, now, said, terminal):
    with bar() as update:
        assert last_drawn(terminal)  # before the first step
        update(*now)
    assert said in without_codes(terminal.getvalue())
    assert last_drawn(terminal) == ""


def test_it_is_gone_where_an_input_is_refused(terminal):
    with pytest.raises(InputError), show.stage_bar():
        raise InputError("column 'town': missing")
    assert "starting" in terminal.getvalue()
    assert last_drawn(terminal) == ""


def test_in_a_log_nothing_is_drawn(capsys):
    with show.counting_bar("distilling") as update:
        update(1, 2, "words")
    assert capsys.readouterr() == ("", "")

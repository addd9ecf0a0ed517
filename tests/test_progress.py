"""The progress bar: there when work starts, full at its end, gone where nothing was done."""

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


def last_drawn(terminal):
    last = terminal.getvalue().rsplit(DRAWN_ANEW, 1)[-1]
    return " ".join(re.sub(r"\x1b\[[\d;?]*[a-zA-Z]", "", last).split())


def test_it_is_drawn_before_the_first_step(terminal):
    with show.counting_bar("distilling"):
        assert "0/? preparing" in last_drawn(terminal)


def test_it_is_full_where_work_ends_early(terminal):
    with show.counting_bar("distilling") as update:
        update(50, 1000, "objective 1")
        update(100, 1000, "objective 0.5")
    assert "100/100 objective 0.5" in last_drawn(terminal)


def test_it_stays_where_it_was_when_work_fails(terminal):
    def fail():
        with show.counting_bar("distilling") as update:
            update(50, 1000, "objective 1")
            raise InputError("the objective is not a number")

    with pytest.raises(InputError):
        fail()
    assert "50/1000 objective 1" in last_drawn(terminal)


def test_it_is_removed_where_an_input_is_refused(terminal):
    with pytest.raises(InputError), show.counting_bar("distilling"):
        raise InputError("column 'town': missing")
    assert "preparing" in terminal.getvalue()
    assert last_drawn(terminal) == ""


@pytest.mark.parametrize("bar", [show.counting_bar, lambda _: show.stage_bar()])
def test_in_a_log_nothing_is_drawn(bar, capsys):
    with bar("distilling") as update:
        update(*(("a stage",) if bar is not show.counting_bar else (1, 2, "words")))
    assert capsys.readouterr() == ("", "")

"""How a federation's sites have answered, on a terminal and on the page."""

from typing import get_args

import pytest
from federation_runs import COURSE
from printed import plain_text
from report_runs import page_of, tables, write_run

from synthfair.errors import InputError
from synthfair.files import read_as, write_json
from synthfair.metrics_file import MAX_METRICS_BYTES
from synthfair.report.result_tables import federation_table
from synthfair.task.federation_file import CODES, FederationFile, ServerCode, SiteCode

pytestmark = pytest.mark.usefixtures("text_only")


@pytest.fixture
def run(tmp_path):
    write_run(tmp_path / "run")
    return tmp_path / "run"


def write(run, **changes):
    write_json(run / "federation.json", COURSE | changes)
    return run / "federation.json"


def test_every_code_has_words():
    assert set(CODES) == set(get_args(ServerCode)) > set(get_args(SiteCode))


def test_the_page_shows_the_federation(run):
    write(run, error="too few")
    text = page_of(run)
    ((titles, *rows),) = tables(text, "How the sites have answered")
    assert titles[2:6] == ("rounds", "seconds", "site seconds", "carried bytes")
    assert rows == [
        ("city", "ok", "1", "5.500", "", "283,000", "0.1.0"),
        ("suburbs", "releases", "0", "0.100", "0.020", "0", ""),
    ]
    assert CODES["releases"] in text
    assert CODES["busy"] not in text
    assert "It was stopped: too few" in text
    assert "1 round in 21.0 s.</p>" in text


def test_of_several_rounds_the_median_is_named(run):
    write(run, rounds=3)
    assert "3 rounds in 21.0 s; the median round took 5.50 s.</p>" in page_of(run)


def test_a_run_of_no_federation_has_no_such_section(run):
    assert "How the sites have answered" not in page_of(run)


def test_names_of_sites_are_not_markup(run):
    hostile = {"<script>x</script>": COURSE["sites"]["city"], "[red]": COURSE["sites"]["city"]}
    path = write(run, sites=hostile)
    assert "<script>" not in page_of(run)
    assert "[red]" in plain_text(federation_table(read_as(path, FederationFile, MAX_METRICS_BYTES)))


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"sites": {"city": {"code": "evil"}}}, "sites.city.code"),
        ({"sites": {"city": {"code": "ok", "rounds": -1}}}, "sites.city.rounds"),
        ({"error": "two\nlines"}, "error"),
        ({"more": 1}, "more"),
    ],
)
def test_a_file_that_is_none_is_refused(run, changes, said):
    path = write(run, **changes)
    with pytest.raises(InputError, match=said):
        read_as(path, FederationFile, MAX_METRICS_BYTES)


def test_a_terminal_shows_codes_in_words(run):
    text = plain_text(federation_table(read_as(write(run), FederationFile, MAX_METRICS_BYTES)))
    assert "283,000" in text
    assert CODES["releases"] in " ".join(text.split())

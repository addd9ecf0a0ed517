"""The documentation's site."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from browser import asked_for, headless, needs_browser

import synthfair as sf

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("site", "link", "expected"),
    [
        ("index.md", "privacy.md", "privacy.md"),
        ("privacy.md", "../benchmarks/README.md", "benchmarks/README.md"),
        ("api/index.md", "../privacy.md", "../privacy.md"),
        ("CONTRIBUTING.md", "docs/index.md", "index.md"),
        ("benchmarks/README.md", "../docs/results.md", "../results.md"),
    ],
)
def test_a_link_in_the_repository_is_one_in_the_site(site, link, expected):
    hooks = pytest.importorskip("hooks")

    class Page:
        class file:  # noqa: N801
            src_uri = site

    assert hooks.on_page_markdown(f"[x]({link}#y)", page=Page) == f"[x]({expected}#y)"


def test_a_formula_becomes_mathml_and_one_that_is_not_understood_is_refused():
    hooks = pytest.importorskip("hooks")
    html = '<p>a <span class="arithmatex">\\(\\hat x &lt; 1\\)</span></p>'
    assert "<math" in (made := hooks.on_page_content(html))
    assert "\\" not in made
    with pytest.raises(ValueError, match="nonsense"):
        hooks.on_page_content(html.replace("hat x", "nonsense"))


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """Built as a reader would build it."""
    pytest.importorskip("mkdocs")
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return folder


@pytest.mark.slow
def test_every_public_name_is_in_the_api(site):
    text = {path.stem: path.read_text() for path in (site / "api").glob("*.html")}
    rooms = {"index": sf, **{name: getattr(sf, name) for name in text if hasattr(sf, name)}}
    assert len(rooms) > 10
    for page, room in rooms.items():
        names = {name for name in room.__all__ if not isinstance(getattr(room, name), type(sf))}
        found = set(re.findall(r'id="synthfair\.(?:\w+\.)*(\w+)"', text[page]))
        assert names - {"__version__"} <= found, page


@pytest.mark.slow
@needs_browser
def test_a_browser_reads_the_site_without_network_and_without_errors(site):
    with headless() as driver:
        for name in ("index", "method", "surrogates", "api/index"):
            driver.get((site / f"{name}.html").as_uri())
            assert driver.get_log("browser") == [], name
            script = "return [...document.images].every(image => image.naturalWidth > 0)"
            assert driver.execute_script(script), name
            formulas = "return [...document.querySelectorAll('math')].map(m => m.getBoundingClientRect().width)"
            widths = driver.execute_script(formulas)
            assert all(width > 0 for width in widths)
            assert bool(widths) is (name in {"method", "surrogates"})
        asked = asked_for(driver)
    assert asked
    assert all(url.startswith(("file:", "data:")) for url in asked)

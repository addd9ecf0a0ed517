"""What mkdocs does with the pages of this repository, which are written to be read as files, too.

The site has the folders of the repository, with ``docs/`` as its root: the pages of results and
CONTRIBUTING.md are part of it. Formulas become MathML as the site is built, so that it needs no
script and no network to show them.
"""

from __future__ import annotations

import html
import os
import re
from pathlib import Path
from typing import Any

from latex2mathml.converter import convert
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[2]
OUTSIDE = (
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "benchmarks/*.md",
    "benchmarks/results/**/*.*",
)
LINK = re.compile(r"(\]\()([^)\s#:]+)")
FORMULA = re.compile(r'<(span|div) class="arithmatex">\\[(\[](.*?)\\[)\]]</\1>', re.DOTALL)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Return the site's files, with those added that lie outside of ``docs/``."""
    for path in sorted(path for pattern in OUTSIDE for path in ROOT.glob(pattern)):
        name = path.relative_to(ROOT).as_posix()
        files.append(File.generated(config, name, abs_src_path=str(path)))
    return files


def on_page_markdown(markdown: str, page: Page, **_: Any) -> str:
    """Return the page with links that hold in the site, not in the repository."""
    site = page.file.src_uri
    own = ROOT / "docs" / site
    folder = (own if own.exists() else ROOT / site).parent

    def moved(link: re.Match[str]) -> str:
        target = Path(os.path.normpath(folder / link[2])).relative_to(ROOT)
        in_site = target.relative_to("docs") if target.parts[:1] == ("docs",) else target
        return link[1] + Path(os.path.relpath(in_site, Path(site).parent)).as_posix()

    return LINK.sub(moved, markdown)


def on_page_content(html_text: str, **_: Any) -> str:
    """Return the page with its formulas in MathML.

    Raises:
        ValueError: a formula with a command that latex2mathml does not know.
    """

    def mathml(formula: re.Match[str]) -> str:
        display = "block" if formula[1] == "div" else "inline"
        found = convert(html.unescape(formula[2]), display=display)
        if "\\" in found:
            raise ValueError(f"not understood: {formula[2]}")
        return found.replace("<mo>&#x02016;", '<mo stretchy="false">&#x02016;')

    return FORMULA.sub(mathml, html_text)

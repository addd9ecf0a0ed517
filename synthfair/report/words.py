"""Texts from the templates of this folder."""

from __future__ import annotations

from typing import Any


def render(template: str, **values: Any) -> str:
    """Return the text of a template of jinja2; in HTML, values are escaped."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("synthfair.report"),
        autoescape=template.endswith(".html.j2"),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template(template).render(**values)

"""Pages list what the command line, and configuration files, have."""

import re

import pytest

from synthfair.cli import EXIT_CODES
from synthfair.data.datasets import configs_folder
from synthfair.release.settings import DistillConfig, SurrogateConfig
from synthfair.server.settings import ServerConfig

PAGE = (configs_folder().parent / "docs" / "getting-started.md").read_text(encoding="utf-8")


def test_the_page_has_the_exit_codes():
    found = dict(re.findall(r"^\| (\d+) \| (.*?) \|", PAGE, re.MULTILINE))
    assert found == {str(code): meaning for code, meaning in EXIT_CODES.items()}


@pytest.mark.parametrize(
    ("page", "settings"),
    [("method", DistillConfig), ("method", SurrogateConfig), ("server", ServerConfig)],
)
def test_every_key_of_a_configuration_file_is_on_its_page(page, settings):
    text = (configs_folder().parent / "docs" / f"{page}.md").read_text(encoding="utf-8")
    for key in settings.model_fields:
        assert f"`{key}`" in text or f"`--{key.replace('_', '-')}`" in text, key

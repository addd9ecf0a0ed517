"""The check of a job that the engine runs, at the server and at each site, before the job.

A hardened kit names it. The engine makes it at its start, and calls it for every app that arrives,
before a process of the job reads the app's files. The engine's own look at them comes first, so
that formats which include other files must be gone by then.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from nvflare.apis.app_validation import AppValidator
from nvflare.fuel.utils.config import Config, ConfigFormat, ConfigLoader
from nvflare.fuel.utils.config_factory import ConfigFactory

from synthfair.deploy.job_files import problem


class JobValidator(AppValidator):
    """Refuses jobs that are not as synthfair writes them, see :mod:`synthfair.deploy.job_files`."""

    def __init__(self) -> None:
        """Restricts this process to settings in JSON."""
        super().__init__()
        loaders: dict[ConfigFormat, Any] = ConfigFactory._fmt2Loader
        for form in ConfigFormat:
            if form is not ConfigFormat.JSON:
                loaders[form] = _LoaderStub(form)

    def validate(self, app_folder: str) -> tuple[str, dict]:
        """Return what is wrong, and nothing that the engine need know besides."""
        return problem(Path(app_folder)), {}


class _LoaderStub(ConfigLoader):
    """A substitute for the engine's loaders, which include files by path and URL."""

    def load_config(self, file_path: str) -> Config:
        raise ValueError(f"{Path(file_path).name}: settings must be JSON")

    def load_config_from_str(self, config_str: str) -> Config:  # noqa: ARG002
        raise ValueError(f"settings must be JSON, not {self.format.value}")

    def load_config_from_dict(self, config_dict: dict) -> Config:
        raise ValueError(f"settings must be JSON, not {self.format.value}: {len(config_dict)} keys")

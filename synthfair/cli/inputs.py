"""What is refused before JAX is imported, which takes ten times as long."""

from __future__ import annotations

import os
from pathlib import Path

from synthfair.errors import InputError, reason
from synthfair.files import open_file


def check_inputs(schema: Path, *files: Path) -> None:
    """Refuses a bad schema, and files and folders that are missing or that may not be read.

    Raises:
        InputError: as :func:`synthfair.data.schema.read_schema`; or a file cannot be read, or is a
            pipe or a device.
    """
    from synthfair.data.schema import read_schema

    for path in (schema, *files):
        try:
            if not path.is_dir():
                open_file(path).close()
        except OSError as error:
            raise InputError(f"{path}: cannot read: {reason(error)}") from error
        if not os.access(path, os.R_OK):
            raise InputError(f"{path}: cannot read: you have no permission")
    read_schema(schema)

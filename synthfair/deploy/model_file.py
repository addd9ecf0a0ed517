"""A model file inside a job's settings: a project names the file, a job holds what is in it."""

from __future__ import annotations

import base64
import binascii
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import AfterValidator, BeforeValidator, ValidationInfo

from synthfair.errors import InputError
from synthfair.files import read_bytes
from synthfair.trained import MAX_BYTES, TrainedModel, parse_model

if TYPE_CHECKING:
    from synthfair.data.schema import Schema


def _content(name: Any, info: ValidationInfo) -> Any:
    """Encode the file that a project names in base64; a job has it so already."""
    if not isinstance(name, str) or not info.context:
        return name
    path: Path = info.context["folder"] / name
    return base64.b64encode(read_bytes(path, MAX_BYTES)).decode()


def content_of(model: str) -> bytes:
    """Return the file's bytes, of a field of type :data:`ModelFile`."""
    return base64.b64decode(model, validate=True)


def model_of(content: bytes, schema: Schema) -> TrainedModel:
    """Return the model in a file of these bytes. Raises InputError: it is none, of this schema."""
    model = parse_model(content, "model")
    if model.schema_.hash != schema.hash:
        raise InputError(
            f"model: of the schema {model.schema_.hash}; must be of {schema.hash}, as all sites are"
        )
    return model


def _is_a_model(content: str) -> str:
    try:
        parse_model(content_of(content), "model")
    except binascii.Error as error:
        raise ValueError("is no model file in base64") from error
    return content


ModelFile = Annotated[str, BeforeValidator(_content), AfterValidator(_is_a_model)]
"""A model file in base64: the engine would read names in braces as its own variables."""

"""A model file inside a job's settings: a project names the file, a job holds what is in it."""

from __future__ import annotations

import base64
from typing import Annotated, Any

from pydantic import AfterValidator, Base64UrlBytes, BeforeValidator, ValidationInfo

from synthfair.data.schema import Schema
from synthfair.errors import InputError
from synthfair.files import read_bytes
from synthfair.trained import MAX_MODEL_BYTES, TrainedModel, parse_model


def _content(value: Any, info: ValidationInfo) -> Any:
    """Encode the file that a project names in base64; a job has it so already."""
    if isinstance(value, str) and info.context:
        return base64.urlsafe_b64encode(read_bytes(info.context["folder"] / value, MAX_MODEL_BYTES))
    return value.encode() if isinstance(value, str) else value


def _is_a_model(content: bytes) -> bytes:
    parse_model(content, "model")
    return content


ModelFile = Annotated[Base64UrlBytes, BeforeValidator(_content), AfterValidator(_is_a_model)]
"""The bytes of a model file, in a job in base64: the engine would read names in braces as its own
variables."""


def model_of(content: bytes, schema: Schema) -> TrainedModel:
    """Return the model in a file of these bytes. Raises InputError: it is none, of this schema."""
    model = parse_model(content, "model")
    if model.schema_.hash != schema.hash:
        raise InputError(
            f"model: of the schema {model.schema_.hash}; must be of {schema.hash}, as all sites are"
        )
    return model

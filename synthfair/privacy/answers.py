"""What an epsilon has bought, saved until the release is written. Stays with the client."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, NamedTuple, TypeVar

import numpy as np
from pydantic import BaseModel

from synthfair.config import STRICT
from synthfair.errors import InputError
from synthfair.files import OWNER_ONLY, read_bytes, write_text

Answers = TypeVar("Answers", bound=tuple)


MAX_BYTES = 2**31
"""Of a file that is read."""


class _Array(NamedTuple):
    """An array as a file holds it."""

    shape: tuple[int, ...]
    values: list[float]


class _Saved(BaseModel):
    """Answers as a file holds them."""

    model_config = STRICT

    run: str
    sha256: str
    arrays: dict[str, _Array]


@dataclass(frozen=True)
class AnswersFile(Generic[Answers]):
    """Noisy answers about a client's rows, so that a run that stops need not buy them again.

    Its numbers are as private as the release, but its name tells of the rows: who guesses them
    could confirm them by it. Only its owner may read it.

    Attributes:
        path: of the file.
        run: fingerprint of rows and settings; a file of another run is not read.
        kind: of the answers, a named tuple of arrays.
    """

    path: Path
    run: str
    kind: type[Answers]

    @classmethod
    def next_to(cls, output: Path, run: str, kind: type[Answers]) -> AnswersFile[Answers]:
        """Named after an output and the run, so that it is never another file."""
        return cls(output.with_name(f"{output.name}.{run[:16]}.fit"), run, kind)

    def save(self, answers: Answers) -> None:
        """Writes them whole or not at all."""
        arrays = {
            name: _Array(np.shape(array), np.ravel(array).tolist())
            for name, array in zip(self._names, answers, strict=True)
        }
        saved = _Saved(run=self.run, sha256=_checksum(self.run, arrays), arrays=arrays)
        write_text(self.path, saved.model_dump_json(), mode=OWNER_ONLY)

    def load(self) -> Answers | None:
        """The answers saved, or None where there are none of this very run.

        Raises:
            InputError: there are some, but damaged.
        """
        if not self.path.exists():
            return None
        damaged = InputError(
            f"{self.path}: damaged; it holds what an epsilon has bought. Delete it to measure"
            " again, which spends epsilon once more"
        )
        try:
            saved = _Saved.model_validate_json(read_bytes(self.path, MAX_BYTES))
        except (OSError, ValueError) as error:  # a ValidationError is a ValueError
            raise damaged from error
        if (saved.run, saved.sha256) != (self.run, _checksum(self.run, saved.arrays)):
            raise damaged
        arrays = [saved.arrays[name] for name in self._names]
        return self.kind(*(np.array(array.values).reshape(array.shape) for array in arrays))

    @property
    def _names(self) -> tuple[str, ...]:
        return self.kind._fields  # type: ignore[attr-defined]


def _checksum(run: str, arrays: dict[str, _Array]) -> str:
    return hashlib.sha256(json.dumps([run, arrays], sort_keys=True).encode()).hexdigest()

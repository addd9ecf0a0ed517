"""Writes files whole or not at all; reads those of limited size."""

from __future__ import annotations

import errno
import io
import json
import math
import os
import stat
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, ValuesView
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from synthfair.errors import InputError, reason, refusal

if TYPE_CHECKING:
    from pydantic import BaseModel

    _Model = TypeVar("_Model", bound=BaseModel)

ORDINARY, OWNER_ONLY = 0o666, 0o600
"""Who may read and write a file, before the user's umask: everyone, or its owner alone."""


def require_free(*paths: Path, inputs: Iterable[Path | None] = (), force: bool) -> None:
    """Refuse outputs that exist, unless forced, before any work is done for them.

    Args:
        paths: outputs.
        inputs: of the same work; None where there is none.
        force: whether files are overwritten.

    Raises:
        InputError: a path exists and force is false, is one of the inputs or another output, or is
            something else than a file; or its folder cannot be written to, or made.
    """
    sources = [path for path in inputs if path]
    for i, path in enumerate(paths):
        require_distinct(path, *sources, *paths[:i])
    for path in paths:
        if path.is_dir():
            raise InputError(f"{path}: is a folder; name a file")
        if _is_file(path) and not force:
            raise InputError(f"{path}: exists; name another, or force = true replaces it", "force")
        try:
            folder = next(folder for folder in path.absolute().parents if folder.exists())
            # os.access is not enough: it allows all to root, and on read-only file systems.
            with tempfile.TemporaryFile(dir=folder):
                pass
        except OSError as error:
            raise InputError(f"{path.parent}: cannot write here: {reason(error)}") from error


@contextmanager
def _made_folder(path: Path) -> Iterator[None]:
    """Make the folder of a file; remove it again where the block fails and it is empty."""
    made = [folder for folder in path.parents if not folder.exists()]
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        yield
    except BaseException:
        with suppress(OSError):  # not empty
            for folder in made:
                folder.rmdir()
        raise


@contextmanager
def claimed(*paths: Path, inputs: Iterable[Path | None] = (), force: bool) -> Iterator[None]:
    """Hold outputs for one run: of two with the same output at once, the second is refused.

    A lock next to each is held inside the block, and removed after it. The system frees it where a
    run is killed: what is left of it then is empty, and hinders nobody.

    Raises:
        InputError: another run holds one of them; or as :func:`require_free`.
    """
    from filelock import FileLock, Timeout

    require_free(*paths, inputs=inputs, force=force)
    with ExitStack() as stack:
        for path in paths:
            stack.enter_context(_made_folder(path))
            lock = FileLock(path.with_name(f".{path.name}.lock"), timeout=0, mode=OWNER_ONLY)
            try:
                stack.enter_context(lock)
            except Timeout as error:
                raise InputError(f"{path}: another run is writing it; wait for its end") from error
            # While it is held: whoever opened it before finds that it is gone, and makes another.
            stack.callback(Path(lock.lock_file).unlink, missing_ok=True)
        require_free(*paths, force=force)  # a run may have ended since the first look
        yield


def _is_file(path: Path) -> bool:
    """Return whether there is a file; nothing else may be replaced by one.

    Raises:
        InputError: there is a link, a pipe, a device or a socket.
    """
    try:
        mode = path.lstat().st_mode
    except OSError:  # nothing is there; or its folder cannot be used, which says so itself
        return False
    if not stat.S_ISREG(mode):
        raise InputError(f"{path}: is not a regular file, and only those are ever replaced")
    return True


def require_distinct(output: Path, *inputs: Path) -> None:
    """Refuse an output that is also an input or another output, even where overwriting is forced.

    Raises:
        InputError: it is one of the others, whether or not it exists yet.
    """
    # Path.resolve would raise at links that form a loop.
    exists, place = output.exists(), os.path.realpath(output)
    for path in inputs:
        # Links are only resolved for files that do not exist, as that takes ten times longer.
        # Path.exists would raise where a folder may not be searched.
        is_path = os.path.exists(path)  # noqa: PTH110
        if (exists and output.samefile(path)) if is_path else os.path.realpath(path) == place:
            raise InputError(f"{output}: is named twice; choose another name for the output")


@contextmanager
def whole_file(path: Path, *, mode: int = ORDINARY) -> Iterator[Path]:
    """Yield a temporary name next to ``path``; renames it to ``path`` if the block succeeds.

    Its content is on the disk before, and its name after that: both survive a crash.

    The file then has those bits of ``mode`` that the user's umask allows; before, only its owner
    may read it. On any exception, Ctrl-C included, the temporary file is removed and ``path`` is as
    it was. An error of the system without a file's name, as where the disk is full, gets this one.

    Raises:
        InputError: at ``path`` is something else than a file.
    """
    with _made_folder(path):
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        os.close(handle)
        temporary = Path(name)
        try:
            yield temporary
            with temporary.open("r+b") as file:
                os.fsync(file.fileno())
            umask = os.umask(0)
            os.umask(umask)
            temporary.chmod(mode & ~umask)  # mkstemp makes files private; an ordinary file is not
            _is_file(path)
            temporary.replace(path)
            sync_folder(path.parent)
        except OSError as error:
            if error.filename in (None, name):
                error.filename = str(path)
            raise
        finally:
            temporary.unlink(missing_ok=True)


def write_text(path: Path, text: str, *, mode: int = ORDINARY) -> None:
    """Write text whole or not at all; ``mode`` as of :func:`whole_file`."""
    with whole_file(path, mode=mode) as temporary:
        temporary.write_text(text, encoding="utf-8")


def write_json(path: Path, document: dict[str, Any], *, mode: int = ORDINARY) -> None:
    """Write a document as JSON, whole or not at all; ``mode`` as of :func:`whole_file`.

    Raises:
        ValueError: it holds not-a-number or infinity, which JSON cannot express.
    """
    write_text(path, json.dumps(document, indent=2, allow_nan=False) + "\n", mode=mode)


def sync_folder(folder: Path) -> None:
    """Make the name of a new file durable, where folders can be opened for that."""
    with suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def open_file(path: Path) -> io.BufferedReader:
    """Open a regular file to read its bytes, and nothing else: a pipe would wait for its writer.

    Raises:
        OSError: it cannot be opened, or is a pipe, a device, a socket or a folder.
    """

    def regular(name: str, flags: int) -> int:
        handle = os.open(name, flags | getattr(os, "O_NONBLOCK", 0))  # Windows has none
        if stat.S_ISREG(os.fstat(handle).st_mode):
            return handle
        os.close(handle)
        raise OSError(errno.EINVAL, "it must be a regular file, not a pipe, device or folder", name)

    return open(path, "rb", opener=regular)


def read_bytes(path: Path, most_bytes: int) -> bytes:
    """Return the content of a regular file of at most so many bytes.

    Raises:
        InputError: unreadable, no regular file, or larger.
    """
    try:
        with open_file(path) as file:
            content = file.read(most_bytes + 1)
    except OSError as error:
        raise InputError(f"{path}: cannot read: {reason(error)}") from error
    if len(content) > most_bytes:
        raise InputError(f"{path}: larger than the {most_bytes} bytes that are read")
    return content


MAX_JSON_DIGITS = 40
"""The most digits of a whole number in JSON from outside: no synthfair file has one above 2^80."""

MAX_JSON_LEVELS = 100
"""The most levels of lists and objects in JSON from outside; no synthfair file has twenty."""


def parse_json(content: bytes | str, source: str) -> Any:
    """Parse JSON text from ``source``.

    Raises:
        InputError: not JSON; a number is not finite, or a whole one of more than MAX_JSON_DIGITS; a
            key is repeated in an object, of which JSON would silently take the last; or more than
            MAX_JSON_LEVELS levels.
    """
    try:
        value = json.loads(
            content,
            object_pairs_hook=_distinct_keys,
            parse_constant=_finite,
            parse_float=_finite,
            parse_int=_short,
        )
    except (ValueError, RecursionError) as error:
        raise InputError(f"{source}: not JSON: {reason(error)}") from error
    level = [value]
    for _ in range(MAX_JSON_LEVELS):
        lists = [item.values() if isinstance(item, dict) else item for item in level]
        level = [item for items in lists if isinstance(items, (list, ValuesView)) for item in items]
    if any(isinstance(item, (list, dict)) for item in level):
        raise InputError(f"{source}: not JSON: more than {MAX_JSON_LEVELS} levels in each other")
    return value


def _distinct_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    entries = dict(pairs)
    if len(entries) < len(pairs):
        twice, _ = Counter(name for name, _ in pairs).most_common(1)[0]
        raise ValueError(f"key {twice!r} appears more than once")
    return entries


def _finite(text: str) -> float:
    if not math.isfinite(number := float(text)):
        raise ValueError(f"{text[:20]} is not a finite number")
    return number


def _short(text: str) -> int:
    if len(text) > MAX_JSON_DIGITS:
        raise ValueError(f"{text[:20]}... is a whole number of more than {MAX_JSON_DIGITS} digits")
    return int(text)


def read_document(path: Path, most_bytes: int = 2**20) -> dict[str, Any]:
    """Return a JSON object from a file of at most so many bytes.

    Raises:
        InputError: as :func:`read_bytes` and :func:`parse_json`; or not a JSON object.
    """
    return parse_object(read_bytes(path, most_bytes), str(path))


def parse_object(content: bytes | str, source: str) -> dict[str, Any]:
    """Return a JSON object from ``source``. Raises InputError, also as :func:`parse_json`."""
    document = parse_json(content, source)
    if not isinstance(document, dict):
        raise InputError(f"{source}: must hold a JSON object")
    return document


def validated(kind: type[_Model], document: Any) -> _Model:
    """Return a model of pydantic from what JSON held; ``document`` is hostile until then.

    It goes through JSON once more, as only from JSON a strict model takes lists as tuples.

    Raises:
        ValidationError: it is not of that kind.
    """
    return kind.model_validate_json(json.dumps(document))


def parse_as(content: bytes | str, kind: type[_Model], source: str) -> _Model:
    """Return a model of pydantic from JSON text of ``source``, hostile until validated.

    Raises:
        InputError: as :func:`parse_json`; no JSON object; or not of that kind: the message names
            key and value.
    """
    from pydantic import ValidationError

    try:
        return validated(kind, parse_object(content, source))
    except ValidationError as error:
        raise refusal(source, error) from error


def read_as(path: Path, kind: type[_Model], most_bytes: int) -> _Model:
    """Read JSON of at most so many bytes as a model. Raises InputError, also as read_bytes."""
    return parse_as(read_bytes(path, most_bytes), kind, str(path))

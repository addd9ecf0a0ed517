"""Traced computations, kept on disk, so that a later process need not trace them again.

JAX keeps compiled code, but to know what to look up it traces and lowers a function first, and for
a chunk of steps that takes some times as long as fetching the code. So what tracing led to, a
module of StableHLO, is kept beside the code, as :mod:`jax.export` writes it. Nothing of a table is
in it but shapes.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cache
from importlib.metadata import version
from pathlib import Path

import jax
from jax import export

import synthfair
from synthfair.files import whole_file

MOST_KEPT = 200
"""Traces, of some 50 kB each. Beyond, what was not used for longest is deleted."""

LIBRARIES = ("jax", "jaxlib", "jaxopt")
"""With which a trace changes."""


def recalled(
    fun: Callable[..., list[jax.Array]], leaves: Sequence[jax.Array], *, name: str
) -> list[jax.Array]:
    """``fun(*leaves)``, from its kept trace if there is one; else its trace is kept.

    Kept is where JAX keeps compiled code, if it does, and only for CPUs: what an accelerator's
    libraries are called for is not always a thing that can be kept. Who may write there may run
    code, as with JAX's own. Called inside of :func:`jax.jit`, where tracing is what takes time, of
    arrays on one device.

    Args:
        fun: of arrays alone, and returns arrays alone, none of a weak type.
        leaves: the arrays.
        name: tells functions apart that are not the same; what they say in synthfair, in the
            libraries, of JAX's settings, and of shapes and types is told apart anyway.
    """
    folder = _folder()
    if folder is None:
        return fun(*leaves)
    try:
        trace = _trace(folder, fun, [jax.typeof(leaf) for leaf in leaves], name)
    except Exception:  # of other packages, too: what only saves time must not stop a run
        return fun(*leaves)
    return trace.call(*leaves)  # pyright: ignore[reportReturnType] - what fun returned


def _trace(
    folder: Path, fun: Callable[..., list[jax.Array]], types: Sequence[object], name: str
) -> export.Exported:
    """From the folder, or else made, and written there."""
    path = folder / _key(name, types)
    trace = _read(path)
    if trace is None:
        trace = export.export(jax.jit(fun))(*types)
        with suppress(OSError):  # then the next process traces, too
            _write(path, trace)
    return trace


def _folder() -> Path | None:
    settings = jax.config.values
    folder = settings["jax_enable_compilation_cache"] and settings["jax_compilation_cache_dir"]
    if not folder or "://" in folder or jax.default_backend() != "cpu":
        return None
    return Path(folder) / "traces"


def _key(name: str, types: Sequence[object]) -> str:
    text = f"{_sources()} {sorted(jax.config.values.items())} {name} {types}"
    return hashlib.sha256(text.encode()).hexdigest()


@cache
def _sources() -> str:
    """All that a trace may depend on beside its name: this package and the libraries."""
    digest = hashlib.sha256(" ".join(map(version, LIBRARIES)).encode())
    for path in sorted(Path(synthfair.__file__).parent.rglob("*.py")):
        digest.update(path.read_bytes())
    return f"{synthfair.__version__} {digest.hexdigest()}"


def _read(path: Path) -> export.Exported | None:
    """None where it is not there, or not what was written."""
    try:
        found = path.read_bytes()
    except OSError:
        return None
    with suppress(OSError):
        os.utime(path)  # used now
    digest, content = found[:32], found[32:]
    if hashlib.sha256(content).digest() != digest:
        return None
    return export.deserialize(bytearray(content))


def _write(path: Path, trace: export.Exported) -> None:
    content = bytes(trace.serialize())
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with whole_file(path, mode=0o600) as temporary:
        temporary.write_bytes(hashlib.sha256(content).digest() + content)
    by_use = sorted(path.parent.glob("[0-9a-f]*"), key=lambda each: each.stat().st_mtime)
    for old in by_use[:-MOST_KEPT]:
        old.unlink(missing_ok=True)

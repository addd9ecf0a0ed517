"""How JAX is set up: its cache wherever something is compiled, its precision in commands."""

from __future__ import annotations

import os
import warnings
from contextlib import suppress
from pathlib import Path

CACHE_BYTES = 256 * 2**20
"""Most that compiled code may take up on disk; beyond, the least recently used is deleted."""

SETTINGS = {
    "jax_compilation_cache_max_size": CACHE_BYTES,
    # By default only what took a second to compile is cached; together the rest takes longer.
    "jax_persistent_cache_min_compile_time_secs": 0.0,
    "jax_persistent_cache_min_entry_size_bytes": -1,
}
"""Of a cache of ours; each holds unless the environment has another."""


def start_jax() -> None:
    """Double precision, whatever the library's default is, and a cache of compiled code."""
    import jax

    jax.config.update("jax_enable_x64", True)
    cache_compiled_code(logged=True)


def cache_compiled_code(*, logged: bool = False) -> None:
    """Lets JAX cache compiled code, so that a second process does not compile again.

    The cache is JAX's own, in the user's cache folder. ``JAX_COMPILATION_CACHE_DIR`` names another
    folder, of which nothing is deleted; one that ``jax.config`` names is used as it is set up; and
    ``JAX_ENABLE_COMPILATION_CACHE=false`` turns caching off. Whatever the process compiles is
    cached, with arrays that a function closes over: rows should be its arguments, as they are in
    this package.

    On many processors XLA takes each piece of cached code for another machine's, and logs 2,000
    characters (jax-ml/jax#38445). It is not: JAX looks code up by the processor's features. So
    importing synthfair turns XLA's log off. Where JAX was imported before, which turns it on,
    nothing is cached unless ``logged``.
    """
    import jax

    settings: dict[str, object] = dict(SETTINGS)
    chosen = jax.config.jax_compilation_cache_dir  # type: ignore[attr-defined]
    quiet = logged or os.environ.get("TF_CPP_MIN_LOG_LEVEL") == "3"
    if not jax.config.jax_enable_compilation_cache:  # type: ignore[attr-defined]
        return
    if chosen and "JAX_COMPILATION_CACHE_DIR" in os.environ:
        del settings["jax_compilation_cache_max_size"]  # what is there may be another program's
    elif chosen or not quiet or (folder := cache_folder()) is None:
        return
    else:
        _sweep(folder)
        settings["jax_compilation_cache_dir"] = str(folder)
    for name, value in settings.items():
        if name.upper() not in os.environ:
            jax.config.update(name, value)
    # Such an entry is compiled again; that is no news to the user of a command.
    warnings.filterwarnings("ignore", "Error (reading|writing) persistent compilation cache")


def _sweep(folder: Path) -> None:
    """Removes what a process that was killed left half-written: JAX would fail to add more."""
    with suppress(OSError):
        for entry in folder.glob("*-cache"):
            stamp = entry.with_name(entry.name.removesuffix("-cache") + "-atime")
            if not stamp.exists() or entry.stat().st_size == 0:
                entry.unlink()


def cache_folder() -> Path | None:
    """Where compiled code is cached; None where others than the user could read or write.

    What lies there is run.
    """
    from platformdirs import user_cache_path

    folder = user_cache_path("synthfair", appauthor=False) / "compiled"
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = folder.stat()
    except OSError:
        return None
    if not os.access(folder, os.W_OK):
        return None
    if hasattr(os, "getuid") and (found.st_uid != os.getuid() or found.st_mode & 0o077):
        return None
    return folder

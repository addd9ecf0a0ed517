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
"""Each holds unless the environment has another."""


def start_jax() -> None:
    """Double precision, whatever the library's default is."""
    import jax

    jax.config.update("jax_enable_x64", True)


def cache_compiled_code() -> None:
    """Lets JAX cache compiled code, so that a second process does not compile again.

    The cache is JAX's own, in the user's cache folder, unless a program has chosen another by
    ``jax.config``. ``JAX_COMPILATION_CACHE_DIR`` names another folder, and
    ``JAX_ENABLE_COMPILATION_CACHE=false`` turns it off. Whatever the process compiles is cached.

    On many processors XLA takes each piece of cached code for another machine's, and logs 2,000
    characters (jax-ml/jax#38445). It is not: JAX looks code up by the processor's features. So
    importing synthfair turns XLA's log off, and where JAX was imported before, which turns it on,
    only a folder that was chosen is used.
    """
    import jax

    settings: dict[str, object] = dict(SETTINGS)
    if "JAX_COMPILATION_CACHE_DIR" not in os.environ:
        chosen = jax.config.jax_compilation_cache_dir  # type: ignore[attr-defined]
        quiet = os.environ.get("TF_CPP_MIN_LOG_LEVEL") == "3"
        folder = cache_folder()
        if chosen or not quiet or folder is None:
            return
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
    """Where compiled code is cached; None where others than the user could write.

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
    if hasattr(os, "getuid") and (found.st_uid != os.getuid() or found.st_mode & 0o022):
        return None
    return folder

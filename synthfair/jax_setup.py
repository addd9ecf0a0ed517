"""The setup of JAX by commands: double precision, a cache of compiled code."""

from __future__ import annotations

import os
import warnings
from shutil import rmtree

MAX_CACHE_BYTES = 500 * 10**6
"""Size beyond which a command deletes the cache of compiled code, and begins another."""


def start_jax() -> None:
    """Set double precision, and cache compiled code, so that the next command need not compile.

    The cache is JAX's own, in the user's cache folder. ``JAX_COMPILATION_CACHE_DIR`` names another
    folder, of which nothing is deleted, and ``JAX_ENABLE_COMPILATION_CACHE=false`` turns it off.
    """
    # XLA takes each piece of cached code for another machine's, and logs it (jax-ml/jax#38445).
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    import jax

    jax.config.update("jax_enable_x64", True)
    if not jax.config.jax_enable_compilation_cache:  # type: ignore[attr-defined]
        return
    if "JAX_COMPILATION_CACHE_DIR" not in os.environ:
        jax.config.update("jax_compilation_cache_dir", cache_folder())
    if "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS" not in os.environ:
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.1)
    # A damaged entry is compiled again; that is no news to the user of a command.
    warnings.filterwarnings("ignore", "Error (reading|writing) persistent compilation cache")


def cache_folder() -> str | None:
    """Return the user's folder of compiled code; None where others could read or write it.

    What lies there is run. The folder is emptied if it holds more than MAX_CACHE_BYTES.
    """
    from platformdirs import user_cache_path

    folder = user_cache_path("synthfair", appauthor=False) / "compiled"
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        status = folder.stat()
        if hasattr(os, "getuid") and (status.st_uid != os.getuid() or status.st_mode & 0o077):
            return None
        if sum(path.stat().st_size for path in folder.iterdir()) > MAX_CACHE_BYTES:
            rmtree(folder)
            folder.mkdir(mode=0o700)
    except OSError:
        return None
    return str(folder)

"""How the command line sets up JAX, once a command computes something."""

from __future__ import annotations

import os
from pathlib import Path

CACHE_BYTES = 256 * 2**20
"""Most that compiled code may take up on disk; a client's is a fifth of a megabyte. Beyond, what
was not used for longest is deleted."""


def start_jax() -> None:
    """Double precision, whatever the library's default is, and compiled code that is kept.

    Compiled code goes to the user's cache folder, keyed by what was compiled, for which processor
    and by which version of JAX: the second run of a command starts a second or two sooner.
    ``JAX_COMPILATION_CACHE_DIR`` names another folder, ``JAX_ENABLE_COMPILATION_CACHE=false``
    turns it off.
    """
    import jax

    jax.config.update("jax_enable_x64", True)
    folder = cache_folder()
    if folder is None or "JAX_COMPILATION_CACHE_DIR" in os.environ:
        return
    jax.config.update("jax_compilation_cache_dir", str(folder))
    jax.config.update("jax_compilation_cache_max_size", CACHE_BYTES)
    # By default only what took a second to compile is kept; together the rest takes longer.
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)


def cache_folder() -> Path | None:
    """Where compiled code is kept; None where nobody but the user can be kept from writing there.

    What lies there is run.
    """
    from platformdirs import user_cache_path

    folder = user_cache_path("synthfair") / "compiled"
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

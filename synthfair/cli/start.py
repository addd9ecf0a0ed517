"""How the command line sets up JAX, once a command computes something."""

from __future__ import annotations

import os
import warnings
from contextlib import suppress
from pathlib import Path

from synthfair.errors import InputError

CACHE_BYTES = 256 * 2**20
"""Most that compiled code may take up on disk; a client's is a fifth of a megabyte. Beyond, what
was not used for longest is deleted."""

SMALL_TABLE = 16 * 2**20
"""Bytes of a table as :func:`synthfair.data.tables.size_of` has them. Where there are less, an
operation of a step is done before a second thread has woken, and steps take up to a third less with
one; measured in benchmarks/README.md."""

THREADS = ("PJRT_NPROC", "NPROC")
"""Variables that tell XLA how many threads it has on a CPU."""

LOOPS = "--xla_backend_extra_options=xla_cpu_disable_tiled_emitter=true"
"""XLA's flag for loops over whole lines in place of tiles of eight numbers, each copied to the
stack, with which some operations of a step take three times as long. Not to be had for one
function alone. XLA ignores options that it does not know, but not flags: should it drop this one,
it would end the process."""

SETTINGS = {
    "jax_compilation_cache_max_size": CACHE_BYTES,
    # By default only what took a second to compile is kept; together the rest takes longer.
    "jax_persistent_cache_min_compile_time_secs": 0.0,
    "jax_persistent_cache_min_entry_size_bytes": -1,
}
"""Each holds unless the environment has another."""


def start_jax(*, table: Path | None = None) -> None:
    """Double precision, whatever the library's default is, and compiled code that is kept.

    Where one small table is all there is to work on, JAX gets one thread, unless the environment
    says how many (:data:`THREADS`), and loops without tiles (:data:`LOOPS`), unless it has such
    options already.

    Compiled code goes to the user's cache folder, keyed by what was compiled, for which device and
    by which version of JAX, and beside it what tracing led to (:mod:`synthfair.traces`): a
    client's second run takes some two seconds less.
    ``JAX_COMPILATION_CACHE_DIR`` names another folder, ``JAX_ENABLE_COMPILATION_CACHE=false``
    turns it off.

    XLA's own log is off, unless the environment says otherwise: what matters is raised, and on many
    processors it takes each piece of compiled code that was kept for another machine's, in 2,000
    characters (jax-ml/jax#38445). It is not: JAX looks it up by the processor's features, too.
    """
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")  # read as JAX is imported
    import jax

    jax.config.update("jax_enable_x64", True)
    _keep_compiled_code()
    if table and _is_small(table):
        _add_to_flags(LOOPS)
        if not any(name in os.environ for name in THREADS):
            _start_with_one_thread()


def _keep_compiled_code() -> None:
    import jax

    settings: dict[str, object] = dict(SETTINGS)
    if "JAX_COMPILATION_CACHE_DIR" not in os.environ:
        folder = cache_folder()
        if folder is None:
            return
        _sweep(folder)
        settings["jax_compilation_cache_dir"] = str(folder)
    for name, value in settings.items():
        if name.upper() not in os.environ:
            jax.config.update(name, value)
    # Such an entry is compiled again; that is no news to the user of a command.
    warnings.filterwarnings("ignore", "Error (reading|writing) persistent compilation cache")


def _is_small(table: Path) -> bool:
    from synthfair.data.tables import size_of

    try:
        return size_of(table) < SMALL_TABLE
    except (InputError, OSError):
        return False  # whoever reads it will say why


def _add_to_flags(flag: str) -> None:
    """Adds one to XLA's flags, where it is not set already, for good.

    XLA reads them as it compiles for the first time, JAX whenever it looks up compiled code.
    """
    flags = os.environ.get("XLA_FLAGS", "")
    if flag.partition("=")[0] not in flags:
        os.environ["XLA_FLAGS"] = f"{flags} {flag}".strip()


def _start_with_one_thread() -> None:
    """XLA reads the variable as it starts; then it goes, for it is no one else's business."""
    import jax

    os.environ[THREADS[0]] = "1"
    try:
        jax.devices()
    finally:
        del os.environ[THREADS[0]]


def _sweep(folder: Path) -> None:
    """Removes what a process that was killed left half-written: JAX would fail to add more."""
    with suppress(OSError):
        for entry in folder.glob("*-cache"):
            stamp = entry.with_name(entry.name.removesuffix("-cache") + "-atime")
            if not stamp.exists() or entry.stat().st_size == 0:
                entry.unlink()


def cache_folder() -> Path | None:
    """Where compiled code is kept; None where nobody but the user can be kept from writing there.

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

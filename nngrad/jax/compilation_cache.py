"""JAX's own cache of compiled programs on disk, set so that it keeps what nngrad compiles."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import jax
from jax.experimental.compilation_cache.compilation_cache import reset_cache
from platformdirs import user_cache_dir


def cache_compilations(directory: str | os.PathLike[str] | None = None) -> Path:
    """Keep what is compiled from now on in a directory, where other processes find it instead of compiling it again.

    This switches on JAX's persistent compilation cache, for nngrad and for JAX, and has it keep programs of every size
    and compile time; by default it leaves out what compiles in less than a second. A program is found by what it
    computes, the versions of JAX and XLA, their settings, and the device. It is traced and lowered in each process, so
    results are the same bits as without the cache. Programs that call Python on the host are compiled in each process.
    With `JAX_ENABLE_COMPILATION_CACHE=false` in the environment nothing is kept or looked for.

    The entries are code that runs with your rights: use only a directory into which nobody else can write. JAX removes
    none of them unless `jax_compilation_cache_max_size` is set, in bytes.

    Args:
        directory: The directory, created if it does not exist; by default that of JAX's setting
            `jax_compilation_cache_dir`, or else `nngrad/compilations` in the user's directory for caches.

    Returns:
        The directory's absolute path.

    Raises:
        TypeError: `directory` is neither a string, nor a path, nor None.
        PermissionError: Everybody may write to it.
        OSError: It cannot be created.
    """
    if directory is not None and not isinstance(directory, str | os.PathLike):
        raise TypeError(f"directory: expected a string, a path or None, got {type(directory).__name__}")
    if directory is None:
        set_for_jax: str | None = jax.config.values["jax_compilation_cache_dir"]
        directory = set_for_jax or Path(user_cache_dir("nngrad", False)) / "compilations"
    path = Path(directory).expanduser().absolute()
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    if os.name == "posix" and path.stat().st_mode & stat.S_IWOTH:
        raise PermissionError(
            f"directory: {path} can be written to by everybody, who could put code there that you run; choose a "
            "directory of your own"
        )
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
    jax.config.update("jax_compilation_cache_dir", str(path))
    reset_cache()  # JAX decides whether there is a cache when it first compiles something
    return path

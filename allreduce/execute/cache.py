"""Where compiled code is kept: beside the source, in the user's cache, else in a directory of this machine."""

import os
import stat
import tempfile
from contextlib import suppress

import numba

__all__ = ["find_room"]


def find_room() -> None:
    """If Numba finds no directory that it can write, give it one."""
    try:
        numba.njit(cache=True)(_probe)
    except RuntimeError:  # it says: no locator available
        numba.config.CACHE_DIR = _private_directory()  # type: ignore[attr-defined]


def _probe() -> None:
    """Never compiled."""


def _private_directory() -> str:
    """A directory that nobody else can write: what is read from it is run."""
    path = os.path.join(tempfile.gettempdir(), f"allreduce-compiled-{os.getuid()}")
    with suppress(FileExistsError):
        os.mkdir(path, 0o700)
    found = os.lstat(path)
    ours = stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and not found.st_mode & 0o077
    return path if ours else tempfile.mkdtemp(prefix="allreduce-compiled-")

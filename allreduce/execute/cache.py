"""Where compiled code is kept, and under which names.

Numba numbers the files of a function and keeps the numbers in an index. Two processes that compile different kernels
from one text at once take the same number, and one of them then runs the code of the other; processes on two kinds
of processor likewise. And it watches the function's own file only, not those whose functions and constants were
compiled into it. So here the name of a file says all that its code was made of, and there is no index.
"""

import glob
import os
import stat
import tempfile
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from hashlib import sha256
from pathlib import Path
from pickle import UnpicklingError
from typing import Any, TypeVar

import numba
from numba.core.caching import FunctionCache, IndexDataCacheFile
from numba.core.ccallback import CFunc
from numba.core.sigutils import normalize_signature

__all__ = ["callback", "keep"]

F = TypeVar("F")


def keep(function: F) -> F:
    """Keep on disk what Numba compiles for a function."""
    function._cache = _Cache(function.py_func)  # type: ignore[attr-defined]
    return function


def callback(function: Callable, signature: str) -> CFunc:
    """A function with a C address, compiled now or before; as `numba.cfunc`."""
    made = CFunc(function, normalize_signature(signature), {}, {"error_model": "numpy"})
    made._cache = _Cache(function)  # type: ignore[attr-defined]
    made.compile()
    return made


class _Cache(FunctionCache):
    """Beside the source, in the user's cache, else in a directory of this machine."""

    def __init__(self, function: Callable) -> None:
        try:
            super().__init__(function)
        except RuntimeError:  # it says: no locator available
            numba.config.CACHE_DIR = _private_directory()  # type: ignore[attr-defined]
            super().__init__(function)
        sources = _sources(Path(function.__code__.co_filename).parent)
        self._cache_file = _Files(self._cache_path, self._impl.filename_base, sources)


class _Files(IndexDataCacheFile):
    """One file for a function, what it closes over, its signature, the processor and the sources."""

    def save(self, key: tuple, data: Any) -> None:
        path = self._path(key)
        with suppress(OSError):  # a full disk, say: then it is compiled again
            self._save_data(path, data)
            for other in glob.glob(f"{glob.escape(path.rpartition('-')[0])}-*.nbc"):
                if other != path:  # of older sources
                    os.unlink(other)

    def load(self, key: tuple) -> Any:
        with suppress(OSError, EOFError, UnpicklingError):
            return self._load_data(self._path(key))

    def _path(self, key: tuple) -> str:
        kind, made_of = (sha256(repr(x).encode()).hexdigest()[:16] for x in (key, (self._source_stamp, self._version)))
        return self._data_path(f"{self._index_name.removesuffix('.nbi')}-{kind}-{made_of}.nbc")


@cache
def _sources(folder: Path) -> bytes:
    """What changes with any text that may be compiled into a function of this folder."""
    folders = sorted({folder, Path(__file__).parent})
    return sha256(b"".join(path.read_bytes() for f in folders for path in sorted(f.glob("*.py")))).digest()


def _private_directory() -> str:
    """A directory that nobody else can write: what is read from it is run."""
    path = os.path.join(tempfile.gettempdir(), f"allreduce-compiled-{os.getuid()}")
    with suppress(FileExistsError):
        os.mkdir(path, 0o700)
    found = os.lstat(path)
    ours = stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and not found.st_mode & 0o077
    return path if ours else tempfile.mkdtemp(prefix="allreduce-compiled-")

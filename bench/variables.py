"""Control variables of MPI, by its tools interface, which mpi4py does not have."""

import ctypes
import re
from ctypes import byref, c_int, c_void_p, create_string_buffer
from functools import cache, cached_property
from typing import Any

from mpi4py import MPI

__all__ = ["Variable", "variable"]

WIDTH = 256  # of a name


class Variable:
    """A control variable that is a whole number; see section 15.3 of MPI 4.1.

    Parameters
    ----------
    mpi : ctypes.CDLL
        With the tools interface initialized.
    name : str
        Raises LookupError if the library has no such variable.
    """

    def __init__(self, mpi: Any, name: str) -> None:
        self.mpi, self.name, self.index = mpi, name, c_int()
        self.handle, count, self.before = c_void_p(), c_int(), c_int()
        if mpi.MPI_T_cvar_get_index(name.encode(), byref(self.index)):
            raise LookupError(name)
        if mpi.MPI_T_cvar_handle_alloc(self.index, None, byref(self.handle), byref(count)) or count.value != 1:
            raise LookupError(name)
        mpi.MPI_T_cvar_read(self.handle, byref(self.before))

    def set(self, value: int | None) -> None:
        """None: to what it was; OSError if MPI refuses."""
        if self.mpi.MPI_T_cvar_write(self.handle, byref(self.before if value is None else c_int(value))):
            raise OSError(f"MPI refused {self.name}={value}")

    @cached_property
    def values(self) -> dict[str, int]:
        """By name: Open MPI has an enumeration, MPICH a line of the description for each, in order."""
        kind, description, some = c_void_p(), create_string_buffer(1 << 14), c_int()
        self.mpi.MPI_T_cvar_get_info(
            self.index, *_text(), byref(some), byref(c_void_p()), byref(kind),
            description, byref(c_int(len(description))), byref(some), byref(some),
        )  # fmt: skip
        if kind.value is None:
            lines = re.findall(r"^(\w+) +- ", description.value.decode(errors="replace"), re.M)
            return {name: value for value, name in enumerate(lines)}
        self.mpi.MPI_T_enum_get_info(kind, byref(some), *_text())
        return dict(self._item(kind, item) for item in range(some.value))

    def _item(self, kind: c_void_p, item: int) -> tuple[str, int]:
        name, value = _text(), c_int()
        self.mpi.MPI_T_enum_get_item(kind, item, byref(value), *name)
        return name[0].value.decode(errors="replace"), value.value


def _text() -> tuple[Any, Any]:
    """Room for a name, and how long it may be."""
    return create_string_buffer(WIDTH), byref(c_int(WIDTH))


@cache
def variable(name: str) -> Variable | None:
    """The variable of the library in use, if it has it."""
    try:
        return Variable(_tools(), name)
    except (AttributeError, LookupError, OSError):
        return None


@cache
def _tools() -> Any:
    mpi = ctypes.CDLL(MPI.__file__)
    level = MPI.Query_thread()  # Open MPI takes what is asked for here for its own level from then on
    if mpi.MPI_T_init_thread(level, byref(c_int())):
        raise OSError("no tools interface")
    return mpi

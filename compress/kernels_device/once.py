"""What a codec keeps of an array on a device."""

from typing import Any

from allreduce.execute.cuda import cuda
from allreduce.execute.device_arrays import OnDevice
from allreduce.execute.device_memory import rooms

from ..context import Context
from . import lookup

__all__ = ["once"]


def once(codec: Any, values: OnDevice, out: OnDevice, at: Context) -> None:
    """out = what values decode to after they are encoded; out may be of another dtype."""
    there, back, count = lookup.coding(codec, values.dtype), lookup.coding(codec, out.dtype), values.size
    scratch = max(there.scratch(count), back.scratch(count))
    with rooms(((codec.nbytes(count),), "u1"), ((scratch,), "u1")) as (message, space):
        places = message.ctypes.data, space.ctypes.data
        nbytes = there.encode(places[0], values.ctypes.data, count, at, places[1], cuda().read)
        back.decode(out.ctypes.data, 0, places[0], nbytes, count, places[1])

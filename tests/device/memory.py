"""Arrays that end where memory ends."""

import ctypes
import mmap

import numpy as np

PROT_NONE = 0


def guarded(values, shift=0):
    """A copy of an array, in front of a page that must not be touched; or so many elements further in front."""
    values = np.ascontiguousarray(values)
    room = values.nbytes + shift * values.itemsize
    pages = -(-max(room, 1) // mmap.PAGESIZE)
    memory = mmap.mmap(-1, (pages + 1) * mmap.PAGESIZE)
    whole = np.frombuffer(memory, np.uint8)
    end = pages * mmap.PAGESIZE
    libc = ctypes.CDLL(None, use_errno=True)
    assert libc.mprotect(ctypes.c_void_p(whole.ctypes.data + end), mmap.PAGESIZE, PROT_NONE) == 0
    whole[:end] = 0xA5
    array = whole[end - room : end - room + values.nbytes].view(values.dtype).reshape(values.shape)
    array[...] = values
    return array

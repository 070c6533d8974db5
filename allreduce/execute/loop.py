"""The compiled interpreter of a plan's table: one loop, without the GIL, that calls MPI by address.

All of an operation's state is an array of 64-bit words, so that the loop can stop anywhere and be resumed by anyone:
blocking and non-blocking calls, persistent requests and progress threads all call the same `advance`. It comes back
at least every tenth of a second, so that Ctrl-C and deadlines work.
"""

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
from numba import int64, njit

from .cache import keep
from .layout import CONTROL, HELLO_WORDS, SLOT, SLOTS
from .machine import call, compiling, load32, load64, store64, store_release, stream_fence
from .state import (
    BASES,
    BUSY,
    CODE,
    COUNTERS,
    DTYPE,
    EPOCH,
    FLAGS,
    IRECV,
    ISEND,
    ITEMSIZE,
    KERNELS,
    MODE,
    NDARRAY,
    NUMBER,
    PC,
    PUBLISHED,
    RANK,
    RECV_COUNT,
    ROWS,
    SEND_COUNT,
    SIGNALS,
    SIZE,
    TABLE,
    TAG,
    TAG_LIMIT,
    get,
    place,
    put,
)
from .steps import agree, await_, copy, fuse, past, poll, post, share, wait
from .table import (
    AGREE,
    AWAIT,
    CALL,
    COLUMNS,
    COPY,
    END,
    FAR,
    FUSE,
    HELLO,
    MOST_OPERATIONS,
    ONCE,
    OPERATION,
    PEERS,
    POLL,
    PUT,
    RECV,
    SEND,
    SIGNAL,
    WAIT,
)

__all__ = ["AGAIN", "DONE", "ERROR", "REFUSED", "advance", "arm", "prepare", "reads_arrays", "run"]

#: What `advance` and `run` answer.
DONE, AGAIN, ERROR, REFUSED = range(4)

#: After so many bytes through the window it is time to find out again how to publish.
STALE = 1 << 28

# Where NumPy's C API keeps the fields of an array object; `reads_arrays` checks it.
A_TYPE, A_DATA, A_DIMENSIONS, A_SHAPE, A_DTYPE, A_FLAGS = 8, 16, 24, 32, 56, 64
CONTIGUOUS, ALIGNED, WRITEABLE = 0x1, 0x100, 0x400


@keep
@njit(nogil=True)
def advance(state: int, patient: int) -> int:
    """Go on with an operation until it is DONE, or, unless patient, until something is not there yet."""
    table, rows, pc = get(state, TABLE), get(state, ROWS), get(state, PC)
    while pc < rows:
        row = table + 8 * COLUMNS * pc
        kind, code = load64(row), 0
        pc += 1
        if kind == SEND:
            code = post(state, row, get(state, ISEND))
        elif kind == RECV:
            code = post(state, row, get(state, IRECV))
        elif kind == WAIT:
            code = wait(state, row, patient)
        elif kind == POLL:
            code = poll(state, load64(row + 16))
        elif kind == COPY:
            copy(state, place(state, row, 2), place(state, row, 4), load64(row + 48), False)
        elif kind == CALL:
            kernel = load64(get(state, KERNELS) + 8 * load64(row + 16))
            number = load64(row + 80) + get(state, NUMBER)
            call(kernel, (place(state, row, 3), place(state, row, 5), place(state, row, 7), load64(row + 72), number))
        elif kind == SIGNAL:
            store_release(place(state, row, 2), get(state, EPOCH) + load64(row + 32))
        elif kind == AWAIT:
            code = await_(state, row, patient)
        elif kind == FUSE:
            fuse(state, row)
        elif kind == HELLO:
            control = load64(get(state, BASES) + 8 * (PEERS + get(state, SIZE) + get(state, RANK)))
            sendbuf, recvbuf = load64(get(state, BASES)), load64(get(state, BASES) + 8)
            if sendbuf == recvbuf and load64(row + 16) != load64(row + 24):  # our result will lie on what others read
                store64(control + HELLO_WORDS, -1)
            else:
                share(state, sendbuf, load64(row + 16), control + HELLO_WORDS)
            share(state, recvbuf, load64(row + 24), control + HELLO_WORDS + 16)
            store_release(control, get(state, EPOCH) + load64(row + 32))
        elif kind == PUT:
            copy(state, place(state, row, 2), place(state, row, 4), load64(row + 48), past(state, load64(row + 56)))
            stream_fence()
        elif kind == ONCE:
            pc = load64(row + 16) if load64(get(state, MODE)) == FAR else pc
        elif kind == AGREE:
            target = agree(state, row)
            pc = target if target >= 0 else pc
        if code != 0:
            put(state, PC, pc - 1)
            put(state, CODE, code)
            return AGAIN if code == -1 else ERROR
        if kind == END:
            break
    store64(get(state, BUSY), 0)
    return DONE


@keep
@njit(nogil=True)
def arm(state: int, sendbuf: int, recvbuf: int) -> None:
    """Begin an operation on these addresses: it takes the communicator's next tag, and the window's next slots."""
    bases = get(state, BASES)
    store64(bases, sendbuf)
    store64(bases + 8, recvbuf)
    store64(get(state, BUSY), 1)
    put(state, PC, 0)
    counters = get(state, COUNTERS)
    put(state, TAG, load64(counters) % get(state, TAG_LIMIT))
    put(state, NUMBER, load64(counters) % MOST_OPERATIONS * OPERATION)
    store64(counters, load64(counters) + 1)
    if get(state, SIGNALS) == 0:
        return
    counters = get(state, FLAGS)
    put(state, EPOCH, load64(counters + 8))
    store64(counters + 8, load64(counters + 8) + get(state, SIGNALS))
    slot = load64(counters + 16) % SLOTS
    store64(counters + 16, load64(counters + 16) + 1)
    store64(counters + 24, load64(counters + 24) + get(state, PUBLISHED))
    size = get(state, SIZE)
    for peer in range(size):
        control = load64(bases + 8 * (PEERS + size + peer))
        store64(bases + 8 * (PEERS + peer), control + CONTROL + slot * SLOT)


@njit(inline="always")
def suits(state: int, array: int, count: int, flags: int) -> bool:
    """Whether an object is a plain array of the plan's type and length with these flags."""
    if load64(array + A_TYPE) != get(state, NDARRAY) or load64(array + A_DTYPE) != get(state, DTYPE):
        return False
    if load32(array + A_FLAGS) & flags != flags:
        return False
    size, shape = 1, load64(array + A_SHAPE)
    for d in range(load32(array + A_DIMENSIONS)):
        size *= load64(shape + 8 * d)
    return size == count


@keep
@njit(nogil=True)
def _run(state: int, sendbuf: int, recvbuf: int) -> int:
    """Check two arrays, given by their ids, and run the plan on them; REFUSED sends the caller to the slow path."""
    sends, recvs = get(state, SEND_COUNT), get(state, RECV_COUNT)
    if load64(get(state, BUSY)) != 0:
        return REFUSED
    if get(state, PUBLISHED) and load64(get(state, FLAGS) + 24) >= STALE:
        return REFUSED
    if not suits(state, sendbuf, sends, CONTIGUOUS | ALIGNED):
        return REFUSED
    if not suits(state, recvbuf, recvs, CONTIGUOUS | ALIGNED | WRITEABLE):
        return REFUSED
    from_, to, itemsize = load64(sendbuf + A_DATA), load64(recvbuf + A_DATA), get(state, ITEMSIZE)
    if (from_ != to or sends != recvs) and from_ < to + recvs * itemsize and to < from_ + sends * itemsize:
        return REFUSED
    arm(state, from_, to)
    return advance(state, 1)


@keep
@njit
def _fields(array: int) -> tuple:
    return (
        load64(array + A_TYPE), load64(array + A_DATA), load32(array + A_DIMENSIONS), load64(load64(array + A_SHAPE)),
        load64(array + A_DTYPE), load32(array + A_FLAGS),
    )  # fmt: skip


@cache
def reads_arrays() -> bool:
    """Whether array objects are laid out as we think; not so on a free-threaded Python, for instance."""
    if object.__basicsize__ != A_DATA:
        return False
    array = np.arange(6.0).reshape(3, 2)
    with compiling():
        *found, flags = _fields(id(array))
    expected: list[Any] = [id(np.ndarray), array.__array_interface__["data"][0], 2, 3, id(array.dtype)]
    readonly, turned = array.view(), array.T
    readonly.flags.writeable = False
    return (
        found == expected
        and flags & (CONTIGUOUS | ALIGNED | WRITEABLE) == CONTIGUOUS | ALIGNED | WRITEABLE
        and _fields(id(readonly))[-1] & WRITEABLE == 0
        and _fields(id(turned))[-1] & CONTIGUOUS == 0
    )


#: `_run`; when compiled, its entry, which takes 0.1 us less than Numba's dispatch by types of arguments.
run: Callable[[int, int, int], int] = _run


@cache
def prepare() -> None:
    """Compile the loop, or load it from the cache, one process of a machine at a time."""
    global run
    with compiling():
        for function, arguments in ((advance, 2), (arm, 3), (_run, 3)):
            function.compile((int64,) * arguments)
    run = _run.overloads[(int64,) * 3].entry_point  # type: ignore[attr-defined]

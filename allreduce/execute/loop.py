"""The compiled interpreter of a plan's table: one loop, without the GIL, that calls MPI by address.

All of an operation's state is an array of 64-bit words, so that the loop can stop anywhere and be resumed by anyone:
blocking and non-blocking calls, persistent requests and progress threads all call the same `advance`. It comes back
at least every tenth of a second, so that Ctrl-C and deadlines work.
"""

from typing import Any

import numpy as np
from numba import int64, njit

from .machine import call, call_double, compiling, load32, load64, store64
from .table import CALL, COLUMNS, COPY, PLAIN, RECV, SEND, WAIT

__all__ = ["AGAIN", "DONE", "ERROR", "REFUSED", "WORDS", "advance", "arm", "prepare", "reads_arrays", "run"]

#: What `advance` and `run` answer.
DONE, AGAIN, ERROR, REFUSED = range(4)

#: The words of an operation's state.
(
    PC, ROWS, TABLE, SENDBUF, RECVBUF, SCRATCH, KERNELS, REQUESTS, REQUEST_SIZE, COMM, BYTE, FLAG, STATUS,
    ISEND, IRECV, TEST, WTIME, MEMCPY, YIELD, TAG, TAG_LIMIT, SEQUENCE, BUSY, CODE,
    SEND_COUNT, RECV_COUNT, ITEMSIZE, DTYPE, NDARRAY, WORDS,
) = range(30)  # fmt: skip

#: Fruitless polls before the processor is offered to others, and between looks at the clock.
SPIN, CLOCK = 200, 256
SLICE = 0.1  # seconds

# Where NumPy's C API keeps the fields of an array object; `reads_arrays` checks it.
A_TYPE, A_DATA, A_DIMENSIONS, A_SHAPE, A_DTYPE, A_FLAGS = 8, 16, 24, 32, 56, 64
CONTIGUOUS, ALIGNED, WRITEABLE = 0x1, 0x100, 0x400


@njit(inline="always")
def get(state: int, word: int) -> int:
    return load64(state + 8 * word)


@njit(inline="always")
def put(state: int, word: int, value: int) -> None:
    store64(state + 8 * word, value)


@njit(inline="always")
def place(state: int, row: int, column: int) -> int:
    """The address that two columns, buffer and offset, name."""
    buffer = load64(row + 8 * column)
    base = 0 if buffer == PLAIN else get(state, SENDBUF + buffer)
    return base + load64(row + 8 * column + 8)


@njit(nogil=True, cache=True)
def advance(state: int, patient: int) -> int:
    """Go on with an operation until it is DONE, or, unless patient, until something is not there yet."""
    table, rows, requests, size = get(state, TABLE), get(state, ROWS), get(state, REQUESTS), get(state, REQUEST_SIZE)
    pc = get(state, PC)
    while pc < rows:
        row = table + 8 * COLUMNS * pc
        kind = load64(row)
        code = 0
        if kind <= RECV:
            function = get(state, ISEND) if kind == SEND else get(state, IRECV)
            address, nbytes, peer = place(state, row, 3), load64(row + 40), load64(row + 16)
            request = requests + size * load64(row + 48)
            arguments = (address, nbytes, get(state, BYTE), peer, get(state, TAG), get(state, COMM), request)
            code = call(function, arguments)
        elif kind == WAIT:
            request, last = load64(row + 16), load64(row + 24)
            polls, since = 0, 0.0
            while request < last:
                code = call(get(state, TEST), (requests + size * request, state + 8 * FLAG, get(state, STATUS)))
                if code != 0:
                    break
                if load32(state + 8 * FLAG) != 0:
                    request += 1
                    continue
                polls += 1
                if not patient:
                    put(state, PC, pc)
                    return AGAIN
                if polls > SPIN:
                    call(get(state, YIELD), ())
                    if polls % CLOCK == 0:
                        now = call_double(get(state, WTIME))
                        if since == 0.0:
                            since = now
                        elif now - since > SLICE:
                            put(state, PC, pc)
                            return AGAIN
        elif kind == COPY:
            to, from_ = place(state, row, 2), place(state, row, 4)
            if to != from_:
                call(get(state, MEMCPY), (to, from_, load64(row + 48)))
        elif kind == CALL:
            kernel = load64(get(state, KERNELS) + 8 * load64(row + 16))
            call(kernel, (place(state, row, 3), place(state, row, 5), place(state, row, 7), load64(row + 72)))
        if code != 0:
            put(state, PC, pc)
            put(state, CODE, code)
            return ERROR
        pc += 1
    store64(get(state, BUSY), 0)
    return DONE


@njit(nogil=True, cache=True)
def arm(state: int, sendbuf: int, recvbuf: int) -> None:
    """Begin an operation on these addresses: it takes the next tag of the communicator."""
    put(state, SENDBUF, sendbuf)
    put(state, RECVBUF, recvbuf)
    sequence = load64(get(state, SEQUENCE))
    store64(get(state, SEQUENCE), sequence + 1)
    put(state, TAG, sequence % get(state, TAG_LIMIT))
    store64(get(state, BUSY), 1)
    put(state, PC, 0)


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


@njit(nogil=True, cache=True)
def run(state: int, sendbuf: int, recvbuf: int) -> int:
    """Check two arrays, given by their ids, and run the plan on them; REFUSED sends the caller to the slow path."""
    sends, recvs = get(state, SEND_COUNT), get(state, RECV_COUNT)
    if load64(get(state, BUSY)) != 0:
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


@njit(cache=True)
def _fields(array: int) -> tuple:
    return (
        load64(array + A_TYPE), load64(array + A_DATA), load32(array + A_DIMENSIONS), load64(load64(array + A_SHAPE)),
        load64(array + A_DTYPE), load32(array + A_FLAGS),
    )  # fmt: skip


def reads_arrays() -> bool:
    """Whether array objects are laid out as we think; not so on a free-threaded Python, for instance."""
    if object.__basicsize__ != A_DATA:
        return False
    array = np.arange(6.0).reshape(3, 2)
    with compiling():
        *found, flags = _fields(id(array))
    expected: list[Any] = [id(np.ndarray), array.__array_interface__["data"][0], 2, 3, id(array.dtype)]
    readonly = array.view()
    readonly.flags.writeable = False
    return (
        found == expected
        and flags & (CONTIGUOUS | ALIGNED | WRITEABLE) == CONTIGUOUS | ALIGNED | WRITEABLE
        and _fields(id(readonly))[-1] & WRITEABLE == 0
        and _fields(id(array.T))[-1] & CONTIGUOUS == 0
    )


def prepare() -> None:
    """Compile the loop, or load it from the cache, one process of a machine at a time."""
    with compiling():
        for function, arguments in ((advance, 2), (arm, 3), (run, 3)):
            function.compile((int64,) * arguments)

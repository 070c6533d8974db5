"""The compiled interpreter of a plan's table: one loop, without the GIL, that calls MPI by address.

All of an operation's state is an array of 64-bit words, so that the loop can stop anywhere and be resumed by anyone:
blocking and non-blocking calls, persistent requests and progress threads all call the same `advance`. It comes back
at least every tenth of a second, so that Ctrl-C and deadlines work.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from numba import int64, njit

from .cache import keep
from .layout import CONTROL, HELLO_WORDS, SLOT, SLOTS
from .machine import (
    call,
    call_double,
    compiling,
    load32,
    load64,
    load_acquire,
    store64,
    store_release,
    stream_fence,
    stream_line,
    stream_word,
)
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
    NEAR,
    ONCE,
    OPERATION,
    PAST,
    PEERS,
    PUBLISHING,
    PUT,
    RECV,
    SCRATCH,
    SEND,
    SIGNAL,
    STRIP,
    WAIT,
)  # fmt: skip

__all__ = ["AGAIN", "DONE", "ERROR", "REFUSED", "WORDS", "advance", "arm", "prepare", "reads_arrays", "run"]

#: What `advance` and `run` answer.
DONE, AGAIN, ERROR, REFUSED = range(4)

#: The words of an operation's state.
(
    PC, ROWS, TABLE, BASES, KERNELS, REQUESTS, REQUEST_SIZE, COMM, BYTE, FLAG, STATUS,
    ISEND, IRECV, TEST, WTIME, MEMCPY, YIELD, TAG, TAG_LIMIT, COUNTERS, BUSY, CODE, SPIN, SINCE,
    SEND_COUNT, RECV_COUNT, ITEMSIZE, DTYPE, NDARRAY, RANK, SIZE, SIGNALS, EPOCH, SHARED, PARTS, MODE, PUBLISHED,
    FLAGS, NUMBER, WORDS,
) = range(40)  # fmt: skip

#: Fruitless polls between looks at the clock, and the longest time away from the caller in nanoseconds.
CLOCK, SLICE = 256, 100_000_000
#: After so many bytes through the window it is time to find out again how to publish.
STALE = 1 << 28

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
    return load64(get(state, BASES) + 8 * load64(row + 8 * column)) + load64(row + 8 * column + 8)


@njit
def tired(state: int, patient: int, polls: int, spin: int) -> bool:
    """After so many fruitless polls: whether to go back to the caller; offers the processor to others meanwhile."""
    if not patient:
        return True
    if polls > spin:
        call(get(state, YIELD), ())
        if polls % CLOCK == 0:
            now = int(call_double(get(state, WTIME)) * 1e9)
            if polls <= spin + CLOCK:
                put(state, SINCE, now)
            elif now - get(state, SINCE) > SLICE:
                return True
    return False


@njit
def post(state: int, row: int, function: int) -> int:
    """SEND, RECV: start a message; returns MPI's error code."""
    address, nbytes, peer = place(state, row, 3), load64(row + 40), load64(row + 16)
    request = get(state, REQUESTS) + get(state, REQUEST_SIZE) * load64(row + 48)
    return call(function, (address, nbytes, get(state, BYTE), peer, get(state, TAG), get(state, COMM), request))


@njit
def wait(state: int, row: int, patient: int) -> int:
    """WAIT: 0 when the messages are through, -1 if not yet, or MPI's error code."""
    size = get(state, REQUEST_SIZE)
    request, last = get(state, REQUESTS) + size * load64(row + 16), get(state, REQUESTS) + size * load64(row + 24)
    polls = 0
    while request < last:
        code = call(get(state, TEST), (request, state + 8 * FLAG, get(state, STATUS)))
        if code != 0:
            return code
        if load32(state + 8 * FLAG) != 0:
            request += size
        else:
            polls += 1
            if tired(state, patient, polls, get(state, SPIN) >> 6):
                return -1
    return 0


@njit
def await_(state: int, row: int, patient: int) -> int:
    """AWAIT: 0 when all others' flags have reached the number, -1 if not yet."""
    first, offset, number = load64(row + 16), load64(row + 24), get(state, EPOCH) + load64(row + 32)
    for peer in range(get(state, SIZE)):
        if peer == get(state, RANK):
            continue
        flag = load64(get(state, BASES) + 8 * (first + peer)) + offset
        polls = 0
        while load_acquire(flag) < number:
            polls += 1
            if tired(state, patient, polls, get(state, SPIN)):
                return -1
    return 0


@njit
def share(state: int, array: int, nbytes: int, words: int) -> None:
    """Say in which shared allocation an array lies and where, or that it lies in none."""
    allocation = get(state, SHARED)
    store64(words, -1)
    for number in range(load64(allocation)):
        row = allocation + 8 + number * 8 * (2 + get(state, SIZE))
        start = load64(row)
        if start <= array and array + nbytes <= start + load64(row + 8):
            store64(words, number)
            store64(words + 8, array - start)


@njit
def agree(state: int, row: int) -> int:
    """AGREE: find the others' arrays; the row to go on at, or -1 for the next."""
    size, bases, allocation = get(state, SIZE), get(state, BASES), get(state, SHARED)
    inputs = outputs = True
    for peer in range(size):
        words = load64(bases + 8 * (PEERS + size + peer)) + HELLO_WORDS
        for k in range(2):
            number = load64(words + 16 * k)
            if number < 0:
                inputs, outputs = inputs and k != 0, False
            else:
                start = load64(allocation + 8 + number * 8 * (2 + size) + 8 * (2 + peer))
                store64(bases + 8 * (PEERS + (2 + k) * size + peer), start + load64(words + 16 * k + 8))
    return load64(row + 24) if outputs else load64(row + 16) if inputs else -1


@njit(inline="always")
def past(state: int, how: int) -> bool:
    """Whether what is written thus goes past the caches."""
    return how == PAST or (how == PUBLISHING and load64(get(state, MODE)) != NEAR)


@njit
def stream(state: int, to: int, from_: int, nbytes: int) -> None:
    """Copy past the caches; others may see it only after a `stream_fence`."""
    ahead, end = from_ - to, to + nbytes
    while to & 63 and to + 4 <= end:
        stream_word(to, to + ahead)
        to += 4
    for line in range(to, end - 63, 64):
        stream_line(line, line + ahead)
    to += max(0, end - to) & -64
    while to + 4 <= end:
        stream_word(to, to + ahead)
        to += 4
    if to < end:
        call(get(state, MEMCPY), (to, to + ahead, end - to))


@njit
def copy(state: int, to: int, from_: int, nbytes: int, past_caches: bool) -> None:
    """Copy, if that is not to where it comes from."""
    if to == from_:
        return
    if past_caches and to & 3 == 0:
        stream(state, to, from_, nbytes)
    else:
        call(get(state, MEMCPY), (to, from_, nbytes))


@njit
def fuse(state: int, row: int) -> None:
    """FUSE: out = the sum over all ranks, in rank order, of our own and the others' parts; and a copy."""
    size, bases, first, offset = get(state, SIZE), get(state, BASES), load64(row + 56), load64(row + 64)
    parts, own = get(state, PARTS), place(state, row, 5)
    for peer in range(size):
        store64(parts + 8 * peer, load64(bases + 8 * (first + peer)) + offset)
    store64(parts + 8 * get(state, RANK), own)
    kernel, count = load64(get(state, KERNELS) + 8 * load64(row + 16)), load64(row + 72)
    out, also = place(state, row, 3), place(state, row, 10)
    out_past, also_past = past(state, load64(row + 104)), past(state, load64(row + 112))
    if not (out_past or also_past or (also and out == own)):
        call(kernel, (out, parts, size, count, also))
        return
    itemsize, scratch = load64(row + 96), load64(bases + 8 * SCRATCH)
    for start in range(0, count, STRIP // itemsize):
        length = min(STRIP // itemsize, count - start)
        nbytes = length * itemsize
        sums = also if also and not also_past else scratch if out_past else out
        call(kernel, (sums, parts, size, length, 0))
        copy(state, out, sums, nbytes, out_past)
        if also:
            copy(state, also, sums, nbytes, also_past)
            also += nbytes
        out += nbytes
        for peer in range(size):
            store64(parts + 8 * peer, load64(parts + 8 * peer) + nbytes)
    stream_fence()


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
            share(state, load64(get(state, BASES)), load64(row + 16), control + HELLO_WORDS)
            share(state, load64(get(state, BASES) + 8), load64(row + 24), control + HELLO_WORDS + 16)
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


def prepare() -> None:
    """Compile the loop, or load it from the cache, one process of a machine at a time."""
    global run
    with compiling():
        for function, arguments in ((advance, 2), (arm, 3), (_run, 3)):
            function.compile((int64,) * arguments)
    run = _run.overloads[(int64,) * 3].entry_point  # type: ignore[attr-defined]

"""What single rows of a table do, compiled: messages, flags, memory that ranks share, and sums over all of them."""

from numba import njit

from .layout import HELLO_WORDS
from .machine import call, load32, load64, load_acquire, store64, stream_fence, stream_line, stream_word
from .state import (
    BASES,
    BYTE,
    COMM,
    EPOCH,
    FLAG,
    KERNELS,
    MEMCPY,
    MODE,
    PARTS,
    RANK,
    REQUEST_SIZE,
    REQUESTS,
    SHARED,
    SIZE,
    SPIN,
    STATUS,
    TAG,
    TEST,
    get,
    place,
    tired,
)
from .table import NEAR, PAST, PEERS, PUBLISHING, SCRATCH, STRIP

__all__ = ["agree", "await_", "copy", "fuse", "past", "poll", "post", "share", "wait"]


@njit
def post(state: int, row: int, function: int) -> int:
    """SEND, RECV: start a message; returns MPI's error code."""
    address, nbytes, peer = place(state, row, 3), load64(row + 40), load64(row + 16)
    request = get(state, REQUESTS) + get(state, REQUEST_SIZE) * load64(row + 48)
    return call(function, (address, nbytes, get(state, BYTE), peer, get(state, TAG), get(state, COMM), request))


@njit
def poll(state: int, request: int) -> int:
    """POLL: look at a message; returns MPI's error code."""
    address = get(state, REQUESTS) + get(state, REQUEST_SIZE) * request
    return call(get(state, TEST), (address, state + 8 * FLAG, get(state, STATUS)))


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

"""The state of an operation: an array of 64-bit words, and how compiled code gets at them."""

from numba import njit

from .machine import call, call_double, load64, store64

__all__ = [
    "BASES", "BUSY", "BYTE", "CLOCK", "CODE", "COMM", "COUNTERS", "DTYPE",
    "EPOCH", "FLAG", "FLAGS", "IRECV", "ISEND", "ITEMSIZE", "KERNELS", "MEMCPY",
    "MODE", "NDARRAY", "NUMBER", "PARTS", "PC", "PUBLISHED", "RANK", "RECV_COUNT",
    "REQUESTS", "REQUEST_SIZE", "REST", "ROWS", "SEND_COUNT", "SHARED", "SIGNALS", "SINCE", "SIZE",
    "SLICE", "SPIN", "STATUS", "TABLE", "TAG", "TAG_LIMIT", "TEST", "WORDS",
    "WTIME", "YIELD", "get", "place", "put", "tired",
]  # fmt: skip

#: The words of an operation's state.
(
    PC, ROWS, TABLE, BASES, KERNELS, REQUESTS, REQUEST_SIZE, COMM, BYTE, FLAG, STATUS,
    ISEND, IRECV, TEST, WTIME, MEMCPY, YIELD, TAG, TAG_LIMIT, COUNTERS, BUSY, CODE, SPIN, SINCE,
    SEND_COUNT, RECV_COUNT, ITEMSIZE, DTYPE, NDARRAY, RANK, SIZE, SIGNALS, EPOCH, SHARED, PARTS, MODE, PUBLISHED,
    FLAGS, NUMBER, REST, WORDS,
) = range(41)  # fmt: skip

#: Fruitless polls between looks at the clock, and the longest time away from the caller in nanoseconds.
CLOCK, SLICE = 256, 100_000_000
#: After so many fruitless polls, some milliseconds, what is waited for from another node is waited for asleep, so many
#: microseconds at a time, to which Linux adds 50: little of that time, and the core is for whoever computes.
LONG, NAP = 4096, 20


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
        call(get(state, REST if polls > spin + LONG else YIELD), (NAP,))  # sched_yield looks at no argument
        if polls % CLOCK == 0:
            now = int(call_double(get(state, WTIME)) * 1e9)
            if polls <= spin + CLOCK:
                put(state, SINCE, now)
            elif now - get(state, SINCE) > SLICE:
                return True
    return False

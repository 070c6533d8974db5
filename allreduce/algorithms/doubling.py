"""Exchanges of the whole buffer: few steps, for short messages."""

from ..schedules import Recv, Schedule, Send, fold, folded, mirror, then


def recursive_doubling(rank: int, size: int) -> Schedule:
    """Exchange everything with the rank at distance 1, 2, 4, ... and add.

    After step k a rank holds the sum of its group of 2^k neighbours. Both partners add the same two values, so
    all ranks hold the same bits. Sizes that are no power of two fold: some ranks hand their buffer to a
    neighbour first and get the result last.

    >>> print(draw("recursive_doubling", 6))
    recursive_doubling: 6 ranks, 1 block, 4 steps (# summed over all, . given away)
    0     1  >1 3  >3 #     #
    1     2  >0 3  >4 #  >2 #
    2  >1 .     .     .     #
    3     1  >4 3  >0 #     #
    4     2  >3 3  >1 #  >5 #
    5  >4 .     .     .     #

    Cost: (l + 2*f)*alpha + (l + 2*f)*n*beta + (l + f)*n*gamma
        with l = floor(log2(p)), and f = 1 where p is no power of two, else 0
    Needs: nothing; any number of ranks. Keeps rank order.
    See: Thakur, Rabenseifner and Gropp, Optimization of collective communication operations in MPICH,
        IJHPCA 19 (2005).
    """
    return recursive_multiplying(rank, size, radix=2)


def recursive_multiplying(rank: int, size: int, radix: int = 4) -> Schedule:
    """Exchange everything within groups of `radix` ranks, then among groups of groups, and so on.

    Fewer steps than doubling, with more messages in each: good where messages to several peers overlap. A last
    group of fewer than `radix` is used where it fits; what still remains folds.

    >>> print(draw("recursive_multiplying", 8, radix=4))
    recursive_multiplying: 8 ranks, 1 block, 2 steps (# summed over all, . given away)
    0  >1>2>3 4  >4 #
    1  >0>2>3 4  >5 #
    2  >0>1>3 4  >6 #
    3  >0>1>2 4  >7 #
    4  >5>6>7 4  >0 #
    5  >4>6>7 4  >1 #
    6  >4>5>7 4  >2 #
    7  >4>5>6 4  >3 #

    Cost: (i*(k-1) + j-1 + 2*(g-1))*alpha + (i*(k-1) + j-1 + 2*(g-1))*n*beta + (i*(k-1) + j-1 + g-1)*n*gamma
        with m = j*k**i <= p the largest such number with j < k = radix, and g = ceil(p/m)
    Needs: radix at least 2. Keeps rank order.
    See: Ruefenacht, Bull and Booth, Generalisation of recursive doubling for AllReduce, ParCo 69 (2017).
    """
    factors = digits(size, radix)
    members = 1
    for factor in factors:
        members *= factor

    def exchange(member: int, _: int) -> Schedule:
        steps, distance, all_ = [], 1, range(1)
        for factor in factors:
            mine = member // distance % factor
            peers = [member + (d - mine) * distance for d in range(factor) if d != mine]
            steps.append(tuple(Send(q, all_) for q in peers) + tuple(Recv(q, all_, add=True) for q in peers))
            distance *= factor
        return Schedule(1, tuple(steps))

    return then(folded(exchange, rank, size, members), mirror(fold(rank, size, members)))


def digits(size: int, radix: int) -> list[int]:
    """The group sizes of an exchange: `radix` again and again, and a last smaller one; product at most `size`."""
    factors = []
    while size >= radix:
        factors.append(radix)
        size //= radix
    return factors + [size] * (size > 1)

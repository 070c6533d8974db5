"""Circulant graphs: the fewest steps and the fewest bytes for every number of ranks."""

from ..schedules import Recv, Schedule, Send


def circulant(rank: int, size: int) -> Schedule:
    """Reduce-scatter over a circulant graph with halving skips.

    A rank keeps the blocks rank, rank+1, ... that it is still responsible for. With s half of their number,
    rounded up, it sends those from the s-th on to the rank s further and adds what comes from the rank s before
    to the first ones. No fold: every size takes ceil(log2 p) steps and moves exactly p-1 blocks a half.

    >>> print(draw("circulant", 5))
    circulant: 5 ranks, 5 blocks, 6 steps (# summed over all, . given away)
    0  >3 221..  >2 32...  >1 #....  >4 ##...  >3 ###..  >2 #####
    1  >4 .221.  >3 .32..  >2 .#...  >0 .##..  >4 .###.  >3 #####
    2  >0 ..221  >4 ..32.  >3 ..#..  >1 ..##.  >0 ..###  >4 #####
    3  >1 1..22  >0 ...32  >4 ...#.  >2 ...##  >1 #..##  >0 #####
    4  >2 21..2  >1 2...3  >0 ....#  >3 #...#  >2 ##..#  >1 #####

    Cost: 2*L*alpha + 2*(p-1)/p*n*beta + (p-1)/p*n*gamma
        with L = ceil(log2(p))
    Needs: nothing; any number of ranks.
    See: Traeff, Optimal, non-pipelined reduce-scatter and allreduce algorithms, arXiv 2410.14234.
    """
    steps, left = [], size
    while left > 1:
        skip = (left + 1) // 2
        to, from_ = (rank + skip) % size, (rank - skip) % size
        sends = tuple(Send(to, part) for part in cyclic(rank + skip, left - skip, size))
        recvs = tuple(Recv(from_, part, add=True) for part in cyclic(rank, left - skip, size))
        steps.append(sends + recvs)
        left = skip
    return Schedule(size, tuple(steps))


def cyclic(first: int, count: int, size: int) -> list[range]:
    """`count` blocks from `first` on, the last followed by block 0: one range, or two.

    Cut at the same blocks on both sides, so that sender and receiver agree on the messages.
    """
    first %= size
    over = max(0, first + count - size)
    return [part for part in (range(first, first + count - over), range(over)) if part]

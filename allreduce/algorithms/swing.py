"""Swing: a butterfly whose partners are near on a ring or torus."""

from ..schedules import Schedule, folded
from .halving import butterfly


def swing(rank: int, size: int) -> Schedule:
    """Reduce-scatter with partners that swing from side to side, at distance 1, 1, 3, 5, 11, 21, ...

    The distances are a third of those of recursive doubling, and the largest messages travel least, so fewer
    links of a ring or torus are crossed. Blocks are named so that every message is one range.

    >>> print(draw("swing", 8))
    swing: 8 ranks, 8 blocks, 6 steps (# summed over all, . given away)
    0  >1 2222....  >7 44......  >3 #.......  >3 ##......  >7 ####....  >1 ########
    1  >0 ....2222  >2 ......44  >6 .......#  >6 ......##  >2 ....####  >0 ########
    2  >3 ....2222  >1 ....44..  >5 ....#...  >5 ....##..  >1 ....####  >3 ########
    3  >2 2222....  >4 44......  >0 .#......  >0 ##......  >4 ####....  >2 ########
    4  >5 2222....  >3 ..44....  >7 ..#.....  >7 ..##....  >3 ####....  >5 ########
    5  >4 ....2222  >6 ....44..  >2 .....#..  >2 ....##..  >6 ....####  >4 ########
    6  >7 ....2222  >5 ......44  >1 ......#.  >1 ......##  >5 ....####  >7 ########
    7  >6 2222....  >0 ..44....  >4 ...#....  >4 ..##....  >0 ####....  >6 ########

    Cost: 2*(l + f)*alpha + 2*((m-1)/m + f)*n*beta + ((m-1)/m + f)*n*gamma
        with m = 2**l <= p the largest power of two, and f = 1 where m < p, else 0
    Needs: nothing; any number of ranks, best at powers of two.
    See: De Sensi et al., Swing: short-cutting rings for higher bandwidth allreduce, NSDI 2024.
    """

    def swinging(member: int, members: int) -> Schedule:
        return butterfly(
            member, members, lambda r, k: swing_partner(r, k, members), lambda r: swing_position(r, members)
        )

    return folded(swinging, rank, size, 1 << size.bit_length() - 1)


def swing_distance(step: int) -> int:
    """1, -1, 3, -5, 11, -21, ...: the sum of the first step + 1 powers of -2."""
    return (1 - (-2) ** (step + 1)) // 3


def swing_partner(rank: int, step: int, size: int) -> int:
    """Even ranks swing one way, odd ranks the other, so that partners choose each other."""
    return (rank + (-1) ** (rank % 2) * swing_distance(step)) % size


def swing_position(rank: int, size: int) -> int:
    """The block a rank owns, one bit a step, first step first.

    The ranks that are still reachable after step k are the even ones of one class modulo 2^(k+2) and their
    partners; that class gives the bit. Before the last step only a pair is left, told apart by parity.
    """
    position, last = 0, size.bit_length() - 2
    for k in range(last):
        even = rank if rank % 2 == 0 else rank - swing_distance(k + 1)
        position = 2 * position + (even >> (k + 1)) % 2
    return 2 * position + rank % 2 if size > 1 else 0

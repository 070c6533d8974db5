"""Bine: binomial negabinary butterflies."""

from ..schedules import Schedule, folded
from .halving import butterfly
from .swing import swing_partner


def bine(rank: int, size: int) -> Schedule:
    """Reduce-scatter along a binomial butterfly in base -2.

    Written in base -2, the distances 1, -1, 3, -5, ... are runs of ones, so the partners of a rank are those of
    a binomial butterfly in that number system. The same numbers, Gray-coded and read backwards, name the blocks
    so that every message is one range. Two ranks are nearer than in the binary butterfly, which takes traffic
    off the global links of dragonflies and tapered trees.

    >>> print(draw("bine", 8))
    bine: 8 ranks, 8 blocks, 6 steps (# summed over all, . given away)
    0  >1 2222....  >7 44......  >3 #.......  >3 ##......  >7 ####....  >1 ########
    1  >0 ....2222  >2 ....44..  >6 ....#...  >6 ....##..  >2 ....####  >0 ########
    2  >3 ....2222  >1 ......44  >5 ......#.  >5 ......##  >1 ....####  >3 ########
    3  >2 2222....  >4 44......  >0 .#......  >0 ##......  >4 ####....  >2 ########
    4  >5 2222....  >3 ..44....  >7 ...#....  >7 ..##....  >3 ####....  >5 ########
    5  >4 ....2222  >6 ......44  >2 .......#  >2 ......##  >6 ....####  >4 ########
    6  >7 ....2222  >5 ....44..  >1 .....#..  >1 ....##..  >5 ....####  >7 ########
    7  >6 2222....  >0 ..44....  >4 ..#.....  >4 ..##....  >0 ####....  >6 ########

    Cost: 2*(l + f)*alpha + 2*((m-1)/m + f)*n*beta + ((m-1)/m + f)*n*gamma
        with m = 2**l <= p the largest power of two, and f = 1 where m < p, else 0
    Needs: nothing; any number of ranks, best at powers of two.
    See: De Sensi et al., Bine trees: enhancing collective operations by optimizing communication locality, SC 2025.
    """

    def negabinary_butterfly(member: int, members: int) -> Schedule:
        return butterfly(
            member, members, lambda r, k: swing_partner(r, k, members), lambda r: bine_position(r, members)
        )

    return folded(negabinary_butterfly, rank, size, 1 << size.bit_length() - 1)


def negabinary(number: int, digits: int) -> int:
    """The digits of a number in base -2, as the bits of an int; numbers are taken modulo 2^digits.

    >>> [negabinary(i, 3) for i in (0, 1, -1, 2, 3)]
    [0, 1, 3, 6, 7]
    """
    result = 0
    for k in range(digits):
        result |= (number & 1) << k
        number = (number - (number & 1)) // -2
    return result


def bine_position(rank: int, size: int) -> int:
    """The block a rank owns: Gray code of its negabinary number, bits reversed."""
    digits = size.bit_length() - 1
    h = negabinary(rank if rank % 2 else -rank, digits)
    gray = h ^ (h >> 1)
    return sum(((gray >> k) & 1) << (digits - 1 - k) for k in range(digits))

"""Butterflies that halve what they send: few steps and few bytes, at powers of two."""

from collections.abc import Callable

from ..schedules import Recv, Schedule, Send, folded


def rabenseifner(rank: int, size: int) -> Schedule:
    """Reduce-scatter by recursive halving.

    Exchange half of the buffer with the rank half the size away, then a quarter with the rank a quarter away,
    and so on. Sizes that are no power of two fold.

    >>> print(draw("rabenseifner", 4))
    rabenseifner: 4 ranks, 4 blocks, 4 steps (# summed over all, . given away)
    0  >2 22..  >1 #...  >1 ##..  >2 ####
    1  >3 22..  >0 .#..  >0 ##..  >3 ####
    2  >0 ..22  >3 ..#.  >3 ..##  >0 ####
    3  >1 ..22  >2 ...#  >2 ..##  >1 ####

    Cost: 2*(l + f)*alpha + 2*((m-1)/m + f)*n*beta + ((m-1)/m + f)*n*gamma
        with m = 2**l <= p the largest power of two, and f = 1 where m < p, else 0
    Needs: nothing; any number of ranks, best at powers of two.
    See: Rabenseifner, Optimization of collective reduction operations, ICCS 2004.
    """

    def halving(member: int, members: int) -> Schedule:
        return butterfly(member, members, lambda r, k: r ^ (members >> (k + 1)), lambda r: r)

    return folded(halving, rank, size, 1 << size.bit_length() - 1)


def butterfly(
    rank: int, size: int, partner: Callable[[int, int], int], position: Callable[[int], int]
) -> Schedule:
    """Exchange with partner(rank, k) in step k the half of what is left that lies away from one's position.

    `position` says which block a rank will own. It must place the ranks that a rank can still reach through
    the remaining steps beside each other, so that every message is one range of blocks.
    """
    steps, mine = [], range(size)
    for k in range(size.bit_length() - 1):
        peer, half = partner(rank, k), len(mine) // 2
        low, high = mine[:half], mine[half:]
        mine, give = (low, high) if position(rank) in low else (high, low)
        steps.append((Send(peer, give), Recv(peer, mine, add=True)))
    return Schedule(size, tuple(steps))

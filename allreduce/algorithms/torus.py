"""Tori: rings along the dimensions of a grid of ranks."""

from collections.abc import Sequence
from math import isqrt, prod

from ..schedules import Schedule, beside, then, within
from .ring import ring


def torus(rank: int, size: int, grid: Sequence[int] = ()) -> Schedule:
    """Reduce-scatter along the rows of a grid, then along the columns, on ever smaller shares.

    Rank r sits in row r // columns. The ring in my row leaves me one share of the buffer, the ring in my column
    one part of that share. Fewer steps than one ring, the same bytes, and where a row is a node, only its share
    crosses the network. Grids of more dimensions go on in the same way, last dimension first.

    >>> print(draw("torus", 4, grid=(2, 2)))
    torus: 4 ranks, 4 blocks, 4 steps (# summed over all, . given away)
    0  >1 22..  >2 #...  >2 ##..  >1 ####
    1  >0 ..22  >3 ..#.  >3 ..##  >0 ####
    2  >3 22..  >0 .#..  >0 ##..  >3 ####
    3  >2 ..22  >1 ...#  >1 ..##  >2 ####

    Cost: 2*sum(d-1 for d in grid)*alpha + 2*(p-1)/p*n*beta + (p-1)/p*n*gamma
    Needs: a grid that multiplies to the number of ranks; the squarest by default, one row for primes.
    See: Mikami et al., Massively distributed SGD: ImageNet/ResNet-50 training in a flash, arXiv 1811.05233.
    """
    grid = tuple(grid) or squarest(size)
    return _along(rank, size, grid, range(len(grid))[::-1])


def torus_two_way(rank: int, size: int, grid: Sequence[int] = ()) -> Schedule:
    """Two 2D tori at once, each on half of the buffer: one goes along the rows first, the other the columns.

    The plain torus uses one dimension of the network at a time; this one keeps both busy.

    >>> print(draw("torus_two_way", 4, grid=(2, 2)))
    torus_two_way: 4 ranks, 8 blocks, 4 steps (# summed over all, . given away)
    0  >1>2 22..22..  >1>2 #...#...  >1>2 ##..##..  >1>2 ########
    1  >0>3 ..2222..  >0>3 ..#..#..  >0>3 ..####..  >0>3 ########
    2  >0>3 22....22  >0>3 .#....#.  >0>3 ##....##  >0>3 ########
    3  >1>2 ..22..22  >1>2 ...#...#  >1>2 ..##..##  >1>2 ########

    Cost: 2*(4*(min(grid)-1) + max(grid)-min(grid))*alpha + 2*(p-1)/p*n*beta + (p-1)/p*n*gamma
    Needs: a grid of two dimensions that multiplies to the number of ranks; the squarest by default.
    See: Sack and Gropp, Collective algorithms for multiported torus networks, ACM TOPC 1 (2015).
    """
    grid = tuple(grid) or squarest(size)
    return beside(_along(rank, size, grid, (1, 0)), _along(rank, size, grid, (0, 1)))


def _along(rank: int, size: int, grid: Sequence[int], dimensions: Sequence[int]) -> Schedule:
    """Ring reduce-scatters along these dimensions in turn, each within the share that the one before left."""
    mine, phases = range(size), []
    for d in dimensions:
        stride = prod(grid[d + 1 :])
        place = rank // stride % grid[d]

        def peers(i: int, first: int = rank - place * stride, stride: int = stride) -> int:
            return first + i * stride

        phases.append(within(ring(place, grid[d]), peers, mine, size))
        part = len(mine) // grid[d]
        mine = mine[place * part : (place + 1) * part]
    return then(*phases)


def squarest(size: int) -> tuple[int, int]:
    """The two factors of size that are nearest to each other, the smaller first."""
    rows = next(d for d in range(isqrt(size), 0, -1) if size % d == 0)
    return rows, size // rows

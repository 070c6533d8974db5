"""Rings: bandwidth-optimal, one neighbour at a time."""

from collections.abc import Sequence
from math import gcd

from ..schedules import Recv, Schedule, Send, beside, relabel, within


def ring(rank: int, size: int) -> Schedule:
    """Reduce-scatter round a ring.

    Every rank sends one block a step to its right neighbour and adds the block that comes from the left to its
    own. A block starts its journey at the rank after its owner and arrives there with all contributions.

    >>> print(draw("ring", 4))
    ring: 4 ranks, 4 blocks, 6 steps (# summed over all, . given away)
    0  >1 112.  >1 13..  >1 #...  >3 ##..  >3 ###.  >3 ####
    1  >2 .112  >2 .13.  >2 .#..  >0 .##.  >0 .###  >0 ####
    2  >3 2.11  >3 ..13  >3 ..#.  >1 ..##  >1 #.##  >1 ####
    3  >0 12.1  >0 3..1  >0 ...#  >2 #..#  >2 ##.#  >2 ####

    Cost: 2*(p-1)*alpha + 2*(p-1)/p*n*beta + (p-1)/p*n*gamma
    Needs: nothing; any number of ranks.
    See: Patarasuk and Yuan, Bandwidth optimal all-reduce algorithms, JPDC 69 (2009).
    """
    left, right = (rank - 1) % size, (rank + 1) % size
    steps = []
    for k in range(1, size):
        out, into = (rank - k) % size, (rank - k - 1) % size
        steps.append((Send(right, range(out, out + 1)), Recv(left, range(into, into + 1), add=True)))
    return Schedule(size, tuple(steps))


def two_way_ring(rank: int, size: int) -> Schedule:
    """Two rings in opposite directions, each on half of the buffer.

    Fills both directions of the links where the neighbours are on different ones (a torus, two rails); on one
    full-duplex port the plain ring already does.

    >>> print(draw("two_way_ring", 4))
    two_way_ring: 4 ranks, 8 blocks, 6 steps (# summed over all, . given away)
    0  >1>3 111.22.1  >1>3 113....3  >1>3 ##......  >1>3 ###....#  >1>3 ###.##.#  >1>3 ########
    1  >0>2 .1111.22  >0>2 .3113...  >0>2 ..##....  >0>2 .####...  >0>2 .####.##  >0>2 ########
    2  >1>3 22.1111.  >1>3 ...3113.  >1>3 ....##..  >1>3 ...####.  >1>3 ##.####.  >1>3 ########
    3  >0>2 1.22.111  >0>2 3....311  >0>2 ......##  >0>2 #....###  >0>2 #.##.###  >0>2 ########

    Cost: 2*(p-1)*min(2, p-1)*alpha + 2*(p-1)/p*n*beta + (p-1)/p*n*gamma
    Needs: nothing; any number of ranks.
    See: Jain and Sabharwal, Optimal bucket algorithms for large MPI collectives on torus interconnects, ICS 2010.
    """
    return multi_ring(rank, size, orders=(range(size), range(size)[::-1]))


def multi_ring(rank: int, size: int, rings: int = 2, orders: Sequence[Sequence[int]] = ()) -> Schedule:
    """Several rings over different orders of the ranks, each on its share of the buffer.

    By default ring number i visits every s-th rank, s the i-th stride without a divisor in common with the
    number of ranks, so that no two rings use the same link in the same direction. With one network port a ring,
    choose the orders so that each ring enters and leaves a node through its own port.

    >>> print(draw("multi_ring", 5))
    multi_ring: 5 ranks, 10 blocks, 8 steps (# summed over all, . given away)
    0  >1>2 1112112..1  >1>2 111.31...3  >1>2 114..4....  >1>2 ##........  >3>4 ###..#....
    1  >2>3 .11112112.  >2>3 .3111.31..  >2>3 ..114..4..  >2>3 ..##......  >0>4 ..###..#..
    2  >3>4 2..1111211  >3>4 ...3111.31  >3>4 ....114..4  >3>4 ....##....  >0>1 ....###..#
    3  >0>4 112..11112  >0>4 31...3111.  >0>4 .4....114.  >0>4 ......##..  >1>2 .#....###.
    4  >0>1 12112..111  >0>1 1.31...311  >0>1 4..4....11  >0>1 ........##  >2>3 #..#....##
    0  >3>4 ###.##...#  >3>4 #######..#  >3>4 ##########
    1  >0>4 .####.##..  >0>4 .########.  >0>4 ##########
    2  >0>1 ...####.##  >0>1 #..#######  >0>1 ##########
    3  >1>2 ##...####.  >1>2 ###..#####  >1>2 ##########
    4  >2>3 #.##...###  >2>3 #####..###  >2>3 ##########

    Cost: 2*(p-1)*R*alpha + 2*(p-1)/p*n*beta + (p-1)/p*n*gamma
        with R rings, at most as many as there are strides; of orders that share neighbours this is a bound
    Needs: `rings` at least 1, or `orders`, each a permutation of the ranks.
    See: NVIDIA NCCL, channels.
    """
    orders = orders or [[i * s % size for i in range(size)] for s in strides(size)[:rings]]
    each = [within(ring(list(o).index(rank), size), list(o).__getitem__, range(size), size) for o in orders]
    # ring i brings block b to rank o[b]; named so that rank r owns the r-th share of the whole buffer
    return relabel(beside(*each), [o[b] * len(orders) + i for i, o in enumerate(orders) for b in range(size)])


def strides(size: int) -> list[int]:
    """The steps that visit every rank before they return."""
    return [s for s in range(1, max(size, 2)) if gcd(s, size) == 1]

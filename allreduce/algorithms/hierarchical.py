"""Hierarchies: inside the node first, where it is cheap, then across nodes."""

from collections.abc import Sequence
from math import isqrt

from ..schedules import Recv, Schedule, Send, idle, padded, share, then, within
from .circulant import circulant
from .ring import ring
from .tree import binomial_tree

#: What goes on between nodes.
ACROSS = {"circulant": circulant, "ring": ring}


def hierarchical(rank: int, size: int, nodes: Sequence[Sequence[int]] = (), between: str = "circulant") -> Schedule:
    """Reduce-scatter inside every node, then parallel reduce-scatters across the nodes, one for each share.

    The buffer is cut into as many shares as the smallest node has ranks. The i-th rank of a node adds up the
    i-th share from all ranks of its node, then takes part in a reduce-scatter with the i-th ranks of the other
    nodes. So all ranks of a node use the network at once, and every byte crosses it once a half. Between nodes a
    circulant takes fewer steps; in a ring no node sends to that which it receives from.

    >>> print(draw("hierarchical", 5, nodes=((0, 1, 2), (3, 4))))
    hierarchical: 5 ranks, 4 blocks, 4 steps (# summed over all, . given away)
    0    >1 33..  >3 #...  >3 ##..  >1>2 ####
    1    >0 ..33  >4 ..#.  >4 ..##  >0>2 ####
    2  >0>1 ....     ....     ....       ####
    3    >4 22..  >0 .#..  >0 ##..    >4 ####
    4    >3 ..22  >1 ...#  >1 ..##    >3 ####

    Cost: 2*(s-1 + T)*alpha + 2*((s-1)/M + (N-1)/N/M)*n*beta + ((s-1)/M + (N-1)/N/M)*n*gamma
        with N nodes, s and M the ranks of the largest and the smallest, T = N-1 in a ring, else ceil(log2(N))
    Needs: nodes that together hold every rank once; about sqrt(p) runs of neighbours by default.
    See: Traeff and Hunold, Decomposing MPI collectives for exploiting multi-lane communication, CLUSTER 2020.
    """
    nodes = nodes or neighbours(size)
    node = next(n for n in nodes if rank in n)
    shares, lane = min(map(len, nodes)), node.index(rank)
    owners, mine = node[:shares], range(lane, lane + 1)
    give = tuple(Send(owner, range(i, i + 1)) for i, owner in enumerate(owners) if owner != rank)
    take = tuple(Recv(other, mine, add=True) for other in node if other != rank) if lane < shares else ()
    inside = Schedule(shares, (give + take,) if max(map(len, nodes)) > 1 else ())

    across = ACROSS[between](nodes.index(node), len(nodes))
    if lane >= shares:
        across, lane = idle(across), 0
    blocks = share(shares * len(nodes), shares, lane)
    return then(inside, within(across, lambda i: nodes[i][lane], blocks, shares * len(nodes)))


def hierarchical_leaders(rank: int, size: int, nodes: Sequence[Sequence[int]] = ()) -> Schedule:
    """Reduce to the first rank of every node along a tree, then reduce-scatter among these leaders.

    Only one rank of a node uses the network, with the whole buffer: right for short messages, or where the
    network likes few senders.

    >>> print(draw("hierarchical_leaders", 5, nodes=((0, 1, 2), (3, 4))))
    hierarchical_leaders: 5 ranks, 2 blocks, 6 steps (# summed over all, . given away)
    0     22     33  >3 #.  >3 ##  >2 ##  >1 ##
    1  >0 ..     ..     ..     ..     ..     ##
    2     11  >0 ..     ..     ..     ##     ##
    3     22     22  >0 .#  >0 ##     ##  >4 ##
    4  >3 ..     ..     ..     ..     ..     ##

    Cost: 2*(lg(s) + lg(N))*alpha + 2*(lg(s) + (N-1)/N)*n*beta + (lg(s) + (N-1)/N)*n*gamma
        with N nodes, s the ranks of the largest, lg(x) = ceil(log2(x))
    Needs: nodes that together hold every rank once; about sqrt(p) runs of neighbours by default.
    See: Traeff, SMP-aware message passing programming, HIPS 2003.
    """
    nodes = nodes or neighbours(size)
    node = next(n for n in nodes if rank in n)
    tree = binomial_tree(node.index(rank), len(node))
    depth = (max(map(len, nodes)) - 1).bit_length()
    inside = padded(within(tree, node.__getitem__, range(1), 1), depth)
    across = circulant(nodes.index(node), len(nodes))
    if rank != node[0]:
        across = idle(across)
    return then(inside, within(across, lambda i: nodes[i][0], range(len(nodes)), len(nodes)))


def neighbours(size: int) -> tuple[range, ...]:
    """About sqrt(size) nodes of nearly as many neighbouring ranks."""
    return tuple(share(size, isqrt(size), i) for i in range(isqrt(size)))

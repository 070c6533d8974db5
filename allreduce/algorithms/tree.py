"""Trees: reduce to a root, broadcast back."""

from ..schedules import Recv, Schedule, Send, pipelined


def binomial_tree(rank: int, size: int) -> Schedule:
    """Reduce to rank 0 along a binomial tree.

    In step k the ranks whose lowest set bit is k send their sum to the rank without it. Every rank's subtree is
    a run of neighbours, so rank order is kept.

    >>> print(draw("binomial_tree", 6))
    binomial_tree: 6 ranks, 1 block, 6 steps (# summed over all, . given away)
    0     2     4     #  >4 #  >2 #  >1 #
    1  >0 .     .     .     .     .     #
    2     2  >0 .     .     .     #  >3 #
    3  >2 .     .     .     .     .     #
    4     2     2  >0 .     #     #  >5 #
    5  >4 .     .     .     .     .     #

    Cost: 2*L*alpha + 2*L*n*beta + L*n*gamma
        with L = ceil(log2(p))
    Needs: nothing; any number of ranks. Has a root; keeps rank order for root 0.
    See: Thakur, Rabenseifner and Gropp, IJHPCA 19 (2005).
    """
    steps: list[tuple] = []
    all_ = range(1)
    for k in range((size - 1).bit_length()):
        bit = 1 << k
        if rank % (2 * bit) == bit:
            steps.append((Send(rank - bit, all_),))
        elif rank % (2 * bit) == 0 and rank + bit < size:
            steps.append((Recv(rank + bit, all_, add=True),))
        else:
            steps.append(())
    return Schedule(1, tuple(steps))


def kary_tree(rank: int, size: int, radix: int = 4) -> Schedule:
    """Reduce to rank 0 along a tree in which every parent has `radix` children, level by level.

    >>> print(draw("kary_tree", 6, radix=3))
    kary_tree: 6 ranks, 1 block, 4 steps (# summed over all, . given away)
    0     1     #  >1>2>3 #       #
    1     3  >0 .         #  >4>5 #
    2     1  >0 .         #       #
    3     1  >0 .         #       #
    4  >1 .     .         .       #
    5  >1 .     .         .       #

    Cost: 2*levels(k)*alpha + 2*levels(k)*n*beta + levels(k)*n*gamma
        with k = radix and levels(k) the sum over the levels of the most children of one parent, about k*log_k(p)
    Needs: radix at least 1 (1 is a chain). Has a root.
    See: MPICH, tree algorithms.
    """
    parent = (rank - 1) // radix if rank else None
    children = list(range(radix * rank + 1, min(radix * rank + radix + 1, size)))

    def depth(of: int) -> int:
        level = 0
        while of:
            of, level = (of - 1) // radix, level + 1
        return level

    return upwards(parent, children, depth(rank), depth(size - 1))


def pipelined_tree(rank: int, size: int, segments: int = 8) -> Schedule:
    """Reduce to rank 0 along a binary tree, segments of the buffer following each other.

    While a parent adds one segment its children receive the next, so for long buffers the depth of the tree
    costs nothing; a parent still receives two segments a step.

    >>> print(draw("pipelined_tree", 5, segments=3))
    pipelined_tree: 5 ranks, 3 blocks, 8 steps (# summed over all, . given away)
    0     111     #11     ##1     ###  >1>2 ###  >1>2 ###  >1>2 ###       ###
    1     311  >0 .31  >0 ..3  >0 ...       ..#  >3>4 .##  >3>4 ###  >3>4 ###
    2     111  >0 .11  >0 ..1  >0 ...       ..#       .##       ###       ###
    3  >1 .11  >1 ..1  >1 ...     ...       ...       ..#       .##       ###
    4  >1 .11  >1 ..1  >1 ...     ...       ...       ..#       .##       ###

    Cost: 2*levels(2, S)*alpha + 2*levels(2, S)/S*n*beta + levels(2, S)/S*n*gamma
        with S = segments and levels(2, S) the sum over the steps of the most messages to one parent,
        about 2*(log2(p) + S - 1)
    Needs: segments at least 1. Has a root.
    See: Traeff and Ripke, Optimal broadcast for fully connected processor-node networks, JPDC 68 (2008).
    """
    return pipelined(kary_tree(rank, size, radix=2), segments)


def upwards(parent: int | None, children: list[int], depth: int, deepest: int) -> Schedule:
    """Receive from the children and, one step later, send to the parent; the deepest level goes first."""
    steps: list[tuple] = [()] * deepest
    all_ = range(1)
    if children:
        steps[deepest - depth - 1] += tuple(Recv(c, all_, add=True) for c in children)
    if parent is not None:
        steps[deepest - depth] += (Send(parent, all_),)
    return Schedule(1, tuple(steps))

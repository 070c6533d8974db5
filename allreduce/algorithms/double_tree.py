"""Double binary tree: two trees that keep every rank's link busy both ways."""

from ..schedules import Schedule, beside, pipelined, within
from .tree import upwards


def double_binary_tree(rank: int, size: int, segments: int = 8) -> Schedule:
    """Two binary trees, each on half of the buffer, pipelined; a rank is inside at most one of them.

    A rank that has children in one tree is a leaf of the other, so every rank receives and sends about the
    whole buffer once a half, which one tree cannot do. The second tree is the first one mirrored
    for an even number of ranks, shifted by one for an odd number.

    >>> print(draw("double_binary_tree", 6, segments=2))
    double_binary_tree: 6 ranks, 4 blocks, 8 steps (# summed over all, . given away)
    0     1111    >1 1.11  >1 #.1.     #.#.  >4 #.#.    >4 #.##       ####       ####
    1  >2 .111    >2 .5.1  >5 ...5  >5 ....     ...#  >0>3 .#.#  >0>3 .###       ####
    2  >3 3.11  >3>4 ..3.  >4 ....     ....     ....       ..#.  >1>3 #.##  >1>3 ####
    3  >2 .311  >1>2 ...3  >1 ....     ....     ....       ...#  >2>4 .###  >2>4 ####
    4  >3 1.11    >3 5.1.  >0 ..5.  >0 ....     ..#.  >2>5 #.#.  >2>5 #.##       ####
    5     1111    >4 .111  >4 .#.1     .#.#  >1 .#.#    >1 .###       ####       ####

    Cost: 2*two_trees(S)*alpha + both(S)/S*n*beta + both(S)/S/2*n*gamma
        with S = segments; for p > 3, two_trees(S) messages and both(S) blocks a half are 2*(ceil(log2(p)) + S) - 3,
        one less for S = 1 and p = 2**x + 1
    Needs: segments at least 1.
    See: Sanders, Speck and Traeff, Two-tree algorithms for full bandwidth broadcast, reduction and scan,
        Parallel Computing 35 (2009); the construction is that of NCCL 2.4.
    """

    def other(r: int) -> int:
        return size - 1 - r if size % 2 == 0 else (r - 1) % size

    def back(r: int) -> int:
        return size - 1 - r if size % 2 == 0 else (r + 1) % size

    second = within(_inorder_tree(other(rank), size), back, range(1), 1)
    return pipelined(beside(_inorder_tree(rank, size), second), segments)


def _inorder_tree(rank: int, size: int) -> Schedule:
    """Reduce to rank 0 along the tree in which a rank's height is its lowest set bit; 0 is above all."""
    deepest = (size - 1).bit_length()  # where rank 1 is

    def parent_of(r: int) -> int:
        bit = r & -r
        up = (r ^ bit) | (bit << 1)
        return up if up < size else r ^ bit

    def depth(r: int) -> int:
        level = 0
        while r:
            r, level = parent_of(r), level + 1
        return level

    bit = rank & -rank if rank else 1 << deepest
    children = []
    for side in (-1, 1):
        below = bit >> 1
        # a right child that does not exist hands over to its own left descendant
        while below and not 0 < rank + side * below < size:
            below >>= 1
        if below and parent_of(rank + side * below) == rank:
            children.append(rank + side * below)
    return upwards(parent_of(rank) if rank else None, children, depth(rank), deepest)

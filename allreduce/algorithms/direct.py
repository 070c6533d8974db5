"""Everyone to everyone, or to one: one step each way."""

from ..schedules import Recv, Schedule, Send


def direct(rank: int, size: int) -> Schedule:
    """Two-shot: every rank sends each other rank its block, and adds up the copies of its own block.

    The sharded parameter server. One step a half whatever the number of ranks, at the price of p-1 messages
    at once; a block is encoded once on its way to the owner and once on its way back.

    >>> print(draw("direct", 4))
    direct: 4 ranks, 4 blocks, 2 steps (# summed over all, . given away)
    0  >1>2>3 #...  >1>2>3 ####
    1  >0>2>3 .#..  >0>2>3 ####
    2  >0>1>3 ..#.  >0>1>3 ####
    3  >0>1>2 ...#  >0>1>2 ####

    Cost: 2*(p-1)*alpha + 2*(p-1)/p*n*beta + (p-1)/p*n*gamma
    Needs: nothing; any number of ranks. Keeps rank order.
    See: Thakur, Rabenseifner and Gropp, IJHPCA 19 (2005), pairwise exchange.
    """
    others = [q for q in range(size) if q != rank]
    sends = tuple(Send(q, range(q, q + 1)) for q in others)
    recvs = tuple(Recv(q, range(rank, rank + 1), add=True) for q in others)
    return Schedule(size, (sends + recvs,) if others else ())


def one_shot(rank: int, size: int) -> Schedule:
    """Everyone sends everything to everyone, and adds in rank order.

    The fewest steps there can be, one; for a few bytes on a few ranks.

    >>> print(draw("one_shot", 3))
    one_shot: 3 ranks, 1 block, 1 step (# summed over all, . given away)
    0  >1>2 #
    1  >0>2 #
    2  >0>1 #

    Cost: (p-1)*alpha + (p-1)*n*beta + (p-1)*n*gamma
    Needs: nothing; any number of ranks. Keeps rank order.
    See: Open MPI, allgather_reduce.
    """
    others = [q for q in range(size) if q != rank]
    all_ = range(1)
    step = tuple(Send(q, all_) for q in others) + tuple(Recv(q, all_, add=True) for q in others)
    return Schedule(1, (step,) if others else ())


def star(rank: int, size: int) -> Schedule:
    """Everyone sends everything to rank 0: the single parameter server.

    The baseline that shows why one does not do that: the server's link carries p-1 buffers each way.

    >>> print(draw("star", 4))
    star: 4 ranks, 1 block, 2 steps (# summed over all, . given away)
    0     #  >1>2>3 #
    1  >0 .         #
    2  >0 .         #
    3  >0 .         #

    Cost: 2*(p-1)*alpha + 2*(p-1)*n*beta + (p-1)*n*gamma
    Needs: nothing; any number of ranks. Has a root; keeps rank order for root 0.
    See: Li et al., Scaling distributed machine learning with the parameter server, OSDI 2014.
    """
    all_ = range(1)
    if rank == 0:
        step: tuple = tuple(Recv(q, all_, add=True) for q in range(1, size))
    else:
        step = (Send(0, all_),)
    return Schedule(1, (step,) if size > 1 else ())

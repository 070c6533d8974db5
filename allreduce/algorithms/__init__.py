"""The table of algorithms: every fact that the rest of the project needs to know about one stands here."""

from collections.abc import Callable
from math import inf, prod
from typing import Any, NamedTuple

from ..checks import parameters, whole
from ..schedules import Schedule, mirror, then, unfolded, within
from .bine import bine
from .circulant import circulant
from .direct import direct, one_shot, star
from .double_tree import double_binary_tree
from .doubling import recursive_doubling, recursive_multiplying
from .halving import rabenseifner
from .hierarchical import ACROSS, hierarchical, hierarchical_leaders
from .ring import multi_ring, ring, two_way_ring
from .swing import swing
from .torus import torus, torus_two_way
from .tree import binomial_tree, kary_tree, pipelined_tree

__all__ = ["ALIASES", "COLLECTIVES", "TABLE", "Algorithm", "halves", "parse", "schedule", "supporting"]


class Algorithm(NamedTuple):
    """What is to be known about an algorithm.

    Attributes
    ----------
    function : callable (rank, size, **params) -> Schedule
        A half (a reduce-scatter or a reduce, to be followed by its mirror), or the whole all-reduce.
    owner : str
        Where the blocks rest after the half. "rank": share r on rank r. "root": all on rank 0. "some": each on
        some rank, see `schedules.owned`. "all": on every rank that was not folded away, for there is no half.
    ordered : bool
        Contributions are combined in rank order, so that an operation need not commute.
    symmetric : bool
        All ranks send, receive and add as much in every step, so that rank 0 tells the cost of all.
    auto : bool
        Among the candidates for ``algorithm="auto"``.
    """

    function: Callable[..., Schedule]
    owner: str
    ordered: bool = False
    symmetric: bool = False
    auto: bool = False


TABLE: dict[str, Algorithm] = {
    a.function.__name__: a
    for a in (
        Algorithm(ring, owner="rank", symmetric=True, auto=True),
        Algorithm(two_way_ring, owner="rank", symmetric=True),
        Algorithm(multi_ring, owner="rank", symmetric=True),
        Algorithm(recursive_doubling, owner="all", ordered=True, auto=True),
        Algorithm(recursive_multiplying, owner="all", ordered=True, auto=True),
        Algorithm(rabenseifner, owner="some", auto=True),
        Algorithm(circulant, owner="rank", symmetric=True, auto=True),
        Algorithm(binomial_tree, owner="root", ordered=True, auto=True),
        Algorithm(kary_tree, owner="root"),
        Algorithm(pipelined_tree, owner="root"),
        Algorithm(double_binary_tree, owner="some"),
        Algorithm(torus, owner="some", symmetric=True),
        Algorithm(torus_two_way, owner="some", symmetric=True),
        Algorithm(hierarchical, owner="some"),
        Algorithm(hierarchical_leaders, owner="some"),
        Algorithm(swing, owner="some"),
        Algorithm(bine, owner="some"),
        Algorithm(direct, owner="rank", ordered=True, symmetric=True, auto=True),
        Algorithm(one_shot, owner="all", ordered=True, symmetric=True, auto=True),
        Algorithm(star, owner="root", ordered=True),
    )
}

ALIASES = {
    "tree": "binomial_tree",
    "2d_torus": "torus",
    "halving_doubling": "rabenseifner",
    "recursive_halving": "rabenseifner",
    "double_tree": "double_binary_tree",
    "two_shot": "direct",
    "parameter_server": "star",
    "traeff": "circulant",
}

#: What each collective needs of the owner column.
COLLECTIVES = {
    "allreduce": ("rank", "root", "some", "all"),
    "reduce_scatter": ("rank",),
    "allgather": ("rank",),
    "reduce": ("root",),
    "bcast": ("root",),
}


#: Schedules of more are longer than what steps of random numbers are told apart by, and take seconds to make.
MOST_SEGMENTS = 1 << 10


def supporting(collective: str) -> list[str]:
    """The names of the algorithms that can do this collective."""
    if not isinstance(collective, str) or collective not in COLLECTIVES:
        raise ValueError(f"unknown collective {collective!r}; have {', '.join(COLLECTIVES)}")
    return [name for name, a in TABLE.items() if a.owner in COLLECTIVES[collective]]


def parse(name: str, size: int, collective: str = "allreduce", **params: Any) -> tuple[str, dict[str, Any]]:
    """Resolve ``"torus:grid=2x4"``, aliases and parameters to a table name and checked parameters.

    Raises
    ------
    ValueError
        Unknown name or collective, unsupported combination, unknown or unfitting parameter.
    """
    if not isinstance(name, str):
        raise TypeError(f"an algorithm is named by a string, not {name!r}")
    text, _, options = name.partition(":")
    key = text.strip().lower().replace("-", "_")
    key = ALIASES.get(key, key)
    allowed = supporting(collective)
    if key in ("auto", "native", "node"):
        raise ValueError(f"{name!r} has neither a schedule nor parameters; have {', '.join(allowed)}")
    if key not in TABLE:
        raise ValueError(f"unknown algorithm {text!r}; have {', '.join(allowed)}; and auto, native, node")
    if key not in allowed:
        raise ValueError(f"{key} cannot do {collective}; {', '.join(allowed)} can")
    size = whole("size", size, 1)
    for option in filter(None, options.split(",")):
        param, _, value = (part.strip() for part in option.partition("="))
        if param in params:
            raise ValueError(f"{key} is given {param!r} twice")
        params[param] = value
    known = list(parameters(TABLE[key].function))[2:]
    for param, value in params.items():
        if param not in known:
            raise ValueError(f"{key} has no parameter {param!r}; it has {', '.join(known) or 'none'}")
        params[param] = value = _value(param, value) if isinstance(value, str) else value
        try:
            CHECKS[param](key, size, value)
        except TypeError:
            hint = "radix=4, grid=(2, 4), nodes=((0, 1), (2,))"
            raise ValueError(f"cannot use {param}={value!r}; have e.g. {hint}") from None
    return key, params


def _value(param: str, text: str) -> Any:
    """Parameters as text: 4, ring, a grid 2x4, nodes 3+2 (so many neighbouring ranks each), orders 0.1.2+2.1.0."""
    try:
        if param == "grid":
            return tuple(int(d) for d in text.split("x"))
        if param == "nodes":
            sizes = [int(s) for s in text.split("+")]
            return tuple(tuple(range(sum(sizes[:i]), sum(sizes[: i + 1]))) for i in range(len(sizes)))
        if param == "orders":
            return tuple(tuple(int(r) for r in order.split(".")) for order in text.split("+"))
        return text.lower() if param == "between" else int(text)
    except ValueError:
        raise ValueError(f"cannot read {param}={text!r}; have e.g. radix=4, grid=2x4, nodes=3+2") from None


def _check_grid(key: str, size: int, grid: Any) -> None:
    dims = tuple(grid)
    if any(not isinstance(d, int) or d < 1 for d in dims) or (dims and prod(dims) != size):
        raise ValueError(f"grid {'x'.join(map(str, dims))} does not multiply to {size} ranks")
    if key == "torus_two_way" and dims and len(dims) != 2:
        raise ValueError(f"torus_two_way takes a grid of two dimensions, not {len(dims)}")


def _check_nodes(_: str, size: int, nodes: Any) -> None:
    if nodes and (sorted(r for node in nodes for r in node) != list(range(size)) or not all(map(len, nodes))):
        raise ValueError(f"nodes {nodes} do not hold each of the {size} ranks once")


def _check_between(_: str, __: int, between: Any) -> None:
    if between not in ACROSS:
        raise ValueError(f"expected {' or '.join(ACROSS)} between nodes, not {between!r}")


def _check_orders(_: str, size: int, orders: Any) -> None:
    for order in orders:
        if sorted(order) != list(range(size)):
            raise ValueError(f"order {tuple(order)} is no permutation of the {size} ranks")


def _check_int(default: int, most: float = inf, **other: int) -> Callable[[str, int, Any], None]:
    def check(key: str, _: int, value: Any) -> None:
        least = other.get(key, default)
        if not isinstance(value, int) or not least <= value <= most:
            allowed = f"of at least {least}" if most == inf else f"from {least} to {most}"
            raise ValueError(f"expected a whole number {allowed}, not {value!r}")

    return check


CHECKS: dict[str, Callable[[str, int, Any], None]] = {
    "between": _check_between,
    "grid": _check_grid,
    "nodes": _check_nodes,
    "orders": _check_orders,
    "radix": _check_int(1, recursive_multiplying=2),
    "rings": _check_int(1),
    "segments": _check_int(1, MOST_SEGMENTS),
}


def halves(
    name: str, rank: int, size: int, collective: str = "allreduce", root: int = 0, **params: Any
) -> tuple[Schedule, Schedule]:
    """The reduce half and the copy half of a collective on one rank; one of them may be empty.

    In between, a finished block is held by those ranks that do not receive it in the copy half.
    """
    key, params = parse(name, size, collective, **params)
    rank, root = whole("rank", rank, 0, size), whole("root", root, 0, size)
    algorithm = TABLE[key]
    if algorithm.owner != "root":  # turning the ranks would change who owns what, and the order of adds
        root = 0
    half = algorithm.function((rank - root) % size, size, **params)
    if root:
        half = within(half, lambda peer: (peer + root) % size, range(half.blocks), half.blocks)
    nothing = Schedule(half.blocks, ())
    if algorithm.owner == "all":
        return unfolded(half, algorithm.function(0, size, **params))
    return (
        nothing if collective in ("allgather", "bcast") else half,
        nothing if collective in ("reduce_scatter", "reduce") else mirror(half),
    )


def schedule(
    name: str, rank: int, size: int, collective: str = "allreduce", root: int = 0, **params: Any
) -> Schedule:
    """The steps of one rank, for you to read, check or run yourself.

    Parameters
    ----------
    name : str
        A name from `algorithms()`, an alias, or a name with parameters such as ``"torus:grid=2x4"``.
    rank, size : int
        This rank, and the number of ranks.
    collective : {"allreduce", "reduce_scatter", "allgather", "reduce", "bcast"}
    root : int
        Of a reduce or bcast, and of an all-reduce along a tree; algorithms without a root do not mind.
    **params
        Of the algorithm: ``radix``, ``segments``, ``grid=(2, 4)``, ``nodes=((0, 1, 2), (3, 4))``, ...

    Returns
    -------
    Schedule(blocks, steps)

    Raises
    ------
    ValueError
        Unknown name or parameter, one that does not fit, or an algorithm that cannot do the collective.

    Examples
    --------
    >>> schedule("recursive_doubling", 0, 2)
    Schedule(blocks=1, steps=((Send(peer=1, blocks=range(0, 1)), Recv(peer=1, blocks=range(0, 1), add=True)),))
    """
    return then(*halves(name, rank, size, collective, root, **params))

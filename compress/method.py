"""The interface of methods: what is done before and after an all-reduce, with a memory."""

from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol

import numpy as np
from numba import njit
from numpy.lib.stride_tricks import as_strided

from allreduce.execute.cache import keep

from .codec import START, Codec
from .context import Context
from .table import config
from .vectors import as_one, fitting, next_to_each_other, parts_of

__all__ = ["AllReduce", "Method", "check_codec", "finite", "working"]


class AllReduce(Protocol):
    """An all-reduce over the ranks of a method; what it returns may be the array that it was given.

    Parameters
    ----------
    x : ndarray
    op : str
    codec : Codec, optional
    out : ndarray, optional
        Of the shape and dtype of x: where the result goes if losses are asked for. It may be x, but not `lost`.
    lost : ndarray, optional
        Where to leave what the encodings of this rank lose, of its own values, of partial and of finished sums: x, or
        with a residual another array like it. Result and losses of all ranks add up to the inputs.
    residual : ndarray, optional
        Like x, to which it is added first.
    prefer : str
        The algorithm, if the user left the choice and the codec pays; else there is no codec.
    """

    def __call__(
        self,
        x: np.ndarray,
        *,
        op: str = "sum",
        codec: Codec | None = None,
        out: np.ndarray | None = None,
        lost: np.ndarray | None = None,
        residual: np.ndarray | None = None,
        prefer: str = "auto",
    ) -> np.ndarray: ...


@dataclass
class Method:
    """A way to sum arrays over ranks that needs a memory per tensor; a dataclass whose fields are its configuration.

    All ranks call it with the same keys in the same order. The memory belongs to one rank: save each rank's.

    Attributes
    ----------
    memory : dict of str to dict of str to ndarray
        By the key of the tensor and the name of the part.
    spare : dict of str to dict of str to ndarray
        Arrays that are not needed any more, and are room for the same parts in the next step.
    by_value : dict of str to float
        The parts that have a number for each value of a tensor, and what that is at first. With any others, or with
        none, a method says itself how tensors go together, or they go one by one.
    """

    memory: dict[str, dict[str, np.ndarray]] = field(default_factory=dict, init=False, repr=False, compare=False)
    spare: dict[str, dict[str, np.ndarray]] = field(default_factory=dict, init=False, repr=False, compare=False)
    by_value: ClassVar[dict[str, float]] = {}

    def reduce(
        self, x: np.ndarray, allreduce: AllReduce, key: str, at: Context = START, out: np.ndarray | None = None
    ) -> np.ndarray:
        """The sum of x over the ranks, or nearly; the same bits on all of them. x is left as it is.

        Parameters
        ----------
        x : ndarray of floating-point numbers
        allreduce : AllReduce
        key : str
            A stable name of the tensor.
        at : Context
            Step, rank and number of ranks.
        out : ndarray, optional
            Room of the shape of x that the method may use, and return; it may be x, which is then not left as it is.
        """
        raise NotImplementedError

    def reduce_together(
        self, tensors: dict[str, np.ndarray], allreduce: AllReduce, at: Context = START
    ) -> dict[str, np.ndarray]:
        """The sums of several tensors of one dtype, by their keys, each remembered for itself.

        They go as one tensor, in as many all-reduces as that takes, and stay as they are. Their sums may lie where the
        next call for the same tensors leaves its own.
        """
        if len(tensors) < 2 or not self.by_value:
            return {key: self.reduce(x, allreduce, key, at) for key, x in tensors.items()}
        one, shape = "\0".join(tensors), (sum(x.size for x in tensors.values()),)
        if one not in self.spare:
            self.free(*tensors)
        vector = out = self.room(one, "sums", shape, next(iter(tensors.values())).dtype)
        if next_to_each_other(tensors.values()):
            vector = as_strided(next(x for x in tensors.values() if x.size), shape, (out.itemsize,))
        else:
            np.concatenate([x.reshape(-1) for x in tensors.values()], out=vector)
        parts = {part: [self.kept(key, part, x) for key, x in tensors.items()] for part in self.by_value}
        self.memory[one] = {part: as_one(pieces) for part, pieces in parts.items()}
        try:
            total = self.reduce(vector, allreduce, one, at, out)
        finally:
            after = self.memory.pop(one)
        for part in parts:
            for key, piece in parts_of(after[part], tensors).items():
                self.memory.setdefault(key, {})[part] = piece
        self.spare.setdefault(one, {})["sums"] = out
        return parts_of(total, tensors)

    def recall(self, key: str, part: str, shape: tuple[int, ...]) -> np.ndarray | None:
        """What is remembered of a tensor.

        Raises
        ------
        ValueError
            If it is of another shape: call `reset` where that is meant.
        """
        kept = self.memory.get(key, {}).get(part)
        if kept is not None and kept.shape != shape:
            raise ValueError(f"{part} of {key!r} has shape {kept.shape}, not {shape}; reset({key!r}) to forget it")
        return kept

    def kept(self, key: str, part: str, x: np.ndarray) -> np.ndarray:
        """What is remembered of each value of a tensor, in C order, or what that is at first."""
        found, dtype = self.recall(key, part, x.shape), working(x)
        return np.full(x.shape, self.by_value[part], dtype) if found is None else found.astype(dtype, "C", copy=False)

    def room(self, key: str, part: str, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
        """Where that may lie in the next step: in what `turn` has left, or else in new memory."""
        return fitting(self.spare.get(key, {}).pop(part, None), shape, dtype)

    def turn(self, key: str, good: bool | None = None, **parts: np.ndarray) -> None:
        """Remember parts, which may be known to be finite; what is not needed any more is `room` for the next step."""
        before = {part: kept for part in parts if (kept := self.memory.get(key, {}).get(part)) is not None}
        if good is None:
            good = self.remember(key, **parts)
        elif good:
            self.memory.setdefault(key, {}).update(parts)
        self.spare.setdefault(key, {}).update(before if good else parts)

    def remember(self, key: str, **parts: np.ndarray) -> bool:
        """Keep parts of a tensor for the next step; unless one is not finite, which would never leave the memory."""
        good = all(finite(part.reshape(-1)) for part in parts.values())
        if good:
            self.memory.setdefault(key, {}).update(parts)
        return good

    def reset(self, key: str | None = None) -> None:
        """Forget a tensor, or all."""
        if key is None:
            self.memory.clear()
            self.spare.clear()
        else:
            self.memory.pop(key, None)
            self.free(key)

    def free(self, *keys: str) -> None:
        """Give away the rooms of tensors, alone and with others."""
        self.spare = {one: rooms for one, rooms in self.spare.items() if not {*keys} & {*one.split("\0")}}

    def state_dict(self) -> dict[str, Any]:
        """The configuration and a copy of the memory of this rank."""
        return {
            "config": str(self),
            "memory": {key: {name: part.copy() for name, part in parts.items()} for key, parts in self.memory.items()},
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from what `state_dict` returned.

        Raises
        ------
        ValueError
            If it is of another configuration or damaged; the memory stays as it was.
        """
        if not isinstance(state, dict) or not isinstance(state.get("memory"), dict):
            raise ValueError(f"a state is what state_dict returned, not {state!r:.80}")
        if state.get("config") != str(self):
            raise ValueError(f"the state is one of {state.get('config')}, not of {self}")
        for key, parts in state["memory"].items():
            check_parts(key, parts)
        self.memory = {
            key: {name: part.copy() for name, part in parts.items()} for key, parts in state["memory"].items()
        }

    def __str__(self) -> str:
        return config(self)


def check_parts(key: Any, parts: Any) -> None:
    """Refuse as the memory of a tensor what no method remembers."""
    if not isinstance(key, str) or not isinstance(parts, dict):
        raise ValueError(f"a state has arrays by the names of tensors and parts, not {parts!r:.80} by {key!r}")
    for name, part in parts.items():
        if not isinstance(part, np.ndarray) or part.dtype.kind not in "fi" or not np.isfinite(part).all():
            raise ValueError(f"{name} of {key!r} in the state is no array of finite numbers, but {part!r:.80}")


def check_codec(method: Any) -> None:
    """Refuse as the codec of a method what is none, such as another method."""
    if not isinstance(method.codec, Codec):
        raise TypeError(f"{type(method).__name__} is made of a codec, such as get('int8'), not of {method.codec!r}")


def working(x: np.ndarray) -> np.dtype:
    """The dtype in which a tensor is remembered: float32, or float64 for that."""
    return np.dtype(np.float64 if x.dtype == np.float64 else np.float32)


@keep
@njit(nogil=True)
def finite(x: Any) -> bool:
    """Whether all are finite numbers: in one pass, and without an array of truths."""
    good = True
    for i in range(x.size):
        good &= x[i] - x[i] == 0
    return good

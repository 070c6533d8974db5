"""Where several tensors lie as one vector."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from .method import working

__all__ = ["Rooms"]


@dataclass
class Rooms:
    """Vectors that hold several tensors, one after the other; what is remembered lies in two of them in turn."""

    kept: dict[tuple[str, ...], tuple[np.ndarray, ...]] = field(default_factory=dict)

    def take(self, tensors: Mapping[str, np.ndarray], rows: int = 1) -> tuple[np.ndarray, ...]:
        """Room for what is remembered next of tensors of one dtype; where that is remembered now; and for a result.

        Of shape (count,), or (rows, count). Who does not `put` them back will not get them again.
        """
        names = tuple(tensors)
        count, dtype = sum(x.size for x in tensors.values()), working(next(iter(tensors.values())))
        shape = (rows, count) if rows > 1 else (count,)
        rooms = self.kept.pop(names, None)
        if rooms is not None and rooms[0].shape == shape and rooms[0].dtype == dtype:
            return rooms
        self.kept = {others: kept for others, kept in self.kept.items() if not set(others) & set(names)}
        return np.empty(shape, dtype), np.empty(shape, dtype), np.empty(count, dtype)

    def put(self, tensors: Mapping[str, np.ndarray], *rooms: np.ndarray) -> None:
        """For the next step of the same tensors, in the order in which that takes them."""
        self.kept[tuple(tensors)] = rooms

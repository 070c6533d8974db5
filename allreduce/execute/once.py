"""Attributes made on first use, together with other ranks."""

from collections.abc import Callable
from typing import Any

__all__ = ["once"]


class once:
    """As functools.cached_property, whose lock up to Python 3.11 is one for all objects.

    With that, of two threads that each make such an attribute of a communicator with other ranks, the second would
    wait for the first; and on a rank where they come the other way round the first for the second.
    """

    def __init__(self, make: Callable[[Any], Any]) -> None:
        self.make, self.__doc__ = make, make.__doc__

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        if instance is None:
            return self
        value = instance.__dict__[self.make.__name__] = self.make(instance)
        return value

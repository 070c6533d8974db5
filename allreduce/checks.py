"""What numbers of the caller must be, and what parameters there are."""

from collections.abc import Callable, Mapping
from functools import cache
from inspect import Parameter, signature
from math import isfinite
from operator import index
from typing import Any

__all__ = ["amount", "parameters", "whole"]


def whole(what: str, value: Any, least: int, below: int | None = None) -> int:
    """A whole number, of whatever type, within bounds.

    Raises
    ------
    TypeError, ValueError
        Naming what it is, what was given and what is allowed.
    """
    allowed = f"a whole number of at least {least}" if below is None else f"a whole number from {least} to {below - 1}"
    try:
        number = index(value)
    except TypeError:
        raise TypeError(f"{what} must be {allowed}, not {value!r}") from None
    if number < least or (below is not None and number >= below):
        raise ValueError(f"{what} must be {allowed}, not {value!r}")
    return number


def amount(what: str, value: Any) -> float:
    """A finite number that is not negative.

    Raises
    ------
    TypeError, ValueError
        Naming what it is, what was given and what is allowed.
    """
    try:
        fits = isfinite(value) and value >= 0
    except TypeError:
        raise TypeError(f"{what} must be a number, not {value!r}") from None
    if not fits:
        raise ValueError(f"{what} must be a finite number of at least 0, not {value!r}")
    return value


@cache
def parameters(function: Callable) -> Mapping[str, Parameter]:
    """Of a function or class, by name; to look takes 10 us."""
    return signature(function).parameters

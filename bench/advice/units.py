"""Numbers with units, as people write them: 130e9 or 130B parameters, 10PB of text, 300GB/s, 1600Gb/s."""

import re
from argparse import ArgumentTypeError

__all__ = ["amount", "count", "factor", "rate"]

_NUMBER = r"(?P<number>\d+(\.\d+)?(e\+?\d+)?)"
_SCALE = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "P": 10**15, "E": 10**18}
_BYTES = re.compile(_NUMBER + r" ?(?P<scale>[KMGTPE]?)(?P<binary>i?)(?P<unit>[bB])(?P<rate>/s)?")
_COUNT = re.compile(_NUMBER + r"(?P<scale>[KMBT]?)")


def count(text: str) -> int:
    """So many parameters or elements; B is a billion, as in the names of models.

    >>> count("130e9") == count("130B")
    True
    """
    match = _COUNT.fullmatch(text)
    value = float(match["number"]) * (_SCALE | {"B": 10**9})[match["scale"]] if match else 0
    if not 1 <= value < 2**63:
        raise ArgumentTypeError(f"expected a number such as 4096, 130e9 or 130B, not {text!r}")
    return round(value)


def factor(text: str) -> float:
    """A number above zero."""
    match = re.fullmatch(_NUMBER, text)
    if not match or not 0 < float(text) < float("inf"):
        raise ArgumentTypeError(f"expected a number above zero, not {text!r}")
    return float(text)


def amount(text: str) -> float:
    """Bytes: 10PB, 40GB, 40GiB.

    >>> amount("10PB")
    1e+16
    """
    return _bytes(text, rate=False)


def rate(text: str) -> float:
    """Bytes per second: 300GB/s, or in bits 1600Gb/s.

    >>> rate("1600Gb/s")
    200000000000.0
    """
    return _bytes(text, rate=True)


def _bytes(text: str, rate: bool) -> float:
    match = _BYTES.fullmatch(text)
    value = 0.0
    if match and bool(match["rate"]) == rate and (match["scale"] or not match["binary"]):
        base = 1024 if match["binary"] else 1000
        value = float(match["number"]) * base ** list(_SCALE).index(match["scale"]) / (8 if match["unit"] == "b" else 1)
    if not 0 < value < float("inf"):
        wanted = "a rate such as 300GB/s or 1600Gb/s" if rate else "an amount such as 10PB or 40GiB"
        raise ArgumentTypeError(f"expected {wanted}, not {text!r}")
    return value

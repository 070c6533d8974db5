"""What is checked before any work is done: the arguments of constructors, of encode and of decode."""

from typing import Any

import numpy as np

__all__ = [
    "DTYPES", "choice", "fitting", "positive", "power_of_two", "readable", "room", "share", "shrinking", "sixteenths",
    "values", "whole",
]  # fmt: skip

#: What can be encoded; float64 is computed in float32.
DTYPES = ("float16", "bfloat16", "float32", "float64")


def plain(codec: Any, key: str) -> Any:
    """A parameter; a number of NumPy's becomes one of Python's, of which the text of a codec is made."""
    value = getattr(codec, key)
    if isinstance(value, np.generic):
        value = value.item()
        object.__setattr__(codec, key, value)
    return value


def choice(codec: Any, key: str, *allowed: Any) -> None:
    """Refuse a parameter that is none of these."""
    value = plain(codec, key)
    if value not in allowed:
        raise ValueError(f"unknown {key} {value!r}; have {', '.join(map(str, allowed))}")


def power_of_two(codec: Any, key: str, least: int = 8, most: int = 8192) -> None:
    """Refuse a parameter that is no power of two in this range."""
    value = plain(codec, key)
    if not isinstance(value, int) or not least <= value <= most or value & (value - 1):
        raise ValueError(f"{key} is a power of two from {least} to {most}, not {value!r}")


def whole(codec: Any, key: str, least: int = 0, most: int = 2**31 - 1) -> None:
    """Refuse a parameter that is no whole number in this range."""
    value = plain(codec, key)
    if not isinstance(value, int) or not least <= value <= most:
        raise ValueError(f"{key} is a whole number from {least} to {most}, not {value!r}")


def sixteenths(codec: Any, key: str, least: int, most: int) -> None:
    """Refuse a parameter that is no number in this range, or not a multiple of 1/16."""
    value = plain(codec, key)
    if not isinstance(value, float | int) or not least <= value <= most or value * 16 % 1:
        raise ValueError(f"{key} is a multiple of 1/16 from {least} to {most}, not {value!r}")


def share(codec: Any, key: str) -> None:
    """Refuse a parameter that is no share of a whole."""
    value = plain(codec, key)
    if not isinstance(value, float | int) or not 0 < value <= 1:
        raise ValueError(f"{key} is a number above 0, up to 1, not {value!r}")


def positive(codec: Any, key: str) -> None:
    """Refuse a parameter that is no finite number above 0."""
    value = plain(codec, key)
    if not isinstance(value, float | int) or not 0 < value < float("inf"):
        raise ValueError(f"{key} is a finite number above 0, not {value!r}")


def values(x: np.ndarray) -> np.ndarray:
    """What is to be encoded, as one run of memory."""
    x = np.asarray(x)
    if x.dtype.name not in DTYPES:
        raise TypeError(f"cannot encode dtype {x.dtype}; have {', '.join(DTYPES)}")
    return np.ascontiguousarray(x)


def room(out: np.ndarray | None, nbytes: int) -> np.ndarray:
    """Where a message goes."""
    if out is None:
        return np.empty(nbytes, np.uint8)
    if not isinstance(out, np.ndarray):
        raise TypeError(f"a message is written to an array of uint8, not to {type(out).__name__}")
    if out.dtype != np.uint8 or not out.flags.c_contiguous or not out.flags.writeable or out.size < nbytes:
        raise ValueError(f"a message takes {nbytes} contiguous, writable bytes of uint8, not {out.size} of {out.dtype}")
    return out.reshape(-1)[:nbytes]


def readable(codec: Any, message: np.ndarray, out: np.ndarray) -> np.ndarray:
    """A message, as one run of memory, that fits what it is decoded into."""
    for array in (message, out):
        if not isinstance(array, np.ndarray):
            raise TypeError(f"a message and what it is decoded into are arrays, not {type(array).__name__}")
    if message.dtype != np.uint8:
        raise TypeError(f"a message is an array of uint8, not of {message.dtype}")
    if out.dtype.name not in DTYPES:
        raise TypeError(f"cannot decode to dtype {out.dtype}; have {', '.join(DTYPES)}")
    if not out.flags.c_contiguous or not out.flags.writeable:
        raise ValueError("cannot decode into an array that is read-only or not contiguous")
    fitting(codec, message.size, out.size)
    return np.ascontiguousarray(message)


def fitting(codec: Any, nbytes: int, count: int) -> None:
    """Refuse a message of so many bytes for so many values."""
    expected = codec.nbytes(count)
    if nbytes > expected or (codec.exact_size and nbytes != expected):
        raise ValueError(f"a {codec} message of {count} values has {expected} bytes, not {nbytes}")


def shrinking(codec: Any) -> None:
    """Refuse a codec that may lose more than there was: what is lost and sent again would grow without end."""
    if not codec.unbiased:
        return
    x = np.random.default_rng(0).standard_normal(1 << 12).astype(np.float32)
    lost = np.sum(np.square(x - codec.decode(codec.encode(x), np.empty_like(x)))) / np.sum(np.square(x))
    if lost >= 1:
        raise ValueError(f"{codec} loses {lost:.3g} times what there is, and residuals would grow; take a biased codec")

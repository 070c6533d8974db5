"""Gradient compression inside the collective: codecs for every hop of an all-reduce, and methods above it.

>>> import numpy as np
>>> codec = get("int4:block=32")
>>> message = codec.encode(np.array([0.1, -0.7, 0.35, 0.0], np.float32))
>>> codec.decode(message, np.empty(4, np.float32))
array([ 0.10009766, -0.7006836 ,  0.30029297,  0.        ], dtype=float32)
"""

import re
from importlib import import_module
from typing import TYPE_CHECKING, Any

from allreduce.checks import parameters

from .table import TABLE, config

if TYPE_CHECKING:
    from .codec import Codec as Codec
    from .codec import Context as Context

__all__ = ["TABLE", "Codec", "Context", "config", "get"]


_CONFIG = re.compile(r"(?P<name>[\w-]+)(\((?P<inner>.*)\))?(:(?P<params>[^()]*))?")


def get(text: "str | Codec", **params: Any) -> Any:
    """The codec or method of a configuration: ``name:key=value,key=value``, of methods also ``name(codec):key=value``.

    Raises
    ------
    ValueError
        Unknown name or parameter, or an unfitting value; naming what there is.

    Examples
    --------
    >>> get("int4:block=32,rounding=stochastic")
    Linear(width=4, block=32, rounding='stochastic', norm='max', seed=0)
    >>> str(get("int4", rounding="stochastic", block=32))
    'int4:block=32,rounding=stochastic'
    >>> get("int5:blok=32")
    Traceback (most recent call last):
    ...
    ValueError: int5 has no parameter 'blok'; it has block, rounding, norm, seed
    """
    if not isinstance(text, str):
        return text
    match = _CONFIG.fullmatch(text.strip())
    if not match:
        raise ValueError(f"cannot read {text!r}; have e.g. int4:block=32 or feedback(topk:ratio=0.01)")
    name = match["name"].lower().replace("-", "_")
    if name not in TABLE:
        raise ValueError(f"unknown codec {match['name']!r}; have {', '.join(TABLE)}")
    module, kind, presets = TABLE[name]
    make = getattr(import_module(f".{module}", __name__), kind)
    defaults = {key: p.default for key, p in parameters(make).items() if key not in presets}
    if match["inner"]:
        if "codec" not in defaults:
            raise ValueError(f"{name} takes no codec in parentheses")
        _once(name, "codec", params)
        params["codec"] = match["inner"]
    elif "codec" in defaults and "codec" not in params:
        raise ValueError(f"{name} needs a codec: {name}(int8)")
    for option in filter(None, (match["params"] or "").split(",")):
        key, _, value = (part.strip() for part in option.partition("="))
        _once(name, key, params)
        params[key] = value
    for key, value in params.items():
        if key not in defaults:
            raise ValueError(f"{name} has no parameter {key!r}; it has {', '.join(defaults) or 'none'}")
        if key == "codec":
            params[key] = get(value)
        elif isinstance(value, str):
            params[key] = _value(name, key, value, type(defaults[key]))
    return make(**presets, **params)


def _once(name: str, key: str, params: dict[str, Any]) -> None:
    if key in params:
        raise ValueError(f"{name} is given {key!r} twice")


def _value(name: str, key: str, text: str, kind: type) -> Any:
    """A parameter from text, of the type of its default."""
    try:
        return {"true": True, "false": False}[text.lower()] if kind is bool else kind(text)
    except (KeyError, TypeError, ValueError):
        raise ValueError(f"cannot read {key}={text!r} of {name}; expected {kind.__name__}") from None


def __getattr__(name: str) -> Any:
    if name not in ("Codec", "Context"):
        raise AttributeError(f"module 'compress' has no attribute {name!r}")
    return getattr(import_module(".codec", __name__), name)

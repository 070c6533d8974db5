"""Every name of a codec or method, and how one is written as text."""

from typing import Any, NamedTuple

from allreduce.checks import parameters

__all__ = ["TABLE", "Entry", "config"]


class Entry(NamedTuple):
    """Where a class is, and the arguments of its constructor that the name stands for."""

    module: str
    kind: str
    presets: dict[str, Any]


#: Every name of a codec or method; the modules are imported on first use.
TABLE: dict[str, Entry] = {
    "float16": Entry("cast", "Cast", {"to": "float16"}),
    "bfloat16": Entry("cast", "Cast", {"to": "bfloat16"}),
    **{f"int{width}": Entry("linear", "Linear", {"width": width}) for width in (8, 6, 5, 4, 3, 2)},
    "dynamic": Entry("dynamic", "Dynamic", {}),
    "elias": Entry("elias", "Elias", {}),
    "spikes": Entry("spikes", "Spikes", {}),
    "sign": Entry("sign", "Sign", {}),
    "fp8": Entry("fp8", "Fp8", {}),
    "mxfp8": Entry("fp8", "Fp8", {"block": 32}),
    "natural": Entry("natural", "Natural", {}),
    "terngrad": Entry("linear", "Linear", {"width": 2, "rounding": "stochastic"}),
    "topk": Entry("topk", "TopK", {}),
    "sampled": Entry("sampled", "Sampled", {}),
    "threshold": Entry("threshold", "Threshold", {}),
    "randomk": Entry("randomk", "RandomK", {}),
    "blocktopk": Entry("blocktopk", "BlockTopK", {}),
    "eden": Entry("eden", "Eden", {}),
    "bounded": Entry("bounded", "Bounded", {}),
    "lossless": Entry("lossless", "Lossless", {}),
    "sparse": Entry("nonzero", "Nonzero", {}),
    "feedback": Entry("feedback", "ErrorFeedback", {}),
    "sparcml": Entry("sparcml", "SparCML", {}),
    "gtopk": Entry("gtopk", "GTopK", {}),
    "oktopk": Entry("oktopk", "OkTopK", {}),
    "dgc": Entry("dgc", "DGC", {}),
    "ef21": Entry("differences", "Differences", {"alpha": 1.0}),
    "diana": Entry("differences", "Differences", {}),
    "powersgd": Entry("powersgd", "PowerSGD", {}),
    "thc": Entry("thc", "THC", {}),
    "qsgd": Entry("linear", "Linear", {"norm": "l2", "rounding": "stochastic"}),
}


def config(made: Any) -> str:
    """The text from which `get` makes the same codec or method again; of a class that is not in the table, the repr."""
    home = type(made).__module__, type(made).__name__
    fitting = [
        (name, presets)
        for name, (module, kind, presets) in TABLE.items()
        if (f"{__package__}.{module}", kind) == home
        and all(getattr(made, key) == value for key, value in presets.items())
    ]
    if not fitting:
        return repr(made)
    name, presets = max(fitting, key=lambda entry: len(entry[1]))
    values = {
        key: getattr(made, key)
        for key, p in parameters(made.__class__).items()
        if key not in presets and getattr(made, key) != p.default
    }
    inner = f"({values.pop('codec')})" if "codec" in values else ""
    return name + inner + ":" * bool(values) + ",".join(f"{key}={value}" for key, value in values.items())

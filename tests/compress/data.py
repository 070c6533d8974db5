"""The codecs under test, and arrays that are hard on them."""

from pathlib import Path

import ml_dtypes
import numpy as np

import compress

#: One of every kind of record, every rounding, every way to a scale.
CONFIGS = [
    "float16", "bfloat16",
    "int8", "int6", "int5:block=8", "int4:block=32", "int3:rounding=stochastic", "int3:rounding=correlated", "int2",
    "terngrad", "qsgd:width=4", "dynamic", "dynamic:bits=3", "elias:levels=10,block=256",
    "spikes:width=3", "spikes:block=128,rounding=stochastic",
    "sign:block=64", "fp8", "fp8:format=e5m2,block=16", "mxfp8", "natural", "natural:rounding=nearest,block=32",
    "topk:ratio=0.1", "sampled:ratio=0.05", "threshold:least=0.5", "blocktopk:ratio=0.3,block=16",
    "randomk:ratio=0.2", "randomk:ratio=0.2,unbiased=False", "lossless", "sparse",
    "bounded:eb=0.02", "eden:block=64", "eden:width=1,block=8",
]  # fmt: skip
CODECS = {text: compress.get(text) for text in CONFIGS}
DTYPES = [np.dtype(np.float32), np.dtype(np.float64), np.dtype(np.float16), np.dtype(ml_dtypes.bfloat16)]
#: Where a codec is tried with every dtype: kernels take seconds to compile.
SOME = [
    "bfloat16",
    "int4:block=32",
    "sign:block=64",
    "fp8",
    "topk:ratio=0.1",
    "threshold:least=0.5",
    "lossless",
    "sparse",
    "bounded:eb=0.02",
]

#: Of a small model early and late in its training, a row per rank; data/make_gradients.py made them.
STORED = {
    name: np.load(Path(__file__).parents[1] / "data" / f"{name}.npy", allow_pickle=False) for name in ("early", "late")
}


def gradients(n: int, seed: int = 0) -> dict[str, np.ndarray]:
    """Arrays of n float32: of a usual size, heavy-tailed, sparse, constant, tiny, huge, and of real gradients."""
    rng = np.random.default_rng(seed)
    gauss = rng.standard_normal(n).astype(np.float32)
    return {
        "gaussian": gauss,
        "heavy-tailed": rng.standard_cauchy(n).astype(np.float32),
        "sparse": gauss * (rng.random(n) < 0.02).astype(np.float32),
        "constant": np.full(n, -0.3, np.float32),
        "denormal": (gauss * np.float32(2.0**-64)) * np.float32(2.0**-72),
        "mixed": gauss * np.exp2(rng.integers(-140, 126, n)).astype(np.float32),
        "nearly largest": np.clip(gauss / 2, -1, 1) * np.finfo(np.float32).max,
        "largest": np.where(gauss < 0, -1, 1).astype(np.float32) * np.finfo(np.float32).max,
        **{name: np.resize(rows[seed % len(rows) :], n) for name, rows in STORED.items()},
    }


def decoded(codec, message, like):
    """What a message decodes to, in an array like this one."""
    return codec.decode(message, np.full_like(like, 7))


def bits(x: np.ndarray) -> np.ndarray:
    """The bits of an array, with every NaN the same."""
    return np.where(np.isnan(x), np.array(np.nan, x.dtype), x).view(f"u{x.itemsize}")

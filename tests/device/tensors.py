"""Tensors of PyTorch that say they lie on a CUDA device: on the fake one, where only streams touch them.

Views are of the same memory; whatever else PyTorch does with them it does on the host, with what the current stream of
this thread reads, and that stream writes the result.
"""

import threading
from contextlib import contextmanager

import numpy as np
import torch
from clocks import Array
from futures import Future
from torch.utils._pytree import tree_map

NEW = ("new_empty", "empty_like")


class Tensor(torch.Tensor):
    """Of an array of bytes; `like` has no memory, but knows where in it the tensor lies."""

    @staticmethod
    def __new__(cls, array, like):
        return torch.Tensor._make_wrapper_subclass(
            cls, like.shape, like.stride(), like.storage_offset(), dtype=like.dtype, device="cuda:0"
        )

    def __init__(self, array, like):
        self.array, self.like = array, like

    def data_ptr(self):
        return self.array.address + self.like.storage_offset() * self.like.itemsize

    # What PyTorch does itself looks for a real device.

    def contiguous(self, memory_format=torch.contiguous_format):
        return self if self.is_contiguous() else put(on_host(self).contiguous())

    def copy_(self, other, non_blocking=False):
        place = on_host(self)
        place.copy_(on_host(other))
        write(self, place)
        return self

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        kwargs, name = dict(kwargs or {}), func.overloadpacket.__name__
        if any(r.alias_info and not r.alias_info.is_write for r in func._schema.returns):
            return tree_map(lambda like: Tensor(args[0].array, like), func(*tree_map(likeness, args), **kwargs))
        there = torch.device(kwargs.get("device") or "cuda")
        if name in NEW:
            kwargs["device"] = "cpu" if there.type == "cpu" else "meta"
            like = func(*tree_map(likeness, args), **kwargs)
            return like if there.type == "cpu" else made(like)
        result = func(*tree_map(on_host, args), **kwargs | ({"device": "cpu"} if "device" in kwargs else {}))
        if func._schema.is_mutable:
            write(args[0], result)
            return args[0]
        return result if there.type == "cpu" else put(result)


def current():
    return torch.cuda.current_stream()


def likeness(x):
    return x.like if isinstance(x, Tensor) else x


def made(like):
    """A new tensor, with nothing in it."""
    nbytes = like.untyped_storage().nbytes()
    return Tensor(Array(current().fake, (nbytes,), np.uint8), like)


def on_host(x):
    """A copy of its memory, so that it lies as it does there."""
    if not isinstance(x, Tensor):
        return x
    storage = torch.from_numpy(current().fake.get(x.array, current())).untyped_storage()
    return torch.empty(0, dtype=x.dtype).set_(storage, x.like.storage_offset(), x.shape, x.stride())


def write(tensor, values):
    """Values that lie as it does."""
    memory = torch.empty(0, dtype=torch.uint8).set_(values.untyped_storage()).numpy()
    fake, array = current().fake, tensor.array
    with fake.open_for(current()):
        fake.touch(current(), array.address, array.nbytes, True)
        fake.find(array.address, array.nbytes)[0].bytes[: array.nbytes] = memory


def put(values):
    """A copy of a tensor of the host."""
    tensor = made(torch.empty_like(values, device="meta"))
    write(tensor, values.clone(memory_format=torch.preserve_format))
    return tensor


def new_stream(fake):
    """As PyTorch knows streams."""
    stream = fake.stream()
    stream.cuda_stream, stream.fake, stream.device = stream.handle, fake, "cuda:0"
    return stream


@contextmanager
def streams(fake, monkeypatch):
    """What torch.cuda calls current in this thread; in every other it is another one."""
    here, (own, default, callbacks) = threading.local(), (new_stream(fake) for _ in range(3))
    here.stream = own

    @contextmanager
    def used(stream):
        before, here.stream = getattr(here, "stream", default), stream
        try:
            yield
        finally:
            here.stream = before

    monkeypatch.setattr(torch.cuda, "current_stream", lambda device=None: getattr(here, "stream", default))
    monkeypatch.setattr(torch.cuda, "stream", used)
    monkeypatch.setattr(torch.futures, "Future", Future)
    monkeypatch.setattr(Future, "own", callbacks)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device=None: (8, 0))
    yield own

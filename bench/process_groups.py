"""All-reduces through torch.distributed: gloo's, which PyTorch uses on CPUs where there is no MPI, and ours."""

import atexit
from collections.abc import Callable

import numpy as np
import torch
import torch.distributed as dist

import allreduce.torch_backend  # noqa: F401

__all__ = ["OPS", "start"]

OPS = {"sum": dist.ReduceOp.SUM, "prod": dist.ReduceOp.PRODUCT, "min": dist.ReduceOp.MIN, "max": dist.ReduceOp.MAX}


def start(backend: str, op: str) -> Callable[[np.ndarray, np.ndarray], None]:
    """An all-reduce like ours over all ranks, by a backend of PyTorch; collective.

    It works in place, so that copying the input is part of its time.
    """
    if op not in OPS:
        raise ValueError(f"torch.distributed has no op {op!r} here; it has {', '.join(OPS)}")
    if not dist.is_initialized():
        torch.set_num_threads(1)
        dist.init_process_group("allreduce")
        atexit.register(dist.destroy_process_group)  # threads must not outlive the interpreter
    group = dist.new_group(backend=backend)

    def call(send: np.ndarray, recv: np.ndarray) -> None:
        np.copyto(recv, send)
        dist.all_reduce(torch.from_numpy(recv), OPS[op], group)

    return call

"""The ways that are raced: replicas beside PyTorch's own, or a split model beside one process."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import torch.distributed as dist
from mpi4py import MPI
from torch import nn

import allreduce.torch_backend  # noqa: F401
from allreduce import Communicator, Mesh

from ..train import Train
from .data import Task
from .models import layers
from .replicas import BASELINES, baseline, ours
from .splits import Split
from .ways import Descent, Way

__all__ = ["replicas", "split"]

#: Seconds after which a rank that waits for another gives up.
TIMEOUT = 120.0


def make(wish: Train, task: Task) -> tuple[nn.Module, Descent]:
    """The whole model, and its optimizer; the same on all ranks."""
    net = nn.Sequential(*layers(wish.model, wish.width, wish.depth, task.classes))
    return net, Descent(list(net.parameters()), wish.lr, wish.steps)


@contextmanager
def replicas(wish: Train, task: Task) -> Iterator[list[Way]]:
    """PyTorch's own ways, if wished for, ours without a codec, and with each; collective."""
    limit = timedelta(seconds=TIMEOUT)
    dist.init_process_group("allreduce", timeout=limit)
    gloo = dist.new_group(backend="gloo", timeout=limit)
    alone = Way("alone", *make(wish, task), slice(None)).step
    theirs = [baseline(name, make(wish, task), alone, gloo, wish.bucket) for name in BASELINES * wish.baselines]
    wishes: dict[str, Any] = {"algorithm": wish.algorithm, "overlap": wish.overlap, "timeout": TIMEOUT}
    own = [ours(codec, make(wish, task), alone, wish.bucket, **wishes) for codec in (None, *wish.codec)]
    yield [*theirs, *own]
    for way in own:
        way.close()
    dist.destroy_process_group()


@contextmanager
def split(wish: Train, task: Task) -> Iterator[list[Way]]:
    """One process, as each rank can play it, and the split model, with each codec; collective."""
    data, tensor, pipeline = wish.mesh
    sample = task.inputs[: wish.batch // wish.microbatches]
    with Communicator(MPI.COMM_WORLD, timeout=TIMEOUT) as world, Mesh(
        world, data=data, tensor=tensor, pipeline=pipeline
    ) as mesh:  # fmt: skip
        own = [
            Split(
                " ".join((wish.parallel, codec or "")).strip(),
                layers(wish.model, wish.width, wish.depth, task.classes), mesh, sample,
                lambda stage: Descent(list(stage.parameters()), wish.lr, wish.steps), wish.microbatches, codec,
                wish.algorithm,
            )
            for codec in (None, *wish.codec)
        ]  # fmt: skip
        yield [Way("one process", *make(wish, task), slice(None)), *own]
        for way in own:
            way.close()

"""Sharded parameters: FSDP, old and new, gives what it gives with gloo."""

from functools import partial

import numpy as np
import pytest
from witness import SIZE, Verdict

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'allreduce[training]'")
pytest.importorskip("sklearn", reason="scikit-learn is not installed: pip install 'allreduce[training]'")

import torch.distributed as dist  # noqa: E402
from torch.distributed.device_mesh import DeviceMesh  # noqa: E402
from torch.distributed.fsdp import FullyShardedDataParallel, MixedPrecisionPolicy, fully_shard  # noqa: E402
from training import Net, sgd, train  # noqa: E402

import allreduce.torch_backend  # noqa: E402, F401

pytestmark = [
    pytest.mark.mpi,
    pytest.mark.usefixtures("gloo"),
    pytest.mark.skipif(SIZE not in (1, 2, 4), reason="slow, and what lies below is tested on any number of ranks"),
]


def fully_sharded(group, **wishes):
    net, mesh = Net(), DeviceMesh.from_group(group, "cpu")
    for part in (net.layers[0], net):
        fully_shard(part, mesh=mesh, **wishes)
    return net


SHARDED = {
    "FSDP": lambda group: FullyShardedDataParallel(Net(), group, device_id=torch.device("cpu")),
    "FSDP2": fully_sharded,
    "bfloat16": partial(fully_sharded, mp_policy=MixedPrecisionPolicy(torch.bfloat16, torch.float32)),
}


@pytest.mark.parametrize("way", SHARDED)
def test_sharded_parameters_like_gloo(gloo, way):
    """The bfloat16 of another order of sums may round the other way."""
    with Verdict() as verdict:
        losses, wanted = [], []
        for group, found in ((dist.group.WORLD, losses), (gloo, wanted)):
            model = SHARDED[way](group)
            found.extend(train(model, sgd(model, lr=0.5), 40))
        verdict.check(np.allclose(losses, wanted, rtol=1e-2 if way == "bfloat16" else 1e-6, atol=0), losses, wanted)
        verdict.check(np.mean(losses[-5:]) < 0.95 * np.mean(losses[:5]), "does not learn", losses)

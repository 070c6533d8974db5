"""What `bench train` tells of overlap, beside pauses of known length in place of computation and communication."""

import time

import numpy as np
import pytest
from witness import SIZE, Verdict

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'allreduce[training]'")
pytest.importorskip("sklearn", reason="scikit-learn is not installed: pip install 'allreduce[training]'")

from allreduce.ddp import State  # noqa: E402
from bench.training.data import digits  # noqa: E402
from bench.training.race import Entry, probe  # noqa: E402
from bench.training.replicas import ours  # noqa: E402
from bench.training.results import record  # noqa: E402
from bench.training.watch import Watch  # noqa: E402
from bench.training.ways import Descent, Way  # noqa: E402

pytestmark = [pytest.mark.mpi, pytest.mark.usefixtures("gloo")]
#: Seconds, and layers.
PAUSE, LAYERS = 0.03, 4


class Slow(torch.autograd.Function):
    """Nothing forward; a while backward."""

    @staticmethod
    def forward(_, x):
        return x.clone()

    @staticmethod
    def backward(_, gradient):
        time.sleep(PAUSE)
        return gradient


class SlowLayer(torch.nn.Linear):
    """Whose gradients come after a pause."""

    def forward(self, x):
        return Slow.apply(super().forward(x))


@pytest.mark.parametrize("overlap, long, hides", [
    (True, 1, (LAYERS - 1) / LAYERS),  # all but the last bucket
    (True, 2, (LAYERS - 1) / (2 * LAYERS)),  # buckets wait for those before; a pause after the other they get ahead
    (False, 1, 0),
])  # fmt: skip
def test_what_is_told_of_overlap_is_what_was_planted(monkeypatch, overlap, long, hides):
    """Every layer takes a pause backward, every bucket, of one layer, so many pauses in the thread."""

    def mean(state, whole, parts):
        return state.progress.later(lambda: time.sleep(long * PAUSE), whole)

    def made():
        torch.manual_seed(0)
        net = torch.nn.Sequential(*(SlowLayer(64, 64, bias=False) for _ in range(LAYERS)))
        return net, Descent(list(net.parameters()), 0.1, 100)

    monkeypatch.setattr(State, "mean", mean)
    task, batches = digits(), np.arange(13 * SIZE).reshape(13, SIZE)
    way = ours(None, made(), Way("alone", *made(), slice(None)).step, bucket=1, overlap=overlap)
    entry, watch = Entry(way), Watch(False, 0)
    entry.train(task, batches[:3])
    probe([entry], task, batches[3:], watch, list)
    told = record(entry, 1.0, False)
    way.close()
    shown = (1 - hides) * long * LAYERS  # pauses
    with Verdict() as verdict:
        verdict.check(abs(told["hidden"] - hides) < 0.1, told["hidden"], told["steps"])
        verdict.check(abs(told["communication"] - shown / (shown + LAYERS)) < 0.1, told["communication"])

"""Models split by tensor, by pipeline, over replicas, and all at once: the loss curve of one process."""

import copy
import time

import numpy as np
import pytest
from mpi4py import MPI
from witness import RANK, SIZE, Verdict

import allreduce

pytest.importorskip("torch", reason="splits models of PyTorch, which is not installed")

import torch
from torch import nn

from allreduce.parallel.balance import imbalance
from allreduce.parallel.cutting import my_layers
from allreduce.parallel.messages import HEAD, receive, wait
from allreduce.parallel.outer import OuterSteps
from allreduce.parallel.pipeline import Pipeline
from allreduce.parallel.replicas import average_gradients
from allreduce.parallel.sampling import SkewedSampler
from allreduce.parallel.tensor import ColumnParallelLinear, Copied, RowParallelLinear, Summed
from allreduce.schedules import share

pytestmark = pytest.mark.mpi

STEPS, BATCH, WIDTH, MICROBATCHES = 10, 20, 12, 3  # not a multiple of the microbatches
#: data, tensor, pipeline and order, by number of ranks
SPLITS = {
    1: [(1, 1, 1, "1f1b")],
    2: [(2, 1, 1, "1f1b"), (1, 2, 1, "gpipe"), (1, 1, 2, "gpipe"), (1, 1, 2, "1f1b")],
    4: [(2, 2, 1, "1f1b"), (1, 2, 2, "gpipe"), (2, 1, 2, "1f1b"), (1, 1, 4, "1f1b")],
    8: [(2, 2, 2, "1f1b"), (1, 2, 4, "gpipe")],
}


class Block(nn.Module):
    """Two linear layers, the first by columns and the second by rows, and what their input was."""

    def __init__(self, wide=2 * WIDTH + 1):
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, wide), nn.Linear(wide, WIDTH)

    def forward(self, x):
        return x + self.down(torch.tanh(self.up(self.norm(x))))

    def cut(self, comm):
        self.up, self.down = ColumnParallelLinear(self.up, comm), RowParallelLinear(self.down, comm)


def model():
    """The same on all ranks: one layer or more for each of 8 stages."""
    torch.manual_seed(0)
    return [nn.Embedding(10, WIDTH), *(Block() for _ in range(6)), nn.Linear(WIDTH, 5)]


def batches():
    generator = torch.Generator().manual_seed(1)
    for _ in range(STEPS):
        inputs = torch.randint(10, (BATCH, 4), generator=generator)
        yield inputs, inputs % 5


def loss(outputs, targets):
    return nn.functional.cross_entropy(outputs.flatten(0, 1), targets.flatten())


def descend(parameters):
    """SGD by hand: the first step of PyTorch's own imports its compiler, which takes ten seconds."""
    with torch.no_grad():
        for parameter in parameters:
            parameter -= 0.3 * parameter.grad
            parameter.grad = None


def alone():
    whole = nn.Sequential(*model())
    for inputs, targets in batches():
        value = loss(whole(inputs), targets)
        value.backward()
        descend(whole.parameters())
        yield value.item()


def split(mesh, order):
    """The losses of the whole batch, and how many microbatches this stage held at most."""
    stage = my_layers(model(), mesh, next(batches())[0])
    for layer in stage:
        if isinstance(layer, Block):
            layer.cut(mesh.tensor)
    pipeline = Pipeline(stage, mesh.pipeline, loss, MICROBATCHES, order)
    part = share(BATCH, mesh.data.size, mesh.data.rank)
    losses = []
    for inputs, targets in batches():
        value = pipeline.step(inputs[part.start : part.stop], targets[part.start : part.stop])
        average_gradients(stage.parameters(), mesh.data)
        descend(stage.parameters())
        losses.append(allreduce.allreduce(np.array(value), op="avg", comm=mesh.data).item())
    return losses, pipeline.most


@pytest.mark.parametrize("data, tensor, pipeline, order", SPLITS.get(SIZE, [(1, 1, SIZE, "1f1b")]))
def test_losses_are_those_of_one_process(data, tensor, pipeline, order):
    wanted = list(alone())
    with allreduce.Mesh(data=data, tensor=tensor, pipeline=pipeline) as mesh, Verdict() as verdict:
        losses, most = split(mesh, order)
        verdict.check(np.allclose(losses, wanted, rtol=1e-4), losses, wanted)
        verdict.same(np.array(losses))
        held = MICROBATCHES if order == "gpipe" else min(pipeline - mesh.pipeline.rank, MICROBATCHES)
        verdict.check(most == held, "microbatches held", most)
    assert wanted[-1] < wanted[0] / 2


class Slow(nn.Linear):
    """A layer that takes a while."""

    def forward(self, x):
        time.sleep(0.02)
        return super().forward(x)


def test_stages_are_cut_by_the_time_of_layers_and_rank_0_tells_the_imbalance(comm, capfd):
    torch.manual_seed(3)
    layers = [Slow(2, 2), *(nn.Linear(2, 2) for _ in range(2 * SIZE))]
    with allreduce.Mesh(comm, pipeline=SIZE) as mesh, Verdict() as verdict:
        before = [p.grad for layer in layers for p in layer.parameters()]
        ours = my_layers(layers, mesh, torch.zeros(3, 2))
        everyone = comm.allgather([layers.index(layer) for layer in ours])
        verdict.check([i for stage in everyone for i in stage] == list(range(2 * SIZE + 1)), everyone)
        verdict.check(everyone[0] == [0] or SIZE == 1, "the slow one has a stage of its own", everyone)
        verdict.check(before == [p.grad for layer in layers for p in layer.parameters()], "measuring left gradients")
        told = capfd.readouterr().out
        verdict.check(("% above the mean" in told) == (RANK == 0), told)


def test_skewed_samples_are_each_for_one_rank_and_rank_0_tells_the_imbalance(comm, capfd):
    shares, samples = [1 + rank for rank in range(SIZE)], 100
    sampler = SkewedSampler(samples, shares, RANK)
    epochs = []
    for epoch in range(2):
        sampler.set_epoch(epoch)
        epochs.append(comm.allgather(list(sampler)))
    loads = [len(part) for part in epochs[0]]
    with Verdict() as verdict:
        told = capfd.readouterr().out
        verdict.check(told.endswith(f" {imbalance(loads):.0%} above the mean\n" if RANK == 0 else ""), told)
        verdict.check(len(sampler) == loads[RANK], len(sampler), loads)
        for share, load in zip(shares, loads):
            verdict.check(abs(load - samples * share / sum(shares)) <= 1, shares, loads)
        for parts in epochs:
            verdict.check(sorted(i for part in parts for i in part) == list(range(samples)), parts)
        verdict.check(epochs[0] != epochs[1], "never shuffled again")
    with pytest.raises(ValueError, match="shares"):
        SkewedSampler(samples, [0] * SIZE, RANK)


def test_outer_steps_average_tensors_of_any_dtype(comm):
    tensors = [torch.full((2, 3), 8.0 * RANK, dtype=dtype) for dtype in (torch.float32, torch.bfloat16, torch.float64)]
    start = [torch.zeros_like(t) for t in tensors]
    outer = OuterSteps(start, comm, every=1)
    for weights, tensor in zip(start, tensors):
        weights += tensor
    outer.step()
    with Verdict() as verdict:
        for weights in start:
            verdict.check((weights == 4 * (SIZE - 1)).all(), weights)


def test_layers_cut_unevenly_have_the_gradients_of_whole_ones(comm):
    torch.manual_seed(2)
    block = Block(wide=2 * SIZE + 3).double()
    parts, x = copy.deepcopy(block), torch.randn(5, WIDTH, dtype=torch.float64)
    parts.cut(comm)
    with Verdict() as verdict:
        outputs, entered = [], []
        for each in (block, parts):
            entered.append(x.clone().requires_grad_())
            outputs.append(each(entered[-1]))
            outputs[-1].square().sum().backward()
        ours = share(2 * SIZE + 3, SIZE, RANK)
        pairs = {
            "outputs": outputs, "inputs": [x.grad for x in entered],
            "norm": [block.norm.weight.grad, parts.norm.weight.grad],
            "up": [block.up.weight.grad[ours.start : ours.stop], parts.up.weight.grad],
            "up's bias": [block.up.bias.grad[ours.start : ours.stop], parts.up.bias.grad],
            "down": [block.down.weight.grad[:, ours.start : ours.stop], parts.down.weight.grad],
            "down's bias": [block.down.bias.grad, parts.down.bias.grad],
        }  # fmt: skip
        for name, (wanted, got) in pairs.items():
            verdict.check(torch.allclose(wanted, got, rtol=1e-12), name)
        for name in ("outputs", "inputs", "norm", "down's bias"):
            verdict.same(pairs[name][1].detach().numpy(), name)


def test_sum_and_copy_are_each_others_gradient_twice_over(comm):
    total = SIZE * (SIZE + 1) // 2
    wanted = {
        Copied: (sum(3 * rank**2 for rank in range(1, SIZE + 1)), 6 * total),
        Summed: (3 * total**2, 6 * total * SIZE),
    }
    with Verdict() as verdict:
        for function, slopes in wanted.items():
            x = torch.full((3,), 1.0 + RANK, requires_grad=True)
            (first,) = torch.autograd.grad(function.apply(x, comm).pow(3).sum(), x, create_graph=True)
            (second,) = torch.autograd.grad(first.sum(), x)
            for got, slope in zip((first, second), slopes):
                verdict.check(got.tolist() == [slope] * 3, function, got, slope)


def test_gradients_are_averaged_by_dtype_and_a_missing_one_counts_as_zero(comm):
    parameters = [nn.Parameter(torch.zeros(2, 3)), nn.Parameter(torch.zeros(4, dtype=torch.bfloat16)),
                  nn.Parameter(torch.zeros(5)), nn.Parameter(torch.zeros(1), requires_grad=False)]  # fmt: skip
    parameters[0].grad = torch.full((2, 3), float(RANK))
    parameters[1].grad = torch.full((4,), 2.0, dtype=torch.bfloat16)
    if RANK == 0:
        parameters[2].grad = torch.full((5,), float(SIZE))
    average_gradients(parameters, comm)
    with Verdict() as verdict:
        for parameter, wanted in zip(parameters, ((SIZE - 1) / 2, 2, 1)):
            verdict.check((parameter.grad == wanted).all(), parameter.grad, wanted)
        verdict.check(parameters[3].grad is None, "not trained")
        average_gradients(parameters, comm, codec="feedback(int8)", algorithm="direct")
        verdict.check(torch.allclose(parameters[0].grad, torch.tensor((SIZE - 1) / 2), rtol=0.02), parameters[0].grad)


def test_a_message_that_is_no_tensor_is_refused():
    itself = allreduce.Communicator(MPI.COMM_SELF)
    for head, nbytes in (([0, 2, 1 << 40, 1 << 40], 8), ([9, 0], 4), ([0, 99], 4), ([0, 1, -1], 4), ([0, 1, 2], 4)):
        requests = [itself.Isend(np.array(head + [0] * (HEAD - len(head))), 0, 3),
                    itself.Isend(np.zeros(nbytes, np.uint8), 0, 3)]  # fmt: skip
        with pytest.raises(ValueError, match=f"{nbytes} bytes from rank 0 are no tensor as announced"):
            receive(itself, 0, 3)
        itself.Recv(np.zeros(nbytes, np.uint8), 0, 3)
        MPI.Request.Waitall(requests)
    itself.close()


def test_a_stage_that_does_not_answer_is_not_waited_for_for_ever():
    with allreduce.Communicator(MPI.COMM_SELF, timeout=0.05) as itself:
        wait(itself, itself.Isend(np.zeros(HEAD, np.int64), 0, 7))
        assert itself.Iprobe(0, 7)
        with pytest.raises(TimeoutError, match=r"rank 0 has waited 0\.05 s for another rank"):
            receive(itself, 0, 8)
        itself.Recv(np.zeros(HEAD, np.int64), 0, 7)


def test_what_a_pipeline_cannot_do_is_refused_at_the_door(comm):
    with pytest.raises(ValueError, match="unknown order 'interleaved'; have gpipe, 1f1b"):
        Pipeline(nn.Identity(), comm, loss, 2, "interleaved")
    with pytest.raises(ValueError, match="cannot cut 2 samples into 3 microbatches"):
        Pipeline(nn.Identity(), comm, loss, 3).step(torch.zeros(2, 1), torch.zeros(2))

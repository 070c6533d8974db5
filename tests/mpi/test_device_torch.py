"""Tensors on a device in PyTorch's place: on the fake, since without a GPU there are none."""

from types import SimpleNamespace

import cpu
import pytest
from mpi4py import MPI
from witness import RANK, SIZE, Verdict

import allreduce

torch = pytest.importorskip("torch")

import torch.distributed as dist  # noqa: E402
from tensors import new_stream, on_host, put, streams  # noqa: E402

from allreduce.averaging import Averager  # noqa: E402
from allreduce.ddp import ddp_hook, ddp_state  # noqa: E402

pytestmark = [
    pytest.mark.mpi, cpu.needs_compiler, pytest.mark.skipif(SIZE > 4, reason="slow on the CPU"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
]  # fmt: skip
LAST, RANKS = SIZE - 1, range(SIZE)


@pytest.fixture
def stream(fake, monkeypatch):
    with streams(fake, monkeypatch) as own:
        yield own


@pytest.fixture
def group(gloo, stream):
    """Of our backend, which has seen no other device."""
    group = dist.new_group(backend="allreduce")
    yield group
    group.comm.close()
    dist.destroy_process_group(group)


def some(*shape, of=RANK, dtype=torch.float32):
    """Small numbers of one rank, on the host."""
    return torch.randint(0, 5, shape, generator=torch.Generator().manual_seed(of)).to(dtype)


def same(verdict, tensor, wanted, *what):
    got = on_host(tensor)
    verdict.check(torch.equal(got, wanted) and got.dtype == wanted.dtype, *what, got, wanted)


def total(*shape, **wishes):
    return sum(some(*shape, of=rank, **wishes) for rank in RANKS)


def test_the_current_stream_of_pytorch_is_minded(stream, comm):
    with Verdict() as verdict:
        tensor = put(some(100))
        verdict.check(allreduce.allreduce(tensor, tensor, comm=comm) is tensor)
        same(verdict, tensor, total(100))


@pytest.mark.parametrize("later", [False, True])
def test_reductions(stream, group, later):
    with Verdict() as verdict:

        def check(call, tensor, wanted, *args, **wishes):
            work = call(tensor, *args, group=group, async_op=later, **wishes)
            if later:
                work.wait()
            same(verdict, tensor, wanted, call.__name__, later, wishes)

        check(dist.all_reduce, put(some(3, 50)), total(3, 50))
        check(dist.all_reduce, put(some(7, dtype=torch.bfloat16)), total(7, dtype=torch.bfloat16))
        check(dist.all_reduce, put(some(5, dtype=torch.int64)), total(5, dtype=torch.int64))
        check(dist.all_reduce, put(SIZE * some(5)), total(5), dist.ReduceOp.AVG)
        check(dist.all_reduce, put(some(4, 6)).t(), total(4, 6).t(), dist.ReduceOp.SUM)
        check(dist.all_reduce, put(some(9)), torch.stack([some(9, of=r) for r in RANKS]).amax(0), dist.ReduceOp.MAX)
        tensor = put(some(11))
        dist.reduce(tensor, LAST, group=group)
        same(verdict, tensor, total(11) if RANK == LAST else some(11), "reduce")


@pytest.mark.parametrize("later", [False, True])
def test_what_travels_as_it_is(stream, group, later):
    with Verdict() as verdict:

        def ended(call, *args):
            work = call(*args, group=group, async_op=later)
            if later:
                work.wait()

        for dtype in (torch.float32, torch.bool, torch.int16):
            ended(dist.broadcast, tensor := put(some(3, 2, dtype=dtype)), LAST)
            same(verdict, tensor, some(3, 2, of=LAST, dtype=dtype), "broadcast")
        ended(dist.broadcast, part := put(some(3, 6)).narrow(1, 1, 2), LAST)
        same(verdict, part, some(3, 6, of=LAST)[:, 1:3], "a part")
        every = torch.stack([some(2, 3, of=rank) for rank in RANKS])
        ended(dist.all_gather, outs := [put(torch.zeros(2, 3)) for _ in RANKS], put(some(2, 3)))
        for out, wanted in zip(outs, every):
            same(verdict, out, wanted, "all_gather")
        ended(dist.all_gather_into_tensor, out := put(torch.zeros(2 * SIZE, 3)), put(some(2, 3)))
        same(verdict, out, every.reshape(-1, 3), "all_gather_into_tensor")
        mine = every.reshape(-1, 3)
        ended(dist.reduce_scatter_tensor, out := put(torch.zeros(2, 3)), put(mine))
        same(verdict, out, SIZE * every[RANK], "reduce_scatter_tensor")
        ended(dist.reduce_scatter, out := put(torch.zeros(2, 3)), [put(x) for x in every])
        same(verdict, out, SIZE * every[RANK], "reduce_scatter")
        ended(dist.reduce_scatter, out := put(torch.zeros(RANK + 1)), [put(torch.ones(rank + 1)) for rank in RANKS])
        same(verdict, out, torch.full((RANK + 1,), float(SIZE)), "of uneven parts")


def test_what_goes_through_the_host(stream, group):
    with Verdict() as verdict:
        outs = [put(torch.zeros(3)) for _ in RANKS]
        dist.all_to_all(outs, [put(some(3, of=RANK * SIZE + rank)) for rank in RANKS], group=group)
        for rank, out in enumerate(outs):
            same(verdict, out, some(3, of=rank * SIZE + RANK), "all_to_all")
        outs = [put(torch.zeros(3)) for _ in RANKS] if RANK == LAST else None
        dist.gather(put(some(3)), outs, LAST, group=group)
        for rank, out in enumerate(outs or []):
            same(verdict, out, some(3, of=rank), "gather")
        parts = [put(some(2, of=rank)) for rank in RANKS] if RANK == LAST else None
        dist.scatter(own := put(torch.zeros(2)), parts, LAST, group=group)
        same(verdict, own, some(2), "scatter")
        sent = dist.isend(put(some(5)), (RANK + 1) % SIZE, group=group) if SIZE > 1 else None
        if sent:
            dist.recv(got := put(torch.zeros(5)), (RANK - 1) % SIZE, group=group)
            same(verdict, got, some(5, of=(RANK - 1) % SIZE), "recv")
            sent.wait()


@pytest.mark.parametrize(
    "wait",
    [
        lambda work: work.wait(),
        lambda work: work.get_future().wait(),
        lambda work: work.get_future().then(lambda done: done.value()[0].mul_(1)).wait(),
    ],
    ids=["work", "future", "chained"],
)
def test_whoever_waits_for_a_work_comes_after_it(fake, stream, group, wait):
    with Verdict() as verdict:
        work = dist.all_reduce(tensor := put(some(30)), group=group, async_op=True)
        with torch.cuda.stream(new_stream(fake)):
            wait(work)
            same(verdict, tensor, total(30))


@pytest.mark.parametrize("overlap", [False, True])
def test_whoever_waits_for_a_bucket_of_ddp_comes_after_it(fake, stream, monkeypatch, overlap):
    """As DDP at the end of a backward pass, by then on the stream of whoever called that."""
    monkeypatch.setenv("ALLREDUCE_ROUTE", "staged")
    state = ddp_state("int8", MPI.COMM_WORLD, overlap=overlap, algorithm="ring")
    with Verdict() as verdict:
        tensor, host = put(some(100)), some(100)
        for whole in (tensor, host):
            bucket = SimpleNamespace(parameters=lambda: [], gradients=lambda: [], buffer=lambda whole=whole: whole)
            future = ddp_hook(state, bucket)
            with torch.cuda.stream(new_stream(fake)):
                verdict.check(future.wait() is whole)
                if whole is tensor:
                    got = on_host(tensor)
        verdict.check(torch.equal(got, host), got, host)
    state.close()


@pytest.mark.parametrize("overlap", [False, True])
@pytest.mark.parametrize("codec", [None, "feedback(topk:ratio=0.2)"])
def test_means_follow_the_stream_of_whoever_asks(stream, monkeypatch, overlap, codec):
    monkeypatch.setenv("ALLREDUCE_ROUTE", "staged")
    here = Averager(codec, MPI.COMM_WORLD, overlap=overlap, algorithm="ring")
    host = Averager(codec, MPI.COMM_WORLD, overlap=overlap, algorithm="ring")
    with Verdict() as verdict:
        for step in range(3):
            values = some(100, of=10 * step + RANK)
            tensor = put(values)
            parts = [dict(zip("ab", x.split([30, 70]))) for x in (tensor, values)]
            here.mean(tensor, parts[0], before=0.5, after=2).wait()
            host.mean(values, parts[1], before=0.5, after=2).wait()
            same(verdict, tensor, values, codec, step)
        for key, kept in host.state_dict().get("memory", {}).items():
            verdict.check(torch.equal(here.state_dict()["memory"][key]["residual"], kept["residual"]), key)
    here.close()
    host.close()


def test_what_cannot_be_on_a_device_says_so(stream):
    averager = Averager("sparcml(topk)", MPI.COMM_WORLD, overlap=False)
    tensor = put(torch.ones(4))
    with pytest.raises(RuntimeError, match=r"TypeError: sparcml.* is for arrays in host memory; .* there are feedback"):
        averager.mean(tensor, {"weight": tensor}).wait()
    averager.close()

"""The calls of torch.distributed give what they give with gloo, or, where gloo refuses or errs, what they should."""

from datetime import timedelta

import pytest
from witness import RANK, SIZE, Verdict, everyone_has

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'allreduce[torch]'")

import torch.distributed as dist  # noqa: E402
import torch.distributed._functional_collectives as functional  # noqa: E402
import torch.distributed.nn.functional as differentiable  # noqa: E402

import allreduce.torch_backend  # noqa: E402, F401

pytestmark = [pytest.mark.mpi, pytest.mark.usefixtures("gloo"), pytest.mark.filterwarnings("ignore::FutureWarning")]
LAST, RANKS = SIZE - 1, range(SIZE)


def some(*shape, of=RANK, dtype=torch.float32):
    """Small numbers of one rank."""
    return torch.randint(0, 5, shape, generator=torch.Generator().manual_seed(of)).to(dtype)


def rooms(*shape):
    return [torch.zeros(shape) for _ in RANKS]


def at_last(thing):
    return thing if RANK == LAST else None


def ended(call, *args, **wishes):
    """Done behind the caller's back."""
    call(*args, async_op=True, **wishes).wait()


def gathered(group, call=dist.gather):
    call(some(3), outs := at_last(rooms(3)), LAST, group=group)
    return outs or []


def scattered(group, dtype=torch.float32):
    own = torch.zeros(3, dtype=dtype)
    dist.scatter(own, at_last([some(3, of=rank, dtype=dtype) for rank in RANKS]), LAST, group=group)
    return [own]


def scattered_later(group):
    ended(dist.scatter, own := torch.zeros(2, 2), at_last([some(2, 2, of=rank) for rank in RANKS]), LAST, group=group)
    return [own]


def all_to_all(group):
    dist.all_to_all(outs := rooms(2), [some(2, of=RANK * SIZE + rank) for rank in RANKS], group=group)
    return outs


def all_to_all_single(group):
    ended(dist.all_to_all_single, out := torch.zeros(2 * SIZE, 3), some(2 * SIZE, 3), group=group)
    return [out]


def all_to_all_by_rows(group):
    rows = [RANK + rank for rank in RANKS]
    dist.all_to_all_single(out := torch.zeros(sum(rows), 3), some(sum(rows), 3), rows, rows, group=group)
    return [out]


def into_tensors(group):
    dist.all_gather_into_tensor(all_of := torch.zeros(2 * SIZE, 3), some(2, 3), group=group)
    dist.reduce_scatter_tensor(share := torch.zeros(2, 3), some(2 * SIZE, 3), group=group)
    return [all_of, share]


def reduce_scatter_unevenly(group):
    dist.reduce_scatter(out := torch.zeros(RANK + 1), [some(rank + 1) for rank in RANKS], group=group)
    return [out]


def coalesced(group):
    xs = [torch.zeros(3 * SIZE), torch.zeros(SIZE), torch.zeros(3), torch.zeros(2)]
    with dist._coalescing_manager(group, async_ops=True) as works:
        dist.all_gather_into_tensor(xs[0], some(3), group=group)
        dist.all_gather_into_tensor(xs[1], some(1), group=group)
    works.wait()
    with dist._coalescing_manager(group):
        dist.reduce_scatter_tensor(xs[2], some(3 * SIZE), group=group)
        dist.reduce_scatter_tensor(xs[3], some(2 * SIZE), group=group)
    outs = [[torch.zeros(3), torch.zeros(2, 2)] for _ in RANKS]
    dist.all_gather_coalesced(outs, [some(3), some(2, 2)], group=group)
    dist.all_reduce_coalesced(sums := [some(3), some(2, 2)], group=group)
    return [*xs, *(x for parts in outs for x in parts), *sums]


def to_all_at_last(group):
    """From whom it comes is found out."""
    if RANK != LAST:
        dist.send(some(3), LAST, group=group)
        return []
    found = {}
    for _ in range(SIZE - 1):
        from_ = dist.recv(x := torch.zeros(3), group=group)
        found[from_] = x
    return [found[rank] for rank in range(SIZE - 1)]


def both_ways_round(group):
    if SIZE == 1:
        return []
    right, left = (RANK + 1) % SIZE, (RANK - 1) % SIZE
    ops = [dist.P2POp(dist.isend, some(2), right, group), dist.P2POp(dist.isend, some(3), left, group, tag=1)]
    ops += [dist.P2POp(dist.irecv, x := torch.zeros(2), left, group)]
    ops += [dist.P2POp(dist.irecv, y := torch.zeros(3), right, group, tag=1)]
    for work in dist.batch_isend_irecv(ops):
        work.wait()
    return [x, y]


def objects(group):
    mine = {"rank": RANK, "text": "x" * RANK}
    dist.all_gather_object(everyone := [None] * SIZE, mine, group=group)
    dist.gather_object(mine, last := at_last([None] * SIZE), LAST, group=group)
    dist.broadcast_object_list(sent := [mine, RANK], LAST, group=group)
    dist.scatter_object_list(one := [None], at_last([{rank} for rank in RANKS]), LAST, group=group)
    return [everyone, last, sent, one]


def messages_of_objects(group):
    if 0 < LAST == RANK:
        dist.recv_object_list(got := [None, None], 0, group=group)
        return got
    if RANK == 0 < LAST:
        dist.send_object_list(["x", {1: 2}], LAST, group=group)
    return []


def functionals(group):
    xs = [
        functional.all_reduce(some(4), "max", group),
        functional.all_gather_tensor(some(2, 3), 1, group),
        functional.reduce_scatter_tensor(some(2 * SIZE, 3), "sum", 0, group),
        functional.all_to_all_single(some(2 * SIZE), None, None, group),
        functional.broadcast(some(4), LAST, group),
        functional.permute_tensor(some(4), [(rank + 1) % SIZE for rank in RANKS], group),
        *functional.all_reduce_coalesced([some(4), some(2)], "sum", group),
        *functional.all_gather_into_tensor_coalesced([some(4), some(2)], group),
        *functional.reduce_scatter_tensor_coalesced([some(SIZE), some(2 * SIZE)], "sum", [0, 0], group),
    ]
    return [functional.wait_tensor(x) for x in xs]


def gradients(group):
    x = some(4).requires_grad_()
    parts = [x * rank for rank in RANKS]
    results = [
        *differentiable.all_gather(x, group), differentiable.all_reduce(2 * x, group=group),
        *differentiable.all_to_all(rooms(4), parts, group),
        differentiable.reduce_scatter(torch.zeros(4), parts, group=group),
        differentiable.scatter(parts, 0, group), *differentiable.gather(x, 0, group),
    ]  # fmt: skip
    sum(result.square().sum() for result in results).backward()
    return [x.grad, *(result.detach() for result in results)]


def later(group):
    ended(dist.gather, some(3), outs := at_last(rooms(3)), LAST, group=group)
    ended(dist.barrier, group)
    return outs or []


def group_ranks(group):
    dist.broadcast(x := some(3), group=group, group_src=LAST)
    dist.reduce(x, group=group, group_dst=LAST)
    return [at_last(x)]


CALLS = [
    gathered, scattered, scattered_later, all_to_all, all_to_all_single, all_to_all_by_rows, into_tensors,
    reduce_scatter_unevenly, coalesced, to_all_at_last, both_ways_round, objects, messages_of_objects, functionals,
    gradients, later, group_ranks,
]  # fmt: skip


def equal(some, others):
    if isinstance(some, torch.Tensor) and isinstance(others, torch.Tensor):
        return some.dtype == others.dtype and torch.equal(some, others)
    return some == others


@pytest.mark.parametrize("call", CALLS, ids=lambda call: call.__name__)
def test_like_gloo(gloo, call):
    with Verdict() as verdict:
        mine, wanted = call(dist.group.WORLD), call(gloo)
        verdict.check(len(mine) == len(wanted), mine, wanted)
        for i, (got, right) in enumerate(zip(mine, wanted)):
            verdict.check(equal(got, right), i, "got", got, "wanted", right)


@pytest.mark.parametrize("op", ["SUM", "PRODUCT", "MIN", "MAX", "BAND", "BOR", "BXOR"])
@pytest.mark.parametrize("dtype", ["int8", "uint8", "int32", "int64", "float16", "float32", "float64"])
def test_operations_like_gloo(gloo, dtype, op):
    kind = getattr(torch, dtype)
    if op[0] == "B" and kind.is_floating_point:
        with pytest.raises(TypeError, match=op.lower()):
            dist.all_reduce(some(4, dtype=kind), getattr(dist.ReduceOp, op))
        return
    with Verdict() as verdict:
        found = some(4, dtype=kind), some(4, dtype=kind)
        for x, group in zip(found, (None, gloo)):
            dist.all_reduce(x, getattr(dist.ReduceOp, op), group)
        verdict.check(equal(*found), *found)


def test_what_gloo_cannot():
    """Lists of uneven tensors, tensors with gaps on both ends, and bytes of every dtype."""
    with Verdict() as verdict:
        dist.all_to_all(outs := [torch.zeros(RANK + rank) for rank in RANKS], [some(RANK + rank) for rank in RANKS])
        dist.all_gather(parts := [torch.zeros(rank, 2) for rank in RANKS], some(RANK, 2))
        for rank in RANKS:
            sent = [some(rank + to, of=rank) for to in RANKS]
            verdict.check(equal(outs[rank], sent[RANK]), "all_to_all", rank, outs[rank])
            verdict.check(equal(parts[rank], some(rank, 2, of=rank)), "all_gather", rank, parts[rank])
        whole, right, left = torch.zeros(3, 2), (RANK + 1) % SIZE, (RANK - 1) % SIZE
        received = dist.irecv(whole[:, 0], left)
        dist.isend(some(3, 2)[:, 1], right).wait()
        while not received.is_completed():
            pass
        received.wait()
        wanted = torch.stack([some(3, 2, of=left)[:, 1], torch.zeros(3)], 1)
        verdict.check(equal(whole, wanted), "gaps", whole, wanted)
        for dtype in (torch.bfloat16, torch.complex64, torch.bool, torch.uint16, torch.float8_e4m3fn):
            own = torch.zeros(3, dtype=dtype)
            dist.scatter(own, at_last([some(3, of=rank, dtype=dtype) for rank in RANKS]), LAST)
            wanted = some(3, dtype=dtype)
            verdict.check(equal(own.view(torch.uint8), wanted.view(torch.uint8)), dtype, own, wanted)


def test_errors_at_the_door():
    """On all ranks before anything is sent, and all goes on."""
    bad = [
        (lambda: dist.all_gather(rooms(2, 3), torch.zeros(6)), "shape"),
        (lambda: dist.all_to_all_single(torch.zeros(SIZE + 1), torch.zeros(SIZE + 1), [1] * SIZE, [1] * SIZE), "rows"),
        (lambda: dist.all_to_all([*rooms(2), torch.zeros(2)], rooms(2)), "one for each rank"),
        (lambda: dist.all_reduce(torch.eye(2).to_sparse()), "dense tensors"),
    ]
    for call, words in bad:
        with pytest.raises((ValueError, RuntimeError), match=words):
            call()
    dist.all_reduce(x := torch.ones(1))
    everyone_has("" if x == SIZE else f"{x}")


def waits_for_a_message(group):
    dist.recv(torch.zeros(3), LAST, group)


def waits_for_parts(group):
    dist.all_to_all_single(torch.zeros(SIZE), torch.zeros(SIZE), group=group)


@pytest.mark.skipif(SIZE == 1, reason="nobody to wait for")
@pytest.mark.parametrize("call", [waits_for_a_message, waits_for_parts])
def test_a_rank_that_stays_away(call):
    group, error = dist.new_group(timeout=timedelta(seconds=1)), ""
    if RANK == 0:
        try:
            call(group)
            error = "no error"
        except Exception as caught:
            error = "" if "rank 0 has waited 1.0 s" in str(caught) else repr(caught)
    everyone_has(error)

"""Training with PyTorch: an unchanged loop gives what it gives with gloo, and codecs lose no accuracy."""

import io
from datetime import timedelta

import numpy as np
import pytest
from witness import RANK, SIZE, Verdict, everyone_has

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'allreduce[training]'")
pytest.importorskip("sklearn", reason="scikit-learn is not installed: pip install 'allreduce[training]'")

import torch.distributed as dist  # noqa: E402
from torch.distributed.algorithms.ddp_comm_hooks.powerSGD_hook import PowerSGDState, powerSGD_hook  # noqa: E402
from torch.nn.parallel import DistributedDataParallel  # noqa: E402
from training import STEPS, Net, batches, bits, gradients, images, loss_of, sgd, train  # noqa: E402

import allreduce.torch_backend  # noqa: E402, F401

pytestmark = [
    pytest.mark.mpi,
    pytest.mark.usefixtures("gloo"),
    pytest.mark.skipif(SIZE not in (1, 2, 4), reason="slow, and what lies below is tested on any number of ranks"),
]


def parallel(group=None, spare=False, **wishes):
    return DistributedDataParallel(Net(spare=spare), process_group=group, **wishes)


def close(verdict, some, others):
    for i, (mine, theirs) in enumerate(zip(some, others, strict=True)):
        good = mine.shape == theirs.shape and np.allclose(mine, theirs, rtol=1e-5, atol=1e-7)
        verdict.check(good, i, mine.ravel()[:4], theirs.ravel()[:4])


def equal(verdict, got, wanted, *what):
    verdict.check(torch.equal(got, wanted), *what, "got", got, "wanted", wanted)


@pytest.mark.parametrize("later", [False, True], ids=["now", "later"])
@pytest.mark.parametrize("dtype", ["float32", "float64", "int64", "uint8", "float16", "bfloat16", "bool"])
@pytest.mark.parametrize("shape", [(), (0,), (3,), (5, 4)], ids=str)
def test_collectives(shape, dtype, later):
    """Also on tensors with gaps; what a rank does not receive stays as it was."""
    kind = getattr(torch, dtype)
    rng = [torch.Generator().manual_seed(rank) for rank in range(SIZE)]
    every = torch.stack([torch.randint(0, 5, shape, generator=own).to(kind) for own in rng])
    wide = every.double()
    ops = {"MAX": every.amax(0), "SUM": every.any(0) if dtype == "bool" else wide.sum(0).to(kind)}
    ops |= {"AVG": wide.mean(0).to(kind)} if kind.is_floating_point else {}
    own, last = every[RANK], SIZE - 1

    def do(collective, *args):
        work = collective(*args, async_op=later)
        assert (work is not None) == later
        if later:
            work.wait()

    with Verdict() as verdict:
        for op, total in ops.items():
            for x in (own.clone(), torch.stack([own, own], -1)[..., 0]):
                do(dist.all_reduce, x, getattr(dist.ReduceOp, op))
                equal(verdict, x, total, op)
            do(dist.reduce, x := own.clone(), last, getattr(dist.ReduceOp, op))
            equal(verdict, x, own if last != RANK else total, "reduce", op)
        do(dist.broadcast, x := torch.stack([own, own], -1)[..., 0], last)
        equal(verdict, x, every[-1], "broadcast")
        do(dist.all_gather, parts := [torch.empty_like(own) for _ in range(SIZE)], own)
        equal(verdict, torch.stack(parts), every, "all_gather")
        do(dist.all_gather_single, x := torch.empty_like(every), own)
        equal(verdict, x, every, "all_gather_single")
        do(dist.reduce_scatter, x := torch.empty_like(own), [own] * SIZE)
        equal(verdict, x, ops["SUM"], "reduce_scatter")
        do(dist.reduce_scatter_single, x := torch.empty_like(own), torch.stack([own] * SIZE))
        equal(verdict, x, ops["SUM"], "reduce_scatter_single")


def test_groups_messages_and_objects():
    with Verdict() as verdict:
        odd = dist.new_group(list(range(1, SIZE, 2)) or [0])
        if odd is not dist.GroupMember.NON_GROUP_MEMBER:
            x = torch.ones(3)
            dist.all_reduce(x, group=odd)
            equal(verdict, x, torch.full((3,), max(SIZE // 2, 1.0)), "sub-group")
        x, to, from_ = torch.empty(1), (RANK + 1) % SIZE, (RANK - 1) % SIZE
        sent = dist.P2POp(dist.isend, torch.full((1,), float(RANK)), to)
        for work in dist.batch_isend_irecv([sent, dist.P2POp(dist.irecv, x, from_)]):
            work.wait()
        equal(verdict, x, torch.full((1,), float(from_)), "ring of messages")
        objects = [None] * SIZE
        dist.all_gather_object(objects, {"rank": RANK})
        verdict.check(objects == [{"rank": rank} for rank in range(SIZE)], objects)
        with dist._coalescing_manager(async_ops=True) as works:
            dist.all_reduce(x := torch.ones(2))
            dist.all_reduce(y := torch.ones(3, dtype=torch.int32))
        works.wait()
        verdict.check(x.tolist() == [SIZE] * 2 and y.tolist() == [SIZE] * 3, "coalesced", x, y)
        dist.barrier()


def test_collectives_under_way_in_two_groups_need_no_common_order():
    groups, found = [dist.new_group(), dist.new_group()], {}
    works = []
    for group in groups if RANK % 2 else groups[::-1]:
        found[group] = torch.ones(1000)
        works.append(dist.all_reduce(found[group], group=group, async_op=True))
    for work in works:
        work.wait()
    everyone_has("" if all((x == SIZE).all() for x in found.values()) else f"{found}")


def test_powersgd_hook_of_pytorch():
    """Its callbacks ask for collectives where those before them end; with several buckets gloo hangs."""
    with Verdict() as verdict:
        model = parallel(bucket_cap_mb=0.01)
        state = PowerSGDState(None, matrix_approximation_rank=2, start_powerSGD_iter=2, warm_start=True)
        model.register_comm_hook(state, powerSGD_hook)
        losses = train(model, sgd(model), 8)
        verdict.check(losses[-1] < losses[0], losses)
        verdict.same(bits(model), "parameters")


def test_errors_are_the_callers():
    with Verdict() as verdict:
        for bad, words in (
            (lambda: dist.all_reduce(torch.ones(2, device="meta")), "host memory"),
            (lambda: dist.all_reduce(torch.ones(2), dist.ReduceOp.BAND), "band"),
            (lambda: dist.all_reduce(torch.ones(2), dist.ReduceOp.BAND, async_op=True).wait(), "band"),
        ):
            with pytest.raises((ValueError, TypeError, RuntimeError), match=words):
                bad()
        dist.all_reduce(x := torch.ones(2))
        equal(verdict, x, torch.full((2,), float(SIZE)), "afterwards")


def test_a_rank_that_stays_away_is_named():
    group = dist.new_group(timeout=timedelta(seconds=1))
    model = parallel(group)
    error = ""
    if RANK == 0 and SIZE > 1:
        try:
            loss_of(model, batches(1)[0]).backward()
            error = "no error"
        except RuntimeError as caught:
            error = "" if "CollectiveTimeout: allreduce by" in str(caught) else repr(caught)
    everyone_has(error)


WAYS = {
    "plain": {}, "view": {"gradient_as_bucket_view": True}, "static": {"static_graph": True},
    "buckets": {"bucket_cap_mb": 0.01},
}  # fmt: skip


@pytest.mark.parametrize("way", WAYS)
def test_unchanged_loop_like_gloo(gloo, way):
    with Verdict() as verdict:
        model = parallel(**WAYS[way])
        losses = train(model, sgd(model), STEPS)
        reference = parallel(gloo, **WAYS[way])
        wanted = train(reference, sgd(reference), STEPS)
        verdict.check(np.allclose(losses, wanted, rtol=1e-6, atol=0), np.abs(losses / wanted - 1).max())
        verdict.check(losses[-5:].mean() < 0.9 * losses[:5].mean(), "does not learn", losses)
        verdict.same(bits(model), "parameters")


def test_restart_in_the_middle():
    """From a checkpoint of model and optimizer training goes on to the same bits."""

    def make():
        model = parallel(bucket_cap_mb=0.01)
        return model, torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)

    with Verdict() as verdict:
        model, optimizer = made = make()
        train(model, optimizer, 5)
        torch.save([part.state_dict() for part in made], file := io.BytesIO())
        wanted = train(model, optimizer, 5, seed=1)
        file.seek(0)
        again = make()
        for part, content in zip(again, torch.load(file, weights_only=True)):
            part.load_state_dict(content)
        verdict.check((train(*again, 5, seed=1) == wanted).all(), "losses")
        verdict.check(bits(again[0]).tobytes() == bits(model).tobytes(), "parameters")


@pytest.mark.parametrize("spare", [False, True], ids=["used", "used on rank 0"])
def test_unused_parameters(gloo, spare):
    """Gradients of what no rank used stay away, those of what one rank used are shared."""
    with Verdict() as verdict:
        results = []
        for group in (None, gloo):
            model = parallel(group, spare=True, find_unused_parameters=True)
            for chosen in batches(3):
                model.zero_grad()
                loss_of(model, chosen, spare=spare and RANK == 0).backward()
            results.append(gradients(model))
        close(verdict, *results)


def test_no_sync_and_join(gloo):
    """Gradients add up without being sent; ranks with fewer batches are waited for."""
    with Verdict() as verdict:
        results = []
        for group in (None, gloo):
            model, chosen = parallel(group), batches(4)
            optimizer = sgd(model)
            with model.no_sync():
                loss_of(model, chosen[0]).backward()
            alone = gradients(model)
            loss_of(model, chosen[1]).backward()
            both = gradients(model)
            with model.join():
                for indices in chosen[: 1 + RANK]:
                    optimizer.zero_grad()
                    loss_of(model, indices).backward()
                    optimizer.step()
            results.append([*alone, *both, bits(model)])
        close(verdict, *results)


def test_mixed_dtypes(gloo):
    with Verdict() as verdict:
        results = []
        for group in (None, gloo):
            net = Net()
            net.last.to(torch.bfloat16)
            net.layers[2].to(torch.float64)
            model = DistributedDataParallel(net, process_group=group)
            x = net.layers[:2](images[batches(1)[0]]).double()
            net.last(net.layers[2](x).bfloat16()).float().square().sum().backward()
            results.append(gradients(model))
        close(verdict, *results)

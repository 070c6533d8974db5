"""The hook for DistributedDataParallel and the distributed optimizer: what they average, remember and refuse."""

import doctest
import io
from functools import cache

import numpy as np
import pytest
from witness import RANK, SIZE, WORLD, Verdict

import allreduce

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'allreduce[training]'")
pytest.importorskip("sklearn", reason="scikit-learn is not installed: pip install 'allreduce[training]'")

from torch.nn.parallel import DistributedDataParallel  # noqa: E402
from training import BATCH, STEPS, TRAINED, Net, accuracy, batches, bits, gradients, loss_of, sgd, train  # noqa: E402

import allreduce.ddp  # noqa: E402
import allreduce.torch_backend  # noqa: E402
from allreduce import averaging, progress  # noqa: E402

pytestmark = [
    pytest.mark.mpi,
    pytest.mark.usefixtures("gloo"),
    pytest.mark.skipif(SIZE not in (1, 2, 4), reason="slow, and what lies below is tested on any number of ranks"),
]
FEEDBACK = "feedback(topk:ratio=0.05)"


def hooked(codec=None, bucket_cap_mb=0.01, spare=False, unused=False, **wishes):
    """A model with our hook, the hook's state, and an optimizer."""
    net = Net(spare=spare)
    model = DistributedDataParallel(net, bucket_cap_mb=bucket_cap_mb, find_unused_parameters=unused)
    state = allreduce.ddp_state(codec, **wishes)
    model.register_comm_hook(state, allreduce.ddp_hook)
    return model, state, sgd(model)


def distributed(codec=None, lr=0.1, spare=False, **wishes):
    """A model and a distributed optimizer."""
    model = Net(spare=spare)
    optimizer = sgd(model, lr)
    assert allreduce.DistributedOptimizer(optimizer, model.named_parameters(), codec, **wishes) is optimizer
    return model, optimizer


def plain(steps=STEPS):
    """Losses and parameters of DistributedDataParallel as it is."""
    model = DistributedDataParallel(Net())
    return train(model, sgd(model), steps), model


def test_examples():
    assert doctest.testmod(allreduce.ddp).failed == 0


@pytest.mark.parametrize("overlap", [True, False], ids=["thread", "inline"])
@pytest.mark.parametrize("way", ["hook", "optimizer"])
def test_same_as_without(way, overlap):
    """Bit by bit, for shared memory adds in the order of ranks whatever the buckets."""
    losses, reference = plain()
    if way == "hook":
        model, state, optimizer = hooked(overlap=overlap)
    else:
        model, optimizer = distributed(overlap=overlap, fusion_bytes=10000)
        state = optimizer.gradients
    with Verdict() as verdict:
        verdict.check((train(model, optimizer, STEPS) == losses).all(), "losses")
        verdict.check(bits(model).tobytes() == bits(reference).tobytes(), "parameters")
        verdict.check(state.state_dict() == {}, "nothing to remember")
        verdict.same(bits(model), way)
    state.close()


@cache
def reached(codec):
    """The accuracy after 40 epochs, in percent; the last ones with short steps, or it would depend on the last one."""
    model, state, optimizer = hooked(codec, bucket_cap_mb=25, algorithm="direct" if codec else "auto", overlap=False)
    for lr, epochs in ((0.3, 30), (0.03, 10)):
        optimizer.param_groups[0]["lr"] = lr
        train(model, optimizer, epochs * TRAINED // BATCH, seed=epochs)
    state.close()
    return accuracy(model)


@pytest.mark.parametrize("codec", ["int8", "int4", "feedback(topk:ratio=0.01)", "powersgd:rank=2"])
def test_accuracy(codec):
    """What is lost on the way costs no accuracy: half a point, after as many epochs."""
    with Verdict() as verdict:
        verdict.check(reached(None) > 95, reached(None))
        verdict.check(reached(codec) >= reached(None) - 0.5, codec, reached(codec), reached(None))


def saved(*parts):
    """As from a file."""
    file = io.BytesIO()
    torch.save([part.state_dict() for part in parts], file)
    file.seek(0)
    return torch.load(file, weights_only=True)


@pytest.mark.parametrize("codec", [None, FEEDBACK, "powersgd:rank=1"])
@pytest.mark.parametrize("way", ["hook", "optimizer"])
def test_restart_in_the_middle(way, codec):
    """With the state of the model, of the optimizer and of the codec's memory training goes on to the same bits."""

    def make():
        if way == "hook":
            model, state, optimizer = hooked(codec, algorithm="direct")
        else:
            model, optimizer = distributed(codec, algorithm="direct")
            state = optimizer.gradients
        return model, optimizer, state

    with Verdict() as verdict:
        model, optimizer, state = make()
        train(model, optimizer, 5)
        checkpoint = saved(model, optimizer, state)
        wanted = train(model, optimizer, 5, seed=1)
        state.close()
        again = make()
        for part, content in zip(again, checkpoint):
            part.load_state_dict(content)
        verdict.check((train(*again[:2], 5, seed=1) == wanted).all(), "losses")
        verdict.check(bits(again[0]).tobytes() == bits(model).tobytes(), "parameters")
        again[2].close()


def test_memory_is_by_parameter():
    """DDP puts other buckets together after the first step; what was not sent is not lost by that."""
    model, state, _ = hooked(FEEDBACK, algorithm="direct")
    reference, chosen, steps = DistributedDataParallel(Net()), batches(1)[0], 4
    loss_of(reference, chosen).backward()
    for _ in range(steps):  # gradients add up, and no step is taken
        loss_of(model, chosen).backward()
    memory = state.state_dict()["memory"]
    with Verdict() as verdict:
        for parameter, got, mean in zip(model.parameters(), gradients(model), gradients(reference)):
            left = WORLD.allreduce(memory[state.name(parameter)]["residual"].double().numpy()) / SIZE
            verdict.check(SIZE == 1 or np.abs(left).max() > 0, "nothing was held back")
            verdict.check(np.allclose(got + left, steps * mean, rtol=1e-4, atol=1e-6), got, left, mean)
        verdict.check(len(memory) == len(list(model.parameters())), memory.keys())
    state.close()


@pytest.mark.parametrize("codec, calls", [(FEEDBACK, 1), ("powersgd:rank=1", 2)])
def test_a_bucket_goes_at_once(codec, calls, monkeypatch):
    """Not parameter by parameter, each of which would wait for messages."""
    model, state, _ = hooked(codec, bucket_cap_mb=25, algorithm="direct", overlap=False)
    prepare, seen = type(state.comm.engine).prepare, []

    def counted(engine, *args, **wishes):
        if engine is state.comm.engine:
            seen.append(args[1].size)
        return prepare(engine, *args, **wishes)

    monkeypatch.setattr(type(state.comm.engine), "prepare", counted)
    with Verdict() as verdict:
        for chosen in batches(3):
            seen.clear()
            loss_of(model, chosen).backward()
            verdict.check(len(seen) == calls, *seen)
        verdict.check(len(state.state_dict()["memory"]) >= 3, "each has its memory")
    state.close()


def test_groups_are_those_of_before():
    state = allreduce.ddp_state(FEEDBACK)
    with Verdict() as verdict:
        for names, wanted in (
            ("abc", ["abc"]), ("ab", ["ab"]), ("c", ["c"]), ("abc", ["ab", "c"]), ("bc", ["c", "b"]),
            ("ba", ["b", "a"]),
        ):  # fmt: skip
            found = state.groups(tuple(names))
            verdict.check(["".join(group) for group in found] == wanted, names, found)
        kept = state.state_dict()
        state.load_state_dict(kept)
        verdict.check(state.state_dict() == kept and kept["together"] == [["a"], ["b"], ["c"]], kept)
        with pytest.raises(ValueError, match="names of tensors that go together"):
            state.load_state_dict(kept | {"together": [[1]]})
    state.close()


@pytest.mark.parametrize("codec", [None, "int8"])
def test_buckets_under_way_at_once(codec, monkeypatch):
    """As between nodes: messages of one travel while another waits; the means are those of one after the other."""
    under_way, results = [], []

    def begin(array, op, comm, algorithm, codec):
        under_way.append(len(optimizer.gradients.progress.under_way) + 1)
        return [comm.engine.request("allreduce", array, array, op=op, algorithm=algorithm, codec=codec)]

    monkeypatch.setattr(averaging, "begin", begin)
    with Verdict() as verdict:
        for most in (progress.MOST, 1):
            monkeypatch.setattr(progress, "MOST", most)
            model, optimizer = distributed(codec, algorithm="ring", fusion_bytes=1)
            train(model, optimizer, 3)
            optimizer.gradients.close()
            results.append(bits(model).tobytes())
            verdict.check(max(under_way) <= most, under_way)
            verdict.check(most == 1 or SIZE == 1 or max(under_way) > 1, "never two at once", under_way)
            verdict.check(len(under_way) == 3 * len(list(model.parameters())), under_way)
            under_way.clear()
        verdict.check(results[0] == results[1], "parameters")


def test_unused_parameters_and_ranks():
    """A gradient that only rank 0 has is a share of the mean; a rank without any takes part all the same."""
    with Verdict() as verdict:
        model, optimizer = distributed(spare=True, fusion_bytes=1)
        if RANK == 0:
            loss_of(model, batches(1)[0], spare=True).backward()
        optimizer.synchronize()
        alone = Net(spare=True)
        loss_of(alone, WORLD.bcast(batches(1)[0]), spare=True).backward()
        for mine, theirs in zip(gradients(model), gradients(alone)):
            wanted = theirs / SIZE if theirs.size else np.zeros_like(mine)
            verdict.check(np.allclose(mine, wanted, rtol=1e-6), mine, wanted)
        optimizer.step()
        verdict.same(bits(model), "parameters")
    optimizer.gradients.close()


def test_accumulation_clipping_and_factors():
    chosen = batches(2)
    with Verdict() as verdict:
        reference = DistributedDataParallel(Net())
        with reference.no_sync():
            loss_of(reference, chosen[0]).backward()
        loss_of(reference, chosen[1]).backward()
        norm = torch.nn.utils.clip_grad_norm_(reference.parameters(), 0.1)

        model, optimizer = distributed(backward_passes_per_step=2, prescale=0.25, postscale=4.0)
        for indices in chosen:
            loss_of(model, indices).backward()
        optimizer.synchronize()
        found = torch.nn.utils.clip_grad_norm_(model.parameters(), 0.1)
        verdict.check(torch.isclose(norm, found), norm, found)
        for mine, theirs in zip(gradients(model), gradients(reference)):
            verdict.check(np.allclose(mine, theirs, rtol=1e-5, atol=1e-7), mine, theirs)
        before = bits(model)
        with optimizer.skip_synchronize():
            optimizer.step()
        taken = np.linalg.norm(bits(model) - before)
        verdict.check(np.isclose(taken, 0.1 * 0.1, rtol=1e-3), "the step was as long as clipped", taken)
        verdict.same(bits(model), "parameters")
    optimizer.gradients.close()


def test_what_an_optimizer_refuses():
    model, optimizer = distributed()
    with pytest.raises(ValueError, match="closure"):
        optimizer.step(lambda: None)
    with pytest.raises(ValueError, match="named_parameters"):
        allreduce.DistributedOptimizer(sgd(model), list(model.named_parameters())[1:])
    with pytest.raises(ValueError, match="unknown codec"):
        allreduce.DistributedOptimizer(sgd(model), model.named_parameters(), "int99")
    with pytest.raises(ValueError, match="remembers nothing"):
        optimizer.gradients.load_state_dict({"config": FEEDBACK, "memory": {}})
    loss_of(model, batches(1)[0]).backward()
    with pytest.raises(RuntimeError, match="backward_passes_per_step=1"):
        loss_of(model, batches(1)[0]).backward()
    optimizer.gradients.close()


def test_broadcasts():
    """Rank 1's model and optimizer for all, who had others, or none."""
    root = 1 % SIZE
    torch.manual_seed(RANK)
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4)).to(torch.bfloat16)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1 * (1 + RANK))
    if root == RANK:
        model(torch.ones(2, 3, dtype=torch.bfloat16)).sum().backward()
        optimizer.step()
    allreduce.broadcast_parameters(model.state_dict(), root)
    allreduce.broadcast_optimizer_state(optimizer, root)
    state = optimizer.state_dict()
    with Verdict() as verdict:
        for name, tensor in model.state_dict().items():
            verdict.same(tensor.float().numpy(), name)
        verdict.check(state["param_groups"][0]["lr"] == 0.1 * (1 + root), state["param_groups"])
        verdict.check(len(state["state"]) == 4, state["state"])
        for index, parts in state["state"].items():
            for name, tensor in parts.items():
                verdict.same(tensor.float().numpy(), index, name)

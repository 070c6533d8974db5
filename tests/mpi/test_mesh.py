"""Meshes of ranks; and what trains without them: parameter servers, local steps, a recurrent network cut by time."""

import importlib.util
import time
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from mpi4py import MPI
from witness import RANK, SIZE, WORLD, Verdict, everyone_has, seeded

import allreduce
from allreduce.mesh import side_by_side
from allreduce.parallel.outer import OuterSteps
from allreduce.parallel.server import ShardedServer, asynchronous

pytestmark = pytest.mark.mpi

AXES = [axes for axes in product(range(1, SIZE + 1), repeat=3) if np.prod(axes) == SIZE and max(axes) in (2, SIZE)]


# --- meshes ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("data, tensor, pipeline", AXES)
def test_every_axis_joins_those_who_differ_on_it_alone(data, tensor, pipeline):
    with allreduce.Mesh(data=data, tensor=tensor, pipeline=pipeline) as mesh, Verdict() as verdict:
        axes = mesh.data, mesh.tensor, mesh.pipeline
        verdict.check([axis.size for axis in axes] == [data, tensor, pipeline])
        verdict.check((mesh.pipeline.rank * data + mesh.data.rank) * tensor + mesh.tensor.rank == RANK, "order")
        places = np.array(WORLD.allgather([axis.rank for axis in axes]))
        for i, axis in enumerate(axes):
            others = np.delete(places, i, axis=1)
            mine = np.flatnonzero((others == others[RANK]).all(1))
            total = allreduce.allreduce(np.array([RANK, 1]), comm=axis)
            verdict.check(total.tolist() == [mine.sum(), len(mine)], i, total, mine)


def test_tensor_neighbours_share_a_node_wherever_ranks_lie(comm):
    comm.engine._nodes = tuple(tuple(range(first, SIZE, 2)) for first in range(min(2, SIZE)))  # dealt out in turns
    tensor = 2 if SIZE % 2 == 0 else 1
    with allreduce.Mesh(comm, data=SIZE // tensor, tensor=tensor) as mesh, Verdict() as verdict:
        neighbours = mesh.tensor.allgather(RANK)
        whole = SIZE // 2 // tensor * tensor  # ranks of a node that belong to whole groups
        verdict.check(whole <= RANK // 2 or len({rank % 2 for rank in neighbours}) == 1, neighbours)
    assert comm.allreduce(1) == SIZE  # what we did not make we do not free


def test_groups_are_put_together_from_what_nodes_have_left():
    assert side_by_side([(0, 1, 2), (3, 4, 5, 6, 7)], 2) == [0, 1, 3, 4, 5, 6, 2, 7]
    assert side_by_side([(0, 2), (1, 3)], 4) == [0, 2, 1, 3]
    assert side_by_side([(0, 3), (1, 2)], 1) == [0, 3, 1, 2]


def test_sizes_that_do_not_fit_are_refused_by_name():
    with pytest.raises(ValueError, match=f"data=2 x tensor={SIZE} x pipeline=1 is {2 * SIZE} ranks, but .* has {SIZE}"):
        allreduce.Mesh(data=2, tensor=SIZE)
    for bad in (0, -1, 1.0, None):
        with pytest.raises(ValueError, match=f"pipeline must be a positive whole number, not {bad}"):
            allreduce.Mesh(pipeline=bad)


# --- parameter servers ----------------------------------------------------------------------------


def descend(weights, gradient):
    weights -= 0.1 * gradient


def goals(shapes):
    """Every rank pulls towards numbers of its own; all together towards the mean."""
    return [seeded("goals", i).normal(size=(SIZE, *shape)) for i, shape in enumerate(shapes)]


def test_a_sharded_server_takes_the_steps_of_one_process(comm):
    shapes = (30, 7), (40,), (), (11, 3), (0,)
    weights, wanted, far = ([np.zeros(shape) for shape in shapes] for _ in range(3))
    calls = []

    def update(weights, gradient):
        calls.append(weights.size)
        descend(weights, gradient)

    server = ShardedServer(weights, update, comm)
    for _ in range(5):
        server.step([w - goal[RANK] for w, goal in zip(weights, goals(shapes))])
        for w, goal in zip(wanted, goals(shapes)):
            descend(w, w - goal.mean(0))
    with Verdict() as verdict:
        for w, right, start in zip(weights, wanted, far):
            verdict.check(np.allclose(w, right) and (w.size == 0 or not np.allclose(w, start)), w.shape)
            verdict.same(w, w.shape)
        verdict.check(len(calls) == 5 * server.owners.count(RANK), "each is updated once", calls)


@pytest.mark.mpi(min_size=2)  # a server and a worker
@pytest.mark.parametrize("staleness", [0, 1, 3])
def test_an_asynchronous_server_bounds_staleness_and_comes_to_the_goal(comm, staleness):
    goal, steps, workers = seeded("goal").normal(size=50), 25, SIZE - 1
    weights = np.zeros(50)

    def gradient(weights, step):
        if RANK == 1 and step < 10:
            time.sleep(0.005)  # the others have time to run ahead
        return weights - goal

    def update(weights, gradient):
        weights -= 0.4 / (workers * (staleness + 1)) * gradient

    delays = asynchronous(weights, gradient, update, comm, steps=steps, staleness=staleness)
    with Verdict() as verdict:
        verdict.same(weights)
        verdict.check(len(delays) == (RANK == 0) * workers * steps, len(delays))
        verdict.check(max(delays, default=0) <= (workers - 1) * (2 * staleness + 1), "too stale", delays)
        verdict.check(np.linalg.norm(weights - goal) < 0.2 * np.linalg.norm(goal), weights[:3], goal[:3])


@pytest.mark.mpi(min_size=2)  # a server and a worker
def test_without_staleness_workers_read_the_same_weights(comm):
    weights, goal, read = np.zeros(3), 1.0 + RANK, []

    def gradient(weights, step):
        read.append(weights.copy())
        return weights - goal

    asynchronous(weights, gradient, descend, comm, steps=6, staleness=0)
    everyone = [each for each in WORLD.allgather(np.array(read)) if len(each)]
    assert len(everyone) == SIZE - 1 and all(np.array_equal(each, everyone[0]) for each in everyone)
    assert len(np.unique(everyone[0][:, 0])) == 6


def test_a_server_without_workers_or_sense_is_refused():
    for comm, staleness in ((MPI.COMM_SELF, 0), (WORLD, -1)):
        with pytest.raises(ValueError, match=f"a server and a worker.*, not {comm.size} ranks and {staleness}"):
            asynchronous(np.zeros(1), descend, descend, comm, steps=1, staleness=staleness)


# --- local steps ----------------------------------------------------------------------------------


def travel(comm, goal, every, steps=40, **wishes):
    """Descend towards this rank's goal, with outer steps; the weights at the end."""
    weights = [np.zeros(3, np.float32), np.zeros((2, 2))]
    outer = OuterSteps(weights, comm, every, **wishes)
    for step in range(1, steps + 1):
        for w in weights:
            descend(w, w - goal)
        assert outer.step() == (step % every == 0)
    return weights


def test_one_local_step_and_the_mean_is_a_step_by_the_mean_gradient(comm):
    with allreduce.Communicator(MPI.COMM_SELF) as alone, Verdict() as verdict:
        wanted = travel(alone, (SIZE - 1) / 2, 1)
        for got, right in zip(travel(comm, RANK, 1), wanted):
            verdict.check(np.allclose(got, right, rtol=1e-6), got, right)
            verdict.same(got)


@pytest.mark.parametrize("codec", [None, "int8", "feedback(topk:ratio=0.25)"])
def test_outer_steps_lead_to_the_mean_of_the_goals(comm, codec):
    with Verdict() as verdict:
        for wishes in ({}, {"lr": 0.7, "momentum": 0.5}):
            for got in travel(comm, 1 + RANK, 10, 300, codec=codec, **wishes):
                verdict.check(np.allclose(got, (SIZE + 1) / 2, rtol=0.05), codec, wishes, got)
                verdict.same(got, codec, wishes)


def test_outer_steps_are_those_of_nesterov(comm):
    weights, velocity, w = np.zeros(1), 0.0, 0.0
    outer = OuterSteps([weights], comm, 1, lr=0.7, momentum=0.9)
    for _ in range(5):
        weights += 1 + RANK
        outer.step()
        velocity = 0.9 * velocity - (SIZE + 1) / 2
        w -= 0.7 * (0.9 * velocity - (SIZE + 1) / 2)
    everyone_has("" if np.allclose(weights, w) else f"{weights} is not {w}")


def test_outer_steps_need_a_period(comm):
    with pytest.raises(ValueError, match="every must be a positive number of steps, not 0"):
        OuterSteps([np.zeros(1)], comm, 0)


# --- a recurrent network --------------------------------------------------------------------------


def test_a_network_cut_by_time_steps_learns_as_a_whole_one_does(comm):
    path = Path(allreduce.__file__).parent.parent / "scripts" / "rnn.py"
    spec = importlib.util.spec_from_file_location("rnn", path)
    spec.loader.exec_module(rnn := importlib.util.module_from_spec(spec))
    with allreduce.Communicator(MPI.COMM_SELF) as alone, Verdict() as verdict:
        wanted, losses = list(rnn.train(alone)), list(rnn.train(comm, 20))
        verdict.check(np.allclose(losses, wanted[:20]), losses[:3], wanted[:3])
        verdict.check(np.mean(wanted[-10:]) < 0.2 * wanted[0], wanted[0], wanted[-10:])
        verdict.same(np.array(losses))

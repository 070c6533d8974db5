"""The smallest pipeline: a recurrent network cut by time steps.

    mpirun -n 4 python scripts/rnn.py

Each rank has the same weights and its share of the time steps. The hidden state goes from rank to rank, its gradient
comes back, one message per microbatch and direction; at the end the gradients of the weights are summed. The task: add
up numbers that come one at a time.
"""

import numpy as np
from mpi4py import MPI

from allreduce import Communicator, allreduce
from allreduce.parallel.orders import ORDERS, waiting
from allreduce.schedules import share

STEPS, BATCH, HIDDEN, LENGTH, MICROBATCHES, LR = 200, 32, 16, 12, 4, 0.02


def forward(weights, states, inputs):
    """Append the hidden state after each input."""
    for x in inputs:
        known = np.column_stack([x, np.ones(len(x)), states[-1]])
        states.append(np.tanh(known @ weights))


def backward(weights, states, inputs, gradient):
    """From the gradient of the last state, those of the weights and of the first state."""
    total = np.zeros_like(weights)
    for x, before, after in zip(inputs[::-1], states[-2::-1], states[:0:-1]):
        known = np.column_stack([x, np.ones(len(x)), before])
        inside = gradient * (1 - after**2)
        total += known.T @ inside
        gradient = inside @ weights[2:].T
    return total, gradient


def step(comm, weights, readout, inputs, targets):
    """The loss of a batch, shape (time, sample), and the gradients of weights and readout."""
    ours = share(len(inputs), comm.size, comm.rank)
    first, last = comm.rank == 0, comm.rank == comm.size - 1
    totals = np.zeros_like(weights), np.zeros_like(readout), np.zeros(1)
    held, sent = {}, []
    for way, m in ORDERS["1f1b"](comm.rank, comm.size, MICROBATCHES):
        part = share(inputs.shape[1], MICROBATCHES, m)
        x, message = inputs[ours.start : ours.stop, part.start : part.stop], np.zeros((len(part), HIDDEN))
        if way:
            if not first:
                comm.Recv(message, comm.rank - 1, m)
            held[m] = [message]
            forward(weights, held[m], x)
            if not last:
                sent.append(comm.Isend(held[m][-1], comm.rank + 1, m))
            continue
        states = held.pop(m)
        if last:
            error = (states[-1] @ readout - targets[part.start : part.stop]) / len(targets)
            totals[1][...] += states[-1].T @ error
            totals[2][...] += (error**2).sum() * len(targets) / 2
            message[...] = np.outer(error, readout)
        else:
            comm.Recv(message, comm.rank + 1, m)
        slope, message = backward(weights, states, x, message)
        totals[0][...] += slope
        if not first:
            sent.append(comm.Isend(message, comm.rank - 1, m))
    MPI.Request.Waitall(sent)
    return [allreduce(total, comm=comm) for total in totals]


def train(comm, steps=STEPS):
    """Losses, the same for any number of ranks."""
    rng = np.random.default_rng(0)
    weights, readout = rng.normal(0, 0.05, (2 + HIDDEN, HIDDEN)), rng.normal(0, 0.3, HIDDEN)
    weights[2:] += 0.7 * np.eye(HIDDEN)  # remember, at first
    for _ in range(steps):
        inputs = rng.normal(0, 0.3, (LENGTH, BATCH))
        slope, readout_slope, loss = step(comm, weights, readout, inputs, inputs.sum(0))
        weights -= LR * slope
        readout -= LR * readout_slope
        yield loss.item()


if __name__ == "__main__":
    with Communicator() as world:
        losses = list(train(world))
        if world.rank == 0:
            print(f"{world.size} stages of {LENGTH / world.size:.3g} time steps")
            print(f"loss {losses[0]:.3f} at first, {np.mean(losses[-10:]):.4f} at the end")
            print(f"waiting: {waiting('1f1b', world.size, MICROBATCHES):.0%} of the work")

"""What the cost model predicts, with constants of this machine."""

from functools import partial

import numpy as np
from mpi4py import MPI

import allreduce
from allreduce.algorithms import parse
from allreduce.costs import estimate, segmented

from .cells import case_pair
from .rounds import Limits, Rounds, Stop
from .starts import Barrier
from .statistics import fit
from .timing import Cell, measure

__all__ = ["Constants", "constants_of", "predict"]

#: Alpha, beta and gamma: seconds per message, per byte, per byte added.
Constants = tuple[float, float, float]
#: What they are fitted to: short and long messages, many and few bytes added.
PROBES = [(name, nbytes) for name in ("recursive_doubling", "ring", "direct") for nbytes in (8, 1 << 16, 1 << 21)]
LIMITS = Limits(seconds=0.02, precision=0.0)


def constants_of(comm: MPI.Intracomm, rng: np.random.Generator, stop: Stop) -> Constants:
    """The model fitted to a few of our own all-reduces; collective, of use on rank 0."""
    features, times = [], []
    for name, nbytes in PROBES if comm.size > 1 else []:
        cases = case_pair("sum", np.dtype(np.float32), nbytes // 4, None, comm)
        result, most = np.empty_like(cases[0].send), 200 if nbytes == 8 else 1
        arguments = [(cases[0].send, result)] * most, [(cases[1].send, result)] * most
        call = partial(allreduce.allreduce, algorithm=name, comm=comm)
        cell = Cell(call, cases, arguments, [result] * most, prepare=lambda variant: None)
        rounds = Rounds(comm, 1, "max", LIMITS, stop, watch=lambda rounds: None)
        measure([cell], most, comm, Barrier(comm), rounds, rng)
        features.append([estimate(name, comm.size, nbytes, *unit) for unit in np.eye(3)])
        times.append(float(np.median(rounds.times)) if comm.rank == 0 else 1.0)
    if not times:
        return 0.0, 0.0, 0.0
    alpha, beta, gamma = fit(np.array(features), np.array(times)).tolist()
    return alpha, beta, gamma


def predict(name: str, size: int, nbytes: int, constants: Constants) -> float:
    """Seconds by the model, for the parameters that the engine takes."""
    key, params = parse(name, size)
    return estimate(key, size, nbytes, *constants, **segmented(key, size, nbytes, params))

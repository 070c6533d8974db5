"""What a job must have before it is worth measuring: all ranks, where they were meant, each with its cores and GPU."""

import ctypes
import json
import os
import socket
from collections.abc import Sequence
from typing import Any

import numpy as np
from mpi4py import MPI

from allreduce.execute.aware import is_aware

__all__ = ["check", "fly"]


def fly(nodes: int, ppn: int, cores: int = 1, gpus: int = 0) -> None:
    """Print on rank 0 what there is; collective.

    Raises
    ------
    ValueError
        On all ranks, with all that is wrong.
    """
    mine = {"host": socket.gethostname(), "cores": sorted(os.sched_getaffinity(0)), "gpus": devices() if gpus else []}
    ranks = gathered(MPI.COMM_WORLD, mine)
    if wrong := [*check(ranks, nodes, ppn, cores, gpus), *(transports() if gpus else [])]:
        raise ValueError("; ".join(wrong))
    aware = bool(gpus) and is_aware(MPI.COMM_WORLD)
    if MPI.COMM_WORLD.rank == 0:
        print(f"preflight: {ppn} ranks on each of {nodes} nodes: {' '.join(dict.fromkeys(r['host'] for r in ranks))}")
        if gpus:
            way = "takes arrays on it" if aware else "does not: they are staged through the host"
            print(f"preflight: a GPU for each rank; MPI {way}", flush=True)


def check(ranks: Sequence[dict[str, Any]], nodes: int, ppn: int, cores: int = 1, gpus: int = 0) -> list[str]:
    """What is wrong, in words.

    Parameters
    ----------
    ranks : sequence of dict
        In order: "host", "cores" (numbers of those it may use), "gpus" (UUIDs of those it sees).
    nodes, ppn, cores, gpus : int
        What was meant: ranks on each node, cores of each rank, GPUs of each node.
    """
    wrong = []
    if len(ranks) != nodes * ppn:
        wrong.append(f"{len(ranks)} ranks, not {nodes * ppn}" + alone(len(ranks)))
    hosts: dict[str, list[dict[str, Any]]] = {}
    for rank in ranks:
        hosts.setdefault(rank["host"], []).append(rank)
    if len(hosts) != nodes:
        wrong.append(f"{len(hosts)} nodes, not {nodes}")
    for host, here in hosts.items():
        if len(here) != ppn:
            wrong.append(f"{len(here)} ranks on {host}, not {ppn}")
        usable = {core for rank in here for core in rank["cores"]}
        if len(usable) < len(here) * cores:
            wrong.append(f"{len(here)} ranks on {host} are bound to {len(usable)} cores, not {len(here) * cores}")
        wrong += shared(host, [rank["gpus"] for rank in here], gpus) if gpus else []
    return wrong


def shared(host: str, seen: list[list[str]], gpus: int) -> list[str]:
    """What is wrong with the GPUs of a node, of which each rank takes the one of its number there."""
    fewest = min(map(len, seen))
    if fewest < max(gpus, len(seen)):
        hint = "; --gpus-per-task and --gpu-bind hide the others" if fewest else ""
        return [f"a rank on {host} sees {fewest} GPUs, not {max(gpus, len(seen))}{hint}"]
    taken = [uuids[number] for number, uuids in enumerate(seen)]
    return [] if len(set(taken)) == len(taken) else [f"ranks on {host} share a GPU"]


def alone(ranks: int) -> str:
    return ": was each rank started as a world of its own? see srun --mpi=list" if ranks == 1 else ""


def transports() -> list[str]:
    """UCX takes a pointer to device memory for one to the host's if its transports are named without CUDA's."""
    tls = os.environ.get("UCX_TLS", "all")
    good = tls.startswith("^") or {"all", "cuda", "cuda_copy"} & set(tls.split(","))
    return [] if good else [f"UCX_TLS={tls} lacks cuda"]


def devices() -> list[str]:
    """UUIDs of the GPUs that this process may use, in the order of their numbers."""
    try:
        cuda = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return []
    found, device, uuid = ctypes.c_int(), ctypes.c_int(), (ctypes.c_ubyte * 16)()
    if cuda.cuInit(0) or cuda.cuDeviceGetCount(ctypes.byref(found)):
        return []
    uuids = []
    for number in range(found.value):
        if cuda.cuDeviceGet(ctypes.byref(device), number) or cuda.cuDeviceGetUuid(uuid, device):
            break
        uuids.append(bytes(uuid).hex())
    return uuids


def gathered(comm: MPI.Intracomm, fact: dict[str, Any]) -> list[dict[str, Any]]:
    """Everybody's; collective."""
    mine, lengths = np.frombuffer(json.dumps(fact).encode(), np.uint8), np.empty(comm.size, np.intc)
    comm.Allgather(np.array([mine.size], np.intc), lengths)
    theirs = np.empty(int(lengths.sum()), np.uint8)
    comm.Allgatherv(mine, [theirs, lengths])
    return [json.loads(bytes(text)) for text in np.split(theirs, np.cumsum(lengths)[:-1])]

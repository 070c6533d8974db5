"""A contest of ways: train them, time them, and tell of each."""

from contextlib import closing, nullcontext
from dataclasses import asdict
from typing import Any

import torch
from mpi4py import MPI

import compress
from compress.method import Method

from ..environment import environment
from ..journal import opened
from ..train import Train
from .data import TASKS
from .race import Entry, probe, race
from .results import HEAD, NOTES, compared, line, record
from .teams import replicas, split
from .watch import Watch

__all__ = ["contest"]


def contest(wish: Train) -> int:
    """Returns 1 if any way went wrong, else 0; collective. ValueError if a batch is more than there is."""
    torch.set_num_threads(1)
    facts, task = environment(MPI.COMM_WORLD), TASKS[wish.model]()
    if wish.batch > len(task.inputs):
        raise ValueError(f"--batch {wish.batch}: there are {len(task.inputs)} samples")
    batches = task.batches(wish.steps + wish.probe, wish.batch * wish.mesh[0], wish.seed)
    journal = opened(wish.json, False, MPI.COMM_WORLD)
    team = replicas if wish.parallel == "data" else split
    with (
        closing(journal) if journal else nullcontext(),
        team(wish, task) as ways,
        Watch(MPI.COMM_WORLD.rank == 0, len(batches)) as watch,
    ):
        parameters = sum(p.numel() for p in ways[0].net.parameters())
        watch.say(head(wish, facts, len(task.inputs), parameters))
        entries = [Entry(way) for way in ways]

        def keep(**end: Any) -> list[dict[str, Any]]:
            """Write what is known so far, in the place of what was before: whoever is killed leaves it. Collective."""
            records = [record(entry, wish.goal, wish.by_loss) for entry in entries]
            if journal:
                contest = {"record": "contest", **asdict(wish), "parameters": parameters, **end}
                journal.write([{"record": "environment", **facts}, contest, *records], final=bool(end))
            return records

        race(entries, task, batches[: wish.steps], wish.every, watch, keep)
        probe(entries, task, batches[wish.steps :], watch, keep)
        told, wrong = compared(entries)
        records = keep(wrong=wrong, told=told)
        watch.say("\n".join([NOTES, HEAD, *map(line, records), *told]))
    return int(wrong)


def head(wish: Train, facts: dict[str, Any], samples: int, parameters: int) -> str:
    """What is trained, on what."""
    hosts = ", ".join(f"{n} on {host}" for host, n in facts["hosts"].items())
    data, tensor, pipeline = wish.mesh
    lines = [
        f"# {facts['mpi']}; {facts['ranks']} ranks ({hosts}), {facts['cores']} cores; {facts['processor']}; "
        f"PyTorch {facts['torch']}",
        f"# {wish.model} of {parameters} parameters; data {data} x tensor {tensor} x pipeline {pipeline}; "
        f"{wish.batch} samples a replica, of {samples}; {wish.steps} steps; buckets of {wish.bucket} bytes",
    ]
    if facts["oversubscribed"]:
        lines.append("# more ranks than cores: results are right, times mean nothing")
    if wish.codec and wish.algorithm == "auto" and len(facts["hosts"]) == 1:
        lines.append("# on one node auto takes no codec; --algorithm direct does")
    if wish.parallel == "data" and wish.baselines:
        lines.append("# gloo powersgd has rank 2 and one bucket: with several it waits for itself on gloo, for ever")
    if wish.parallel == "data" and any(isinstance(compress.get(codec), Method) for codec in wish.codec):
        lines.append("# methods of ours have one bucket, too: to find what to send takes longer in parts")
    return "\n".join(lines)

"""The sweep: every algorithm at every message size, beside MPI's own, in one run."""

import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import product
from typing import Any

import numpy as np
from mpi4py import MPI

from .console import Console
from .devices import check
from .environment import environment
from .journal import Journal, opened
from .plan import Group, Sweep
from .records import key
from .rounds import Stop
from .team import Team
from .timers import DeviceTimer, HostTimer
from .transports import link, told

__all__ = ["run"]

#: What a repetition is timed by.
TIMERS: dict[str, type[HostTimer]] = {"host": HostTimer, "cuda": DeviceTimer}


def run(sweep: Sweep) -> int:
    """Measure, print, write; returns 1 if any result was wrong, 130 if interrupted, else 0. Collective."""
    world = MPI.COMM_WORLD
    if sweep.transport:
        meet(world, sweep.transport)
    sizes, groups = sweep.teams(world.size), sweep.groups()
    if sweep.device == "cuda":
        check(groups, sweep.codec)
    teams = [Team(sweep, comm) if (comm := first(world, p)) else None for p in sizes]
    facts = {**environment(world), **ways(sweep, teams, world)}
    journal = opened(sweep.json, sweep.resume, world)
    jobs = list(product(teams, groups))
    facts["missing"] |= unmeasured(jobs, world)
    with Console(facts, sweep.style, journal.rows if journal else [], world.rank == 0) as console, Stop() as stop:
        wanted = left(jobs, journal, world)
        console.begin(int(wanted.sum()))
        if journal:
            journal.write([{"record": "environment", **facts}])
        with together(world):
            for index in np.random.default_rng(sweep.seed).permutation(len(jobs)):
                team, group = jobs[index]
                if wanted[index] and not stop.agreed:
                    if team:
                        console.rows(team.measure(group, np.random.default_rng([sweep.seed, index]), stop, journal))
                    wait(world, stop)
    if journal:
        journal.close()
    code = np.array([1 if console.wrong else 130 if stop.agreed else 0])
    world.Bcast(code)
    return int(code[0])


def meet(world: MPI.Intracomm, transport: str) -> None:
    """ValueError where a transport does not reach all ranks; collective."""
    try:
        world.Barrier()
    except MPI.Exception as error:
        raise ValueError(f"--transport {transport} does not reach all ranks; shm is for those of one node") from error


def ways(sweep: Sweep, teams: list[Team | None], world: MPI.Intracomm) -> dict[str, Any]:
    """How all rows are measured; collective."""
    transport = sweep.transport
    return {
        "buffers": sweep.memory,
        "rewrite": sweep.rewrite,
        "clock": TIMERS[sweep.device].clock,
        "missing": {name: why for team in teams if team for name, why in team.place.missing.items()},
        "transport": {"name": transport, "variables": told(transport, MPI.get_vendor()[0])} if transport else None,
        "link": link(transport, world)._asdict() if transport else None,
    }


def unmeasured(jobs: list[tuple[Team | None, Group]], world: MPI.Intracomm) -> dict[str, str]:
    """Names of which no row comes, and why; ValueError if no row comes at all. Collective."""
    names = {name for team, _ in jobs if team for name in team.place.names}
    found = {label.algorithm for team, group in jobs if team for label in team.maker.labels(group)}
    some = np.array([bool(found)])
    world.Bcast(some)  # the first rank is in all teams
    if not some[0]:
        raise ValueError("nothing that is asked for can be measured with such --dtype, --op, --place and --call")
    return dict.fromkeys(sorted(names - found), "not with such dtypes, operations, places and calls")


@contextmanager
def together(world: MPI.Intracomm) -> Iterator[None]:
    """End the program if one rank cannot go on, for the others would wait for it for ever."""
    try:
        yield
    except BaseException:
        if world.size == 1:
            raise
        traceback.print_exc()
        world.Abort(1)


def first(world: MPI.Intracomm, ranks: int) -> MPI.Intracomm | None:
    """The first ranks of all, or None on the others; collective."""
    if ranks == world.size:
        return world
    part = MPI.Intracomm(world.Split(int(world.rank >= ranks)))
    return part if world.rank < ranks else None


def wait(world: MPI.Intracomm, stop: Stop) -> None:
    """Until all are here, without taking cores from those who measure; collective."""
    asked = np.array([stop.asked or stop.agreed])
    request = world.Iallreduce(MPI.IN_PLACE, asked, MPI.LOR)
    while not request.Test():
        time.sleep(0.001)
    stop.agreed = bool(asked[0])


def left(jobs: list[tuple["Team | None", Group]], journal: Journal | None, world: MPI.Intracomm) -> np.ndarray:
    """Which jobs the file does not hold all of, shape (jobs,); collective."""
    done = {key(row) for row in journal.rows if row.complete} if journal else set()
    missing = np.array([not done.issuperset(team.keys(group)) if team else False for team, group in jobs])
    world.Bcast(missing)
    return missing

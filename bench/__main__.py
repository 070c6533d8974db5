"""The command line: `mpirun -n 4 python -m bench sweep --min 4 --max 64M`."""

import os
import sys
from collections.abc import Sequence
from typing import Any

import allreduce
import compress

from . import arguments
from .transports import choose

#: Where launchers say which rank a process is.
RANKS = ("OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "PALS_RANKID", "SLURM_PROCID")
#: What codecs are shown by, and the options of each.
SHOWN = {"errors": "their errors", "speed": "--speed", "wire": "--wire"}
OF_CODECS = {"errors": {"ranks", "count", "data", "seed"}, "speed": {"bytes"}, "wire": {"bytes", "algorithm", "json"}}


def sweep(wishes: dict[str, Any]) -> int:
    """Time algorithms."""
    if "transport" in wishes:
        choose(wishes["transport"])
    load_cuda() if wishes.get("device") == "cuda" else load_mpi()
    from .plan import Sweep
    from .styles import HABITS
    from .sweep import run

    return run(Sweep(**{**HABITS.get(wishes.get("style", ""), {}), **wishes}))


def environment(wishes: dict[str, Any]) -> int:
    """Say where we are."""
    load_mpi()
    from .environment import describe

    describe()
    return 0


def merge(wishes: dict[str, Any]) -> int:
    """Join launches; needs no MPI, as all that follows."""
    from .launches import join

    return join(wishes["files"], wishes["out"])


def show(wishes: dict[str, Any]) -> int:
    """Print stored rows; 1 if any was wrong."""
    from .journal import collect
    from .styles import STYLES

    _, rows = collect(wishes["files"])
    print(STYLES[wishes["style"]](rows))
    return int(any(row.wrong for row in rows))


def compare(wishes: dict[str, Any]) -> int:
    """Print what changed; 1 if anything became slower, or is wrong."""
    from .comparison import compare

    return compare(**wishes)


def repeat(wishes: dict[str, Any]) -> int:
    """Print how well two sweeps of the same agree; 1 if not well enough."""
    from .comparison import repeat

    return repeat(wishes["old"], wishes["new"])


def report(wishes: dict[str, Any]) -> int:
    """Write a page, and print where."""
    from .report import write

    write(**wishes)
    print(wishes["out"])
    return 0


def peers(wishes: dict[str, Any]) -> int:
    """Print a table."""
    from .peers import table

    print(table(wishes["files"]))
    return 0


def agree(wishes: dict[str, Any]) -> int:
    """Print a table; 1 if we measure other times than Intel's benchmark."""
    from .agree import agree

    return agree(wishes["files"])


def codecs(wishes: dict[str, Any]) -> int:
    """Print what codecs lose, how fast they are, or what they gain over the links of a job."""
    from .codecs import Table

    way, texts = wishes.pop("way"), wishes.pop("codecs") or None
    for name in wishes.keys() - OF_CODECS[way]:
        fitting = " and ".join(SHOWN[other] for other, options in OF_CODECS.items() if name in options)
        raise ValueError(f"--{name} is for {fitting}, not for {SHOWN[way]}")
    if "bytes" in wishes:
        wishes["nbytes"] = wishes.pop("bytes")
        if wishes["nbytes"] < 4:
            raise ValueError(f"--bytes: expected at least 4, those of a value, not {wishes['nbytes']}")
    for text in texts or ():
        compress.get(text)
    if way == "wire":
        load_mpi()
        from .codec_wire import over_links

        return over_links(texts, **wishes)
    if way == "speed":
        from .codec_speed import speeds

        speeds(texts, **wishes)
    else:
        Table(texts, **wishes).show()
    return 0


def advise(wishes: dict[str, Any]) -> int:
    """Say how to split a training run."""
    from .advise import Advise

    Advise(**wishes).show()
    return 0


def train(wishes: dict[str, Any]) -> int:
    """Train models on all ranks in several ways; 1 if any went wrong."""
    from .train import Train

    return Train(**wishes).run()


def slurm(wishes: dict[str, Any]) -> int:
    """Print a job script."""
    from .plan import Sweep
    from .planfile import words
    from .slurm import Job

    plan = wishes.pop("plan")
    wishes["sweep"] = [*(words(plan) if plan else []), *wishes["sweep"]]
    asked, job = arguments.arguments(["sweep", *wishes["sweep"]]), Job(**wishes)
    del asked["command"]
    wanted = Sweep(**asked)
    if wanted.device == "cuda" and not job.gpus_per_node:
        raise ValueError("a sweep with --device cuda needs --gpus-per-node")
    for nodes in job.nodes:  # what would be refused in the job is refused now
        wanted.foresee(nodes * job.ppn)
    print(job.script(), end="")
    return 0


def preflight(wishes: dict[str, Any]) -> int:
    """Refuse to measure on ranks that are not where they were meant."""
    load_mpi()
    from .preflight import fly

    fly(**wishes)
    return 0


FILES = (merge, show, compare, repeat, report, peers, agree)
COMMANDS = {f.__name__: f for f in (sweep, environment, *FILES, codecs, advise, train, slurm, preflight)}


def main(words: Sequence[str] | None = None) -> int:
    """Returns the exit code: 1 if a result was wrong or became slower, 2 for unusable arguments, 130 if interrupted."""
    try:
        wishes = arguments.arguments(words)
        return COMMANDS[wishes.pop("command")](wishes)
    except (ValueError, TypeError, OSError, ImportError) as error:
        if rank() == 0:
            print(f"bench: {error}", file=sys.stderr)
        return 2


def load_mpi() -> None:
    """Load MPI, or say what to do where there is none."""
    from allreduce import Communicator  # noqa: F401


def load_cuda() -> None:
    """Load MPI with a device for each rank, which it must find chosen."""
    wrong = ""
    try:
        allreduce.bind_device()
    except RuntimeError as error:
        wrong = str(error)
    load_mpi()
    from mpi4py import MPI

    from .devices import agree

    agree(MPI.COMM_WORLD, wrong)


def rank() -> int:
    """Ours: MPI's, or what the launcher says if MPI has not been needed so far."""
    mpi = sys.modules.get("mpi4py.MPI")
    return mpi.COMM_WORLD.rank if mpi else int(next((os.environ[name] for name in RANKS if name in os.environ), 0))


if __name__ == "__main__":
    sys.exit(main())

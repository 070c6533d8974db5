"""Job scripts for Slurm: sweeps over counts of nodes, in one allocation or in jobs one after the other.

What is asked for stands at the top, what is done with it in job.sh.
"""

import re
import shlex
import sys
from argparse import ArgumentParser, ArgumentTypeError
from dataclasses import dataclass, field
from pathlib import Path

from .transports import VARIABLES

__all__ = ["FABRICS", "LAUNCHERS", "Job", "options"]

#: What ranks on several nodes may go by.
FABRICS: dict[str, dict[str, str]] = {"auto": {}, **VARIABLES}
del FABRICS["shm"]

#: What lets Cray's and Intel's MPI take arrays on a device.
DEVICES = {"MPICH_GPU_SUPPORT_ENABLED": "1", "I_MPI_OFFLOAD": "1"}

_SRUN = (
    "srun{mpi} --nodes=$1 --ntasks=$(($1 * {ppn})) --ntasks-per-node={ppn} --cpu-bind=cores{gpus}"
    " --kill-on-bad-exit=1 --wait=60"
)
#: How ranks are started on the first $1 nodes of a job.
LAUNCHERS = {
    "pmix": _SRUN.replace("{mpi}", " --mpi=pmix"),
    "pmi2": _SRUN.replace("{mpi}", " --mpi=pmi2"),
    "srun": _SRUN.replace("{mpi}", ""),
    "openmpi": "mpirun -n $(($1 * {ppn})) --map-by ppr:{ppn}:node:PE={cores} --bind-to core",
    "mpich": "mpiexec -n $(($1 * {ppn})) -ppn {ppn} -bind-to core:{cores}",
}

#: Options of sbatch that are written from ours.
OURS = ("job-name", "nodes", "ntasks", "ntasks-per-node", "cpus-per-task", "gpus-per-node", "gres", "gpus",
        "gpus-per-task", "gpu-bind", "time", "signal", "array", "output", "dependency", "parsable")  # fmt: skip


def counts(text: str) -> list[int]:
    """Numbers of nodes, ascending: 1,2,4,8."""
    numbers = [int(word) if word.isascii() and word.isdigit() else 0 for word in text.split(",")]
    if min(numbers) < 1 or sorted(set(numbers)) != numbers:
        raise ArgumentTypeError(f"expected numbers of nodes, ascending, such as 1,2,4,8, not {text!r}")
    return numbers


def whole(text: str) -> int:
    """A whole number above zero."""
    if not (text.isascii() and text.isdigit() and int(text)):
        raise ArgumentTypeError(f"expected a whole number above zero, not {text!r}")
    return int(text)


def limit(text: str) -> str:
    """A time as Slurm reads it: 00:30:00, 1-12:00:00."""
    if not seconds(text):
        raise ArgumentTypeError(f"expected a time such as 00:30:00 or 1-12:00:00, not {text!r}")
    return text


def seconds(text: str) -> int:
    """Of a time limit; 0 if it is none."""
    match = re.fullmatch(r"(?:(\d+)-)?(\d+):([0-5]\d):([0-5]\d)", text, re.ASCII)
    days, hours, minutes, rest = (int(part or 0) for part in match.groups()) if match else (0, 0, 0, 0)
    return ((days * 24 + hours) * 60 + minutes) * 60 + rest


def options(parser: ArgumentParser) -> None:
    """Those of the command line."""
    add = parser.add_argument
    add("--nodes", type=counts, required=True, metavar="N,N,...", help="counts to measure on, such as 1,2,4,8")
    add("--ppn", type=whole, required=True, metavar="N", help="ranks on each node")
    add("--cores", type=whole, default=1, metavar="N", help="of each rank (default 1)")
    words = "to ask for, and to check before: each rank takes the one of its number on the node"
    add("--gpus-per-node", type=whole, default=0, metavar="N", help=words)
    add("--fabric", choices=FABRICS, default="auto", help="auto: as the MPI library finds (default)")
    words = "pmix, pmi2: srun --mpi=...; openmpi, mpich: their own; Intel's is like mpich's (default srun)"
    add("--launcher", choices=LAUNCHERS, default="srun", help=words)
    add("--launches", type=whole, default=1, metavar="N", help="an array of N jobs, one after the other (default 1)")
    add("--time", type=limit, default="00:30:00", help="limit of a job (default 00:30:00)")
    add("--warn", type=whole, default=120, metavar="SECONDS", help="before the limit, to stop in order (default 120)")
    add("--name", default="allreduce", help="of the job (default allreduce)")
    add("--results", default="results", metavar="DIR", help="gets a directory for each job (default results)")
    add("--sbatch", default=[], action="append", metavar="OPTION", help="more of it: --sbatch=--partition=gpu")
    add("--setup", action="append", default=[], metavar="LINE", help="to run first: 'module load openmpi'")
    words = "what to sweep, as for bench sweep; what stands behind -- overrides it"
    add("--plan", type=Path, metavar="FILE.toml", help=words)
    add("sweep", nargs="*", metavar="-- OPTION", help="of bench sweep")


@dataclass(frozen=True)
class Job:
    """The arguments of the command line; `warn` in seconds, `sweep` the options of `bench sweep`."""

    nodes: list[int]
    ppn: int
    cores: int = 1
    gpus_per_node: int = 0
    fabric: str = "auto"
    launcher: str = "srun"
    launches: int = 1
    time: str = "00:30:00"
    warn: int = 120
    name: str = "allreduce"
    results: str = "results"
    sbatch: list[str] = field(default_factory=list)
    setup: list[str] = field(default_factory=list)
    sweep: list[str] = field(default_factory=list)

    def check(self) -> None:
        """Refuse what Slurm would, hours later, or would not but makes no sense."""
        if self.gpus_per_node and self.ppn > self.gpus_per_node:
            raise ValueError(f"--ppn {self.ppn} with --gpus-per-node {self.gpus_per_node}: ranks would share a GPU")
        if self.warn >= seconds(self.time):
            raise ValueError(f"--warn {self.warn}: expected fewer seconds than --time {self.time}")
        if not re.fullmatch(r"[\w.-]+", self.name, re.ASCII):
            raise ValueError(f"--name: expected letters, digits and _.-, not {self.name!r}")
        for option in self.sbatch:
            match = re.fullmatch(r"--([a-z-]+)(=\S+)?", option)
            if not match or match[1] in OURS:
                raise ValueError(f"--sbatch: expected an option that is not written here, such as --partition=gpu, "
                                 f"not {option!r}")  # fmt: skip
        if any("\n" in word for word in (self.results, *self.setup, *self.sweep)):
            raise ValueError("an option holds a line break; --setup may be given several times")
        if any(word.startswith("--json") for word in self.sweep):
            raise ValueError("--json is for the job to choose: a file for each count of nodes, in --results")

    def script(self) -> str:
        """The text for sbatch.

        Raises
        ------
        ValueError
            If the options make no sense together.
        """
        self.check()
        gpus = self.gpus_per_node
        shape = {"ppn": self.ppn, "cores": self.cores, "gpus": " --gpu-bind=none" if gpus else ""}
        checks = ["--ppn", self.ppn, "--cores", self.cores, *(["--gpus", gpus] if gpus else [])]
        variables = {"OMP_NUM_THREADS": "1", "NUMBA_NUM_THREADS": "1", "SRUN_CPUS_PER_TASK": str(self.cores)}
        variables |= FABRICS[self.fabric] | (DEVICES if gpus else {})
        options = {
            "job-name": self.name,
            "nodes": self.nodes[-1],
            "ntasks-per-node": self.ppn,
            "cpus-per-task": self.cores,
            "gpus-per-node": gpus or None,
            "array": f"1-{self.launches}%1" if self.launches > 1 else None,
            "time": self.time,
            "signal": f"B:USR1@{self.warn}",
            "output": "%x-%j.out",
        }
        lines = [
            "#!/bin/bash",
            f"# Written by: python -m bench {shlex.join(sys.argv[1:])}",
            *(f"#SBATCH --{name}={value}" for name, value in options.items() if value is not None),
            *(f"#SBATCH {option}" for option in ("--exclusive", "--no-requeue", *self.sbatch)),
            "",
            *self.setup,
            *(f"export {name}={value}" for name, value in variables.items()),
            f"counts=${{*:-{' '.join(map(str, self.nodes))}}}",
            f"results={shlex.quote(self.results)}",
            f"preflight=(preflight {shlex.join(map(str, checks))})",
            f"sweep=({shlex.join(['sweep', *self.sweep])})",
            f'launch() {{ exec {LAUNCHERS[self.launcher].format(**shape)} "${{@:2}}"; }}',
        ]
        return "\n".join(lines) + "\n\n" + Path(__file__).with_name("job.sh").read_text()

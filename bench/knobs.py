"""MPI's own algorithms, where the library lets itself be told which one to take."""

import os
from functools import cache

from mpi4py import MPI

from .records import BARE, NATIVE
from .variables import Variable, variable

__all__ = ["Knob", "algorithms", "check", "native"]

#: Control variables that choose one, and what others must be for that to count.
KNOBS = {
    "coll_tuned_allreduce_algorithm": {"coll_tuned_use_dynamic_rules": 1},
    "MPIR_CVAR_ALLREDUCE_INTRA_ALGORITHM": {  # that of the device, which else comes first: say by collective, and no
        "MPIR_CVAR_DEVICE_COLLECTIVES": 2, "MPIR_CVAR_ALLREDUCE_DEVICE_COLLECTIVE": 0,
    },
}  # fmt: skip
#: Algorithms for the memory of GPUs.
LEFT_OUT = ("ccl",)
#: Intel's library listens only when it starts.
INTEL = "I_MPI_ADJUST_ALLREDUCE"
#: On several nodes Open MPI has another component, which takes `tuned` for parts only.
TUNED = {"ompi_comm_coll_preference": "tuned"}


@cache
def native() -> str:
    """What MPI's own all-reduce is called here: with its algorithm, if Intel's library was told one."""
    told = os.environ.get(INTEL) if MPI.Get_library_version().startswith("Intel") else None
    return f"{NATIVE}:{told}" if told else NATIVE


@cache
def algorithms() -> dict[str, int]:
    """Those that can be chosen in this library, such as native:ring, with their values; 0 is its own choice."""
    knob = _knob()
    values = knob.values if knob else {}
    return {f"{NATIVE}:{name}": value for name, value in values.items() if value and name not in LEFT_OUT}


def check(name: str) -> None:
    """ValueError for one that cannot be had here."""
    have = [*algorithms(), native(), BARE]
    if name not in have:
        also = "" if algorithms() else f"; Intel MPI takes {INTEL}=2 when it starts, and what it does is native:2"
        raise ValueError(f"no algorithm {name!r} in this MPI; have {', '.join(have)}{also}")


class Knob:
    """Makes MPI take an algorithm on one communicator.

    Open MPI does what was chosen when a communicator was made, MPICH what is chosen at the time of a call.
    """

    def __init__(self, comm: MPI.Intracomm) -> None:
        self.own, self.now = comm, 0
        self.made: dict[str, MPI.Intracomm] = {}

    def comm(self, name: str) -> MPI.Intracomm:
        """Where it is to be called; collective."""
        if name not in algorithms():
            return self.own
        if name not in self.made:
            self.turn(name)
            info = MPI.Info.Create(TUNED)
            self.made[name] = self.own.Dup(info)
            info.Free()
            self.turn(NATIVE)
        return self.made[name]

    def turn(self, name: str) -> None:
        """Before it is called; for all that is none of these, to what was before."""
        value, knob = algorithms().get(name, 0), _knob()
        if knob and value != self.now:
            self.now = value
            for other, wanted in KNOBS[knob.name].items():
                if also := variable(other):
                    also.set(wanted if value else None)
            knob.set(value or None)


@cache
def _knob() -> Variable | None:
    return next((found for name in KNOBS if (found := variable(name))), None)

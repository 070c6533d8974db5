"""The command line: `mpirun -n 4 python -m bench sweep --min 4 --max 64M`."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any


def size(text: str) -> int:
    """A number of bytes: 4, 64K, 16M, 1G."""
    units = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
    number, unit = (text[:-1], units[text[-1].upper()]) if text[-1:].upper() in units else (text, 1)
    if not number.isdigit() or not int(number):
        raise argparse.ArgumentTypeError(f"expected a size such as 4, 64K or 16M, not {text!r}")
    return int(number) * unit


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    commands = top.add_subparsers(dest="command", required=True)
    sweep = commands.add_parser("sweep", help="time algorithms over message sizes, beside MPI's own all-reduce")
    add = sweep.add_argument
    add("--min", type=size, default=4, metavar="BYTES", help="smallest message (default 4)")
    add("--max", type=size, default=size("64M"), metavar="BYTES", help="largest message (default 64M)")
    add("--factor", type=int, default=4, help="from one size to the next (default 4)")
    names = (
        "all, auto, node (shared memory), gloo (PyTorch's), torch (our backend for PyTorch), copy (np.copyto), or such "
        "as ring torus:grid=2x4"
    )
    add("--algorithms", nargs="+", default=["all"], metavar="NAME", help=names)
    add("--dtype", default="float32", help="of the elements, such as float32, bfloat16, int64 (default float32)")
    add("--op", default="sum", help="sum, prod, min, max, avg, ... (default sum)")
    add("--accumulate", metavar="DTYPE", help="make sums in a wider type")
    words = "measure each with what travels encoded, too: int8, topk:ratio=0.01, ...; wrong is what exceeds the bound"
    add("--codec", nargs="+", default=[], metavar="CODEC", help=words)
    add("--data", metavar="FILE.npy", help="reduce these real values instead of small whole numbers")
    add("--buffers", choices=("private", "shared"), default="private", help="shared: arrays from empty_shared")
    add("--rewrite", action="store_true", help="write the input anew before every repetition, as training does")
    add("--seconds", type=float, default=0.2, help="time for one row, within 11 to 200 repetitions (default 0.2)")
    add("--seed", type=int, default=0, help="of the order of the measurements (default 0)")
    add("--json", metavar="FILE.jsonl", help="write every repetition; the file must not exist yet")
    commands.add_parser("environment", help="what was detected, and what it means")
    peers = commands.add_parser("peers", help="a table of the sweeps that scripts/peers has run")
    peers.add_argument("files", nargs="+", type=Path, metavar="FILE.jsonl")
    codecs = commands.add_parser("codecs", help="what codecs lose in an all-reduce, and how fast they are")
    add = codecs.add_argument
    add("codecs", nargs="*", metavar="CODEC", help="such as int4:block=32 thc:width=6 (default: one of each)")
    add("--ranks", nargs="+", type=int, default=[2, 8, 64], metavar="P", help="simulated (default 2 8 64)")
    add("--count", type=int, default=1 << 15, metavar="N", help="values of noise per rank (default 32768)")
    add("--data", nargs="*", type=Path, metavar="FILE.npy", help="gradients, a row per rank (default: tests/data)")
    add("--seed", type=int, default=0, help="of the noise (default 0)")
    add("--speed", action="store_true", help="time encode, decode and decode + add on one core instead")
    add("--bytes", type=size, default=size("64M"), help="of float32 values to time (default 64M)")
    return top


def sweep(wishes: dict[str, Any]) -> int:
    """Time algorithms."""
    from .sweep import Sweep, run

    return run(Sweep(**wishes))


def environment(wishes: dict[str, Any]) -> int:
    """Say where we are."""
    from .environment import describe

    describe()
    return 0


def peers(wishes: dict[str, Any]) -> int:
    """Print a table; needs no MPI."""
    from .peers import table

    print(table(wishes["files"]))
    return 0


def codecs(wishes: dict[str, Any]) -> int:
    """Print what codecs lose, or how fast they are; needs no MPI."""
    from .codecs import Table

    wishes["codecs"] = wishes["codecs"] or None
    nbytes, fast = wishes.pop("bytes"), wishes.pop("speed")
    if fast:
        from .codec_speed import speeds

        speeds(wishes["codecs"], nbytes)
    else:
        Table(**wishes).show()
    return 0


COMMANDS = {"sweep": sweep, "environment": environment, "peers": peers, "codecs": codecs}


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns the exit code: 0, 1 if a result was wrong, 2 for unusable arguments."""
    wishes = vars(parser().parse_args(arguments))
    command = COMMANDS[wishes.pop("command")]
    try:
        return command(wishes)
    except (ValueError, TypeError, OSError) as error:
        if rank() == 0:
            print(f"bench: {error}", file=sys.stderr)
        return 2


def rank() -> int:
    """Ours, if MPI has been needed so far."""
    mpi = sys.modules.get("mpi4py.MPI")
    return mpi.COMM_WORLD.rank if mpi else 0


if __name__ == "__main__":
    sys.exit(main())

"""The command line: `mpirun -n 4 python -m bench sweep --min 4 --max 64M`."""

import argparse
import sys
from collections.abc import Sequence

from .sweep import Sweep, run


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
    names = '"all", "auto", "node" (shared memory), "copy" (np.copyto), or names such as ring torus:grid=2x4'
    add("--algorithms", nargs="+", default=["all"], metavar="NAME", help=names)
    add("--dtype", default="float32", help="of the elements, such as float32, bfloat16, int64 (default float32)")
    add("--op", default="sum", help="sum, prod, min, max, avg, ... (default sum)")
    add("--accumulate", metavar="DTYPE", help="make sums in a wider type")
    add("--data", metavar="FILE.npy", help="reduce these real values instead of small whole numbers")
    add("--buffers", choices=("private", "shared"), default="private", help="shared: arrays from empty_shared")
    add("--rewrite", action="store_true", help="write the input anew before every repetition, as training does")
    add("--seconds", type=float, default=0.2, help="time for one row, within 11 to 200 repetitions (default 0.2)")
    add("--seed", type=int, default=0, help="of the order of the measurements (default 0)")
    add("--json", metavar="FILE.jsonl", help="write every repetition; the file must not exist yet")
    return top


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns the exit code: 0, 1 if a result was wrong, 2 for unusable arguments."""
    wishes = vars(parser().parse_args(arguments))
    wishes.pop("command")
    try:
        return run(Sweep(**wishes))
    except (ValueError, TypeError, OSError) as error:
        from mpi4py import MPI

        if MPI.COMM_WORLD.rank == 0:
            print(f"bench: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())

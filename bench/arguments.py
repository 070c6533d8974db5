"""The options of `python -m bench`."""

import argparse
import sys
from collections.abc import Sequence
from functools import partial
from math import inf
from pathlib import Path
from typing import Any, NoReturn

from . import slurm
from .advice.options import add_options
from .slurm import whole
from .training.options import add_options as add_training
from .transports import TRANSPORTS

__all__ = ["arguments", "size"]

STYLES = ("table", "osu", "nccl-tests", "csv")


def arguments(words: Sequence[str] | None = None) -> dict[str, Any]:
    """The wishes of the command line; what a sweep's file says counts where the command line says nothing else.

    Raises ValueError if they make no sense.
    """
    words = list(sys.argv[1:] if words is None else words)
    wishes = vars(parser().parse_args(words))
    if wishes["command"] != "sweep":
        return wishes
    if wishes.get("plan"):
        from .planfile import words as words_of

        wishes = vars(parser().parse_args([words[0], *words_of(wishes["plan"]), *words[1:]]))
    wishes.pop("plan", None)
    return wishes


class Parser(argparse.ArgumentParser):
    """One that says in a line what is wrong, as all else does: every rank has one."""

    def error(self, message: str) -> NoReturn:
        raise ValueError(f"{message}; {self.prog} --help names all options")


def parser() -> Parser:
    """Of all commands."""
    top = Parser(prog="python -m bench", description="Benchmarks of all-reduce.")
    commands = top.add_subparsers(dest="command", required=True)
    _sweep(commands)
    commands.add_parser("environment", help="what was detected, and what it means")
    _files(commands)
    _codecs(commands)
    _slurm(commands)
    add_options(commands.add_parser("advise", help="how to split a training run over GPUs, and what each axis sends"))
    add_training(commands.add_parser("train", help="train in several ways, beside PyTorch's own on gloo"), size)
    return top


def size(text: str) -> int:
    """A number of bytes, up to 1024G: 4, 64K, 16M, 1G."""
    units = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
    number, unit = (text[:-1], units[text[-1].upper()]) if text[-1:].upper() in units else (text, 1)
    if not number.isdigit() or not 0 < int(number) * unit <= 1 << 40:
        raise argparse.ArgumentTypeError(f"expected a size such as 4, 64K or 16M, up to 1024G, not {text!r}")
    return int(number) * unit


def percent(text: str) -> float:
    """A part of one: 2%, 0.02."""
    try:
        part = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except ValueError:
        part = -1
    if not 0 <= part < inf:
        raise argparse.ArgumentTypeError(f"expected a part such as 2%, not {text!r}")
    return part


def natural(text: str) -> int:
    """A whole number; 0 is one."""
    if not (text.isascii() and text.isdigit()):
        raise argparse.ArgumentTypeError(f"expected a whole number of at least 0, not {text!r}")
    return int(text)


def _sweep(commands: Any) -> None:
    words = "time algorithms over message sizes, beside MPI's own all-reduce"
    sweep = commands.add_parser("sweep", help=words, argument_default=argparse.SUPPRESS)
    add = sweep.add_argument
    add("--plan", type=Path, metavar="FILE.toml", help="names of these options with values; what stands here overrides")
    what = sweep.add_argument_group("what")
    add = what.add_argument
    add("--min", type=size, metavar="BYTES", help="smallest message (default 4)")
    add("--max", type=size, metavar="BYTES", help="largest message (default 64M)")
    add("--factor", type=int, help="from one size to the next (default 4)")
    add("--sizes", type=size, nargs="+", metavar="BYTES", help="these messages instead")
    names = (
        "all, auto, node (shared memory), gloo (PyTorch's; torch: where it is installed), copy (of the array), "
        "guidelines (MPI's own in two parts), natives (each of MPI's own algorithms, where one can choose), "
        "native:bare (MPI's own in a compiled loop, without what it costs to call from Python), "
        "or names such as ring torus:grid=2x4 native:ring"
    )
    add("--algorithms", nargs="+", default=["all"], metavar="NAME", help=names)
    add("--dtype", nargs="+", help="of the elements, such as float32 bfloat16 int64 (default float32)")
    add("--op", nargs="+", help="sum, prod, min, max, avg, ... (default sum)")
    words = "only the first P, one number after the other (default all)"
    add("--ranks", type=whole, nargs="+", metavar="P", help=words)
    add("--accumulate", metavar="DTYPE", help="make sums in a wider type")
    words = "measure each with what travels encoded, too: int8, topk:ratio=0.01, ...; wrong is what exceeds the bound"
    add("--codec", nargs="+", metavar="CODEC", help=words)
    add("--data", metavar="FILE.npy", help="reduce these real values instead of small whole numbers")
    words = "where arrays lie; cuda: on a device each, with MPI's and NCCL's own beside ours (default host)"
    add("--device", choices=("host", "cuda"), help=words)
    words = "on devices: rows by each of these ways (default auto, the fastest)"
    add("--route", nargs="+", choices=("auto", "aware", "staged", "ipc"), help=words)
    words = "what messages between nodes go by, where MPI can be told; rdma: InfiniBand, RoCE, Slingshot; shm: one node"
    add("--transport", choices=TRANSPORTS, help=words)
    add("--buffers", choices=("private", "shared"), help="shared: arrays from empty_shared (default private)")
    add("--place", nargs="+", choices=("out", "in"), help="result in a buffer of its own, or in place (default out)")
    words = "blocking (default), nonblocking, overlapped (with as long a computation), persistent"
    add("--call", nargs="+", choices=("blocking", "nonblocking", "overlapped", "persistent"), help=words)
    how = sweep.add_argument_group("how")
    add, flag = how.add_argument, argparse.BooleanOptionalAction
    add("--rewrite", action=flag, help="write the input anew before every repetition, as training does")
    add("--cold", action=flag, help="empty the caches before every repetition")
    add("--start", choices=("barrier", "window"), help="window: at one time on a common clock (default barrier)")
    add("--across", choices=("max", "min", "mean", "rank0"), help="which rank's time counts (default max)")
    add("--batch", type=int, metavar="N", help="calls back to back, at most (default 200)")
    add("--batched", type=size, metavar="BYTES", help="so only messages up to so many bytes (default 1K)")
    add("--warm-up", type=natural, metavar="N", help="repetitions before that do not count, 1 MB in all (default 0)")
    add("--precision", type=percent, metavar="P%", help="stop when all medians are known so well (default 2%%)")
    add("--seconds", type=float, help="measured per row at most, within 11 to 1000 repetitions (default 0.2)")
    add("--seed", type=natural, help="of the order of the measurements (default 0)")
    out = sweep.add_argument_group("results")
    out.add_argument("--json", metavar="FILE.jsonl", help="write every repetition; the file must not exist yet")
    out.add_argument("--resume", action=flag, help="measure what is not in that file yet")
    out.add_argument("--style", choices=STYLES, help="columns of another tool, measured as it does, or CSV")


def _files(commands: Any) -> None:
    def reading(name: str, words: str) -> argparse.ArgumentParser:
        parser = commands.add_parser(name, help=words)
        parser.add_argument("files", nargs="+", type=Path, metavar="FILE.jsonl")
        return parser

    merge = reading("merge", "several launches of one sweep in one file: intervals are those over launches")
    merge.add_argument("--out", type=Path, required=True, metavar="FILE.jsonl", help="must not exist yet")
    show = reading("show", "print what sweeps have measured")
    show.add_argument("--style", choices=STYLES, default="table", help="columns of another tool, or CSV")
    report = reading("report", "a page with pictures, of one or more sweeps")
    report.add_argument("--out", type=Path, default=Path("report.html"), metavar="FILE.html")
    report.add_argument("--pictures", type=Path, metavar="FOLDER", help="write each there, too, as SVG and PNG")
    reading("peers", "a table of the sweeps that scripts/peers has run")
    reading("agree", "whether we time MPI as Intel's benchmark does, of what scripts/agree has measured")
    compare = commands.add_parser("compare", help="find what became slower; exit code 1 if anything did")
    words = "whether two sweeps of the same agree: intervals within 5%% of the median, and 95%% of them overlap"
    for parser in (compare, commands.add_parser("repeat", help=words)):
        parser.add_argument("old", type=Path, metavar="OLD.jsonl")
        parser.add_argument("new", type=Path, metavar="NEW.jsonl")
    words = "by how much the whole interval must be slower (default 5%%)"
    compare.add_argument("--threshold", type=percent, default=0.05, metavar="P%", help=words)
    words = "compare times over those of this one in the same rounds, such as native: other load tells less"
    compare.add_argument("--against", metavar="ALGORITHM", help=words)


def _codecs(commands: Any) -> None:
    words = "what codecs lose in an all-reduce, how fast they are, what they gain"
    codecs = commands.add_parser("codecs", help=words, argument_default=argparse.SUPPRESS)
    add, instead = codecs.add_argument, codecs.add_mutually_exclusive_group()
    add("codecs", nargs="*", default=[], metavar="CODEC", help="such as int4:block=32 (default: one of each)")
    add("--ranks", nargs="+", type=whole, metavar="P", help="simulated (default 2 8 64)")
    add("--count", type=whole, metavar="N", help="values of noise per rank (default 32768)")
    add("--data", nargs="*", type=Path, metavar="FILE.npy", help="gradients, a row per rank (default: tests/data)")
    add("--seed", type=natural, help="of the noise (default 0)")
    add = partial(instead.add_argument, action="store_const", dest="way", default="errors")
    add("--speed", const="speed", help="time encode, decode and decode + add on one core")
    add("--wire", const="wire", help="under mpirun: time all-reduces over the links of the job")
    add = codecs.add_argument
    add("--algorithm", metavar="NAME", help="that messages are encoded in, with --wire (default auto)")
    add("--json", metavar="FILE.jsonl", help="write what --wire shows, for bench report; must not exist yet")
    add("--bytes", type=size, help="of float32 values to time (default 64M)")


def _slurm(commands: Any) -> None:
    slurm.options(commands.add_parser("slurm", help="write a job script that sweeps over counts of nodes"))
    words = "under a launcher: whether ranks, cores and GPUs are as meant"
    add = commands.add_parser("preflight", help=words).add_argument
    add("--nodes", type=whole, required=True, metavar="N", help="that ranks must be on")
    add("--ppn", type=whole, required=True, metavar="N", help="ranks on each")
    add("--cores", type=whole, default=1, metavar="N", help="of a rank (default 1)")
    add("--gpus", type=natural, default=0, metavar="N", help="that every rank must see (default 0)")

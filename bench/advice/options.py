"""The options of `python -m bench advise`."""

import argparse

from .gpus import GPUS
from .units import amount, count, factor, rate

__all__ = ["add_options"]


def add_options(parser: argparse.ArgumentParser) -> None:
    """To a parser."""
    add = parser.add_argument
    for name, words in (
        ("params", "parameters, such as 130e9 or 130B"),
        ("layers", "all alike"),
        ("hidden", "values of a token between layers"),
        ("seq", "tokens of a sequence"),
        ("batch", "sequences of a step, over all GPUs"),
        ("nodes", "all alike"),
        ("gpus-per-node", "such as 8"),
    ):
        add(f"--{name}", type=count, required=True, metavar="N", help=words)
    add("--gpu", required=True, metavar="NAME", help=f"{', '.join(GPUS)}: as in their data sheets")
    add("--intra", type=rate, required=True, metavar="RATE", help="of a GPU inside a node, each way: 300GB/s")
    add("--inter", type=rate, required=True, metavar="RATE", help="of a node to the others, each way: 1600Gb/s")
    add("--data", type=amount, metavar="BYTES", help="of text, such as 10PB (default: 20 tokens a parameter)")
    add("--bytes-per-token", type=factor, default=4.0, metavar="X", help="of text (default 4)")
    add("--vocab", type=count, default=51200, metavar="N", help="words of the embedding (default 51200)")
    add("--heads", type=count, metavar="N", help="of attention (default: about 128 wide)")
    words = "whether attention is one kernel or its scores go through memory (default: fused on Hopper)"
    add("--attention", choices=("fused", "stored"), help=words)
    words = "whether it recomputes little, interleaves and overlaps (later) or not (default: later, ranked for both)"
    add("--software", choices=("earlier", "later"), help=words)
    add("--top", type=count, default=8, metavar="N", help="choices to print (default 8)")
    add("--json", metavar="FILE", help='write all choices, best first; "-" prints them instead of the table')

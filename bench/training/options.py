"""The options of `python -m bench train`."""

from argparse import ArgumentParser, ArgumentTypeError
from collections.abc import Callable
from typing import Any

__all__ = ["MODELS", "PARALLEL", "add_options"]

PARALLEL = ("data", "tensor", "pipeline", "hybrid")
MODELS = ("mlp", "cnn", "gpt")


def count(text: str) -> int:
    """A whole number above zero."""
    if not (text.isascii() and text.isdigit() and int(text)):
        raise ArgumentTypeError(f"expected a whole number above zero, not {text!r}")
    return int(text)


def positive(text: str) -> float:
    """A number above zero."""
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not 0 < number < float("inf"):
        raise ArgumentTypeError(f"expected a number above zero, not {text!r}")
    return number


def sizes(text: str) -> tuple[int, int, int]:
    """Of a mesh: 2x2x1."""
    parts = text.split("x")
    if len(parts) != 3:
        raise ArgumentTypeError(f"expected data x tensor x pipeline, such as 2x2x1, not {text!r}")
    data, tensor, pipeline = map(count, parts)
    return data, tensor, pipeline


def add_options(parser: ArgumentParser, size: Callable[[str], int]) -> None:
    """To a parser; `size` reads a number of bytes."""
    what, how = parser.add_argument_group("what"), parser.add_argument_group("how")
    add: Any = what.add_argument
    add("--parallel", choices=PARALLEL, default="data", help="how ranks share the work (default data)")
    words = "of hybrid, data x tensor x pipeline, such as 2x2x1 (default: each doubled in turn, the rest data)"
    add("--mesh", type=sizes, default=(0, 0, 0), metavar="DxTxP", help=words)
    add("--model", choices=MODELS, default="mlp", help="mlp, cnn: of digits; gpt: of characters (default mlp)")
    words = "of layers (default 64, cnn 32); mlp 660: 5.3 million parameters"
    add("--width", type=count, default=0, metavar="N", help=words)
    add("--depth", type=count, default=6, metavar="N", help="layers between the first and the last (default 6)")
    add("--codec", nargs="+", default=[], metavar="CODEC", help="of gradients, each beside none: int8, powersgd:rank=2")
    words = 'of our all-reduces (default auto: a codec where it pays, on one node never; "direct": everywhere)'
    add("--algorithm", default="auto", metavar="NAME", help=words)
    words = "of ours: communicate in the thread that computes, as is best where no core is to spare"
    add("--no-overlap", dest="overlap", action="store_false", help=words)
    add("--no-baselines", dest="baselines", action="store_false", help="leave PyTorch's own on gloo out")
    add = how.add_argument
    add("--batch", type=count, default=32, metavar="N", help="samples of a replica (default 32)")
    add("--microbatches", type=count, default=4, metavar="N", help="of a pipeline (default 4)")
    add("--bucket", type=size, default=4 << 20, metavar="BYTES", help="of gradients, data parallel (default 4M)")
    add("--steps", type=count, default=0, metavar="N", help="of training (default 120, gpt 200)")
    add("--every", type=count, default=10, metavar="N", help="steps from one test to the next (default 10)")
    add("--probe", type=count, default=20, metavar="N", help="steps of each kind to tell communication by (default 20)")
    add("--lr", type=positive, default=0.0, help="at first; it falls to nothing (default 0.02, gpt 0.2)")
    add("--target", type=positive, default=0.0, help="accuracy in percent, of gpt loss (default 94, gpt 2.5)")
    add("--seed", type=int, default=0, help="of the batches (default 0)")
    add("--json", metavar="FILE.jsonl", help="write all losses and times; the file must not exist yet")

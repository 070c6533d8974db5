"""Choices in words, as a table, and as plain data."""

from typing import Any, NamedTuple

from .choices import USABLE, Choice
from .links import Cluster
from .memory import GRADIENT, OPTIMISER, WEIGHT
from .model import Model
from .ranking import CLOSE

__all__ = ["Run", "reason", "record", "table"]

DAY = 86400


class Run(NamedTuple):
    """What is to be trained, where, and on how many tokens."""

    model: Model
    cluster: Cluster
    tokens: float

    def idle(self, choice: Choice) -> int:
        """GPUs without work."""
        return self.cluster.nodes * self.cluster.gpus - choice.split.gpus

    def useful(self, choice: Choice) -> float:
        """TFLOP/s of a GPU at work without codec and without what it does again: peak times model FLOP utilisation."""
        return self.model.flops(0, scores=False) / choice.exact / choice.split.gpus / 1e12

    def tflops(self, choice: Choice) -> float:
        """The same, what it does again included: peak times hardware FLOP utilisation."""
        split = choice.split
        again = split.again / split.layers(self.model) if split.later else 1.0
        return self.model.flops(again, split.recompute != "none") / choice.exact / split.gpus / 1e12

    def days(self, choice: Choice) -> float:
        return self.tokens / (self.model.batch * self.model.seq) * choice.seconds / DAY


def table(run: Run, choices: list[Choice], top: int) -> str:
    """The first of them, for people."""
    model, gpu = run.model, run.cluster.gpu
    lines = [
        f"# {run.cluster.nodes * run.cluster.gpus} GPUs of {gpu.flops / 1e12:.0f} TFLOP/s ({gpu.source}); "
        f"{USABLE * gpu.memory / 1e9:.0f} GB of each to plan with",
        f"# {run.tokens:.3g} tokens, {model.batch * model.seq:.3g} a step; choices that fit: {len(choices)}",
        "# pipe: stages x interleaved chunks; recomputed: of all layers, + whole layers of a GPU; GB of a GPU: weights "
        "+ gradients + optimiser (s: sharded; S: all three) + activations; sent: GB by a GPU a step; comm: not hidden, "
        "over compute",
        f"{'data':>5}{'tensor':>7}{'pipe':>8}{'micro':>6}  {'recomputed':14}{'codec':9}{'memory':^30}"
        f"{'sent: tensor':>13}{'pipe':>7}{'data':>7}{'seconds':>9}{'TFLOP/s':>9}{'comm':>6}{'bubble':>7}{'days':>10}",
    ]
    quickest = min(c.seconds for c in choices)
    for place, choice in enumerate(choices[:top], 1):
        lines += [row(run, choice), f"   {place}. {reason(run, choice, quickest)}"]
    return "\n".join(lines)


def row(run: Run, choice: Choice) -> str:
    split, memory, step, codec, *_ = choice
    parts = f"{memory.weights / 1e9:.1f} + {memory.gradients / 1e9:.1f} + {memory.optimiser / 1e9:.1f}"
    parts += f"{'S' if split.strewn else 's' * split.sharded} + {memory.activations / 1e9:.1f}"
    pipe = f"{split.pipeline}" + f" x {split.chunks}" * (split.chunks > 1)
    recomputed = split.recompute + f" + {split.again}" * (split.again > 0)
    return (
        f"{split.data:5}{split.tensor:7}{pipe:>8}{split.microbatch:6}  {recomputed:14}{codec:9}{parts:^30}"
        f"{step.tensor_bytes / 1e9:13.1f}{step.pipeline_bytes / 1e9:7.1f}{step.data_bytes / 1e9:7.1f}"
        f"{step.seconds:9.2f}{run.tflops(choice):9.0f}{step.ratio:6.0%}{step.bubble / step.seconds:7.0%}"
        f"{run.days(choice):10,.1f}"
    )


def reason(run: Run, choice: Choice, quickest: float) -> str:
    """One sentence: how quick, why it is listed where it is, what costs most, and what must be known of it."""
    split, memory, step, codec, _, note = choice
    per_node, state = run.cluster.gpus, memory.weights + memory.gradients + memory.optimiser
    spared = (WEIGHT + GRADIENT + OPTIMISER) * split.owned(run.model) - state
    shared = "weights, gradients and optimiser" if split.strewn else "the optimiser"
    said = [
        (True, speed(choice.seconds / quickest - 1)),
        (note, note),
        (step.ratio, dearest(choice)),
        (split.sharded, f"each replica keeps 1/{split.data} of {shared}, {spared / 1e9:.0f} GB less"),
        (split.tensor > per_node, "tensor parallelism leaves the node, so be wary"),
        (codec != "none", f"{codec} gradients save more than they cost"),
        (split.again, f"memory asks that {split.again} of {split.layers(run.model)} layers of a GPU be computed again"),
        (run.idle(choice), f"{unused(run.idle(choice), per_node)} idle, as the batch must divide by the replicas"),
    ]
    return "; ".join(words for true, words in said if true) + "."


def speed(behind: float) -> str:
    close = f"as quick as any, {behind:.1%} behind the quickest" if behind else "the quickest"
    return close if behind <= CLOSE else f"{behind:.0%} slower than the quickest"


def dearest(choice: Choice) -> str:
    """What takes most of the time that nothing is computed in."""
    step = choice.step
    seconds, cause = max(
        (step.tensor, "all-reduces of activations"),
        (step.pipeline, "messages between stages"),
        (step.data, "gathering weights" if choice.split.strewn else "all-reduces of gradients"),
        (step.bubble, "filling and draining the pipeline"),
    )
    return f"{seconds / step.seconds:.0%} of the time goes to {cause}"


def unused(gpus: int, per_node: int) -> str:
    """So many GPUs, whole nodes as nodes.

    >>> unused(9, 8), unused(2, 8)
    ('1 node and 1 GPU', '2 GPUs')
    """
    parts = ((gpus // per_node, "node"), (gpus % per_node, "GPU"))
    return " and ".join(f"{number} {noun}{'s' * (number > 1)}" for number, noun in parts if number)


def record(run: Run, choice: Choice, quickest: float) -> dict[str, Any]:
    """All that is known of a choice; bytes are per GPU, and of a step where they are sent."""
    (split, memory, step, codec, *_), idle = choice, run.idle(choice)
    seconds = {name: getattr(step, name) for name in ("compute", "tensor", "pipeline", "data", "bubble", "optimiser")}
    return {
        "data": split.data, "tensor": split.tensor, "pipeline": split.pipeline, "microbatch": split.microbatch,
        "interleaved": split.chunks, "recompute": split.recompute, "recomputed_layers": split.again,
        "codec": codec, "optimiser": "sharded" if split.sharded else "whole",
        "weights": "sharded" if split.strewn else "whole",
        "memory_bytes": {**memory._asdict(), "total": memory.total},
        "sent_bytes": {"tensor": step.tensor_bytes, "pipeline": step.pipeline_bytes, "data": step.data_bytes},
        "seconds": {"total": step.seconds, **seconds}, "days": run.days(choice),
        "tflops_per_gpu": run.tflops(choice), "model_tflops_per_gpu": run.useful(choice),
        "communication_over_computation": step.ratio, "idle_gpus": idle, "idle_nodes": idle // run.cluster.gpus,
        "reason": reason(run, choice, quickest),
    }  # fmt: skip

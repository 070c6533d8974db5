"""What is told of every way, and what is wrong with it."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from .race import START, Entry

__all__ = ["CHECKED", "HEAD", "NOTES", "astray", "compared", "hidden", "line", "reached", "record", "share"]

#: What others are compared with, and how far rounding may take losses from theirs.
REFERENCES = {"gloo": 1e-5, "one process": 1e-4}
#: Steps in which losses must be those of the reference: later, what rounding changes has grown.
CHECKED = 100
NOTES = f"""\
# s to target: of training, without the first {START} steps; ms: median, of a step, which ends when the last rank's does
# comm: part of a step that goes when nothing is communicated, if any; hidden: part of the communication that the
# backward pass covers, by steps that communicate after it or wait for every bucket, less than nothing where these
# happen to be faster; MB: over TCP, of the rank that sends most"""
HEAD = (f"{'way':36}{'steps to':>9}{'s to target':>12}{'ms':>9}{'steps/s':>9}{'comm':>7}{'hidden':>8}{'MB':>9}"
        f"{'loss':>8}{'acc. %':>8}")  # fmt: skip


def reached(entry: Entry, target: float, by_loss: bool) -> int | None:
    """Steps until the test met the target, an accuracy from 0 to 1 or a loss; None if it never did."""
    good = (steps for steps, loss, accuracy in entry.judged if (loss <= target if by_loss else accuracy >= target))
    return next(good, None)


def hidden(times: dict[str, float]) -> float | None:
    """The part of the communication that the backward pass covers, by the medians of the kinds of steps.

    None where communication is too short to tell, less than a tenth of a step.

    >>> hidden({"together": 5, "apart": 8, "alone": 4})
    0.75
    """
    if "apart" not in times or times["alone"] > 0.9 * times["apart"]:
        return None
    return (times["apart"] - times["together"]) / (times["apart"] - times["alone"])


def share(times: dict[str, float]) -> float | None:
    """The part of a step that goes when nothing is communicated; None where nothing goes, which is noise.

    >>> share({"together": 5, "alone": 4}), share({"together": 5, "alone": 5.1})
    (0.19999999999999996, None)
    """
    if "alone" not in times or times["alone"] > times["together"]:
        return None
    return 1 - times["alone"] / times["together"]


def astray(losses: Sequence[float], wanted: Sequence[float]) -> float:
    """The largest relative difference of the first losses; infinite where one is not a number.

    >>> astray([2.0, 1.5], [2.0, 1.0])
    0.5
    """
    some, others = np.array(losses[:CHECKED]), np.array(wanted[:CHECKED])
    return float(np.nan_to_num(np.abs(some / others - 1), nan=np.inf).max())


def compared(entries: Sequence[Entry]) -> tuple[list[str], bool]:
    """Lines on what must be equal, and whether something is not."""
    told = [f"# WRONG: ranks have different parameters at the end: {e.way.name}" for e in entries if not e.same]
    wrong, reference = bool(told), entries[0]
    if not wrong:
        told.append("# all ranks have the same parameters at the end, bit by bit")
    if limit := REFERENCES.get(reference.way.name):
        for entry in entries[1:]:
            if entry.way.codec is None:
                off = astray(entry.losses, reference.losses)
                wrong |= off > limit
                told.append(f"# {'WRONG: ' * (off > limit)}losses of {entry.way.name} differ from those of "
                            f"{reference.way.name} by {off:.1e} at most, in the first {CHECKED} steps")  # fmt: skip
    return told, wrong


def record(entry: Entry, target: float, by_loss: bool) -> dict[str, Any]:
    """As a line of the file, of a way that has begun: times in seconds, accuracies from 0 to 1. Collective."""
    steps = reached(entry, target, by_loss)
    times = {kind: float(np.median(seconds)) for kind, seconds in entry.probes.items() if seconds}
    step = float(np.median(entry.seconds[START:] or entry.seconds))
    _, loss, accuracy = entry.judged[-1]
    return {
        "record": "training", "way": entry.way.name, "codec": entry.way.codec,
        "target": target, "steps_to_target": steps,
        "seconds_to_target": None if steps is None else float(sum(entry.seconds[START:steps])),
        "start": float(sum(entry.seconds[:START])), "step": step, "steps_per_second": 1 / step, "steps": times,
        "communication": share(times), "hidden": hidden(times), "sent": entry.most(),
        "test_loss": loss, "accuracy": accuracy, "same": entry.same, "judged": entry.judged, "losses": entry.losses,
        "seconds": entry.seconds, "probes": entry.probes,
    }  # fmt: skip


def line(r: dict[str, Any]) -> str:
    """The same for the table."""

    def cell(value: float | None, width: int, form: str = "") -> str:
        return f"{'-' if value is None else format(value, form):>{width}}"

    megabytes = None if r["sent"] is None else r["sent"] / 1e6
    return (
        f"{r['way']:36}{cell(r['steps_to_target'], 9)}{cell(r['seconds_to_target'], 12, '.3f')}{r['step'] * 1e3:9.2f}"
        f"{r['steps_per_second']:9.1f}{cell(r['communication'], 7, '.0%')}{cell(r['hidden'], 8, '.0%')}"
        f"{cell(megabytes, 9, '.3f')}{r['test_loss']:8.4f}{100 * r['accuracy']:8.2f}"
    )

"""Rows as text while they come, as JSON Lines for good, and the winners at the end."""

import json
import os
import sys
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import TracebackType
from typing import IO, Any

__all__ = ["BASELINES", "Report", "Row"]


@dataclass(frozen=True)
class Row:
    """One algorithm at one size; times in seconds, bandwidths in GB/s (10^9 bytes).

    `batch` calls back to back make a repetition; where it is 1, each followed a barrier. `algbw` is bytes over time;
    `busbw` multiplies by 2(p-1)/p, what every rank must send (nccl-tests' convention).
    """

    nbytes: int
    count: int
    dtype: str
    op: str
    ranks: int
    algorithm: str
    codec: str | None
    batch: int
    median: float
    low: float
    high: float
    p99: float
    algbw: float
    predicted: float | None
    ratio: float | None
    wrong: int
    samples: list[float] = field(repr=False)

    @property
    def busbw(self) -> float:
        return self.algbw * 2 * (self.ranks - 1) / self.ranks


HEAD = (
    "  size(B)  algorithm                codec            calls    time(us)      95% interval        p99"
    "  algbw(GB/s)  busbw(GB/s)  model(us)  /native  #wrong"
)

#: Measured beside ours.
BASELINES = ("native", "copy", "gloo")


def text(row: Row) -> str:
    """One line under HEAD."""
    model = "-" if row.predicted is None else f"{row.predicted * 1e6:.2f}"
    ratio = "-" if row.ratio is None else f"{row.ratio:.2f}"
    return (
        f"{row.nbytes:9d}  {row.algorithm:24} {row.codec or '-':15} {row.batch:6d}"
        f"  {row.median * 1e6:10.2f}  {row.low * 1e6:9.2f} {row.high * 1e6:9.2f}"
        f" {row.p99 * 1e6:10.2f}  {row.algbw:11.3f}  {row.busbw:11.3f} {model:>10} {ratio:>8} {row.wrong:7d}"
    )


class Report:
    """Prints and writes on rank 0, and remembers on all whether anything was wrong.

    A progress bar where there is a terminal, plain lines elsewhere.
    """

    def __init__(self, environment: dict[str, Any], path: Path | None, sizes: int, speaks: bool) -> None:
        self.environment, self.path, self.speaks = environment, path, speaks
        self.file: IO[str] | None = None
        self.progress: Any = None
        if speaks and _terminal():
            from rich.progress import Progress

            self.progress = Progress(transient=True)
            self.task = self.progress.add_task("message sizes", total=sizes)
        self.all: list[Row] = []

    def __enter__(self) -> "Report":
        if self.speaks:
            if self.path:
                self.file = self.path.open("x")
            e = self.environment
            hosts = ", ".join(f"{n} on {host}" for host, n in e["hosts"].items())
            self.say(f"# {e['mpi']}; {e['ranks']} ranks ({hosts}), {e['cores']} cores; {e['processor']}")
            if e["oversubscribed"]:
                self.say("# more ranks than cores: results are right, times mean nothing")
            self.write("environment", e)
            if self.progress:
                self.progress.start()
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self.progress:
            self.progress.stop()
        if self.speaks:
            self.winners()
        if self.file:
            self.file.close()

    def say(self, line: str) -> None:
        if self.progress and self.progress.live.is_started:
            self.progress.console.print(line, highlight=False, markup=False, soft_wrap=True)
        else:
            print(line, flush=True)

    def write(self, record: str, facts: dict[str, Any]) -> None:
        if self.file:
            self.file.write(json.dumps({"record": record, **facts}) + "\n")
            self.file.flush()

    def constants(self, alpha: float, beta: float, gamma: float) -> None:
        """The model's constants, fitted in this run."""
        if self.speaks:
            words = f"alpha {alpha * 1e6:.2f} us, beta {beta * 1e9:.3f} ns/B, gamma {gamma * 1e9:.3f} ns/B added"
            self.say(f"# model: {words}")
            self.say(HEAD)
            self.write("constants", {"alpha": alpha, "beta": beta, "gamma": gamma})

    def rows(self, rows: list[Row]) -> None:
        """All of one size, the fastest first."""
        self.all += rows
        if not self.speaks:
            return
        for row in sorted(rows, key=lambda row: row.median):
            self.say(text(row))
            self.write("row", {**asdict(row), "busbw": row.busbw})
        if self.progress:
            self.progress.advance(self.task)

    def winners(self) -> None:
        """Per size, our best that adds exactly."""
        if not self.all:
            return
        print("\n# best of ours per size\n" + HEAD)
        for nbytes in sorted({row.nbytes for row in self.all}):
            ours = [r for r in self.all if r.nbytes == nbytes and r.algorithm not in BASELINES and not r.codec]
            if ours:
                print(text(min(ours, key=lambda row: row.median)))
        wrong = sum(row.wrong for row in self.all)
        print(f"\n# {len(self.all)} rows, {'all correct' if not wrong else f'{wrong} WRONG ELEMENTS'}", flush=True)

    def exit_code(self) -> int:
        """1 if anything was wrong."""
        return int(any(row.wrong for row in self.all))


def _terminal() -> bool:
    """Whether a person is watching. Open MPI gives every rank a terminal of its own: ask where its launcher writes."""
    if "OMPI_COMM_WORLD_RANK" in os.environ:
        return os.path.realpath(f"/proc/{os.getppid()}/fd/1").startswith(("/dev/pts/", "/dev/tty"))
    return sys.stdout.isatty()


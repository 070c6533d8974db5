"""What a person sees of a sweep: rows while they come, and the winners at the end."""

import os
import sys
from types import TracebackType
from typing import Any

from .guidelines import violations
from .records import Row, key, ours
from .relations import foretold, rivals
from .styles import HEAD, STYLES, line
from .transports import Link

__all__ = ["Console", "terminal"]


class Console:
    """Prints on rank 0; a progress bar where there is a terminal, plain lines elsewhere.

    Our own table appears row by row; other styles are one piece of text at the end.

    Parameters
    ----------
    facts : dict
        Of `environment`, and of `sweep.ways`.
    style : str
        In `styles.STYLES`.
    rows : list of Row
        What an earlier launch has measured.
    speaks : bool
        False on all ranks but one.
    """

    def __init__(self, facts: dict[str, Any], style: str, rows: list[Row], speaks: bool) -> None:
        self.facts, self.style, self.speaks = facts, style, speaks
        self.live = style == "table"
        self.known = {key(row): row for row in rows}
        self.section = ""
        self.progress: Any = None

    def __enter__(self) -> "Console":
        e = self.facts
        hosts = ", ".join(f"{n} on {host}" for host, n in e["hosts"].items())
        self.say(f"# {e['mpi']}; {e['ranks']} ranks ({hosts}), {e['cores']} cores; {e['processor']}")
        if e["oversubscribed"]:
            self.say("# more ranks than cores: results are right, times mean nothing")
        for name, why in e["missing"].items():
            self.say(f"# no {name}: {why}")
        if way := e["transport"]:
            variables = " ".join(f"{name}={value}" for name, value in way["variables"].items())
            self.say(f"# transport {way['name']}: {variables or 'this MPI offers no choice'}")
            self.say(f"# {Link(**e['link'])}")
        return self

    def begin(self, groups: int) -> None:
        """So many groups are to come."""
        if self.all:
            self.say(f"# {len(self.all)} rows are in the file already")
        if self.speaks and terminal():
            from rich.progress import Progress

            self.progress = Progress(transient=True)
            self.task = self.progress.add_task("message sizes", total=groups)
            self.progress.start()

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self.progress:
            self.progress.stop()
        if self.speaks and self.all and self.live:
            self.winners()
        elif self.speaks and self.all:
            print(STYLES[self.style](self.all), flush=True)

    @property
    def all(self) -> list[Row]:
        """The rows of this launch and of those before, each cell once."""
        return list(self.known.values())

    @property
    def wrong(self) -> int:
        """Wrong elements so far."""
        return sum(row.wrong for row in self.all)

    def say(self, text: str) -> None:
        """One line, if the style has room for it."""
        if not self.speaks or not self.live:
            return
        if self.progress and self.progress.live.is_started:
            self.progress.console.print(text, highlight=False, markup=False, soft_wrap=True)
        else:
            print(text, flush=True)

    def rows(self, rows: list[Row]) -> None:
        """All of one group, the fastest first."""
        self.known |= {key(row): row for row in rows}
        for row in sorted(rows, key=lambda row: (row.call, row.time.median)):
            section = f"# ranks: {row.ranks}, {row.dtype} {row.op}, {row.call}"
            if section != self.section:
                self.section = section
                self.say(f"{section}\n{HEAD}")
            self.say(line(row))
        if self.progress:
            self.progress.advance(self.task)

    def winners(self) -> None:
        """Per size, our best that adds exactly."""
        best: dict[tuple[Any, ...], Row] = {}
        for row in sorted(self.all, key=lambda row: row.time.median):
            if ours(row.algorithm) and not row.codec:
                best.setdefault(rivals(row), row)
        print("\n# best of ours per size\n" + STYLES["table"](list(best.values())))
        for violation in violations(self.all):
            print(f"# {violation}")
        if words := foretold(self.all):
            print(f"# {words}")
        unfinished = sum(not row.complete for row in self.all)
        print(f"\n# {len(self.all)} rows, {f'{self.wrong} WRONG ELEMENTS' if self.wrong else 'all correct'}"
              f"{f', {unfinished} of them interrupted' if unfinished else ''}", flush=True)  # fmt: skip


def terminal() -> bool:
    """Whether a person is watching. Open MPI gives every rank a terminal of its own: ask where its launcher writes."""
    if "OMPI_COMM_WORLD_RANK" in os.environ:
        return os.path.realpath(f"/proc/{os.getppid()}/fd/1").startswith(("/dev/pts/", "/dev/tty"))
    return sys.stdout.isatty()

"""What a person sees while ways are trained."""

from typing import Any

from ..console import terminal

__all__ = ["Watch"]


class Watch:
    """Prints on one rank; a progress bar where there is a terminal, plain lines elsewhere.

    Parameters
    ----------
    speaks : bool
        False on all ranks but one.
    steps : int
        Of training, and of what is timed after it.
    """

    def __init__(self, speaks: bool, steps: int) -> None:
        self.speaks = speaks
        self.progress: Any = None
        if speaks and terminal():
            from rich.progress import Progress

            self.progress = Progress(transient=True)
            self.task = self.progress.add_task("steps of each", total=steps)

    def __enter__(self) -> "Watch":
        if self.progress:
            self.progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self.progress:
            self.progress.stop()

    def say(self, text: str) -> None:
        """One line or more."""
        if self.progress and self.progress.live.is_started:
            self.progress.console.print(text, highlight=False, markup=False, soft_wrap=True)
        elif self.speaks:
            print(text, flush=True)

    def at(self, steps: int) -> None:
        """So many are done."""
        if self.progress:
            self.progress.update(self.task, completed=steps)

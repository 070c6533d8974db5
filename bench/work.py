"""What a rank does while a call is under way."""

import time

__all__ = ["Work"]


class Work:
    """A computation that asks nothing of MPI, for so many seconds."""

    seconds = 0.0

    def do(self) -> None:
        """Keep the core busy."""
        end = time.perf_counter() + self.seconds
        while time.perf_counter() < end:
            pass

"""A file that names what to measure."""

import sys
from pathlib import Path
from typing import Any

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

__all__ = ["words"]


def words(path: Path) -> list[str]:
    """A sweep's file as arguments of the command line, so that both are checked alike.

    Raises ValueError if it is no TOML, or holds tables.

    Examples
    --------
    A file of the lines `algorithms = ["ring", "torus:grid=2x4"]`, `seconds = 0.5` and `cold = true` gives
    `["--algorithms", "ring", "torus:grid=2x4", "--seconds", "0.5", "--cold"]`.
    """
    try:
        wishes: dict[str, Any] = tomllib.loads(path.read_text())
    except tomllib.TOMLDecodeError as error:
        raise ValueError(f"{path}: {error}") from None
    found: list[str] = []
    for name, value in wishes.items():
        if isinstance(value, bool):
            found.append(f"--{name}" if value else f"--no-{name}")
            continue
        each = value if isinstance(value, list) else [value]
        if not all(isinstance(v, str | int | float) for v in each):
            raise ValueError(f"{path}: expected words and numbers for {name}, not {value!r}")
        found += [f"--{name}", *map(str, each)]
    return found

"""Several launches of one sweep."""

import json
from pathlib import Path
from typing import Any

from .journal import collect

__all__ = ["differences", "distinct", "environments", "join"]

#: Launches of one sweep must have these in common.
COMMON = ("mpi", "ranks", "processor", "cores", "kernel", "numpy", "numba", "revision", "clock")


def join(paths: list[Path], out: Path) -> int:
    """Write the launches in these files as one file; ValueError if they differ in more than being another launch."""
    others, rows = collect(paths)
    launches = environments(others)
    if not launches:
        raise ValueError("no launch in these files")
    if found := differences(*launches):
        raise ValueError("not launches of one sweep: " + "; ".join(found))
    with out.open("x") as file:
        for record in (*launches, *(row.record() for row in rows)):
            file.write(json.dumps(record) + "\n")
    print(f"{len(rows)} rows, {min(len(r.samples) for r in rows)} to {max(len(r.samples) for r in rows)} launches each")
    return 0


def environments(records: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Of every launch once, whatever files it stands in."""
    found = [record for record in records if record["record"] == "environment"]
    return [record for i, record in enumerate(found) if record not in found[:i]]


def differences(*launches: dict[str, Any]) -> list[str]:
    """What they should have in common and have not, variables of MPI and its transports among it."""
    facts = [{name: launch.get(name) for name in COMMON} for launch in launches]
    variables = [launch.get("variables", {}) for launch in launches]
    return [*_apart(facts, "{}", None), *_apart(variables, "variable {}", "not set")]


def _apart(launches: list[dict[str, Any]], title: str, missing: Any) -> list[str]:
    """The names whose values are not the same in all launches, with these values."""
    found = {name: {str(launch.get(name, missing)) for launch in launches} for launch in launches for name in launch}
    return [f"{title.format(name)}: {', '.join(sorted(values))}" for name, values in found.items() if len(values) > 1]


def distinct(environments: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Launches that differ in more than when they were, each with how many were like it."""
    passing = ("record", "time", "load", "masks", "arguments", "link")
    found: dict[str, dict[str, Any]] = {}
    for facts in environments:
        lasting = {name: value for name, value in facts.items() if name not in passing}
        found.setdefault(str(lasting), {"launches": 0, **lasting})["launches"] += 1
    return list(found.values())

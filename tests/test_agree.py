"""Our times beside those of Intel's benchmark."""

import pytest
from test_driver import row, written

from bench.__main__ import main

PRINTED = """
# Benchmarking Allreduce
       #bytes #repetitions  t_min[usec]  t_max[usec]  t_avg[usec]
            0         1000         0.03         0.03         0.03
            4         1000         0.90         1.10         1.00
        65536          640         9.00        11.00        10.00

# All processes entering MPI_Finalize
"""


def files(folder, ours, osu):
    (folder / "imb.txt").write_text(PRINTED)
    for name, times, across in (("ours", ours, "max"), ("osu", osu, "mean")):
        rows = [row(n, "native:bare", [t * 1e-6] * 9, across=across) for n, t in zip((4, 65536), times, strict=True)]
        written(folder / f"{name}.jsonl", [*rows, row(4, "ring", [9.0] * 9, across=across)])
    return ["agree", *map(str, folder.iterdir())]


@pytest.mark.parametrize(
    ("ours", "osu", "apart"),
    [
        ((1.39, 9.1), (1.7, 10), None),
        ((1.41, 9.1), (1, 10), "        4        1.41        1.00        1.00  apart: IMB OSU"),
        ((1, 10), (1, 11.2), "    65536       10.00       10.00       11.20  apart: OSU"),
    ],
)
def test_a_tenth_or_the_call_from_python_is_allowed(tmp_path, capsys, ours, osu, apart):
    assert main(files(tmp_path, ours, osu)) == (1 if apart else 0)
    printed = capsys.readouterr().out.splitlines()
    assert [line for line in printed if "apart" in line] == ([apart] if apart else [])
    assert printed[-1] == f"# {1 if apart else 2} of 2 sizes agree"


def test_what_was_not_measured_in_all_ways_is_refused(tmp_path):
    assert main(files(tmp_path, (1, 10), (1, 10))[:2]) == 2

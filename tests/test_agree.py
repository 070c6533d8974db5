"""Our times beside those of Intel's benchmark."""

import pytest
from test_driver import row, written

from bench.__main__ import main

PRINTED = """
# Benchmarking Allreduce
       #bytes #repetitions  t_min[usec]  t_max[usec]  t_avg[usec]
            0         1000         0.03         0.03         0.03
            4         1000         0.90         1.00         0.95
        65536          640         9.00        10.00         9.50

# All processes entering MPI_Finalize
"""


def files(folder, osu, **ours):
    (folder / "imb.txt").write_text(PRINTED)
    for name, times in {"osu": osu, **ours}.items():
        more = {"across": "mean" if name == "osu" else "max", "batch": 200 if name == "together" else 1}
        rows = [row(n, "native:bare", [t * 1e-6] * 9, **more) for n, t in zip((4, 65536), times, strict=False)]
        written(folder / f"{name}.jsonl", [*rows, row(4, "ring", [9.0] * 9, **more)])
    return ["agree", *map(str, sorted(folder.iterdir()))]


@pytest.mark.parametrize(
    ("ours", "osu", "apart"),
    [
        ((1.39, 9.1), (1.7, 10), None),
        ((1.41, 9.1), (1, 10), "        4        1.00        1.41        1.00        1.41  apart: IMB OSU"),
        ((1, 10), (1, 11.2), "    65536       10.00       10.00       11.20       10.00  apart: OSU"),
    ],
)
def test_a_tenth_or_the_call_from_python_is_allowed(tmp_path, capsys, ours, osu, apart):
    assert main(files(tmp_path, osu, alone=ours)) == (1 if apart else 0)
    printed = capsys.readouterr().out.splitlines()
    assert [line for line in printed if "apart" in line] == ([apart] if apart else [])
    assert printed[-1] == f"# {1 if apart else 2} of 2 sizes agree"


def test_each_is_compared_with_what_was_measured_in_its_way(tmp_path, capsys):
    """Of 64 KB ours was only measured one by one."""
    assert main(files(tmp_path, (2, 11.5), together=[1.1], alone=(2.1, 10.8))) == 0
    printed = capsys.readouterr().out.splitlines()
    assert printed[1:3] == [
        "        4        1.00        1.10        2.00        2.10",
        "    65536       10.00       10.80       11.50       10.80",
    ]


def test_what_was_not_measured_in_all_ways_is_refused(tmp_path):
    assert main(files(tmp_path, (1, 10), alone=(1, 10))[:2]) == 2

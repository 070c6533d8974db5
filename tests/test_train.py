"""bench train, as far as it needs no launcher: what it refuses, what it counts, and its examples."""

import doctest
import os
import socket
import subprocess
import sys

import pytest

import bench.train
from bench.training.sockets import sent

NOTHING_THERE = """
import sys
sys.modules["{missing}"] = None
from importlib.machinery import PathFinder
find = PathFinder.find_spec
PathFinder.find_spec = lambda name, *rest: None if name == "{missing}" else find(name, *rest)
del sys.modules["{missing}"]
from bench.__main__ import main
sys.exit(main(["train", "--steps", "3"]))
"""


@pytest.mark.parametrize("missing, words", [
    ("torch", "bench: bench train needs PyTorch: pip install torch\n"),
    ("sklearn", "bench: the digits are scikit-learn's: pip install scikit-learn; or take --model gpt\n"),
])  # fmt: skip
def test_says_in_one_line_what_is_missing(missing, words):
    if missing == "sklearn":
        pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'allreduce[training]'")
    command = [sys.executable, "-c", NOTHING_THERE.format(missing=missing)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL)
    assert (done.returncode, done.stderr) == (2, words)


@pytest.mark.parametrize("words", [
    ["--steps", "0"], ["--batch", "x"], ["--mesh", "2x2"], ["--mesh", "2x2x0"], ["--lr", "nan"], ["--target", "-1"],
    ["--model", "rnn"], ["--parallel", "none"],
])  # fmt: skip
def test_options_are_checked(words, capsys):
    from bench.__main__ import main

    assert main(["train", *words]) == 2
    assert f"argument {words[0]}" in capsys.readouterr().err


def test_examples():
    assert doctest.testmod(bench.train).failed == 0


def test_examples_of_results():
    pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'allreduce[training]'")
    from bench.training import results

    assert doctest.testmod(results).failed == 0


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="counted by Linux")
def test_bytes_that_are_sent_over_tcp_are_counted():
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as one:
        other, _ = server.accept()
        with other:
            before = sent()
            one.sendall(bytes(1000))
            other.sendall(bytes(24))
            for end, count in ((other, 1000), (one, 24)):
                while count:
                    count -= len(end.recv(count))
            assert sent() - before == 1024

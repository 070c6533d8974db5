"""Compiled code is kept somewhere, whatever can be written."""

import fcntl
import os
import shutil
import stat
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from numba import int64, njit
from numba.core.caching import NullCache

import allreduce
from allreduce.execute import machine
from allreduce.execute.cache import keep

SCRIPT = "from allreduce.execute.loop import advance; print(advance.stats.cache_path)"


def kept(tmp_path: Path) -> Path:
    """Where a copy of the package keeps compiled code that can write neither beside itself nor in the user's cache."""
    source, without = Path(allreduce.__file__).parent, shutil.ignore_patterns("__pycache__")
    shutil.copytree(source, tmp_path / "allreduce", ignore=without)
    in_the_way = [tmp_path / "allreduce" / "execute" / "__pycache__", tmp_path / "home"]  # root can write anything else
    for path in in_the_way:
        path.touch()
    temporary = tmp_path / "tmp"
    temporary.mkdir(exist_ok=True)
    variables = {k: v for k, v in os.environ.items() if k not in ("NUMBA_CACHE_DIR", "XDG_CACHE_HOME")}
    variables |= {"PYTHONPATH": str(tmp_path), "HOME": str(tmp_path / "home"), "TMPDIR": str(temporary)}
    command = [sys.executable, "-B", "-c", SCRIPT]
    done = subprocess.run(command, cwd=tmp_path, env=variables, capture_output=True, text=True, timeout=100, check=True)
    return Path(done.stdout.strip())


def test_a_directory_of_the_machine_where_nothing_else_can_be_written(tmp_path):
    path = kept(tmp_path)
    root = tmp_path / "tmp" / f"allreduce-compiled-{os.getuid()}"
    assert path.is_relative_to(root)
    assert stat.S_IMODE(root.stat().st_mode) == 0o700


@pytest.mark.parametrize("trap", ["writable", "link"])
def test_no_directory_that_others_can_write(tmp_path, trap):
    root = tmp_path / "tmp" / f"allreduce-compiled-{os.getuid()}"
    if trap == "link":
        root.parent.mkdir()
        (tmp_path / "elsewhere").mkdir(0o700)
        root.symlink_to(tmp_path / "elsewhere")
    else:
        root.mkdir(parents=True)
        root.chmod(0o777)
    path = kept(tmp_path)
    assert not path.is_relative_to(root) and not path.is_relative_to(tmp_path / "elsewhere")
    assert path.is_relative_to(root.parent)


def adder(number, keep=keep):
    """Functions of one text: only what they close over tells them apart."""

    def add(x):
        return x + number

    return keep(njit(add))


def compile_at_once(functions, monkeypatch):
    """Every function is compiled by a thread of its own; those that write a file do so together, the last one first."""
    replace, barrier, turns = os.replace, threading.Barrier(len(functions)), {}

    def held(source, target):
        barrier.wait(30)
        me = turns[threading.get_ident()]
        time.sleep(0.1 * ((me + held.files[me]) % len(functions)))  # another order for every file
        held.files[me] += 1
        replace(source, target)

    def compile_one(me):
        turns[threading.get_ident()] = me
        functions[me]._cache.save_overload(signature, functions[me].overloads[signature])

    signature = (int64,)
    held.files = [0] * len(functions)
    saved = [function._cache for function in functions]
    for function, cache in zip(functions, saved, strict=True):
        function._cache = NullCache()
        function.compile(signature)
        function._cache = cache
    monkeypatch.setattr(os, "replace", held)
    with ThreadPoolExecutor(len(functions)) as pool:
        list(pool.map(compile_one, range(len(functions))))
    monkeypatch.undo()


def test_two_that_compile_at_once_do_not_run_each_others_code(tmp_path, monkeypatch):
    monkeypatch.setattr("numba.config.CACHE_DIR", str(tmp_path))
    compile_at_once([adder(1), adder(2)], monkeypatch)
    monkeypatch.setattr("numba.config.CACHE_DIR", str(tmp_path))
    for number in (1, 2):
        add = adder(number)
        assert add(10) == 10 + number
        assert add.stats.cache_hits == {(int64,): 1}, "was compiled again"


def test_code_of_other_sources_is_not_run(tmp_path, monkeypatch):
    monkeypatch.setattr("numba.config.CACHE_DIR", str(tmp_path))
    assert adder(1)(1) == 2
    monkeypatch.setattr("allreduce.execute.cache._sources", lambda folder: b"others")
    add = adder(1)
    assert add(1) == 2 and not add.stats.cache_hits
    assert len(list(tmp_path.rglob("*.nbc"))) == 1, "what nobody will read is kept"


def test_damaged_code_is_compiled_again(tmp_path, monkeypatch):
    monkeypatch.setattr("numba.config.CACHE_DIR", str(tmp_path))
    assert adder(1)(1) == 2
    [path] = tmp_path.rglob("*.nbc")
    for content in (b"", path.read_bytes()[:-100], b"nonsense"):
        path.write_bytes(content)
        assert adder(1)(1) == 2


def test_who_has_waited_once_for_a_process_that_is_stopped_waits_no_more(monkeypatch, tmp_path):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(machine, "PATIENCE", 0.05)
    with machine.compiling():
        pass
    assert machine.PATIENCE == 0.05
    (path,) = tmp_path.iterdir()
    with open(path) as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        with machine.compiling():
            assert machine.PATIENCE == 0

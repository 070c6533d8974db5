"""Compiled code is kept somewhere, whatever can be written."""

import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pytest

import allreduce

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

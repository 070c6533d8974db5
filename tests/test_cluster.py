"""Emulated hosts: MPI sees several, their links are as slow as wished, and nothing of them is left."""

import os
import runpy
import shutil
import signal
import subprocess
import sys
import time
import uuid
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parent.parent / "scripts" / "cluster"
PATH = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
lacks = runpy.run_path(str(SCRIPT))["missing"]()
lacks = lacks or (None if shutil.which("mpiexec", path=PATH) else "needs mpiexec")
needs_hosts = pytest.mark.skipif(bool(lacks), reason=f"scripts/cluster {lacks}")

# There and back: the sender alone may have given all to its kernel long before it arrives.
SEND = r"""
import sys
from mpi4py import MPI
world = MPI.COMM_WORLD
data, answer = bytearray(int(sys.argv[1])), bytearray(1)
share = world.Split_type(MPI.COMM_TYPE_SHARED).size
sys.stdout.write(f"{world.rank} {MPI.Get_processor_name()} {share}\n")  # in one piece, so that lines stay whole
seconds = float("inf")
for _ in range(3):
    begin = MPI.Wtime()
    if world.rank == 0:
        world.Send(data, world.size - 1)
        world.Recv(answer, world.size - 1)
    elif world.rank == world.size - 1:
        world.Recv(data, 0)
        world.Send(answer, 0)
    seconds = min(seconds, MPI.Wtime() - begin)
if world.rank == 0:
    sys.stdout.write(f"seconds {seconds}\n")
"""


class Run:
    """One cluster, all of whose processes carry a mark."""

    def __init__(self, *words: str) -> None:
        self.mark = uuid.uuid4().hex
        variables = os.environ | {"PATH": PATH, "CLUSTER_TEST": self.mark, "LIMIT": "60"}
        command = [str(SCRIPT), "--mpi", "own", *words]
        self.process = subprocess.Popen(command, env=variables, stdout=subprocess.PIPE, text=True)

    def output(self, timeout: float = 60) -> str:
        out, _ = self.process.communicate(timeout=timeout)
        assert self.process.returncode == 0
        return out

    def alive(self) -> list[str]:
        """The processes, wherever they are."""
        found = []
        for process in Path("/proc").glob("[0-9]*"):
            try:
                if self.mark in (process / "environ").read_text(errors="replace"):
                    found.append((process / "cmdline").read_text().replace("\0", " "))
            except OSError:
                continue
        return found


def traces() -> list[str]:
    """The network devices and mounts of the machine."""
    return [*os.listdir("/sys/class/net"), *Path("/proc/self/mountinfo").read_text().splitlines()]


@needs_hosts
def test_mpi_sees_hosts_and_slow_links_two_clusters_at_once():
    before, nbytes = traces(), 2_000_000
    send = ["--delay", "100us", "--", sys.executable, "-c", SEND, str(nbytes)]
    even = Run("--rate", "200mbit", "--ranks", "2", *send)
    uneven = Run("--rate", "400mbit", "--hosts", "3", "--slow", "2=100mbit", *send)
    for run, hosts, ranks, rate in (even, 2, 2, 200e6), (uneven, 3, 1, 100e6):
        lines = sorted(run.output().splitlines())
        assert lines[:-1] == [f"{rank} host{rank // ranks} {ranks}" for rank in range(hosts * ranks)]
        assert 8 * nbytes / rate < float(lines[-1].split()[1]) < 1.5 * 8 * nbytes / rate
        assert not run.alive()
    assert traces() == before


@needs_hosts
@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_nothing_is_left_of_a_run_that_is_stopped(signum):
    before = traces()
    run = Run("--", "sh", "-c", "echo started; exec sleep 50")
    assert run.process.stdout.readline() == "started\n"
    assert len(run.alive()) > 5
    run.process.send_signal(signum)
    assert run.process.wait(10) == (-signum if signum == signal.SIGKILL else 128 + signum)
    for _ in range(100 if signum == signal.SIGKILL else 0):  # the others end, but nobody has waited for that
        time.sleep(0.1 if run.alive() else 0)
    assert not run.alive()
    assert traces() == before


@needs_hosts
@pytest.mark.parametrize(("command", "code"), [("exit 3", 3), ("sleep 50", 124)])
def test_the_exit_code_is_the_command_s_or_that_of_the_limit(command, code):
    run = Run("--limit", "2", "--", "sh", "-c", command)
    assert run.process.wait(10) == code
    assert not run.alive()


@needs_hosts
def test_no_ranks_is_the_command_once():
    run = Run("--hosts", "3", "--ranks", "0", "--", "sh", "-c", "hostname; getent hosts host2 | wc -l")
    assert run.output() == "host0\n1\n"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--hosts 0 -- x", "--hosts: expected 1 to 64, not '0'"),
        ("--ranks two -- x", "--ranks: expected 0 to 64, not 'two'"),
        ("--rate 1gb -- x", "--rate: expected 100kbit to 10gbit, not '1gb'"),
        ("--rate 50us -- x", "--rate: expected 100kbit to 10gbit, not '50us'"),
        ("--delay 2s -- x", "--delay: expected 0us to 1000ms, not '2s'"),
        ("--loss nan -- x", "--loss: expected 0 to 50, not 'nan'"),
        ("--limit 0 -- x", "--limit: expected 1 to 86400, not '0'"),
        ("--slow 1 -- x", "--slow: expected HOST=RATE such as 2=100mbit, not '1'"),
        ("--hosts 2 --slow 2=1mbit -- x", "--slow: no host 2; have 0 to 1"),
        ("--mpi lam -- x", "invalid choice: 'lam'"),
        ("--hosts 2", "no command; it stands after --"),
    ],
)
def test_what_makes_no_sense_is_refused(words, message):
    done = subprocess.run([str(SCRIPT), *words.split()], capture_output=True, text=True, timeout=10)
    assert done.returncode == 2 and message in done.stderr

"""Job scripts: what they say, and what a real Slurm makes of them."""

import ctypes
import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from itertools import product
from pathlib import Path

import pytest
from mpi4py import MPI
from test_cluster import Run, lacks

from bench.__main__ import main
from bench.preflight import check, devices, transports
from bench.slurm import FABRICS, LAUNCHERS, Job

ROOT = Path(__file__).parent.parent
OPEN = "Open MPI" in MPI.Get_library_version()
OWN, SRUN = ("openmpi", "pmix") if OPEN else ("mpich", "pmi2")


def missing() -> str | None:
    """What this machine lacks for a Slurm, in words."""
    if os.geteuid():
        return "Slurm needs root"
    for tool, package in {"sbatch": "slurm-client", "munged": "munge", "slurmctld": "", "slurmd": ""}.items():
        if not shutil.which(tool, path=f"{os.environ['PATH']}:/usr/sbin"):
            return f"needs {tool}, of Debian's package {package or tool}"
    if OPEN and not list(Path("/usr/lib").glob("*/pmix2/lib/libpmix.so.2")):
        return "srun --mpi=pmix needs Debian's package libpmix2"
    return lacks


needs_slurm = pytest.mark.skipif(bool(missing()), reason=str(missing()))


def script(*words, capsys):
    assert main(["slurm", *words]) == 0
    return capsys.readouterr().out


@pytest.mark.parametrize("launcher", LAUNCHERS)
@pytest.mark.parametrize("fabric", FABRICS)
def test_every_script_is_one_that_bash_reads(fabric, launcher):
    for gpus in (0, 4):
        job = Job([1, 8], ppn=4, cores=3, gpus_per_node=gpus, fabric=fabric, launcher=launcher, launches=5)
        done = subprocess.run(["bash", "-n"], input=job.script(), text=True, capture_output=True)
        assert not done.stderr and done.returncode == 0


def test_what_a_script_asks_for(capsys):
    words = "--nodes 1,2,8 --ppn 4 --cores 3 --gpus-per-node 4 --launches 5 --launcher pmix --fabric infiniband"
    lines = script(*words.split(), "--sbatch=--partition=gpu", "--setup", "module load mpi", "--", "--max", "1M",
                   capsys=capsys).splitlines()  # fmt: skip
    asked = {line.removeprefix("#SBATCH --") for line in lines if line.startswith("#SBATCH")}
    assert asked == {
        "job-name=allreduce", "nodes=8", "ntasks-per-node=4", "cpus-per-task=3", "gpus-per-node=4", "array=1-5%1",
        "time=00:30:00", "signal=B:USR1@120", "output=%x-%j.out", "exclusive", "no-requeue", "partition=gpu",
    }  # fmt: skip
    assert "module load mpi" in lines and "export OMPI_MCA_pml=ucx" in lines and "sweep=(sweep --max 1M)" in lines
    assert "export SRUN_CPUS_PER_TASK=3" in lines and "preflight=(preflight --ppn 4 --cores 3 --gpus 4)" in lines
    launch = next(line for line in lines if line.startswith("launch"))
    for option in ("--mpi=pmix", "--ntasks=$(($1 * 4))", "--gpu-bind=none", "--kill-on-bad-exit=1"):
        assert option in launch
    assert "gpu" not in script("--nodes", "1", "--ppn", "1", capsys=capsys).lower()


@pytest.mark.parametrize("path", sorted(ROOT.glob("scripts/slurm/*.sh")), ids=lambda path: path.name)
def test_the_examples_are_written_and_not_typed(path, capsys, monkeypatch):
    _, written_by, *_ = (text := path.read_text()).splitlines()
    words = shlex.split(written_by.removeprefix("# Written by: python -m bench "))
    monkeypatch.setattr(sys, "argv", ["bench", *words])
    assert main() == 0 and capsys.readouterr().out == text


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--nodes 1,x --ppn 1", "ascending, such as 1,2,4,8, not '1,x'"),
        ("--nodes 2,1 --ppn 1", "not '2,1'"),
        ("--nodes 1,1 --ppn 1", "not '1,1'"),
        ("--nodes 1 --ppn 0", "--ppn: expected a whole number above zero, not '0'"),
        ("--nodes 1 --ppn 8 --gpus-per-node 4", "--ppn 8 with --gpus-per-node 4: ranks would share a GPU"),
        ("--nodes 1 --ppn 1 --time 90", "--time: expected a time such as 00:30:00 or 1-12:00:00, not '90'"),
        ("--nodes 1 --ppn 1 --time 00:02:00", "--warn 120: expected fewer seconds than --time 00:02:00"),
        ("--nodes 1 --ppn 1 --name a/b", "--name: expected letters, digits and _.-, not 'a/b'"),
        ("--nodes 1 --ppn 1 --sbatch=--nodes=3", "such as --partition=gpu, not '--nodes=3'"),
        ("--nodes 1 --ppn 1 --sbatch=-N3", "such as --partition=gpu, not '-N3'"),
        ("--nodes 1 --ppn 1 --fabric ether", "invalid choice: 'ether'"),
        ("--nodes 1 --ppn 1 --launcher ssh", "invalid choice: 'ssh'"),
        ("--nodes 1 --ppn 1 -- --maximum 3", "unrecognized arguments: --maximum 3"),
        ("--nodes 1 --ppn 1 -- --max ten", "expected a size such as 4, 64K or 16M, up to 1024G, not 'ten'"),
        ("--nodes 1 --ppn 1 --results a\nb", "an option holds a line break"),
        ("--nodes 1 --ppn 1 -- --json x", "--json is for the job to choose"),
        ("--nodes 1 --ppn 1 -- --algorithms rign", "unknown algorithm 'rign'"),
        ("--nodes 1 --ppn 1 -- --algorithms native:rabenseifner rign", "unknown algorithm 'rign'"),
        ("--nodes 2,4 --ppn 2 -- --algorithms torus:grid=2x4", "grid"),
        ("--nodes 1 --ppn 1 -- --dtype float33", "float33"),
        ("--nodes 1 --ppn 2 -- --ranks 4", "--ranks from 1 to 2"),
        ("--nodes 1 --ppn 1 -- --device cuda", "needs --gpus-per-node"),
        ("--nodes 1 --ppn 1 --gpus-per-node 1 -- --device cuda --algorithms node", "'node' is for --device host"),
        ("--nodes 1 --ppn 1 -- --route staged", "--route is for --device cuda"),
        ("--nodes 1 --ppn 1 --plan /dev/null -- --algorithms rign", "unknown algorithm 'rign'"),
    ],
)
def test_what_makes_no_sense_is_refused(words, message, capsys):
    assert main(["slurm", *words.split(" ")]) == 2
    assert message in capsys.readouterr().err


def test_a_script_for_a_sweep_s_file_needs_no_file(tmp_path, capsys, monkeypatch):
    """And none of what only the nodes have."""
    for name in ("_natives", "_torch", "_check_gloo"):
        monkeypatch.setattr(f"bench.plan.{name}", pytest.fail)
    plan = tmp_path / "sweep.toml"
    plan.write_text('algorithms = ["natives", "gloo", "torus:grid=2x4"]\nmax = "64K"\ncold = true\n')
    words = ["--nodes", "4", "--ppn", "2", "--plan", str(plan)]
    whole = "sweep=(sweep --algorithms natives gloo torus:grid=2x4 --max 64K --cold"
    assert f"{whole})" in script(*words, capsys=capsys).splitlines()
    assert f"{whole} --max 1M)" in script(*words, "--", "--max", "1M", capsys=capsys).splitlines()
    for text, message in {'algorithms = "rign"': "unknown algorithm 'rign'", 'json = "x"': "the job to choose"}.items():
        plan.write_text(text)
        assert main(["slurm", *words]) == 2 and message in capsys.readouterr().err


def ranks(*hosts, cores=(0, 1), gpus=("a", "b")):
    return [{"host": host, "cores": list(cores), "gpus": list(gpus)} for host in hosts]


@pytest.mark.parametrize(
    ("found", "message"),
    [
        (ranks("x"), "1 ranks, not 4: was each rank started as a world of its own?"),
        (ranks("x", "x", "x", "x"), "1 nodes, not 2"),
        (ranks("x", "x", "x", "y"), "3 ranks on x, not 2"),
        (ranks("x", "x", "y", "y", cores=[7]), "2 ranks on x are bound to 1 cores, not 2"),
        (ranks("x", "x", "y", "y", gpus=["a"]), "a rank on x sees 1 GPUs, not 2; --gpus-per-task and --gpu-bind hide"),
        (ranks("x", "x", "y", "y", gpus=[]), "a rank on x sees 0 GPUs, not 2"),
        ([*ranks("x"), *ranks("x", gpus="ba"), *ranks("y", "y")], "ranks on x share a GPU"),
    ],
)
def test_a_job_that_is_not_as_meant_is_refused(found, message):
    assert check(ranks("x", "x", "y", "y"), 2, 2, gpus=2) == []
    assert message in "; ".join(check(found, 2, 2, gpus=2))


def test_transports_without_cuda_are_refused(monkeypatch):
    for tls in ("all", "rc,cuda", "rc,sm,cuda_copy", "^tcp"):
        monkeypatch.setenv("UCX_TLS", tls)
        assert not transports()
    monkeypatch.setenv("UCX_TLS", "rc,sm")
    assert transports() == ["UCX_TLS=rc,sm lacks cuda"]


class Driver:
    """Of two GPUs, as far as `devices` calls it."""

    def cuInit(self, flags):
        return 0

    def cuDeviceGetCount(self, found):
        found._obj.value = 2
        return 0

    def cuDeviceGet(self, device, number):
        device._obj.value = number
        return 0

    def cuDeviceGetUuid(self, uuid, device):
        uuid[15] = 7 + device.value
        return 0


def test_gpus_are_those_that_the_driver_shows(monkeypatch):
    monkeypatch.setattr(ctypes, "CDLL", lambda name: Driver())
    assert devices() == ["00" * 15 + "07", "00" * 15 + "08"]
    monkeypatch.setattr(Driver, "cuInit", lambda self, flags: 100)
    assert devices() == []


# What makes jobs long is the delay between hosts, not the work. Slurm looks at limits every 30 s.
SCENARIO = r"""
write() {
    name=$1; shift
    python -m bench slurm --name "$name" --setup 'renice -n 19 $$ >/dev/null' "$@" >"$name.sh"
}
long() {
    write "$1" --nodes 2 --ppn 1 --launcher "$2" -- --algorithms ring --factor 2 --max 1K --seconds 3 --precision 0
    job=$(sbatch --parsable "$1.sh")
}
rows() { until grep -qs '"row"' results/"$1"-*/nodes-2.jsonl; do sleep 0.2; done; }
gone() { while squeue --noheader --format=%j | grep -qx "$1"; do sleep 0.2; done; }
quick="--algorithms ring --max 64 --seconds 0.001"

write sweep --nodes 1,2,4 --ppn 1 --launcher "$SRUN" -- $quick
write array --nodes 1,2 --ppn 1 --launcher "$OWN" --launches 2 --fabric tcp -- $quick
write alone --nodes 1 --ppn 2 --launcher srun -- $quick
long limit "$SRUN"; limit=$job
long warned "$OWN"; warned=$job
long cancelled "$OWN"; cancelled=$job
long signalled "$SRUN"; signalled=$job
for job in sweep alone; do sbatch $job.sh >/dev/null; done
bash array.sh >/dev/null
rows limit; scontrol update JobId=$limit EndTime=now+5seconds
rows warned; scontrol update JobId=$warned EndTime=now+100seconds
rows cancelled; scancel "$cancelled"
rows signalled; scancel --signal=USR1 --batch "$signalled"
for job in sweep array alone limit warned cancelled signalled; do gone $job; done
scontrol -o show job
"""


def records(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


@needs_slurm
def test_a_real_slurm(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name, value in {"OWN": OWN, "SRUN": SRUN, "PYTHONPATH": str(ROOT)}.items():
        monkeypatch.setenv(name, value)
    inside = f"cd {tmp_path}; {SCENARIO}"
    hosts = "--hosts 15 --ranks 0 --delay 1ms --limit 240 --"
    run = Run(*hosts.split(), "scripts/slurm/up", "bash", "-euc", inside)
    shown = run.output(250)
    assert not run.alive()
    jobs: dict[str, list[dict[str, str]]] = {}
    for line in shown.splitlines():
        job = dict(word.split("=", 1) for word in line.split() if "=" in word)
        jobs.setdefault(job["JobName"], []).append(job)

    states = {name: {job["JobState"] for job in jobs[name]} for name in jobs}
    assert states["sweep"] == states["array"] == {"COMPLETED"}
    assert states["signalled"] == states["warned"] == states["alone"] == {"FAILED"}
    assert (states["cancelled"], states["limit"]) == ({"CANCELLED"}, {"TIMEOUT"})
    assert {job["ExitCode"] for job in jobs["signalled"] + jobs["warned"]} == {"124:0"}

    (sweep,) = Path("results").glob("sweep-*")
    for nodes in (1, 2, 4):
        facts, *found = records(sweep / f"nodes-{nodes}.jsonl")
        assert list(facts["hosts"].values()) == [1] * nodes
        rows = [r for r in found if r["record"] == "row"]
        assert len(rows) == 6 and not any(row["wrong"] for row in rows)
        hosts = " ".join(facts["hosts"])
        assert f"preflight: 1 ranks on each of {nodes} nodes: {hosts}\n" in (sweep / "log.txt").read_text()
    assert (sweep / "job.sh").read_text() == Path("sweep.sh").read_text()

    for name in ("limit", "warned", "cancelled", "signalled"):
        (path,) = Path("results").glob(f"{name}-*")
        rows = [r for r in records(path / "nodes-2.jsonl") if r["record"] == "row"]
        assert 1 <= sum(row["complete"] for row in rows) < 18 or 1 <= len(rows) < 18
        if name in ("warned", "signalled"):
            assert "time is nearly up: stopped; what was measured is kept" in (path / "log.txt").read_text()

    first, second = sorted({job["ArrayJobId"] for job in jobs["array"]}, key=int)
    for task, (job, nodes) in product((1, 2), ((first, 1), (second, 2))):
        kinds = [r["record"] for r in records(Path("results", f"array-{job}_{task}", f"nodes-{nodes}.jsonl"))]
        assert kinds[0] == "environment" and kinds.count("row") == 6
    ends = [job["EndTime"] for job in jobs["array"] if job["ArrayJobId"] == first]
    assert all(job["StartTime"] >= max(ends) for job in jobs["array"] if job["ArrayJobId"] == second)
    (alone,) = Path("results").glob("alone-*/log.txt")
    assert "bench: 1 ranks, not 2: was each rank started as a world of its own?" in alone.read_text()


@needs_slurm
def test_nothing_is_left_of_a_slurm_that_is_killed():
    run = Run("--hosts", "2", "--ranks", "0", "--", "scripts/slurm/up", "sh", "-c", "sinfo -h -o %D; exec sleep 50")
    assert run.process.stdout.readline() == "2\n"
    assert sum("slurmd" in command for command in run.alive()) >= 2
    run.process.send_signal(signal.SIGKILL)
    deadline = time.monotonic() + 20
    while run.alive() and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not run.alive()

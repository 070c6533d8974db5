"""Process 1 of the namespaces of scripts/cluster: makes the hosts, starts the ranks, and is the switch between them.

A host is a network and a UTS namespace, held by a process that sleeps. Nothing needs to be taken down: when process 1
ends, the kernel ends all others, and with them go the namespaces, their devices and their mounts.
"""

import contextlib
import ctypes
import json
import os
import shlex
import socket
import struct
import subprocess
import sys
from pathlib import Path

from switch import FRAMING, MTU, Link, Switch, address

ENTER = str(Path(__file__).with_name("enter"))

# tbf only holds senders back, a little below the rate that is exact in the switch, whose queue TCP does not see.
SETUP = """
ip link set lo up
ip link set eth0 addrgenmode none
ip link set eth0 mtu {mtu} up
ip address add {address}/24 dev eth0
ip route replace 10.77.0.0/24 dev eth0 src {address} congctl cubic
tc qdisc replace dev eth0 root tbf rate {rate:.0f} burst 128kb limit 4mb
"""

# The launchers reach hosts through `enter`, all bytes between hosts go through eth0, nothing is bound to a core, and
# Open MPI, which cannot see that hosts share cores, yields. Without event_tick_rate it looks at its sockets every
# 10 ms only, in one of five runs.
VARIABLES = {
    "TMPDIR": "/dev/shm",
    "PRTE_MCA_plm_ssh_agent": ENTER,
    "PRTE_MCA_plm_ssh_no_tree_spawn": "1",
    "PRTE_MCA_prte_if_include": "eth0",
    "PRTE_MCA_rmaps_default_mapping_policy": "slot",
    "PRTE_MCA_hwloc_default_binding_policy": "none",
    "OMPI_MCA_pml": "ob1",
    "OMPI_MCA_btl": "self,sm,tcp",
    "OMPI_MCA_btl_tcp_if_include": "eth0",
    "OMPI_MCA_mpi_yield_when_idle": "1",
    "OMPI_MCA_mpi_event_tick_rate": "1",
    "HYDRA_LAUNCHER": "ssh",
    "HYDRA_LAUNCHER_EXEC": ENTER,
    "HYDRA_IFACE": "eth0",
    "MPIR_CVAR_CH4_NETMOD": "ofi",
    "I_MPI_HYDRA_BOOTSTRAP": "ssh",
    "I_MPI_HYDRA_BOOTSTRAP_EXEC": ENTER,
    "I_MPI_HYDRA_IFACE": "eth0",
    "I_MPI_FABRICS": "shm:ofi",
    "I_MPI_PIN": "0",
    "FI_PROVIDER": "tcp",
    "FI_TCP_IFACE": "eth0",
}


def run(*command: str) -> None:
    if subprocess.run(command, stdin=subprocess.DEVNULL).returncode:
        sys.exit(f"scripts/cluster: this failed: {shlex.join(command)}")


def start(host: int, rate: float, trains: bool) -> Link:
    """Make a host; `enter` finds it by a variable of the environment."""
    name = f"host{host}"
    socket.sethostname(name)  # ours; what a new namespace begins with
    sleep = ["unshare", "--net", "--uts", "sh", "-c", "echo && exec sleep infinity"]
    keeper = subprocess.Popen(sleep, stdout=subprocess.PIPE)
    keeper.stdout.readline()
    os.environ[f"KEEPER_{name}"] = str(keeper.pid)
    link = Link(name, rate, trains)
    run("ip", "link", "set", name, "netns", str(keeper.pid), "name", "eth0")
    setup = SETUP.format(address=address(host), mtu=MTU, rate=rate * MTU / (MTU + FRAMING))
    run(ENTER, name, setup.strip().replace("\n", " && "))
    return link


def take_short_turns() -> None:
    """Make what is started from here share cores in turns of 0.1 ms, not 3 ms, where Linux can (6.12 and later).

    Ranks wait for each other: with 8 of them on 2 cores, 64 bytes took 3 ms instead of 10 and 4 MB half as long.
    """
    sched_setattr = {"x86_64": 314, "aarch64": 274}.get(os.uname().machine)
    attributes = struct.pack("=IIQiIQQQ", 48, 0, 0, os.nice(0), 0, 100_000, 0, 0)
    if sched_setattr:
        ctypes.CDLL(None).syscall(sched_setattr, 0, attributes, 0)


def launch(hosts: int, ranks: int, command: list[str]) -> subprocess.Popen:
    """Start the ranks, from the first host: the launchers' daemons could not reach any other place."""
    slots = ",".join(f"host{host}:{ranks}" for host in range(hosts))
    launcher = ["mpiexec", "--host", slots, "-n", str(hosts * ranks)] if ranks else []
    variables = os.environ | VARIABLES | {"I_MPI_PERHOST": str(ranks)}
    inside = f"exec {shlex.join([*launcher, *command])}"
    return subprocess.Popen([ENTER, "host0", inside], stdin=subprocess.DEVNULL, env=variables)


def main() -> int:
    """Run the command; its exit code, or 1 if standard input ends before: whoever held its other end has gone."""
    wish = json.loads(sys.argv[1])
    hosts = range(len(wish["rates"]))
    run("mount", "-t", "tmpfs", "tmpfs", "/dev/shm")
    names = Path("/dev/shm/hosts")
    names.write_text("127.0.0.1 localhost\n" + "".join(f"{address(host)} host{host}\n" for host in hosts))
    run("mount", "--bind", str(names), "/etc/hosts")
    links = [start(host, wish["rates"][host], trains=not wish["loss"]) for host in hosts]
    take_short_turns()
    launcher = launch(len(links), wish["ranks"], wish["command"])
    Path("/proc/self/timerslack_ns").write_text("1")
    with contextlib.suppress(PermissionError):  # else ranks that poll delay the switch
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
    Switch(links, wish["delay"], wish["loss"]).run(sys.stdin.fileno(), os.pidfd_open(launcher.pid))
    code = launcher.poll()
    return 1 if code is None else code


if __name__ == "__main__":
    sys.exit(main())

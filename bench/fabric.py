"""Adapters that carry messages between nodes without their processors (RDMA), and what lets them reach GPUs."""

import os
import re
from collections.abc import Mapping
from pathlib import Path

__all__ = ["fabric"]

#: Kernel modules, and what they are for.
MODULES = {
    "nvidia_peermem": "adapters read and write GPU memory", "nv_peer_mem": "adapters read and write GPU memory",
    "gdrdrv": "GDRCopy, short messages from GPU memory",
}  # fmt: skip
#: Settings that choose transports, and what of them is RDMA.
CHOSEN = {
    "UCX_TLS": re.compile(r"\b(all|ib|rc|dc|ud)"),
    "FI_PROVIDER": re.compile(r"\b(verbs|psm2|psm3|opx|cxi|efa|gni)\b"),
}


def fabric(variables: Mapping[str, str] = os.environ, root: Path = Path("/")) -> list[str]:
    """Lines on this node's adapters, on the way from GPU memory to them, and on settings that leave them out."""
    ports = sorted((root / "sys/class/infiniband").glob("*/ports/*"))
    lines = [port_line(port) for port in ports]
    if not lines:
        return ["no adapters for RDMA: between nodes go TCP, or what a vendor's own driver offers"]
    modules = {line.split()[0] for line in read(root / "proc/modules").splitlines()}
    found = [f"{name}: {use}" for name, use in MODULES.items() if name in modules]
    lines += found or ["no nvidia_peermem: GPU memory goes through the host, unless the driver offers dma-buf"]
    for name, rdma in CHOSEN.items():
        value = variables.get(name, "")
        if value and value[0] != "^" and not rdma.search(value):
            lines.append(f"{name}={value} leaves these adapters out")
    return lines


def port_line(port: Path) -> str:
    """An adapter's port as Linux describes it.

    The files say "100 Gb/sec (4X EDR)" and "4: ACTIVE".
    """
    rate, layer = read(port / "rate"), read(port / "link_layer")
    state = read(port / "state").partition(":")[2].strip()
    adapter, facts = port.parts[-3], (rate or "rate unknown", layer or "RDMA", state.lower() or "state unknown")
    return f"{adapter}, port {port.name}: {', '.join(facts)}"


def read(path: Path) -> str:
    """What a file says, nothing if it cannot be read."""
    try:
        return path.read_text().strip()
    except OSError:
        return ""

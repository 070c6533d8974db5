"""Adapters that carry messages between nodes without their processors (RDMA), and what lets them reach GPUs."""

import os
import re
from collections.abc import Mapping
from pathlib import Path

__all__ = ["fabric", "line_rate"]

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

#: Network cards that a fabric goes by.
CARDS = {"tcp": "*", "slingshot": "hsn*"}


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


def line_rate(fabric: str, root: Path = Path("/")) -> tuple[str, float] | None:
    """The fastest adapter of a fabric that is up on this node, and its bits a second; None where nothing is said.

    Of Ethernet what its drivers say, which those of virtual machines do not.
    """
    ports = (root / "sys/class/infiniband").glob("*/ports/*") if fabric == "infiniband" else ()
    cards = (root / "sys/class/net").glob(CARDS[fabric]) if fabric in CARDS else ()
    up = [port for port in ports if "ACTIVE" in read(port / "state")]
    rates = {f"{port.parts[-3]}, port {port.name}": 1e9 * number(read(port / "rate")) for port in up}
    rates |= {card.name: 1e6 * number(read(card / "speed")) for card in cards if read(card / "operstate") == "up"}
    rate, name = max(((rate, name) for name, rate in rates.items()), default=(0, ""))
    return (name, rate) if rate > 0 else None


def number(text: str) -> float:
    """The one that a text begins with, such as 100 Gb/sec; else 0."""
    match = re.match(r"\d+(\.\d+)?", text)
    return float(match[0]) if match else 0


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

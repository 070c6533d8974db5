"""The network of scripts/cluster: a switch, and one link from each host to it.

A host's eth0 is a tun device whose other end is held here: a packet that a host sends is read, kept for as long as its
links and the delay take, and written to the host it is for. Linux has queueing disciplines for that, but many kernels
lack netem, and a tbf that passes the 64 KB trains of segmentation offload whole lets every message shorter than its
burst through for nothing.
"""

import contextlib
import fcntl
import heapq
import os
import random
import select
import struct
import sys
import time

QUEUE = 4 << 20  # bytes that wait for a link before the switch drops
EARLY = 40_000  # ns; a sleep ends up to this much too late, so the rest is spent polling
PREFIX = 10  # bytes of struct virtio_net_hdr, before each packet
HEADERS = 52  # bytes of IPv4 and TCP with timestamps, in each packet of a train
FRAMING = 38  # bytes of Ethernet around each packet: preamble, header, checksum, gap
MTU = 1500


def address(host: int) -> str:
    return f"10.77.0.{host + 1}"


class Link:
    """A network device `name` and both directions of its link; `trains`: a host may send up to 64 KB at once."""

    def __init__(self, name: str, rate: float, trains: bool) -> None:
        self.ns_per_byte = 8e9 / rate
        self.up_free = self.down_free = 0  # ns; when each direction has passed all it has been given
        self.end = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        fcntl.ioctl(self.end, 0x400454CA, struct.pack("16sH22x", name.encode(), 0x5001))  # TUNSETIFF: IP, with prefix
        fcntl.ioctl(self.end, 0x400454D0, 3 if trains else 1)  # TUNSETOFFLOAD: checksums, TCP over IPv4


class Switch:
    """Moves packets between hosts, each `delay` ns late and lost with probability `loss`.

    A packet begins when its sender's link is free, goes on to the receiver's link after the delay, without waiting
    for its end, and arrives when both links have passed it. A train counts as the packets that a card would send.
    """

    def __init__(self, links: list[Link], delay: int, loss: float) -> None:
        self.links, self.delay, self.loss = links, delay, loss
        self.flying: list[tuple[int, int, int, bytes]] = []  # when due, sequence number, whose end, packet
        self.count = 0

    def run(self, *stops: int) -> None:
        """Until one of the file descriptors `stops` can be read."""
        senders = {link.end: link for link in self.links}
        ready: list[int] = []
        while not set(stops) & set(ready):
            for end in ready:
                self.accept(senders[end])
            self.deliver()
            wait = max(0, self.flying[0][0] - EARLY - time.monotonic_ns()) / 1e9 if self.flying else None
            ready = select.select([*stops, *senders], [], [], wait)[0]

    def accept(self, source: Link) -> None:
        """Take in what a host has sent, but not so much that others wait."""
        for _ in range(8):
            try:
                packet = os.read(source.end, PREFIX + (1 << 16))
            except BlockingIOError:
                return
            host = packet[PREFIX + 19] - 1 if len(packet) >= PREFIX + 20 and packet[PREFIX] >> 4 == 4 else -1
            if 0 <= host < len(self.links) and random.random() >= self.loss:
                self.schedule(source, self.links[host], packet)

    def schedule(self, source: Link, target: Link, packet: bytes) -> None:
        """Decide when a packet is due, or drop it."""
        size, segment = len(packet) - PREFIX, int.from_bytes(packet[4:6], sys.byteorder)
        followers = (size - HEADERS - 1) // segment if segment else 0
        nbytes = size + FRAMING + followers * (HEADERS + FRAMING)
        begin = max(time.monotonic_ns(), source.up_free)
        source.up_free = begin + int(nbytes * source.ns_per_byte)
        onward = max(begin + self.delay, target.down_free)
        if onward - begin - self.delay > QUEUE * target.ns_per_byte:
            return
        target.down_free = max(source.up_free + self.delay, onward + int(nbytes * target.ns_per_byte))
        self.count += 1
        heapq.heappush(self.flying, (target.down_free, self.count, target.end, packet))

    def deliver(self) -> None:
        """Hand over what is due."""
        while self.flying and self.flying[0][0] <= time.monotonic_ns():
            _, _, end, packet = heapq.heappop(self.flying)
            with contextlib.suppress(OSError):  # no memory: a lost packet, to TCP
                os.write(end, packet)

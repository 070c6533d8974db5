"""Bytes that this process has sent over TCP, by MPI, by gloo or by whatever, as Linux counts them for every socket."""

import os
import socket
import stat

__all__ = ["sent"]

#: Where tcpi_bytes_sent and tcpi_bytes_retrans stand in struct tcp_info of linux/tcp.h, to which fields are only added.
SENT, AGAIN, END = 200, 208, 216


def sent() -> int | None:
    """Of payload, over sockets that are open, sent again not counted; None where Linux does not tell."""
    if not os.path.isdir("/proc/self/fd"):
        return None
    return sum(_sent(int(name)) for name in os.listdir("/proc/self/fd"))


def _sent(number: int) -> int:
    try:
        if not stat.S_ISSOCK(os.fstat(number).st_mode):
            return 0
        with socket.socket(fileno=os.dup(number)) as one:
            if one.type != socket.SOCK_STREAM or one.family not in (socket.AF_INET, socket.AF_INET6):
                return 0
            info = one.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, END)
    except OSError:  # it was closed meanwhile, as that of the folder is
        return 0
    first, again = (int.from_bytes(info[start : start + 8], "little") for start in (SENT, AGAIN))
    return first - again

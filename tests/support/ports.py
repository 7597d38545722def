# SPDX-License-Identifier: MIT
"""Ports for servers that must be told one."""

import pathlib
import random
import socket

RANGE = (20000, 32000)  # below what systems give to those who ask for any, and above what services have
GIVEN = pathlib.Path("/proc/sys/net/ipv4/ip_local_port_range")


def free_port():
    """A port that nobody has now. Those that connect somewhere are given ports by the system, thousands in some tests: one
    of its own choice may be another's before a server has started."""
    first_given = int(GIVEN.read_text().split()[0]) if GIVEN.exists() else 0
    for _ in range(1000):
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", random.randrange(*RANGE) if first_given >= RANGE[1] else 0))
            except OSError:
                continue
            return probe.getsockname()[1]
    raise OSError("no port is free")

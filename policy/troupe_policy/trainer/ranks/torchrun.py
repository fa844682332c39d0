"""Starts several ranks of the trainer: this process becomes torchrun, which starts them and ends all when one ends.

In: the command line of `troupe_policy.server`, the number of ranks and the hosts that they run on. Out: the same
command line, once per rank of this host. Invariants: the process keeps its pid, so the kernel still ends it with its
parent; every rank asks the kernel to kill it when torchrun dies, and ends at the end of stdin, which the parent holds
open. Host 0 has the first ranks, rank 0 among them.
"""

from __future__ import annotations

import fcntl
import os
import socket
import struct
import sys
from dataclasses import dataclass

SIOCGIFADDR = 0x8915


@dataclass(frozen=True)
class Places:
    """ranks: number of ranks on all hosts. nodes: number of hosts. node: this host's number. rendezvous: HOST:PORT on
    host 0.
    """

    ranks: int
    nodes: int = 1
    node: int = 0
    rendezvous: str | None = None

    def arguments(self) -> list[str]:
        """torchrun's arguments. With several hosts, raises ValueError if the ranks cannot be spread evenly, this host's
        number is not below `nodes`, or the rendezvous is not HOST:PORT.
        """
        if self.nodes == 1:
            return ["--standalone", "--nproc-per-node", str(self.ranks)]
        if self.ranks % self.nodes or not 0 <= self.node < self.nodes:
            raise ValueError(f"train.nodes: {self.ranks} ranks on {self.nodes} hosts, of which this is number {self.node}: expected the same number of ranks on each host, and a host number from 0 to {self.nodes - 1}")
        host, port = self.address()
        # The static rendezvous numbers ranks by the hosts' numbers; torchrun's default, c10d, by the order of arrival.
        return [
            *("--nnodes", str(self.nodes), "--node-rank", str(self.node), "--nproc-per-node", str(self.ranks // self.nodes)),
            *("--rdzv-backend", "static", "--master-addr", host, "--master-port", str(port)),
        ]

    def address(self) -> tuple[str, int]:
        """Host and port of the rendezvous. Raises ValueError."""
        host, _, port = (self.rendezvous or "").rpartition(":")
        if not host or not port.isdigit():
            raise ValueError(f"train.rendezvous is {self.rendezvous!r}: expected HOST:PORT of the host with number 0")
        return host.strip("[]"), int(port)


def in_torchrun() -> bool:
    """True in a process that torchrun started as one of several ranks."""
    return "TORCHELASTIC_RUN_ID" in os.environ and "RANK" in os.environ


def is_first_of_host() -> bool:
    """True in the rank with the lowest number on its host."""
    return os.environ.get("LOCAL_RANK", "0") == "0"


def run_ranks(places: Places) -> None:
    """Replaces this process by torchrun. Raises ValueError as Places.arguments does."""
    arguments = places.arguments()
    # torchrun would set OMP_NUM_THREADS to 1 too, and print three lines about it. The server's --threads decides.
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    os.environ.setdefault("TORCH_NCCL_ASYNC_ERROR_HANDLING", "1")
    if places.nodes > 1:
        name = interface_towards(*places.address())
        for variable in ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME", "TP_SOCKET_IFNAME") if name else ():
            os.environ.setdefault(variable, name)
    command = ["-m", "torch.distributed.run", *arguments, "--max-restarts", "0", "-m", "troupe_policy.server", *sys.argv[1:]]
    sys.stdout.flush()
    sys.stderr.flush()
    os.execv(sys.executable, [sys.executable, *command])


def interface_towards(host: str, port: int) -> str:
    """Name of the network interface through which this host reaches `host`, or '' if none is found.

    Without a name, gloo takes the interface that the host's own name resolves to, which is often the loopback.
    """
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, kind, protocol) as probe:
            probe.connect(address)  # sends nothing: the kernel only chooses a route
            own = probe.getsockname()[0]
            return next((name for _, name in socket.if_nameindex() if ipv4_of(probe, name) == own), "")
    except OSError:
        return ""


def ipv4_of(probe: socket.socket, interface: str) -> str:
    """IPv4 address of an interface, or '' if it has none (Linux)."""
    try:
        reply = fcntl.ioctl(probe.fileno(), SIOCGIFADDR, struct.pack("256s", interface.encode()[:15]))
    except OSError:
        return ""
    return socket.inet_ntoa(reply[20:24])

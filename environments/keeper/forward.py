"""Forwarder from an environment's loopback to the proxy of its allowlist: the environment's only way out.

in   connections to 127.0.0.1:3128 in the environment's network namespace
out  the same bytes on the Unix socket `proxy`, and its answers back (relay.py)
Invariant: of the environment's namespaces, this process joins only the network namespace. It dies with its parent: the
keeper, or Troupe's process for the driver `docker`. At most 64 connections are open, beside 64 that are about to close;
a further one is closed at once.
"""

import os
import select
import signal
import socket
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import kernel  # noqa: E402
import pipe  # noqa: E402
import relay  # noqa: E402

PORT = 3128
MOST = 64


def start(inside):
    """Starts the forwarder of an environment that a keeper holds. Returns its pid once it listens."""
    read, write = os.pipe2(os.O_CLOEXEC)
    pid = os.fork()
    if pid:
        os.close(write)
        said = pipe.read_all(read, kill=pid)
        if said != b"ready":
            why = said.decode(errors="replace") or "it ended without a message"
            raise RuntimeError(f"cannot start the forwarder to the allowlist's proxy: {why}")
        return pid
    try:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        listener = listen(inside.pidfd)
        os.write(write, b"ready")
        # Closes the keeper's descriptors too: a request whose connection this process held open would never seem
        # answered.
        os.closerange(0, listener.fileno())
        os.closerange(listener.fileno() + 1, 4096)
        serve(listener)
    except BaseException as error:
        try:
            os.write(write, f"{type(error).__name__}: {error}".encode())
        except OSError:
            pass  # The pipe is closed: the forwarder had reported that it listens.
    finally:
        os._exit(1)


def listen(pidfd):
    """Listens in the network namespace of a process. This process dies with its parent from here on."""
    kernel.prctl(kernel.PR_SET_PDEATHSIG, signal.SIGKILL)
    kernel.setns(pidfd, kernel.NEWNET)
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind(("127.0.0.1", PORT))
    listener.listen(MOST)
    return listener


def serve(listener):
    poll = select.epoll()
    poll.register(listener, select.EPOLLIN)
    relays = relay.Relays(poll, MOST)
    while True:
        events = dict(poll.poll(relays.seconds))
        arrived = events.pop(listener.fileno(), 0)
        relays.step(events)
        # New connections come last: they may get the descriptor of one that was closed above.
        if arrived:
            accept(listener, relays)


def accept(listener, relays):
    """Connects a waiting client to the proxy, or closes its connection if MOST are open or the proxy is gone."""
    try:
        near, _ = listener.accept()
    except OSError:
        time.sleep(0.1)  # The system has no descriptor or memory left: the client waits.
        return
    if relays.open >= MOST:
        near.close()
        return
    far = None
    try:
        far = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK)
        far.connect("proxy")
        relays.add(near, far)
    except OSError:
        near.close()  # Closing also ends what epoll watches.
        if far is not None:
            far.close()


def main(pid, directory):
    """Forwards for a container. pid: its first process; directory: that of the socket `proxy`."""
    os.chdir(directory)
    listener = listen(os.pidfd_open(int(pid)))
    os.write(1, b"ready\n")
    serve(listener)


if __name__ == "__main__":
    main(*sys.argv[1:])

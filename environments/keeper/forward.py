"""Forwarder from an environment's loopback to the proxy of its allowlist: the environment's only way out.

in   connections to 127.0.0.1:3128 in the environment's network namespace
out  the same bytes on the Unix socket `proxy`, and its answers back (relay.py)
Invariant: of the environment's namespaces, this process joins only the network namespace. It dies with its parent: the
keeper, or Troupe's process for the driver `docker`. At most 64 connections are open; a further one is closed at once.
"""

import os
import selectors
import signal
import socket
import sys

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
    loop = selectors.DefaultSelector()
    loop.register(listener, selectors.EVENT_READ, None)
    opened = 0
    while True:
        ended = set()
        for key, events in loop.select():
            if key.data is None:
                near, _ = listener.accept()
                if opened < MOST:
                    opened += connect(loop, near)
                else:
                    near.close()
            elif key.data not in ended and key.data.step(key.fileobj, events):
                ended.add(key.data)
        opened -= len(ended)


def connect(loop, near):
    """Connects a client to the proxy. Returns the number of relays that this opened: 1, or 0 if the proxy is gone."""
    far = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    try:
        far.connect("proxy")
    except OSError:
        near.close()
        far.close()
        return 0
    relay.Relay(loop, near, far)
    return 1


def main(pid, directory):
    """Forwards for a container. pid: its first process; directory: that of the socket `proxy`."""
    os.chdir(directory)
    listener = listen(os.pidfd_open(int(pid)))
    os.write(1, b"ready\n")
    serve(listener)


if __name__ == "__main__":
    main(*sys.argv[1:])

"""Messages on a keeper's socket: requests and answers.

in   a connection        out  values of JSON, each after four bytes of its length
Invariant: nothing after a request is read, since it is for whoever serves the request.
"""

import json
import struct


def receive(connection):
    """Reads a request: four bytes of length, then JSON."""
    connection.settimeout(5)
    try:
        head = receive_bytes(connection, 4)
        data = receive_bytes(connection, struct.unpack("<I", head)[0]) if len(head) == 4 else b""
    except OSError:
        return None
    connection.settimeout(None)
    return json.loads(data) if data else None


def receive_bytes(connection, size):
    parts = []
    while size > 0:
        part = connection.recv(min(size, 1 << 20))
        if not part:
            break
        parts.append(part)
        size -= len(part)
    return b"".join(parts)


def answer(connection, value, data=b""):
    head = json.dumps(value).encode()
    try:
        connection.sendall(struct.pack("<I", len(head)) + head + data)
    except OSError:
        pass  # The requester has closed the connection.

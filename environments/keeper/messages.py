"""Messages on a keeper's socket: requests and answers.

in   a connection        out  JSON values, each after its length in four bytes
Invariant: only the request is read: the code that serves it reads the bytes after it. Reading a request does not block.
"""

import json
import select
import struct
import time

SECONDS = 60  # for a request to arrive: a requester whose event loop is busy connects long before it writes


class Request:
    """A request that is being read. `take(self, value)` is called once: with the request's JSON value, or with None if
    it does not arrive whole in SECONDS or is not JSON.
    """

    def __init__(self, loop, connection, take):
        self.loop, self.connection, self.take = loop, connection, take
        self.data, self.size = bytearray(), 4

    def begin(self):
        self.connection.setblocking(False)
        self.loop.watch(self.connection.fileno(), select.POLLIN, self.read)
        self.loop.at(time.monotonic() + SECONDS, self.give_up)
        self.read()

    def read(self):
        while len(self.data) < self.size:
            try:
                part = self.connection.recv(min(self.size - len(self.data), 1 << 20))
            except BlockingIOError:
                return
            except OSError:
                part = b""
            if not part:
                self.give_up()
                return
            self.data += part
            if len(self.data) == 4:
                self.size = 4 + struct.unpack("<I", self.data)[0]
        try:
            value = json.loads(self.data[4:])
        except ValueError:
            value = None
        self.end(value)

    def give_up(self):
        self.end(None)

    def end(self, value):
        self.loop.cancel(self.give_up)
        self.loop.forget(self.connection.fileno())
        self.connection.setblocking(True)
        self.take(self, value)


def answer(connection, value, data=b""):
    head = json.dumps(value).encode()
    try:
        connection.sendall(struct.pack("<I", len(head)) + head + data)
    except OSError:
        pass  # The requester has closed the connection.

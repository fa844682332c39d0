"""Relay: passes the bytes of two connected stream sockets to each other.

In: two sockets, the events that a selector reports for them. Out: each socket gets what the other sent, and its end.
Invariant: the directions are independent: the end of one is passed on when all bytes before it are, and the other goes
on. At most READ bytes wait in each direction; the sender is not read before they are sent. No call blocks. When both
directions have ended, or one socket fails, both sockets are closed.
"""

import selectors
import socket

READ = 65536


class Relay:
    def __init__(self, loop, near, far):
        self.loop = loop
        self.other = {near: far, far: near}
        self.waiting = {near: b"", far: b""}  # bytes to be sent to this socket
        self.ended = {near: False, far: False}  # True: this socket has sent its end
        for one in self.other:
            one.setblocking(False)
            self._watch(one)

    def step(self, one, events):
        """Moves bytes from and to a socket that the selector reports. Returns True if the relay has closed."""
        try:
            if events & selectors.EVENT_WRITE:
                self._send(one)
            if events & selectors.EVENT_READ:
                self._receive(one)
            for each in self.other:
                self._watch(each)
        except OSError:
            self._close()
            return True
        if all(self.ended.values()) and not any(self.waiting.values()):
            self._close()
            return True
        return False

    def _receive(self, one):
        other = self.other[one]
        try:
            self.waiting[other] = one.recv(READ)
        except BlockingIOError:
            return
        if self.waiting[other]:
            self._send(other)
        else:
            self.ended[one] = True
            other.shutdown(socket.SHUT_WR)

    def _send(self, one):
        try:
            sent = one.send(self.waiting[one])
        except BlockingIOError:
            return
        self.waiting[one] = self.waiting[one][sent:]

    def _watch(self, one):
        """Registers the socket for the events that the relay waits for; a socket without any is not registered."""
        reads = not self.ended[one] and not self.waiting[self.other[one]]
        events = selectors.EVENT_READ * reads | selectors.EVENT_WRITE * bool(self.waiting[one])
        known = self.loop.get_map().get(one)
        if known is None:
            if events:
                self.loop.register(one, events, self)
        elif not events:
            self.loop.unregister(one)
        elif known.events != events:
            self.loop.modify(one, events, self)

    def _close(self):
        for one in self.other:
            if one in self.loop.get_map():
                self.loop.unregister(one)
            one.close()

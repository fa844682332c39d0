"""Relay: passes the bytes of two connected stream sockets to each other, for many pairs of sockets.

In: pairs of sockets, events of epoll. Out: each socket gets what its partner sent, and its end.
Invariant: the two directions of a pair are independent. The end of one is passed on when all bytes before it are; if a
socket takes nothing more, only what goes to it is lost. At most READ bytes wait in each direction; the sender is not
read before they are sent. No call blocks. When both directions are over, both sockets are closed as soon as their peers
have ended too, or after LINGER seconds: to close a socket whose peer still sends would discard what the peer has yet to
receive.
"""

import select
import socket
import time

READ = 65536
LINGER = 5
IN, OUT, GONE = select.EPOLLIN, select.EPOLLOUT, select.EPOLLHUP | select.EPOLLERR


class Relays:
    """All relays. `open`: number of those in which a direction is not over; as many others may linger as `most`."""

    def __init__(self, poll, most):
        self.poll, self.most = poll, most
        self.by_descriptor = {}
        self.lingering = {}  # time.monotonic() at which a relay that is over is closed, by relay; the oldest is first

    @property
    def open(self):
        return len(self.by_descriptor) // 2 - len(self.lingering)

    @property
    def seconds(self):
        """Upper bound on the wait for events; None: none."""
        return max(0, next(iter(self.lingering.values())) - time.monotonic()) if self.lingering else None

    def add(self, near, far):
        relay = Relay(self.poll, near, far)
        self.by_descriptor.update({one.fileno(): (relay, one) for one in (near, far)})

    def step(self, events):
        """Moves bytes. events: of epoll, by descriptor."""
        for descriptor, reported in events.items():
            relay, one = self.by_descriptor.get(descriptor, (None, None))
            if relay is None:
                continue
            relay.step(one, reported)
            if all(relay.over.values()):
                self.lingering.setdefault(relay, time.monotonic() + LINGER)
                if all(relay.ended.values()):
                    self._close(relay)
        for relay, until in list(self.lingering.items()):
            if until <= time.monotonic() or len(self.lingering) > self.most:
                self._close(relay)

    def _close(self, relay):
        del self.lingering[relay]
        for one in relay.other:
            del self.by_descriptor[one.fileno()]
            relay.forget(one)
            one.close()


class Relay:
    """A pair of sockets. over: True for a socket to which nothing more goes; ended: True for one that sends no more."""

    def __init__(self, poll, near, far):
        self.poll = poll
        self.other = {near: far, far: near}
        self.waiting = {near: b"", far: b""}  # bytes to be sent to this socket
        self.over = {near: False, far: False}
        self.ended = {near: False, far: False}
        self.gone = set()  # sockets whose peers take nothing more; epoll reports that whatever it watches for
        self.watched = {}  # events that epoll watches for, by socket
        for one in self.other:
            one.setblocking(False)
            self._watch(one)

    def step(self, one, events):
        if events & GONE:
            self.gone.add(one)
            self._end(one)
        elif events & OUT:
            self._send(one)
        if events & (IN | GONE) and self._reads(one):
            self._receive(one)
        for each in self.other:
            self._watch(each)

    def forget(self, one):
        if self.watched.pop(one, None) is not None:
            self.poll.unregister(one)

    def _reads(self, one):
        return not self.ended[one] and not self.waiting[self.other[one]]

    def _receive(self, one):
        other = self.other[one]
        try:
            data = one.recv(READ)
        except BlockingIOError:
            return
        except OSError:
            data = b""  # The connection was reset: its bytes before that are read already.
        if not data:
            self.ended[one] = True
            self._end(other)
        elif not self.over[other]:
            self.waiting[other] = data
            self._send(other)

    def _send(self, one):
        try:
            sent = one.send(self.waiting[one])
        except BlockingIOError:
            return
        except OSError:
            self._end(one)
            return
        self.waiting[one] = self.waiting[one][sent:]

    def _end(self, one):
        """Sends nothing more to a socket, and tells its peer so."""
        if self.over[one]:
            return
        self.waiting[one] = b""
        self.over[one] = True
        try:
            one.shutdown(socket.SHUT_WR)
        except OSError:
            pass  # The peer has gone.

    def _watch(self, one):
        events = IN * self._reads(one) | OUT * bool(self.waiting[one])
        if one in self.gone and not events:
            self.forget(one)  # Otherwise epoll would report again and again that the peer has gone.
            return
        if one not in self.watched:
            self.poll.register(one, events)
        elif self.watched[one] != events:
            self.poll.modify(one, events)
        self.watched[one] = events

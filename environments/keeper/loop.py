"""Event loop of a keeper: calls back when a descriptor is ready or a time has come.

in   descriptors with the events to wait for, times        out  calls, one after the other
Invariant: a descriptor whose number was closed and reused while events are delivered gets no event of the closed one.
"""

import select
import time


class Loop:
    def __init__(self):
        self.poll, self.acts, self.times = select.poll(), {}, {}

    def watch(self, fd, events, act):
        """Calls `act()` whenever a descriptor has one of the events, or is closed at its other end."""
        self.acts[fd] = act
        self.poll.register(fd, events)

    def forget(self, fd):
        if self.acts.pop(fd, None):
            self.poll.unregister(fd)

    def at(self, moment, act):
        """Calls `act()` once, at a time of the monotonic clock. A second call moves the time."""
        self.times[act] = moment

    def cancel(self, act):
        self.times.pop(act, None)

    def once(self):
        """Waits for the next event or time, and makes the calls that are due."""
        wait = max(0, min(self.times.values()) - time.monotonic()) * 1000 if self.times else None
        for fd, act in [(fd, self.acts.get(fd)) for fd, _ in self.poll.poll(wait)]:
            if act is not None and self.acts.get(fd) is act:
                act()
        now = time.monotonic()
        for act in [act for act, moment in self.times.items() if moment <= now]:
            if self.times.pop(act, None) is not None:
                act()

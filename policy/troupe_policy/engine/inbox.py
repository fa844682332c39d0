"""Actions that other threads post to the engine's thread.

In: functions, from any thread. Out: they run in order on the thread that calls `run_all`.
Invariant: an action runs at most once. The future of `ask` gets the action's result or its error. If nobody calls
`run_all` any more, the action does not run and its future stays open.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any


class Inbox:
    def __init__(self) -> None:
        self._actions: deque[Callable[[], None]] = deque()
        self._wake = threading.Event()

    def post(self, action: Callable[[], None]) -> None:
        self._actions.append(action)
        self._wake.set()

    def ask(self, action: Callable[[], Any]) -> Future:
        future: Future = Future()

        def run() -> None:
            try:
                future.set_result(action())
            except Exception as error:  # noqa: BLE001 — the future carries it to the caller
                future.set_exception(error)

        self.post(run)
        return future

    def wake(self) -> None:
        self._wake.set()

    def run_all(self) -> None:
        while self._actions:
            self._actions.popleft()()

    def wait(self, *, idle: bool) -> None:
        """If `idle`, blocks until an action is posted or `wake` is called; returns at once if that happened since the
        last `wait`. If not `idle`, returns at once.
        """
        if idle:
            self._wake.wait()
        self._wake.clear()

    def __bool__(self) -> bool:
        return bool(self._actions)

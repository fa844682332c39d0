"""Measures the cost of a call: wall time and CPU time since the meter was made, and the process's peak memory so far.
"""

from __future__ import annotations

import resource
import time


class Meter:
    def __init__(self) -> None:
        self.wall = time.perf_counter()
        self.cpu = time.process_time()

    def read(self, tokens: int) -> dict[str, float]:
        """Cost of the call as metrics. tokens: number of tokens that the call processed."""
        seconds = time.perf_counter() - self.wall
        return {
            "seconds": seconds,
            "tokensPerSecond": tokens / max(seconds, 1e-9),
            "cpuMs": (time.process_time() - self.cpu) * 1000.0,
            "maxRssBytes": float(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024),
        }

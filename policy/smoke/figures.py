"""A figure of a smoke check: a measured value, with an upper bound, a lower bound or none."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class Figure:
    """most, least: bounds on the value; None is no bound. A value that is not finite is never ok, even without a bound.
    """

    figure: str
    value: float
    unit: str = ""
    most: float | None = None
    least: float | None = None

    @property
    def ok(self) -> bool:
        if not math.isfinite(self.value):
            return False
        return (self.most is None or self.value <= self.most) and (self.least is None or self.value >= self.least)

    def line(self) -> dict[str, object]:
        bound = f"≤ {self.most:g}" if self.most is not None else f"≥ {self.least:g}" if self.least is not None else None
        value = self.value if math.isfinite(self.value) else str(self.value)
        return {"figure": self.figure, "value": value, "unit": self.unit, "bound": bound, "ok": self.ok}

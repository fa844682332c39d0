"""Measures the most memory that a step holds allocated at one moment, from the events of torch's profiler.

In: a function that runs the step. Out: bytes. Invariant: the step allocates what it allocates in training. Under a
dispatch mode, such as torch's MemTracker, it would allocate more: autograd then adds two gradients of one weight in new
memory instead of in place. One rank only: with several, gloo's threads free tensors, and the profiler does not record
that.
"""

from __future__ import annotations

from collections.abc import Callable

from torch.profiler import ProfilerActivity, profile


def most_allocated(step: Callable[[], object]) -> int:
    """Largest number of bytes that `step` has allocated and not yet freed. Gradients count: each step allocates them
    anew.
    """
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as recorded:
        step()
    events = [event for event in recorded.profiler.kineto_results.events() if event.name() == "[memory]"]
    held = most = 0
    for event in sorted(events, key=lambda one: one.start_ns()):
        held += event.nbytes()  # negative where memory is freed
        most = max(most, held)
    return most

"""Peak of what a step allocates, by the events of torch's profiler.

In: a function that runs the step. Out: bytes. Invariant: the step runs as in training. Under a dispatch mode, such as torch's
MemTracker, autograd adds two gradients of one weight in new memory instead of in place: a peak that no training has.
One rank only: gloo's threads free tensors of which the profiler is not told.
"""

from __future__ import annotations

from collections.abc import Callable

from torch.profiler import ProfilerActivity, profile


def most_allocated(step: Callable[[], object]) -> int:
    """Largest sum of bytes that `step` has allocated and not freed, gradients included: an update drops them."""
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as recorded:
        step()
    events = [event for event in recorded.profiler.kineto_results.events() if event.name() == "[memory]"]
    held = most = 0
    for event in sorted(events, key=lambda one: one.start_ns()):
        held += event.nbytes()  # negative where memory is freed
        most = max(most, held)
    return most

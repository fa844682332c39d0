"""Instances and rewards of `verifiers` tasksets: packages that export a `Taskset`, the interface since verifiers 0.2 and
the only one since 0.3.

In: a taskset's id (the family's name) and the fields of its config (the options). Out: its tasks, and the sum of their
weighted rewards. Troupe itself runs the turns and tools. So a task that brings tools, a simulated user or a container, or
whose reward needs the runtime of verifiers' own rollout, cannot be used, and an error says so.
"""

from __future__ import annotations

import asyncio
import functools
import importlib
import importlib.util
import inspect
import itertools
import json
import random
from collections.abc import Iterator
from typing import Any

from verifiers import v1 as vf

# One in this many tasks of a shuffle is the split eval's, since a taskset has no splits. Requests with different seeds
# shuffle differently, so a task may be in the train split of one and in the eval split of the other.
HELD_OUT_EVERY = 5
# Parts of a task that are refused, each with the attribute of the task's class that says that it has one.
_BRINGS = {"tools": "tools", "a simulated user": "user", "a container": "NEEDS_CONTAINER"}


@functools.lru_cache(maxsize=16)
def _taskset(name: str, options: str) -> tuple[Any, Any]:
    """Returns the taskset and its first task, whose classes the other tasks share."""
    config = _part("loaders").taskset_config_type(name).model_validate({**json.loads(options), "id": name})
    taskset = vf.load_taskset(config)
    first = next(iter(taskset.load()), None)
    if first is None:
        raise ValueError("the taskset has no tasks")
    kind = type(first)
    brings = [what for what, given in _BRINGS.items() if any(getattr(one, given, None) for one in (kind, type(taskset)))]
    if brings:
        raise ValueError(f"its tasks bring {' and '.join(brings)}, which Troupe does not run")
    if getattr(kind, "toolsets", None) and kind.toolsets(taskset.config.task):
        raise ValueError("its tasks bring tools, which Troupe does not run")
    bound = [function.__name__ for function in _part("decorators").discover_decorated(first, "reward") if _needs_runtime(function)]
    if bound:
        raise ValueError(f"the reward {bound[0]} needs the runtime of verifiers' own rollout, which Troupe does not run")
    return taskset, first


def _part(name: str) -> Any:
    """Returns a module of verifiers.v1; in later versions of verifiers it is in verifiers.v1.utils."""
    places = (f"verifiers.v1.utils.{name}", f"verifiers.v1.{name}")
    return importlib.import_module(next(place for place in places if importlib.util.find_spec(place)))


def _needs_runtime(function: Any) -> bool:
    parameter = inspect.signature(function).parameters.get("runtime")
    return parameter is not None and parameter.default is inspect.Parameter.empty


def _load(name: str, options: dict[str, Any]) -> tuple[Any, Any]:
    return _taskset(name, json.dumps(options, sort_keys=True))


def instances(
    name: str, options: dict[str, Any], split: str, seed: int, count: int
) -> Iterator[tuple[str, str | None, dict[str, Any]]]:
    """Yields (question, system prompt or None, entry) for at most `count` tasks of the split. A finite taskset is
    shuffled by `seed`.
    """
    taskset, _ = _load(name, options)
    wanted = [number for number in range(HELD_OUT_EVERY) if (number == 0) == (split == "eval")]
    tasks = taskset.load()
    if not type(taskset).INFINITE:
        tasks = list(tasks)
        random.Random(seed).shuffle(tasks)
    chosen = (task for number, task in enumerate(tasks) if number % HELD_OUT_EVERY in wanted)
    for task in itertools.islice(chosen, count):
        prompt = task.data.prompt
        if not isinstance(prompt, str):
            raise ValueError(f"a task of the split {split} has a prompt of type {type(prompt).__name__}: expected one user message as text")
        yield prompt, task.data.system_prompt, {"data": task.data.model_dump(mode="json"), "options": options}


def score(name: str, entry: dict[str, Any], answer: str, response: str) -> float:
    """Returns the sum of the task's weighted rewards for a trace of one assistant message, the text of all turns.

    Raises what a reward function raises, and ValueError if the task has no reward.
    """
    taskset, first = _load(name, entry["options"])
    task = type(first)(type(first.data).model_validate(entry["data"]), taskset.config.task)
    messages = [vf.UserMessage(content=task.data.prompt), vf.AssistantMessage(content=response)]
    nodes = [
        vf.MessageNode(parent=at - 1 if at else None, message=message, sampled=at > 0) for at, message in enumerate(messages)
    ]
    # The trace is not validated: later versions require an agent with a model, which no reward of a text reads.
    trace = vf.Trace.model_construct(task=vf.TraceTask(type=type(task).__name__, data=task.data), nodes=nodes, is_completed=True)
    asyncio.run(task.score(trace))
    if not trace.rewards:
        raise ValueError(f"the tasks of {name} have no reward")
    return float(trace.reward)

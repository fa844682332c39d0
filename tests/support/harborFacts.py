"""Reads task directories with Harbor's own loader and prints what it found, for tests/containers/harbor.test.ts.

in   standard input: a JSON list of tasks, each a map of file names to texts
out  a JSON list with one entry for each task: what the loader found, or {"refused": …}
"""

import json
import sys
import tempfile
import warnings
from pathlib import Path

warnings.simplefilter("ignore")
from harbor.models.task.task import Task  # noqa: E402


def plain(value):
    return None if value is None else json.loads(value.model_dump_json())


def facts(files):
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder) / "task"
        for name, text in files.items():
            path = root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        try:
            task = Task(root)
            if not Task.is_valid_dir(root):
                return {"refused": "no valid directory"}
        except Exception as error:
            return {"refused": f"{type(error).__name__}: {error}"}
        config = task.config
        steps = config.steps or []
        read = lambda step: task.paths.step_instruction_path(step.name).read_text()  # noqa: E731
        return {
            "name": task.name,
            "agent": plain(config.agent),
            "verifier": plain(config.verifier),
            "environment": plain(config.environment),
            "steps": [{"name": step.name, "agent": plain(step.agent), "instruction": read(step)} for step in steps],
            "instruction": task.instruction,
        }


print(json.dumps([facts(files) for files in json.load(sys.stdin)]))

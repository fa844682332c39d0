"""Writes the points of one Troupe run to Weights & Biases through the package `wandb`.

in   stdin: JSON lines {"op": "begin" | "keep" | "end", …}        out  stdout: a JSON line in answer to each
Invariant: a point of a step or evaluation is logged once; online, an alarm is logged again after a restart. A point's
key is logged beside its values (`troupe/point`). Offline, the keys are read back from the run's own .wandb files;
online, the latest step of each series is in the run's summary (`troupe/kept`).
When stdin ends, the process allows wandb `LAST_SECONDS` seconds for the last uploads, and ends.
"""

import glob
import json
import os
import struct
import sys
import threading

import wandb
from wandb.proto.wandb_internal_pb2 import Record

LAST_SECONDS = 20
# Far more than is shown: the caller removes secrets first, then cuts the error.
MOST_ERROR_CHARS = 100_000
BLOCK = 32768
HEADER = struct.Struct("<IHB")


def records(path):
    """Yields the records of a .wandb file: after 7 bytes, LevelDB's log format in blocks of 32 KiB.

    A record that was cut off at the file's end is left out.
    """
    with open(path, "rb") as file:
        data = file.read()
    at, parts = 7, b""
    while at + HEADER.size <= len(data):
        if BLOCK - at % BLOCK < HEADER.size:
            at += BLOCK - at % BLOCK
            continue
        _, length, kind = HEADER.unpack_from(data, at)
        at += HEADER.size
        if kind == 0 or at + length > len(data):
            return
        parts = data[at : at + length] if kind in (1, 2) else parts + data[at : at + length]
        at += length
        if kind in (1, 4):
            record = Record()
            record.ParseFromString(parts)
            yield record


def key_of(record):
    """The key of the point in a history record, else None."""
    for item in record.history.item:
        if (item.key or "/".join(item.nested_key)) == "troupe/point":
            return json.loads(item.value_json)
    return None


class TrackedRun:
    def __init__(self, project, entity, run):
        self.project, self.entity, self.id = project, entity, run
        self.is_offline = wandb.setup().settings.mode in ("offline", "dryrun")
        self.run = None
        self.described = {}
        self.keys = set()
        self.kept = {}
        self.logged = 0

    def begin(self, config, versions):
        self.described = {**config, "versions": versions}
        if not self.is_offline:
            self._open()
            self.kept = json.loads(self.run.summary.get("troupe/kept") or "{}")
            self.logged = int(self.run.step)
            return
        root = os.path.join(os.environ.get("WANDB_DIR") or ".", "wandb")
        for path in sorted(glob.glob(f"{glob.escape(root)}/offline-run-*-{self.id}/run-{self.id}.wandb")):
            self.keys.update(key for key in map(key_of, records(path)) if key is not None)
        self.logged = len(self.keys)
        if self.logged == 0:
            self._open()

    def _open(self):
        if self.run is not None:
            return
        settings = wandb.Settings(
            console="off",
            silent=True,
            disable_code=True,
            disable_git=True,
            x_disable_stats=True,
            x_disable_machine_info=True,
            x_save_requirements=False,
        )
        self.run = wandb.init(
            project=self.project,
            entity=self.entity,
            id=self.id,
            name=self.id,
            resume="allow",
            config=self.described,
            settings=settings,
        )
        self.run.define_metric("*", step_metric="troupe/step")

    def keep(self, points):
        for point in points:
            key, step = point["key"], point["step"]
            series = key.rpartition("/")[0]
            is_text = key.startswith("alarm/")
            if key in self.keys or (not is_text and step <= self.kept.get(series, -1)):
                continue
            self._open()
            own = {"troupe/point": key, "troupe/step": step, "_timestamp": point["at"] / 1000}
            self.run.log({**point["values"], **point.get("texts", {}), **own}, step=self.logged)
            for title, text in point.get("texts", {}).items():
                self.run.alert(title=title, text=text)
            self.logged += 1
            self.keys.add(key)
            if not is_text:
                self.kept[series] = step
        if self.run is not None:
            self.run.summary["troupe/kept"] = json.dumps(self.kept)

    def end(self, outcome):
        if self.run is not None:
            self.run.summary["troupe/outcome"] = outcome
            self.run.finish(exit_code=0 if outcome == "done" else 1)
            self.run = None

    def close(self):
        if self.run is not None:
            self.run.finish()


def main():
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # what wandb prints goes to stderr
    tracked = None
    for line in sys.stdin:
        request = json.loads(line)
        try:
            if request["op"] == "begin":
                tracked = tracked or TrackedRun(request["project"], request.get("entity"), request["run"])
                tracked.begin(request["config"], request["versions"])
            elif request["op"] == "keep":
                tracked.keep(request["points"])
            else:
                tracked.end(request["outcome"])
            answers.write("{}\n")
        except Exception as error:
            refused = isinstance(error, (wandb.errors.AuthenticationError, wandb.errors.UsageError))
            answers.write(json.dumps({"error": f"{type(error).__name__}: {error}"[:MOST_ERROR_CHARS], "refused": refused}) + "\n")
    late = threading.Timer(LAST_SECONDS, os._exit, [1])
    late.daemon = True
    late.start()
    if tracked is not None:
        tracked.close()


if __name__ == "__main__":
    main()

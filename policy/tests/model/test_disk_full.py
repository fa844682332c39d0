"""Writes on a disk that is full (a small tmpfs): named errors, nothing left behind, and success once there is room."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from safetensors import SafetensorError
from troupe_policy.model.disk_full import DISK_FULL, TOO_LARGE, code_of

WITH_PACKAGE = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
NAMESPACE = ["-m"] if os.getuid() == 0 else ["-rm"]


def can_mount(directory: Path) -> bool:
    return subprocess.run(["unshare", *NAMESPACE, "mount", "-t", "tmpfs", "none", str(directory)], capture_output=True).returncode == 0


CHILD = '''
import os, sys
from pathlib import Path
from tiny_models import tiny_model_dir
from trainer_support import Trainer
from troupe_policy.model.checkpoint import CheckpointError
model, disk = Path(sys.argv[1]), Path(sys.argv[2])
trainer = Trainer(tiny_model_dir(model, seed=5))
small = trainer.save(disk / "first", False)["bytes"]
filler = disk / "filler"
def fill(leave):
    with filler.open("wb") as file:
        try:
            while os.statvfs(disk).f_bavail * 4096 > leave:
                file.write(bytes(4096)); file.flush()
        except OSError:
            pass
def say(what, work):
    try:
        work()
        print(what, "done")
    except CheckpointError as error:
        print(what, error.code, error)
weights, whole = disk / "weights", disk / "step"
# in the middle of a file, and with not a byte left
for leave in (small // 2, 0):
    fill(leave)
    say("save", lambda: trainer.save(weights, False))
    say("checkpoint", lambda: trainer.checkpoint(whole, disk / "first").result())
    print("left", sorted(path.name for path in disk.iterdir()))
    filler.unlink()
say("save", lambda: trainer.save(weights, False))
say("checkpoint", lambda: trainer.checkpoint(whole, weights).result())
'''


def test_a_write_on_a_full_disk_is_named_and_leaves_nothing_and_succeeds_once_there_is_room(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    if not can_mount(disk):
        pytest.skip("mounting a tmpfs is not permitted here")
    tests = Path(__file__).parents[1]
    script = 'mount -t tmpfs -o size=8m none "$0" && exec "$@"'
    ran = subprocess.run(
        ["unshare", *NAMESPACE, "sh", "-c", script, str(disk), sys.executable, "-c", CHILD, str(tmp_path / "model"), str(disk)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(tests.parent), str(tests), str(tests / "trainer")])},
        capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    lines = ran.stdout.splitlines()
    for begin in (0, 3):
        assert lines[begin].startswith(f"save checkpoint.disk_full the disk has no space left for the published weights in {disk}/weights, ")
        assert lines[begin + 1].startswith(f"checkpoint checkpoint.disk_full the disk has no space left for a checkpoint in {disk}/step, ")
        assert lines[begin + 2] == "left ['filler', 'first']"
    assert lines[6:] == ["save done", "checkpoint done"]


def test_the_forms_of_a_full_disk_are_told_from_other_errors() -> None:
    assert code_of(OSError(28, "No space left on device")) == DISK_FULL
    assert code_of(SafetensorError("Error while serializing: I/O error: No space left on device (os error 28)")) == DISK_FULL
    assert code_of(SafetensorError("Error while serializing: I/O error: File too large (os error 27)")) == TOO_LARGE
    caused = RuntimeError("the shards could not be written")
    caused.__cause__ = OSError(122, "Disk quota exceeded")
    assert code_of(caused) == DISK_FULL
    for other in (OSError(5, "Input/output error"), RuntimeError("out of memory"), ValueError("os error 2"), None):
        assert code_of(other) is None


def test_a_file_at_its_size_limit_is_no_full_disk(tmp_path: Path) -> None:
    script = (
        "import resource; from pathlib import Path; from troupe_policy.model.disk_full import naming_disk_full\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (65536, 65536)); import torch\n"
        "def say(work):\n"
        "  try:\n"
        "    with naming_disk_full(Path('d'), 'a checkpoint'): work()\n"
        "  except Exception as error: print(error.code, error)\n"
        "say(lambda: Path('a').write_bytes(bytes(100_000)))\n"
        "say(lambda: torch.save(torch.zeros(100_000), 'b'))\n"
    )
    ran = subprocess.run([sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True, timeout=60, env=WITH_PACKAGE)
    assert ran.returncode == 0, ran.stderr
    expected = "checkpoint.file_too_large a checkpoint in d needs a file that is larger than a file may be here"
    lines = ran.stdout.splitlines()
    assert len(lines) == 2
    assert all(line.startswith(expected) for line in lines), lines

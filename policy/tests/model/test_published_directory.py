"""Temporary directories of processes that died while they published are removed by the next that publishes there."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from troupe_policy.model.published_directory import published_directory


def test_leftovers_of_dead_processes_are_removed_whatever_their_target_was(tmp_path: Path) -> None:
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    # A learner that was killed wrote step 3 under its epoch; the next one uses other names.
    gone = [tmp_path / f".step-000003-e7-u000002.{ended.pid}.tmp", tmp_path / f".c.{os.getpid()}.tmp"]
    kept = [tmp_path / f".other.{os.getpid()}.tmp", tmp_path / f".other.{os.getppid()}.tmp", tmp_path / ".notes.tmp"]
    for folder in (*gone, *kept):
        folder.mkdir()
    with published_directory(tmp_path / "c") as temporary:
        (temporary / "file").write_text("x")
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(["c", *(path.name for path in kept)])

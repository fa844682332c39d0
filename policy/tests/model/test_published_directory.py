"""What processes that died while they published left is removed or put back by the next that publishes there."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from troupe_policy.model import published_directory as module
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


def test_a_target_that_a_dead_process_had_moved_aside_is_put_back_unless_it_has_a_successor(tmp_path: Path) -> None:
    script = (
        "import os, sys\n"
        "from pathlib import Path\n"
        "from troupe_policy.model import published_directory as module\n"
        "target, last = Path(sys.argv[1]), int(sys.argv[2])\n"
        "rename, renames = os.rename, []\n"
        "def rename_or_die(*of):\n"
        "    renames.append(of)\n"
        "    os._exit(9) if len(renames) == last else rename(*of)\n"
        "module.os.rename, module._exchange = rename_or_die, lambda *of: False\n"
        "module.shutil.rmtree = lambda *of, **options: os._exit(9)\n"
        "with module.published_directory(target) as temporary:\n"
        "    (temporary / 'file').write_text('new')\n"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    # Dies before the second rename: the old content is put back. Dies after it: the new content stays.
    for last, content in ((2, "old"), (3, "new")):
        target = tmp_path / f"weights-{last}"
        with published_directory(target) as temporary:
            (temporary / "file").write_text("old")
        words = [sys.executable, "-c", script, str(target), str(last)]
        assert subprocess.run(words, env=environment, timeout=60).returncode == 9
        assert list(tmp_path.glob(f".{target.name}.*.old"))
        with published_directory(tmp_path / "next") as temporary:
            (temporary / "file").write_text("x")
        assert (target / "file").read_text() == content
    assert sorted(path.name for path in tmp_path.iterdir()) == ["next", "weights-2", "weights-3"]


def test_a_publication_whose_second_rename_fails_leaves_the_old_content(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "weights"
    with published_directory(target) as temporary:
        (temporary / "file").write_text("old")
    rename = os.rename

    def fails(source: Path, destination: Path) -> None:
        if Path(source).suffix == ".tmp":
            raise OSError("quota exceeded")
        rename(source, destination)

    monkeypatch.setattr(module, "_exchange", lambda *of: False)
    monkeypatch.setattr(module.os, "rename", fails)
    with pytest.raises(OSError, match="quota"), published_directory(target) as temporary:
        (temporary / "file").write_text("new")
    assert (target / "file").read_text() == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["weights"]

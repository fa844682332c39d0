"""Gradients in several processes. The cases that fork run in a process of their own: torch refuses gradients in forks of
a process that has computed some with compiled code, as other tests do in this one.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tiny_models import random_sequences, tiny_model_dir
from trainer_support import Trainer
from troupe_policy.trainer.batch.micro_batch import Batch

HERE = Path(__file__).parent


def test_cases_in_a_process_of_their_own() -> None:
    asked = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(HERE / "parallel_cases.py")]
    ended = subprocess.run(asked, cwd=HERE.parent.parent, capture_output=True, text=True, timeout=300)
    assert ended.returncode == 0, ended.stdout + ended.stderr


def test_each_sequence_is_in_one_part_and_the_processes_together_keep_the_bound(tmp_path: Path) -> None:
    trainer, sequences = Trainer(tiny_model_dir(tmp_path / "m", seed=5)), random_sequences(40, seed=2)
    lengths = [len(s.tokens) for s in sequences]
    batch = Batch([s.tokens for s in sequences], [s.mask > 0 for s in sequences], [0.0] * 40, None, [1.0] * 40)
    for processes, bound in ((2, 200), (3, 10_000), (8, 8)):
        cut = trainer.cut_for(batch, bound, processes)
        assert len(cut) == processes
        assert sorted(at for share in cut for part in share for at in part) == list(range(40))
        largest = [max(sum(lengths[at] for at in part) for part in share if len(part) > 1) for share in cut if any(len(part) > 1 for part in share)]
        assert sum(largest) <= bound

"""Measures training steps on the CPU in a process of its own: one step's peak memory by category, other steps'
processor time.

In: a JSON object on the command line: `model` (transformers config), `lengths` of the sequences, `microBatchTokens`, `dtype`,
`checkpointing`, `lora` (rank or null), `gradientReduction`; `memory`: false skips `peak`; `timed`: batches {lengths,
microBatchTokens} whose time is measured in `rounds` rounds; `resident`: also report `residentBytes`; `flops`: also
report `flops`.
Out: one JSON line from rank 0: `peak`, bytes by category; `timed`, see timing.py; `residentBytes`, the process's peak
resident memory minus that after the imports; `flops`, FLOPs of one step for each torch operation.
Invariants: `peak` counts bytes of tensors, so it depends neither on the allocator nor on other processes. torch's
MemTracker counts the categories and, for several ranks, the total; for one rank allocated.py counts the total. The
first step is not measured, because AdamW's moments exist only from the second step on.
Several ranks: `python -m torch.distributed.run --standalone --nproc-per-node N -m measure JSON`.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch
from torch.distributed._tools.mem_tracker import MemTracker
from torch.utils.flop_counter import FlopCounterMode
from transformers import AutoConfig, AutoModelForCausalLM

from measure.allocated import most_allocated
from measure.batches import sequences, step_options
from measure.timing import step_seconds
from troupe_policy.trainer.options import LoraOptions
from troupe_policy.trainer.ranks.ranks import Ranks
from troupe_policy.trainer.ranks.shards import local_shard
from troupe_policy.trainer.trainer import Trainer

# Tensors that outlive a micro-batch: our name of each category, and the tracker's name.
STATIC = {"gradients": "Gradient", "optimizer": "Optstate"}


def main() -> None:
    asked = json.loads(sys.argv[1])
    torch.set_num_threads(int(asked.get("threads", 1)))
    ranks = Ranks.from_environment(timeout_s=300.0)
    with tempfile.TemporaryDirectory() as directory:
        box = ranks.broadcast(directory)
        if ranks.is_leader:
            make_model(asked["model"], directory)
        ranks.sum([0.0])
        result = measured(asked, str(box), ranks)
        ranks.sum([0.0])
    if ranks.is_leader:
        print(json.dumps(result), flush=True)


def make_model(fields: dict[str, Any], directory: str) -> None:
    """Saves a model with random weights."""
    torch.manual_seed(1)
    config = AutoConfig.for_model(**fields)
    AutoModelForCausalLM.from_config(config, dtype=torch.float32).save_pretrained(directory)


def measured(asked: dict[str, Any], directory: str, ranks: Ranks) -> dict[str, Any]:
    imported = resident_bytes("VmRSS")
    lora = asked.get("lora")
    trainer = Trainer(
        directory, "cpu", asked["dtype"], 0,
        lora=LoraOptions(rank=lora, alpha=lora, targets=("all-linear",)) if lora else None,
        checkpointing=bool(asked.get("checkpointing")), ranks=ranks,
        gradient_reduction=asked.get("gradientReduction") or "micro-batch",
    )  # fmt: skip
    # The trainer's own bound for CPUs would cut the batch further; here only `microBatchTokens` decides.
    trainer.max_micro_tokens = None
    options = step_options(asked["microBatchTokens"])
    batch = sequences(asked["lengths"], trainer.vocabulary)
    trainer.step(batch, options)
    result: dict[str, Any] = {}
    if asked.get("resident"):
        trainer.step(batch, options)
        result["residentBytes"] = resident_bytes("VmHWM") - imported
    if asked.get("timed"):
        batches = [(sequences(one["lengths"], trainer.vocabulary), step_options(one["microBatchTokens"])) for one in asked["timed"]]
        result["timed"] = step_seconds(trainer, batches, asked.get("rounds", 3))
    if asked.get("flops"):
        with FlopCounterMode(display=False) as counter:
            trainer.step(batch, options)
        result["flops"] = {str(operation): count for operation, count in counter.get_flop_counts()["Global"].items()}
    if asked.get("memory", True):
        result["peak"] = peak(trainer, lambda: trainer.step(batch, options))
    return result


def peak(trainer: Trainer, step: Any) -> dict[str, int]:
    """Bytes by category at the peak of `step`."""
    tracker = _Tracker()
    tracker.track_external(trainer.model, trainer.optimizer.adamw)
    logprobs, device = trainer.logprobs, torch.device("cpu")
    kept = 0

    def tracked(*given: Any) -> Any:
        nonlocal kept
        tracker.reset_mod_stats()  # Without this reset the tracker refuses a second forward pass of a module.
        before = tracker.get_tracker_snapshot()[device]["Total"]
        result = logprobs(*given)
        kept = max(kept, tracker.get_tracker_snapshot()[device]["Total"] - before)
        return result

    trainer.logprobs = tracked  # type: ignore[method-assign]
    with tracker:
        step()
    found = {str(getattr(kind, "value", kind)): size for kind, size in tracker.get_tracker_snapshot("peak")[device].items()}
    # The tracker counts gathered parameters of other ranks as parameters; a rank's own are its shards.
    weights = sum(local_shard(p).numel() * p.element_size() for p in trainer.model.parameters())
    static = {"weights": weights, **{name: found[kind] for name, kind in STATIC.items()}}
    total = weights + static["optimizer"] + most_allocated(step) if trainer.ranks.size == 1 else found["Total"]
    return {**static, "activations": kept, "working": total - sum(static.values()) - kept, "total": total}


class _Tracker(MemTracker):
    """MemTracker without hooks on the gradients of frozen parameters: torch refuses such hooks."""

    def _track_module_params_and_buffers(self, module: torch.nn.Module, install_grad_hooks: bool = True) -> tuple[int, int]:
        for parameter in module.parameters():
            if not parameter.requires_grad:
                self._param_to_grad_hook_handles[parameter] = (_NoHook(), _NoHook())
        found: tuple[int, int] = super()._track_module_params_and_buffers(module, install_grad_hooks)
        return found


class _NoHook:
    def remove(self) -> None:
        """Does nothing: a frozen parameter has no hook."""


def resident_bytes(field: str) -> int:
    """Memory of this process in bytes: VmRSS is its current size, VmHWM its peak."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field + ":"):
            return int(line.split()[1]) * 1024
    raise RuntimeError(f"/proc/self/status has no {field}")


if __name__ == "__main__":
    main()
    # The process ends here: gloo's threads are not joined at the interpreter's end, which sometimes aborts a process.
    sys.stdout.flush()
    os._exit(0)

"""One rank of test_ranks.py, started by torchrun: makes the same calls that the test makes on one rank; rank 0 writes
the results.
"""

from __future__ import annotations

import gc
import sys
import time
from pathlib import Path

import torch
from torch.distributed.fsdp._fully_shard import _fsdp_param_group
from tiny_models import random_sequences
from trainer_support import Trainer, write_examples
from troupe_policy.model.checkpoint import CheckpointError
from troupe_policy.child_process import exit_now
from troupe_policy.trainer.batch.example_files import ExampleFiles
from troupe_policy.trainer.partial_checkpoints import PartialCheckpoints
from troupe_policy.trainer.ranks.ranks import Ranks
from troupe_policy.trainer.trainer import TrainerError, TrainSequence
from troupe_policy.trainer.ranks.shards import whole

from rank_cases import CASES, OTHER, SFT, after_resume, examples_of


def gradient_and_metrics(trainer: Trainer, sequences, options) -> tuple[dict[str, torch.Tensor], dict[str, float]]:
    """Runs a step; returns the whole gradient before its last update, and the step's metrics."""
    kept: dict[str, torch.Tensor] = {}
    update = trainer.update

    def keep(loss: float, rate: float, norm: float) -> float:
        kept.update({name: whole(p.grad).clone() for name, p in trainer.parameters.items()})
        return update(loss, rate, norm)

    trainer.update = keep  # type: ignore[method-assign]
    metrics = trainer.step(sequences, options)
    del trainer.update
    return kept, metrics


def counted_reductions() -> list[None]:
    """Returns a list that gets one entry for every reduce-scatter of FSDP2."""
    seen: list[None] = []
    reduce = _fsdp_param_group.foreach_reduce

    def counting(*args, **kwargs):
        seen.append(None)
        return reduce(*args, **kwargs)

    _fsdp_param_group.foreach_reduce = counting
    return seen


def of_rank_0(ranks: Ranks, count: int, seed: int, **changes: int) -> list[TrainSequence]:
    """The batch on rank 0, and nothing on the others."""
    return random_sequences(count, seed=seed, **changes) if ranks.is_leader else []


def sequences_sent(folder: Path, ranks: Ranks) -> list[list[int]]:
    """Makes a step; returns, by rank, the indices of the sequences whose arrays the rank got."""
    count, options, made = CASES["mini-batches"]
    got: list[list[int]] = []
    scatter = ranks.scatter

    def noted(value_of):
        value = scatter(value_of)
        got.append(sorted(value))
        return value

    ranks.scatter = noted  # type: ignore[method-assign]
    Trainer(folder / "model", ranks=ranks, **made).step(of_rank_0(ranks, count, 2), options)
    del ranks.scatter
    return ranks.every(got[0])


def refused(call) -> str:
    try:
        call()
    except (TrainerError, CheckpointError) as error:
        return error.code
    return "not refused"


def held_bytes() -> int:
    """Bytes of all live tensors of this process; shared storage counts once."""
    gc.collect()
    tensors = [it for it in gc.get_objects() if type(it) in (torch.Tensor, torch.nn.Parameter)]
    return sum({t.untyped_storage().data_ptr(): t.untyped_storage().nbytes() for t in tensors}.values())


def held_at_most(bytes_before: int, timeout_s: float = 5.0) -> int:
    """Returns the bytes that this process holds, measured after a wait: gloo's thread frees a gathered tensor shortly
    after its caller has it.
    """
    deadline = time.monotonic() + timeout_s
    while (held := held_bytes()) > bytes_before and time.monotonic() < deadline:
        time.sleep(0.02)
    return held


def most_held_while_saving(trainer: Trainer, directory: Path) -> int:
    """Returns the additional bytes that rank 1 held when rank 0 wrote the gathered tensors."""
    held: list[int] = []
    broadcast = trainer.ranks.broadcast

    def measured(value: object) -> object:
        held.append(held_at_most(before))
        return broadcast(value)

    before = held_bytes()
    trainer.ranks.broadcast = measured  # type: ignore[method-assign]
    trainer.save(directory, True)
    del trainer.ranks.broadcast
    more = 0 if trainer.ranks.is_leader else max(held) - before
    return int(trainer.ranks.sum([more])[0])


def goes_on(folder: Path, ranks: Ranks) -> bool:
    """Runs a step that resumes from the checkpoint after its third update, and the same step without interruption.
    Returns True if both end with the same bits."""
    count, options, made = CASES["mini-batches"]
    whole, other = (Trainer(folder / "model", ranks=ranks, **made) for _ in range(2))
    want = whole.step(of_rank_0(ranks, count, 2), options, PartialCheckpoints(str(folder / "step-u"), 3))
    got = other.step(of_rank_0(ranks, count, 2), options, PartialCheckpoints(resume=str(folder / "step-u000003")))
    keys = ("loss", "gradNorm", "klEngine", "clipFraction", "entropy", "updates")
    agree = all(torch.equal(whole.parameters[name].to_local(), p.to_local()) for name, p in other.parameters.items())
    return bool(ranks.sum([float(agree and all(want[key] == got[key] for key in keys))])[0] == ranks.size)


def fine_tuned_from_files(folder: Path, ranks: Ranks) -> tuple[bool, list[list[list[int]]]]:
    """Fine-tunes from files, and again from the checkpoint after the third update. Returns whether both end with the same
    bits and metrics, and by rank and update the examples that were read.
    """
    digest = str(ranks.broadcast(write_examples(folder / "examples", examples_of(20), 6) if ranks.is_leader else ""))
    reads: list[set[int]] = [set()]
    read = ExampleFiles.__getitem__

    def counted(files: ExampleFiles, at):
        reads[-1].add(at)
        return read(files, at)

    whole, other = (Trainer(folder / "model", ranks=ranks) for _ in range(2))
    asked = (str(folder / "examples"), digest, SFT)
    ExampleFiles.__getitem__ = counted  # type: ignore[method-assign]
    want = whole.sft_files(*asked, PartialCheckpoints(str(folder / "sft-"), 3), on_progress=lambda *_: reads.append(set()))
    ExampleFiles.__getitem__ = read  # type: ignore[method-assign]
    got = other.sft_files(*asked, PartialCheckpoints(resume=str(folder / "sft-000003")))
    agree = all(torch.equal(whole.parameters[name].to_local(), p.to_local()) for name, p in other.parameters.items())
    agree = agree and all(want[key] == got[key] for key in ("loss", "firstLoss", "gradNorm", "steps", "trainedTokens"))
    return ranks.sum([float(agree)])[0] == ranks.size, ranks.every([sorted(one) for one in reads[:-1]])


def main(folder: Path) -> None:
    torch.set_num_threads(1)
    ranks = Ranks.from_environment(timeout_s=60)
    results: dict[str, object] = {}
    reductions = counted_reductions()
    for name, (count, options, made) in CASES.items():
        trainer = Trainer(folder / "model", ranks=ranks, **made)
        reductions.clear()
        gradient, metrics = gradient_and_metrics(trainer, of_rank_0(ranks, count, 2), options)
        results[name] = (gradient, metrics)
        results[f"reductions, {name}"] = len(reductions)
        if name == "token mean":
            results["held"] = most_held_while_saving(trainer, folder / "two")
        if name == "reference":
            results["held, reference"] = most_held_while_saving(trainer, folder / "two-reference")
            results["reference saved twice"] = trainer.save(folder / "two-reference-again", True)["digest"]
        if name == "lora":
            results["held, lora"] = most_held_while_saving(trainer, folder / "two-lora")
    count, options, made = CASES["reduced once"]
    trainer = Trainer(folder / "model", ranks=ranks, **made)
    answers = iter([False, True])
    results["cancelled between two micro-batches"] = refused(
        lambda: trainer.step(of_rank_0(ranks, count, 4), options, should_stop=lambda: next(answers))
    )
    results["reduced once, after a cancelled step"] = gradient_and_metrics(trainer, of_rank_0(ranks, count, 2), options)
    results["sent"] = sequences_sent(folder, ranks)
    results["no sequence"] = refused(lambda: trainer.step([], options))
    results["goes on"] = goes_on(folder, ranks)
    trainer = Trainer(folder / "model", ranks=ranks)
    results["sft"] = trainer.sft(examples_of(20), SFT)
    results["sft from files"] = fine_tuned_from_files(folder, ranks)
    trainer.load(folder / "one")
    trainer.save(folder / "one-two", True)
    results["resumed"] = after_resume(trainer)
    before = {name: whole(p.detach()).clone() for name, p in trainer.parameters.items()}
    results["bad sequence"] = refused(lambda: trainer.step(of_rank_0(ranks, 3, 1, vocabulary=4000), CASES["token mean"][1]))
    results["other model"] = refused(lambda: trainer.load(folder / "other"))
    results["nowhere"] = refused(lambda: trainer.load(folder / "nowhere"))
    # Only rank 0 knows that its caller has disconnected, but every rank stops.
    results["cancelled"] = refused(lambda: trainer.step(of_rank_0(ranks, 9, 1), OTHER, should_stop=lambda: ranks.is_leader))
    results["unchanged"] = all(torch.equal(before[n], whole(p.detach())) for n, p in trainer.parameters.items())
    lora = Trainer(folder / "model", ranks=ranks, **CASES["lora"][2])
    results["bfloat16"] = Trainer(folder / "model", ranks=ranks, published_dtype="bfloat16").save(folder / "half", False)["digest"]
    lora.load(folder / "one-lora")
    results["lora resumed"] = after_resume(lora)
    if ranks.is_leader:
        torch.save(results, folder / "results.pt")
    # Exits like a server's ranks: when the interpreter tears gloo's threads down, they sometimes abort the process.
    exit_now(0)


if __name__ == "__main__":
    main(Path(sys.argv[1]))

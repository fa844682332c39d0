"""One GRPO step: `inner_steps` passes over one batch, with one optimizer update for each mini-batch of a pass.

In: the training state, trajectories with advantages and the engine's log-probabilities. Out: changed weights, metrics,
checkpoints between the updates.
Invariants: a call that fails, is cancelled, or has a loss or gradient that is not finite leaves weights and optimizer
as they were, and the reference too unless the call resumed from a checkpoint. The gradient of an update does not depend
on how its mini-batch is cut into micro-batches or spread over ranks. π_old is the policy before the first update, for
every mini-batch (with the correction `engine-logprobs`, the engine's policy). A step that resumes from a checkpoint
ends with the weights and losses of an uninterrupted step.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass

import torch
from torch import Tensor

from .batch.micro_batch import MicroBatch
from .losses.importance_weight import importance_weight
from .losses.kl import KL_ESTIMATORS
from .losses.policy_loss import policy_loss
from .meter import Meter
from .options import GrpoOptions, Metrics, TrainSequence, check_names, linear_warmup
from .partial_checkpoints import OnSaved, PartialCheckpoints, PartialWriter
from .step_batch import StepBatch, spread
from .training_state import TrainingState

# A mini-batch is a list of micro-batches, whose gradients add up to one optimizer update.
MiniBatch = list[MicroBatch]


SUMS = ("loss", "clipped", "kl", "tis", "capped", "entropy", "reference", "masked", "masked_sequences")


@dataclass
class _Progress:
    """Progress of a step, stored in the manifest of its checkpoints. updates: optimizer updates so far. norm, rate:
    gradient norm and learning rate of the last update. sums: sums of the metrics over this rank's share of the batch.
    """

    updates: int
    norm: float
    rate: float
    sums: dict[str, float]


def grpo_step(
    state: TrainingState,
    sequences: Sequence[TrainSequence],
    options: GrpoOptions,
    checkpoints: PartialCheckpoints,
    should_stop: Callable[[], bool],
    on_saved: OnSaved,
) -> Metrics:
    """Makes one GRPO step, as Trainer.step describes. sequences: rank 0's; those of other ranks are ignored."""
    check_names(options)
    batch = spread(state, sequences, options, digested=checkpoints.every > 0 or bool(checkpoints.resume))
    total = batch.trained
    meter = Meter()
    minis = [state.micro_batches(mini, options.micro_batch_tokens) for mini in batch.mini_batches]
    micros = [micro for mini in minis for micro in mini]
    updates = options.inner_steps * len(minis)
    # A single update needs no snapshot: its gradient is checked before any weight changes.
    before = state.optimizer.snapshot() if updates > 1 or checkpoints.resume else None
    partial = PartialWriter(state, "step", _what(batch, options, checkpoints), checkpoints, on_saved)
    progress = _Progress(0, 0.0, 0.0, dict.fromkeys(SUMS, 0.0))
    had_reference = state.reference.is_taken
    try:
        if checkpoints.resume:
            progress = _resumed(state, partial, micros)
        else:
            if options.kl_coef > 0:
                _score_reference(state, micros, options.temperature, should_stop)
            _score_old(state, minis, options, should_stop)
        done, sums = progress.updates, progress.sums
        for number in range(done, updates):
            inner, at = divmod(number, len(minis))
            loss = 0.0
            for micro in minis[at]:
                state.check_stop(should_stop)
                state.reduce_after(micro is minis[at][-1])
                loss += grpo_micro(state, micro, options, sums, first=inner == 0)
            loss = state.ranks.sum([loss])[0]
            progress.rate = linear_warmup(options.learning_rate, state.optimizer.updates, options.warmup_updates)
            progress.norm = state.update(loss, progress.rate, options.max_grad_norm)
            sums["loss"] += loss / state.ranks.size
            progress.updates += 1
            partial.save_if_due(progress.updates, updates, lambda: _saved_progress(state, progress), lambda: _logprobs_of(micros))
        partial.wait()
    except BaseException:
        if before is not None:
            state.writer.wait_until_copied()
            state.optimizer.restore(before)
        if not had_reference:
            state.reference.drop()
        raise
    finally:
        state.drop_gradients()
    sums = dict(zip(sums, state.ranks.sum(list(sums.values())), strict=True))
    metrics = {
        "loss": sums["loss"] / updates,
        "gradNorm": progress.norm,
        "clipFraction": sums["clipped"] / (total * options.inner_steps),
        "klEngine": sums["kl"] / total,
        "tisMean": sums["tis"] / total,
        "tisCapped": sums["capped"] / total,
        "entropy": sums["entropy"] / total,
        "trainedTokens": float(total),
        "sequences": float(len(batch.described)),
        "lr": progress.rate,
        **meter.read(batch.tokens * options.inner_steps * (updates - done) // updates),
    }
    if options.kl_coef > 0:
        metrics["klReference"] = sums["reference"] / total
    if options.correction == "icepop":
        metrics["icepopMasked"] = sums["masked"] / total
    if options.correction in ("masked", "geometric-mask"):
        metrics["maskedShare"] = sums["masked"] / total
    if options.correction == "geometric-mask":
        metrics["maskedSequences"] = sums["masked_sequences"] / sum(1 for one in batch.described if one.trained > 0)
    if len(minis) > 1:
        metrics["updates"] = float(updates)
    return metrics


def _what(batch: StepBatch, options: GrpoOptions, checkpoints: PartialCheckpoints) -> dict[str, object]:
    """Names the step by its owner, the digest of its batch, and its options. {} if the step neither writes checkpoints
    nor resumes from one.
    """
    return {"owner": checkpoints.owner, "batch": batch.digest, "options": asdict(options)} if batch.digest else {}


def _saved_progress(state: TrainingState, progress: _Progress) -> dict[str, object]:
    """Returns the progress as a manifest stores it, with the sums of every rank. Collective."""
    return {**asdict(progress), "sums": state.ranks.every(dict(progress.sums))}


def _logprobs_of(micros: Sequence[MicroBatch]) -> dict[str, Tensor]:
    """Log-probabilities of this rank's trained tokens, float32 [tokens], laid end to end: `old` under π_old,
    `reference` under the reference; each only if every micro-batch has it. After the first update π_old is gone, so
    `old` cannot be computed again.
    """
    named = {"old": [micro.old_logp for micro in micros], "reference": [micro.reference_logp for micro in micros]}
    # With `engine-logprobs`, `old_logp` of later mini-batches is not set yet, and need not be saved: the batch holds
    # it.
    return {name: torch.cat(parts) for name, parts in named.items() if all(part is not None for part in parts)}


def _resumed(state: TrainingState, partial: PartialWriter, micros: Sequence[MicroBatch]) -> _Progress:
    """Loads weights and moments from the checkpoint to resume from, and its log-probabilities into `micros`; returns
    its progress.
    """
    saved, own = partial.resume()
    counts = [len(micro.targets) for micro in micros]
    for name, value in own.items():
        for micro, part in zip(micros, value.split(counts), strict=True):
            setattr(micro, f"{name}_logp", part.to(state.device))
    return _Progress(**{**saved, "sums": saved["sums"][state.ranks.rank]})


def _score_old(
    state: TrainingState, minis: Sequence[MiniBatch], options: GrpoOptions, should_stop: Callable[[], bool]
) -> None:
    """Fills `old_logp` of every mini-batch but the first. The first pass over the first mini-batch runs on unchanged
    weights, so it gives that mini-batch's `old_logp`.

    With the correction `engine-logprobs` the engine's log-probabilities are π_old, so nothing is computed.
    """
    if options.correction == "engine-logprobs":
        return
    with torch.no_grad():
        for micro in (micro for mini in minis[1:] for micro in mini):
            state.check_stop(should_stop)
            micro.old_logp, _ = state.logprobs(micro, options.temperature, False)


def _score_reference(
    state: TrainingState, micros: Sequence[MicroBatch], temperature: float, should_stop: Callable[[], bool]
) -> None:
    """Fills `reference_logp` of every micro-batch; if there is no reference yet, the current policy becomes it."""
    if not state.reference.is_taken:
        state.reference.take()
    state.writer.wait_until_copied()
    with state.reference.in_place(), torch.no_grad():
        for micro in micros:
            state.check_stop(should_stop)
            micro.reference_logp, _ = state.logprobs(micro, temperature, False)


def grpo_micro(
    state: TrainingState, micro: MicroBatch, options: GrpoOptions, sums: dict[str, float], *, first: bool
) -> float:
    """Runs forward and backward pass of one micro-batch. Adds to the gradients and to `sums`; returns its part of the
    loss.

    first: true in the first inner step, in which most metrics are counted. A micro-batch without `old_logp` gets it
    here.
    """
    logp, entropy = state.logprobs(micro, options.temperature, first)
    by_engine = options.correction == "engine-logprobs"
    if micro.old_logp is None:
        micro.old_logp = micro.engine_logp if by_engine else logp.detach()
    weight = importance_weight(
        options.correction,
        options.correction_low,
        options.correction_high,
        micro.old_logp,
        micro.engine_logp,
        micro.mask,
        micro.sequence,
    )
    penalty = None
    if micro.reference_logp is not None:
        kl = KL_ESTIMATORS[options.kl_estimator](logp, micro.reference_logp, micro.old_logp)
        penalty = options.kl_coef * kl
        if first:
            sums["reference"] += (kl.detach() * micro.mask).double().sum().item()
    result = policy_loss(
        logp,
        micro.old_logp,
        micro.advantage,
        micro.mask,
        objective=options.objective,
        clip_low=options.clip_low,
        clip_high=options.clip_high,
        denominator=micro.denominator,
        sequence=micro.sequence,
        weight=weight,
        dual_clip=options.dual_clip,
        penalty=penalty,
    )
    result.loss.backward()
    sums["clipped"] += result.clipped.sum().item()
    if first:
        own_logp = logp.detach() if by_engine else micro.old_logp
        sums["kl"] += ((micro.engine_logp - own_logp) * micro.mask).double().sum().item()
        used = weight if weight is not None else torch.ones_like(logp)
        sums["tis"] += (used * micro.mask).double().sum().item()
        if options.correction == "truncated":
            sums["capped"] += ((used >= options.correction_high) & (micro.mask > 0)).sum().item()
        left_out = (used == 0) & (micro.mask > 0)
        sums["masked"] += left_out.sum().item()
        sums["masked_sequences"] += micro.sequence[left_out].unique().numel()
        sums["entropy"] += (entropy * micro.mask).double().sum().item() if entropy is not None else 0.0
    return result.loss.item()

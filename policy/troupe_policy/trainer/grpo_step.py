"""One GRPO step (DESIGN §6): `inner_steps` optimizer updates on one batch.

In: the training state, trajectories with advantages and the engine's log-probabilities. Out: changed weights, metrics.
Invariants: a call that fails, is not finite or is cancelled leaves weights, optimizer and reference as they were; the gradient
does not depend on how the batch is cut into micro-batches or spread over ranks.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from .batch.micro_batch import Batch, MicroBatch
from .losses.importance_weight import icepop_weight, tis_weight
from .losses.kl import KL_ESTIMATORS
from .losses.loss_norm import sequence_denominators
from .losses.policy_loss import policy_loss
from .meter import Meter
from .options import GrpoOptions, Metrics, TrainerError, TrainSequence, check_names, linear_warmup
from .training_state import TrainingState


def grpo_step(
    state: TrainingState, sequences: Sequence[TrainSequence], options: GrpoOptions, should_stop: Callable[[], bool]
) -> Metrics:
    """Makes one GRPO step, as Trainer.step describes."""
    check_names(options)
    masks = [state.trained_mask(s.trajectory, s.tokens, s.mask, s.engine_logp) for s in sequences]
    counts = [int(mask.sum()) for mask in masks]
    if sum(counts) == 0:
        raise TrainerError("trainer.empty_batch", f"none of the {len(sequences)} sequences has a token to train on")
    meter = Meter()
    groups = [s.group for s in sequences]
    denominators = sequence_denominators(counts, groups, options.loss_norm, options.constant_tokens)
    kept = [at for at, count in enumerate(counts) if count > 0]
    batch = Batch(
        [sequences[at].tokens for at in kept],
        [masks[at] for at in kept],
        [sequences[at].advantage for at in kept],
        [sequences[at].engine_logp for at in kept],
        [denominators[at] for at in kept],
    )
    micros = state.micro_batches(batch, options.micro_batch_tokens)
    # A single update needs no snapshot: its gradient is checked before any weight changes.
    before = state.optimizer.snapshot() if options.inner_steps > 1 else None
    total = sum(counts)
    sums = dict.fromkeys(("loss", "clipped", "kl", "tis", "capped", "entropy", "reference", "masked"), 0.0)
    norm = rate = 0.0
    had_reference = state.reference.is_taken
    try:
        if options.kl_coef > 0:
            _score_reference(state, micros, options.temperature, should_stop)
        for inner in range(options.inner_steps):
            loss = 0.0
            for micro in micros:
                state.check_stop(should_stop)
                loss += grpo_micro(state, micro, options, sums, first=inner == 0)
            loss = state.ranks.sum([loss])[0]
            rate = linear_warmup(options.learning_rate, state.optimizer.updates, options.warmup_updates)
            norm = state.update(loss, rate, options.max_grad_norm)
            sums["loss"] += loss / state.ranks.size
    except BaseException:
        if before is not None:
            state.optimizer.restore(before)
        if not had_reference:
            state.reference.drop()
        raise
    finally:
        state.optimizer.drop_gradients()
    sums = dict(zip(sums, state.ranks.sum(list(sums.values())), strict=True))
    metrics = {
        "loss": sums["loss"] / options.inner_steps,
        "gradNorm": norm,
        "clipFraction": sums["clipped"] / (total * options.inner_steps),
        "klEngine": sums["kl"] / total,
        "tisMean": sums["tis"] / total,
        "tisCapped": sums["capped"] / total,
        "entropy": sums["entropy"] / total,
        "trainedTokens": float(total),
        "sequences": float(len(sequences)),
        "lr": rate,
        **meter.read(sum(len(s.tokens) for s in sequences) * options.inner_steps),
    }
    if options.kl_coef > 0:
        metrics["klReference"] = sums["reference"] / total
    if options.icepop_high > 0:
        metrics["icepopMasked"] = sums["masked"] / total
    return metrics


def _score_reference(
    state: TrainingState, micros: Sequence[MicroBatch], temperature: float, should_stop: Callable[[], bool]
) -> None:
    """Fills `reference_logp` of every micro-batch; if there is no reference yet, the current policy becomes it."""
    if not state.reference.is_taken:
        state.reference.take()
    with state.reference.in_place(), torch.no_grad():
        for micro in micros:
            state.check_stop(should_stop)
            micro.reference_logp, _ = state.logprobs(micro, temperature, False)


def grpo_micro(
    state: TrainingState, micro: MicroBatch, options: GrpoOptions, sums: dict[str, float], *, first: bool
) -> float:
    """Runs forward and backward pass of one micro-batch. Adds to the gradients and to `sums`; returns its part of the
    loss.

    first: true in the first inner step, in which the policy is π_old and most metrics are counted.
    """
    logp, entropy = state.logprobs(micro, options.temperature, first)
    if first or micro.old_logp is None:
        micro.old_logp = logp.detach()
    weight = None
    if options.tis_cap > 0:
        weight = tis_weight(micro.old_logp, micro.engine_logp, options.tis_cap)
    elif options.icepop_high > 0:
        weight = icepop_weight(micro.old_logp, micro.engine_logp, options.icepop_low, options.icepop_high)
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
        sums["kl"] += ((micro.engine_logp - micro.old_logp) * micro.mask).double().sum().item()
        used = weight if weight is not None else torch.ones_like(logp)
        sums["tis"] += (used * micro.mask).double().sum().item()
        if options.tis_cap > 0:
            sums["capped"] += ((used >= options.tis_cap) & (micro.mask > 0)).sum().item()
        elif options.icepop_high > 0:
            sums["masked"] += ((used == 0) & (micro.mask > 0)).sum().item()
        sums["entropy"] += (entropy * micro.mask).double().sum().item() if entropy is not None else 0.0
    return result.loss.item()

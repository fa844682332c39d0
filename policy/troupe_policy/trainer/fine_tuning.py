"""Fine-tuning on demonstrations (SFT): masked cross-entropy over epochs of shuffled batches.

In: a trainer, examples. Out: changed weights, metrics. Invariant: a call that fails, is not finite or is cancelled leaves
weights and optimizer as they were; the optimizer starts afresh and is afresh afterwards, since RL does not inherit the
moments of imitation.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from .meter import Meter
from .batch.micro_batch import Batch
from .batch.batching import epoch_batches
from .options import Metrics, SftExample, SftOptions, TrainerError, learning_rate_at

if TYPE_CHECKING:
    from .trainer import Trainer

# SFT has no bound in its options.
MICRO_BATCH_TOKENS = 8192


def fine_tune(
    trainer: Trainer,
    examples: Sequence[SftExample],
    options: SftOptions,
    on_progress: Callable[[float, float], None],
    should_stop: Callable[[], bool],
) -> Metrics:
    """See Trainer.sft."""
    masks = [trainer.checked(f"example {at}", e.tokens, e.mask) for at, e in enumerate(examples)]
    kept = [at for at, mask in enumerate(masks) if mask.any()]
    if not kept:
        raise TrainerError("trainer.empty_batch", "no example has a token to train on")
    meter = Meter()
    lengths = [len(examples[at].tokens) for at in kept]
    steps = options.epochs * -(-len(kept) // options.batch_sequences)
    batches = (
        [kept[index] for index in batch]
        for epoch in range(options.epochs)
        for batch in epoch_batches(lengths, options.batch_sequences, options.seed, epoch)
    )
    before = trainer.updates.snapshot()
    trainer.updates.fresh()
    losses: list[float] = []
    trained, norm, rate = 0, 0.0, 0.0
    try:
        for step, batch in enumerate(batches):
            rate = learning_rate_at(step, steps, options)
            count = sum(int(masks[at].sum()) for at in batch)
            tokens = [examples[at].tokens for at in batch]
            given = Batch(tokens, [masks[at] for at in batch], [0.0] * len(batch), None, [float(count)] * len(batch))
            loss = 0.0
            for micro in trainer.micro_batches(given, MICRO_BATCH_TOKENS):
                trainer.check_stop(should_stop)
                logp, _ = trainer.logprobs(micro, 1.0, False)
                part = -(logp * micro.mask / micro.denominator).sum()
                part.backward()
                loss += part.item()
            loss = trainer.ranks.sum([loss])[0]
            norm = trainer.update(loss, rate, options.max_grad_norm)
            trained += count
            losses.append(loss)
            on_progress((step + 1) / steps, loss)
    except BaseException:
        trainer.updates.restore(before)
        raise
    finally:
        trainer.updates.clear()
    trainer.updates.fresh()
    tail = losses[-max(1, len(losses) // 10) :]
    return {
        "loss": sum(tail) / len(tail),
        "firstLoss": losses[0],
        "gradNorm": norm,
        "lr": rate,
        "steps": float(len(losses)),
        "sequences": float(len(kept)),
        "trainedTokens": float(trained),
        **meter.read(sum(lengths) * options.epochs),
    }

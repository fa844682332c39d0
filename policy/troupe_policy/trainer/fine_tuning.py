"""Supervised fine-tuning (SFT) on demonstrations, which are recorded conversations to imitate: masked cross-entropy over
epochs of shuffled batches.

In: the training state, examples. Out: changed weights, metrics. Invariants: a call that fails, is not finite or is
cancelled leaves weights and optimizer as they were; after a call that succeeds the optimizer is fresh, as before its
first update, since RL does not inherit the moments of imitation.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from .batch.batching import epoch_batches
from .batch.micro_batch import Batch
from .meter import Meter
from .options import Metrics, SftExample, SftOptions, TrainerError, learning_rate_at
from .training_state import TrainingState

# Upper bound on the tokens of a micro-batch; SFT's options do not set one.
MICRO_BATCH_TOKENS = 8192


def fine_tune(
    state: TrainingState,
    examples: Sequence[SftExample],
    options: SftOptions,
    on_progress: Callable[[float, float], None],
    should_stop: Callable[[], bool],
) -> Metrics:
    """Fine-tunes, as Trainer.sft describes. The metric `loss` is the mean over the last tenth of the optimizer steps.
    """
    masks = [state.trained_mask(f"example {at}", e.tokens, e.mask) for at, e in enumerate(examples)]
    kept = [at for at, mask in enumerate(masks) if mask.any()]
    if not kept:
        raise TrainerError("trainer.empty_batch", f"none of the {len(examples)} examples has a token to train on")
    meter = Meter()
    lengths = [len(examples[at].tokens) for at in kept]
    steps = options.epochs * -(-len(kept) // options.batch_sequences)
    batches = (
        [kept[index] for index in batch]
        for epoch in range(options.epochs)
        for batch in epoch_batches(lengths, options.batch_sequences, options.seed, epoch)
    )
    before = state.optimizer.snapshot()
    state.optimizer.reset()
    losses: list[float] = []
    trained, norm, rate = 0, 0.0, 0.0
    try:
        for step, batch in enumerate(batches):
            rate = learning_rate_at(step, steps, options)
            count = sum(int(masks[at].sum()) for at in batch)
            tokens = [examples[at].tokens for at in batch]
            given = Batch(tokens, [masks[at] for at in batch], [0.0] * len(batch), None, [float(count)] * len(batch))
            loss = 0.0
            for micro in state.micro_batches(given, MICRO_BATCH_TOKENS):
                state.check_stop(should_stop)
                logp, _ = state.logprobs(micro, 1.0, False)
                part = -(logp * micro.mask / micro.denominator).sum()
                part.backward()
                loss += part.item()
            loss = state.ranks.sum([loss])[0]
            norm = state.update(loss, rate, options.max_grad_norm)
            trained += count
            losses.append(loss)
            on_progress((step + 1) / steps, loss)
    except BaseException:
        state.optimizer.restore(before)
        raise
    finally:
        state.optimizer.drop_gradients()
    state.optimizer.reset()
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

"""Supervised fine-tuning (SFT) on demonstrations, which are recorded conversations to imitate: masked cross-entropy
over epochs of shuffled batches.

In: the training state, examples in memory or in files. Out: changed weights, metrics, checkpoints on the way.
Invariants: a call that fails, is cancelled, or has a loss or gradient that is not finite leaves weights and optimizer
as they were. A call that resumes from a checkpoint on the same number of ranks ends with the weights and losses of an
uninterrupted call. After a call that succeeds the optimizer is fresh, since RL does not inherit the moments of
imitation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from itertools import islice

import numpy as np

from .batch.batching import epoch_batches
from .batch.example_files import ExampleFiles, Lazy, SftExample
from .batch.micro_batch import Batch
from .meter import Meter
from .options import Metrics, SftOptions, TrainerError, learning_rate_at
from .partial_checkpoints import OnSaved, PartialCheckpoints, PartialWriter
from .training_state import TrainingState

# Upper bound on the tokens of a micro-batch; SFT's options do not set one.
MICRO_BATCH_TOKENS = 8192


@dataclass
class _Progress:
    """Progress of a fine-tuning, stored in the manifest of its checkpoints. updates: optimizer updates so far; trained:
    trained tokens of these updates; norm, rate: gradient norm and learning rate of the last update; losses: one per
    update, in nats.
    """

    updates: int = 0
    trained: int = 0
    norm: float = 0.0
    rate: float = 0.0
    losses: list[float] = field(default_factory=list)


def fine_tune(
    state: TrainingState,
    examples: Sequence[SftExample],
    options: SftOptions,
    on_progress: Callable[[float, float], None],
    should_stop: Callable[[], bool],
    checkpoints: PartialCheckpoints,
    on_saved: OnSaved,
) -> Metrics:
    """Fine-tunes, as Trainer.sft describes. The metric `loss` is the mean loss of the last tenth of the optimizer
    steps (their number is rounded down, but at least one).
    """
    counts = _trained_counts(state, examples)
    kept = [at for at, count in enumerate(counts) if count > 0]
    if not kept:
        raise TrainerError("trainer.empty_batch", f"none of the {len(examples)} examples has a token to train on: expected a token with mask 1 after the first one")
    meter = Meter()
    all_lengths = _lengths(examples)
    lengths = [int(all_lengths[at]) for at in kept]
    steps = options.epochs * -(-len(kept) // options.batch_sequences)
    digest = examples.digest if isinstance(examples, ExampleFiles) else ""
    partial = PartialWriter(state, "sft", {"examples": digest, "options": asdict(options)}, checkpoints, on_saved)
    before = state.optimizer.snapshot()
    state.optimizer.reset()
    try:
        progress = _Progress(**partial.resume()[0]) if checkpoints.resume else _Progress()
        done = progress.updates
        for batch in islice(_batches(kept, lengths, options), done, None):
            progress.rate = learning_rate_at(progress.updates, steps, options)
            loss = _accumulate(state, _batch(state, examples, batch, counts, all_lengths), should_stop)
            progress.norm = state.update(loss, progress.rate, options.max_grad_norm)
            progress.trained += sum(counts[at] for at in batch)
            progress.losses.append(loss)
            progress.updates += 1
            on_progress(progress.updates / steps, loss)
            partial.save_if_due(progress.updates, steps, lambda: asdict(progress))
        partial.wait()
    except BaseException:
        state.writer.wait_until_copied()
        state.optimizer.restore(before)
        raise
    finally:
        state.drop_gradients()
    state.optimizer.reset()
    losses = progress.losses
    tail = losses[-max(1, len(losses) // 10) :]
    return {
        "loss": sum(tail) / len(tail),
        "firstLoss": losses[0],
        "gradNorm": progress.norm,
        "lr": progress.rate,
        "steps": float(len(losses)),
        "sequences": float(len(kept)),
        "trainedTokens": float(progress.trained),
        **meter.read(sum(length for batch in islice(_batches(kept, lengths, options, True), done, None) for length in batch)),
    }


def _batches(kept: Sequence[int], lengths: Sequence[int], options: SftOptions, of_lengths: bool = False) -> Iterator[list[int]]:
    """Yields the batches of all epochs: each batch as indices of examples, or with `of_lengths` as their lengths."""
    named = lengths if of_lengths else kept
    for epoch in range(options.epochs):
        for batch in epoch_batches(lengths, options.batch_sequences, options.seed, epoch):
            yield [named[index] for index in batch]


def _lengths(examples: Sequence[SftExample]) -> Sequence[int]:
    return examples.lengths if isinstance(examples, ExampleFiles) else [len(example.tokens) for example in examples]


def _trained_counts(state: TrainingState, examples: Sequence[SftExample]) -> list[int]:
    """Number of trained tokens of every example. Each rank checks a share of the examples; an error is raised on all
    ranks.
    """
    ranks = state.ranks
    counts = np.zeros(len(examples), np.int64)
    problem: TrainerError | None = None
    try:
        for at in range(ranks.rank, len(examples), ranks.size):
            counts[at] = int(_mask(state, examples, at).sum())
    except TrainerError as error:
        problem = error
    for code, text in ranks.every((problem.code, str(problem)) if problem else None):
        raise problem or TrainerError(code, text)
    return [int(count) for count in ranks.sum(counts.tolist())] if ranks.size > 1 else counts.tolist()


def _mask(state: TrainingState, examples: Sequence[SftExample], at: int) -> np.ndarray:
    example = examples[at]
    return state.trained_mask(f"example {at}", example.tokens, example.mask)


def _batch(
    state: TrainingState, examples: Sequence[SftExample], batch: Sequence[int], counts: Sequence[int], lengths: Sequence[int]
) -> Batch:
    """Makes a batch that reads a sequence only when it is used: each rank reads only the sequences that it trains on.
    """
    count = float(sum(counts[at] for at in batch))
    return Batch(
        Lazy(len(batch), lambda row: examples[batch[row]].tokens),
        Lazy(len(batch), lambda row: _mask(state, examples, batch[row])),
        [0.0] * len(batch),
        None,
        [count] * len(batch),
        [int(lengths[at]) for at in batch],
    )


def _accumulate(state: TrainingState, batch: Batch, should_stop: Callable[[], bool]) -> float:
    """Runs forward and backward passes of a batch; returns its loss, the same number on every rank."""
    parallel = state.parallel
    if parallel is not None:
        state.check_stop(should_stop)
        cuts = state.cut_for(batch, MICRO_BATCH_TOKENS, parallel.processes)
        return parallel.backward([_picked(batch, part) for part in cut] for cut in cuts)
    loss = 0.0
    micros = state.micro_batches(batch, MICRO_BATCH_TOKENS)
    for micro in micros:
        state.check_stop(should_stop)
        state.reduce_after(micro is micros[-1])
        part = state.cross_entropy(micro)
        part.backward()
        loss += part.item()
    return state.ranks.sum([loss])[0]


def _picked(batch: Batch, part: Sequence[int]) -> Batch:
    """Reads the sequences of the batch with these indices."""
    return Batch(
        [batch.tokens[at] for at in part],
        [batch.masks[at] for at in part],
        [0.0] * len(part),
        None,
        [batch.denominators[at] for at in part],
    )

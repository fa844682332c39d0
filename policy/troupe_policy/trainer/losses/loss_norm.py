"""What the loss of every token is divided by, fixed by the whole optimizer batch before it is split.

In: trained tokens and group of each sequence. Out: one denominator a sequence, so that the loss is a plain sum over tokens.
Invariant: the denominators of a batch do not depend on how it is cut into micro-batches or over ranks.
"""

from __future__ import annotations

from collections.abc import Sequence

LOSS_NORMS = ("batch-tokens", "group-tokens", "sequences", "constant")


def sequence_denominators(
    trained_tokens: Sequence[int], groups: Sequence[int], loss_norm: str, constant_tokens: int = 0
) -> list[float]:
    """What the loss of every token of sequence i is divided by.

    batch-tokens: trained tokens of the whole optimizer batch, over all micro-batches (DAPO, 2503.14476 eq. 12).
    group-tokens: tokens of the sequence's group, times the number of groups: 2508.20722 eq. 6 within a group (its token
        sum over its tokens), then the mean over groups. Groups without a trained token do not count.
    sequences: own tokens times the number of sequences: the mean over sequences of each one's token mean (GRPO,
        2402.03300 eq. 3).
    constant: `constant_tokens`, the budget of a response, times the number of sequences (Dr.GRPO, 2503.20783 §3.2):
        neither a sequence's nor a batch's own length has a say.
    Returns one number a sequence; 1.0 where nothing has anything to train on.
    """
    trained = sum(1 for tokens in trained_tokens if tokens > 0)
    if loss_norm == "batch-tokens":
        return [float(max(1, sum(trained_tokens)))] * len(trained_tokens)
    if loss_norm == "sequences":
        return [float(max(1, tokens * trained)) for tokens in trained_tokens]
    if loss_norm == "constant":
        if constant_tokens < 1:
            raise ValueError("the constant norm needs the tokens that a response may have")
        return [float(max(1, constant_tokens * trained))] * len(trained_tokens)
    if loss_norm == "group-tokens":
        totals: dict[int, int] = {}
        for tokens, group in zip(trained_tokens, groups, strict=True):
            totals[group] = totals.get(group, 0) + tokens
        count = sum(1 for total in totals.values() if total > 0)
        return [float(max(1, totals[group] * count)) for group in groups]
    raise ValueError(f"loss_norm {loss_norm!r} is none of {', '.join(LOSS_NORMS)}")

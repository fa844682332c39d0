"""Denominators of the loss: the number by which each sequence's token losses are divided.

In: count of trained tokens and group of each sequence of the whole optimizer batch. Out: one denominator per
sequence, so that the loss is a plain sum over tokens.
Invariant: the denominators do not depend on how the batch is cut into micro-batches or spread over ranks.
"""

from __future__ import annotations

from collections.abc import Sequence

LOSS_NORMS = ("batch-tokens", "group-tokens", "sequences", "constant")


def sequence_denominators(
    trained_tokens: Sequence[int], groups: Sequence[int], loss_norm: str, constant_tokens: int = 0
) -> list[float]:
    """Denominators, one per sequence; entry i divides the loss of every token of sequence i; at least 1.0.

    trained_tokens, groups: [sequences]. By `loss_norm`:
    - batch-tokens: trained tokens of the whole optimizer batch, over all micro-batches (DAPO, arXiv 2503.14476 eq.
      12).
    - group-tokens: trained tokens of the sequence's group, times the number of groups: within a group arXiv
      2508.20722 eq. 6 (sum over tokens / count of tokens), then the mean over groups. Groups without a trained token
      do not count.
    - sequences: the sequence's own trained tokens, times the number of sequences: the mean over sequences of each
      one's token mean (GRPO, arXiv 2402.03300 eq. 3). Sequences without a trained token do not count.
    - constant: `constant_tokens`, the token budget of a response, times the number of sequences with a trained token
      (Dr.GRPO, arXiv 2503.20783 §3.2): neither a sequence's nor the batch's own length counts.

    Raises ValueError for another name, or for `constant` without a budget.
    """
    trained = sum(1 for tokens in trained_tokens if tokens > 0)
    if loss_norm == "batch-tokens":
        return [float(max(1, sum(trained_tokens)))] * len(trained_tokens)
    if loss_norm == "sequences":
        return [float(max(1, tokens * trained)) for tokens in trained_tokens]
    if loss_norm == "constant":
        if constant_tokens < 1:
            raise ValueError(f"loss_norm constant divides by constant_tokens, the token budget of a response: expected at least 1, got {constant_tokens}")
        return [float(max(1, constant_tokens * trained))] * len(trained_tokens)
    if loss_norm == "group-tokens":
        totals: dict[int, int] = {}
        for tokens, group in zip(trained_tokens, groups, strict=True):
            totals[group] = totals.get(group, 0) + tokens
        count = sum(1 for total in totals.values() if total > 0)
        return [float(max(1, totals[group] * count)) for group in groups]
    raise ValueError(f"loss_norm is {loss_norm!r}: expected one of {', '.join(LOSS_NORMS)}")

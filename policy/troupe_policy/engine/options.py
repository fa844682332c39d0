"""Options of an engine: budgets, bounds and modes, as the command line gives them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class EngineOptions:
    """kv_tokens: KV budget of running and kept sequences together, in tokens, rounded down to blocks of `block_tokens`.

    max_sequences: upper bound on the sequences that run at once, one row each. context_tokens: upper bound on prompt
    and response together, lowered to the model's own; 0 is the model's own, at most 4096. prefill_tokens: upper bound
    on the padded tokens of one forward pass of a prefill, and on the tokens that all prefills of an iteration compute;
    not used in deterministic mode. max_waiting: upper bound on waiting requests; more are refused. deterministic: equal
    requests get equal answers, to the bit, whatever other requests run. entropies: report the entropy of the
    distribution that each token was sampled from. version: policy version of the weights that are loaded at start.
    """

    kv_tokens: int = 65536
    block_tokens: int = 16
    max_sequences: int = 128
    context_tokens: int = 0
    prefill_tokens: int = 4096
    max_waiting: int = 4096
    deterministic: bool = False
    entropies: bool = False
    version: int = 0

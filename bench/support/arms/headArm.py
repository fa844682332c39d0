"""Rounds of the head benchmark: CPU seconds of a dense product and of the chunked head, in turns.

in   width, vocabulary, tokens, rounds     out  JSON: [{dense, head}, …], seconds of CPU time
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable

import torch

from troupe_policy.model.logprobs import Head, chunked_logprobs


def seconds(work: Callable[[], object]) -> float:
    began = time.process_time()
    work()
    return time.process_time() - began


@torch.no_grad()
def main(width: int, vocabulary: int, tokens: int, rounds: int) -> None:
    torch.set_num_threads(1)
    torch.manual_seed(1)
    hidden = torch.randn(tokens, width)
    weight = torch.randn(vocabulary, width) / width**0.5
    targets = torch.randint(vocabulary, (tokens,))
    arms: dict[str, Callable[[], object]] = {
        "dense": lambda: torch.nn.functional.linear(hidden, weight),
        "head": lambda: chunked_logprobs(hidden, Head(weight, None), targets),
    }
    print(json.dumps([{name: seconds(work) for name, work in arms.items()} for _ in range(rounds)]))


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))

"""Entropies of recorded tokens: one forward pass of a causal LM a sequence, on the command line.

In: JSON lines {"id", "tokens": [n], "mask": [n]} on stdin. Out: for each a line {"id", "logprobs", "entropies"}, one number a
masked token, in nats, of the distribution that the token was sampled from at the given temperature.
Invariant: nothing is tokenised: what is looked at are the recorded ids. A model that cannot be read is one line on stderr, exit 1.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TextIO

import torch
from transformers import AutoModelForCausalLM

from .logprobs import UnsupportedModel, check_head, chunked_logprobs, head_of, hidden_states_of


class Entropies:
    """Log-probability and entropy of chosen tokens under the model in a directory, in float32."""

    def __init__(self, directory: Path, device: str | None = None) -> None:
        self.device = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
        model = AutoModelForCausalLM.from_pretrained(str(directory), dtype=torch.float32, local_files_only=True)
        self.model = model.to(self.device).eval()
        self.states = hidden_states_of(self.model)
        self.head = head_of(self.model)
        check_head(self.model, self.head, self.states)

    @torch.no_grad()
    def of(self, tokens: Sequence[int], mask: Sequence[int], temperature: float) -> tuple[list[float], list[float]]:
        """tokens, mask: [n]; returns [masked] log-probabilities and entropies. The first token has no distribution.

        Raises ValueError where the lengths differ, the first token is masked, or an id is outside of the vocabulary.
        """
        if len(tokens) != len(mask) or not tokens:
            raise ValueError(f"{len(tokens)} tokens, {len(mask)} of them with a mask")
        picks = [at for at, one in enumerate(mask) if one]
        if picks and picks[0] == 0:
            raise ValueError("the first token is predicted by nothing")
        size = self.head.weight.shape[0]
        if min(tokens) < 0 or max(tokens) >= size:
            raise ValueError(f"an id is outside of the model's vocabulary of {size}: it is another model's log")
        if not picks:
            return [], []
        ids = torch.tensor([list(tokens)], device=self.device)
        before = torch.tensor([at - 1 for at in picks], device=self.device)
        hidden = self.states(ids)[0].index_select(0, before)
        logp, entropy = chunked_logprobs(
            hidden, self.head, ids[0, before + 1], temperature=temperature, with_entropy=True
        )
        assert entropy is not None
        return logp.tolist(), entropy.tolist()


def serve(model: Entropies, temperature: float, source: TextIO, sink: TextIO) -> None:
    for line in source:
        asked = json.loads(line)
        logprobs, entropies = model.of(asked["tokens"], asked["mask"], temperature)
        sink.write(json.dumps({"id": asked["id"], "logprobs": logprobs, "entropies": entropies}) + "\n")
        sink.flush()


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="troupe_policy.model.entropies", description=__doc__.splitlines()[0])
    parser.add_argument("--model", required=True, type=Path)
    parser.add_argument("--temperature", type=float, default=1.0)
    parser.add_argument("--device")
    parser.add_argument("--threads", type=int)
    given = parser.parse_args(arguments)
    if given.threads:
        torch.set_num_threads(given.threads)
    try:
        serve(Entropies(given.model, given.device), given.temperature, sys.stdin, sys.stdout)
    except (OSError, ValueError, KeyError, RuntimeError, UnsupportedModel) as error:
        print(f"{given.model}: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())

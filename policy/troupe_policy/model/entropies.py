"""Computes log-probabilities and entropies of recorded tokens, with one forward pass of a causal LM per sequence.

In: JSON lines {"id", "tokens": [n], "mask": [n], "temperature"} on stdin; mask 1 asks for the token's numbers, and a
line without a temperature has that of the command line. Out: for each a line {"id", "logprobs", "entropies"} with two
numbers per token with mask 1, the natural log of its probability and the entropy in nats of its distribution, both at
the line's temperature.
Invariant: nothing is tokenised; the recorded ids are used. A model or an input line that cannot be read ends the
process with a message on stderr and exit code 1.
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

from .logprobs import check_head, chunked_logprobs, head_of, hidden_states_of
from .unsupported import UnsupportedModel


class Entropies:
    """Log-probabilities and entropies of chosen tokens under the model in a directory, in float32."""

    def __init__(self, directory: Path, device: str | None = None) -> None:
        self.device = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
        model = AutoModelForCausalLM.from_pretrained(str(directory), dtype=torch.float32, local_files_only=True)
        self.model = model.to(self.device).eval()
        self.states = hidden_states_of(self.model)
        self.head = head_of(self.model)
        check_head(self.model, self.head, self.states)

    @torch.no_grad()
    def of(self, tokens: Sequence[int], mask: Sequence[int], temperature: float) -> tuple[list[float], list[float]]:
        """Log-probabilities (natural log) and entropies (nats) of the tokens with mask 1, in their order.

        tokens, mask: [n]. Raises ValueError if the lengths differ, an id is outside the vocabulary, or mask[0] is 1:
        the first token has no distribution.
        """
        if len(tokens) != len(mask) or not tokens:
            raise ValueError(f"{len(tokens)} tokens and {len(mask)} mask entries: expected one mask entry for each token, and at least one token")
        picks = [at for at, one in enumerate(mask) if one]
        if picks and picks[0] == 0:
            raise ValueError("the first token has mask 1, but no token before it predicts it")
        size = self.head.weight.shape[0]
        if min(tokens) < 0 or max(tokens) >= size:
            raise ValueError(f"a token id is outside the model's vocabulary of {size}: give the model of the run")
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
    """Reads JSON lines from `source`, writes an answer to each on `sink`. `temperature`: for lines that have none."""
    for line in source:
        asked = json.loads(line)
        at = asked.get("temperature", temperature)
        logprobs, entropies = model.of(asked["tokens"], asked["mask"], at)
        sink.write(json.dumps({"id": asked["id"], "logprobs": logprobs, "entropies": entropies}) + "\n")
        sink.flush()


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="troupe_policy.model.entropies", description=__doc__.splitlines()[0])
    parser.add_argument("--model", required=True, type=Path, help="model directory that transformers loads")
    parser.add_argument("--temperature", type=float, default=1.0, help="temperature of the distributions; default: 1")
    parser.add_argument("--device", help="torch device; default: cuda if there is a GPU, else cpu")
    parser.add_argument("--threads", type=int, help="CPU threads that torch uses; default: torch's own choice")
    given = parser.parse_args(arguments)
    if given.threads:
        torch.set_num_threads(given.threads)
    try:
        serve(Entropies(given.model, given.device), given.temperature, sys.stdin, sys.stdout)
    except (OSError, ValueError, KeyError, RuntimeError, UnsupportedModel) as error:
        print(f"cannot compute entropies under the model in {given.model}: {type(error).__name__}: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
